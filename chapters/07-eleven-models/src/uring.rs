//! The ring of the model `io-uring`: what the crate `io-uring` leaves to its user, which is all that is
//! unsafe about it.
//!
//! Why the crate's: chapter 06 is there twice, with a ring made by hand (`ch06`) and with the crate's
//! (`ch06-crate`), and between the CPU time that a connection costs the one and the other no difference
//! can be measured. So here the crate maps the queues and moves their heads and tails. What it cannot know
//! is how long the memory lives that an operation points to, when a buffer may be lent to the kernel
//! again, and what to tell a reader whose machine has no ring.
//!
//! Clients are direct descriptors: an accept puts the new socket into a table of the ring's own, and hands
//! over its place there. No operation looks it up in the table of the process, nor counts a reference.

use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::fmt::Display;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use http::Unsent;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{
    BufRingEntry, CancelBuilder, DestinationSlot, Fd, Fixed, SubmitArgs, Timespec,
};
use io_uring::{IoUring, Probe, cqueue, opcode};
use nix::errno::Errno;

/// How many operations are handed in with one call at most, and how many completions have room.
const ENTRIES: u32 = 256;
const COMPLETIONS: u32 = 2048;

/// The buffers that are lent to the kernel: so many, and of that size. Ten thousand clients share them,
/// since the kernel takes one when there is something to put into it and not before.
const BUFFERS: u16 = 128;
const BUFFER_BYTES: usize = 2048;

/// The number of the one group of buffers that we have.
const GROUP: u16 = 0;

/// A page, or a multiple of it, on every machine: where a ring of buffers has to begin.
const PAGE_BYTES: usize = 64 * 1024;

/// The kernel's own limit to a table of direct descriptors.
pub const FILES_MAX: usize = 1 << 20;

/// How long we wait when the kernel has no memory for another operation.
const WITHOUT_MEMORY: Duration = Duration::from_millis(1);

/// What is asked for of clients, and nothing that is older. (Multishot receives came with Linux 6.0.)
const OPERATIONS: [u8; 4] = [
    opcode::AsyncCancel::CODE,
    opcode::Close::CODE,
    opcode::SendMsg::CODE,
    opcode::FixedFdInstall::CODE,
];

/// What an operation is, in the bits of its token that no slot reaches: [`FILES_MAX`] is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Somebody came: the result is the place of the socket.
    Accepted,
    /// Bytes came, which [`Ring::bytes`] has, or the end of them: a result of 0.
    Received,
    /// So many bytes have gone.
    Sent,
    /// A direct descriptor has become one of the process too, which [`Ring::descriptor`] takes.
    Installed,
    /// Something can be read.
    Readable,
    /// A cancel that has found nothing to end. One that has is silent.
    Cancelled,
    /// One that completes only to say that it has failed, which nobody minds.
    Silent,
}

const WHAT_SHIFT: u32 = 28;
const WHATS: [What; 8] = [
    What::Accepted,
    What::Received,
    What::Sent,
    What::Installed,
    What::Readable,
    What::Cancelled,
    What::Silent,
    What::Silent,
];

/// What became of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Which it was, and whose: the token that it was given.
    pub what: What,
    pub token: u64,
    /// What the system call of that name would have returned.
    pub result: nix::Result<u32>,
    /// Whether the same operation will complete again. If not, it is over, for whatever reason.
    pub more: bool,
}

/// How a wait ends.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// When so many completions are there …
    pub completions: usize,
    /// … or one, and this time is over, in µs …
    pub company_us: u32,
    /// … or this is.
    pub timeout: Option<Duration>,
}

// ANCHOR: ring
/// A ring, of one thread: the one that made it.
pub struct Ring {
    ring: IoUring,
    buffers: Buffers,
    /// The buffer of the completion that was given out last, and how much is in it.
    lent: Option<(u16, usize)>,
    /// What the submission queue had no room for.
    asked: VecDeque<Entry>,
    /// What sends of two slices point to: the kernel reads it when it takes them, and not later.
    #[expect(clippy::vec_box, reason = "a message must not move when there is another one")]
    messages: Vec<Box<Message>>,
    /// How many waits found more completions than there is room for.
    pub overflows: u64,
}

impl Ring {
    /// A ring for so many `files`, and whether it can wait for `company`.
    ///
    /// # Errors
    ///
    /// One sentence that says whether io_uring is missing, forbidden, too old or short of memory.
    pub fn new(files: usize, company: bool) -> anyhow::Result<Ring> {
        let ring = IoUring::builder()
            .setup_single_issuer() // One thread submits …
            .setup_defer_taskrun() // … and completions are worked off when it waits, not at any time.
            .setup_submit_all() // A mistake ends one operation, not the call.
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)
            .map_err(|error| refused("io_uring_setup", &error))?;
        let has_all = ring.params().is_feature_nodrop() && ring.params().is_feature_submit_stable();
        ensure!(has_all, too_old("io_uring_setup", "a feature is missing", "6.8"));
        let needs = "--batch-wait-us needs a wait with a minimum (IORING_FEAT_MIN_TIMEOUT)";
        ensure!(
            !company || ring.params().is_feature_min_timeout(),
            "{}, or leave the option out",
            too_old("io_uring_setup", needs, "6.12")
        );
        let mut probe = Probe::new();
        let submitter = ring.submitter();
        submitter
            .register_probe(&mut probe)
            .map_err(|error| refused("io_uring_register(PROBE)", &error))?;
        if let Some(code) = OPERATIONS.into_iter().find(|&code| !probe.is_supported(code)) {
            let what = format_args!("operation {code} is missing");
            return Err(too_old("io_uring_register(PROBE)", what, "6.8"));
        }
        let files = u32::try_from(files.min(FILES_MAX))?;
        submitter
            .register_files_sparse(files)
            .map_err(|error| refused("io_uring_register(FILES2)", &error))?;
        // A filter may forbid this call alone: better to know now.
        submitter.submit().map_err(|error| refused("io_uring_enter", &error))?;
        let buffers = Buffers::new(&ring)?;
        Ok(Ring {
            ring,
            buffers,
            lent: None,
            asked: VecDeque::new(),
            messages: Vec::new(),
            overflows: 0,
        })
    }
    // ANCHOR_END: ring

    // ANCHOR: enter
    /// Hands in all that was asked for, and waits. With DEFER_TASKRUN this is where everything is done:
    /// nothing completes in a ring whose thread does not wait.
    ///
    /// # Errors
    ///
    /// Those that only a mistake of ours can cause.
    pub fn enter(&mut self, wait: Wait) -> anyhow::Result<()> {
        self.take_back();
        self.buffers.publish();
        let time = wait.timeout.map(Timespec::from);
        let arguments = SubmitArgs::new().min_wait_usec(wait.company_us);
        let arguments = time.as_ref().map_or(arguments, |it| arguments.timespec(it));
        loop {
            self.put();
            let answer = match self.asked.is_empty() {
                true => self.ring.submitter().submit_with_args(wait.completions, &arguments),
                false => self.ring.submit(),
            };
            match answer.map_err(|error| error.raw_os_error().map(Errno::from_raw)) {
                Ok(taken) if taken > 0 && !self.asked.is_empty() => continue, // There is room again.
                // A signal came, or the time is over, or completions have to be looked at first: who
                // called will do that, and come again.
                Ok(_) | Err(Some(Errno::EINTR | Errno::ETIME | Errno::EBUSY)) => break,
                Err(Some(Errno::EAGAIN)) => {
                    thread::sleep(WITHOUT_MEMORY);
                    break;
                }
                Err(errno) => {
                    return Err(anyhow!(
                        "io_uring_enter: {}",
                        errno.unwrap_or(Errno::UnknownErrno)
                    ));
                }
            }
        }
        let queue = self.ring.submission();
        if queue.is_empty() && self.asked.is_empty() {
            self.messages.clear();
        }
        // The kernel keeps what has no room, and puts it into the queue when it is entered again.
        self.overflows += u64::from(queue.cq_overflow());
        Ok(())
    }
    // ANCHOR_END: enter

    /// Moves to the submission queue what it has room for.
    fn put(&mut self) {
        let mut queue = self.ring.submission();
        let room = queue.capacity() - queue.len();
        let put = room.min(self.asked.len());
        for entry in self.asked.drain(..put) {
            // SAFETY: as in `ask`.
            let pushed = unsafe { queue.push(&entry) };
            debug_assert!(pushed.is_ok(), "there was room");
        }
    }

    fn ask(&mut self, entry: Entry, what: What, token: u64) {
        let entry = entry.user_data(token | (what as u64) << WHAT_SHIFT);
        // SAFETY: what is received goes into buffers that are never freed, and what is sent lives for long
        // enough, as whoever calls `send` has promised. The other operations point to nothing.
        let pushed =
            self.asked.is_empty() && unsafe { self.ring.submission().push(&entry) }.is_ok();
        if !pushed {
            self.asked.push_back(entry);
        }
    }

    // ANCHOR: completed
    /// The next completion, if there is one. What the one before has received is gone then.
    pub fn completed(&mut self) -> Option<Completion> {
        self.take_back();
        let done = self.ring.completion().next()?;
        let result = u32::try_from(done.result()).map_err(|_| Errno::from_raw(-done.result()));
        let length = result.map_or(0, |it| it as usize);
        self.lent = cqueue::buffer_select(done.flags()).map(|buffer| (buffer, length));
        let what = (done.user_data() >> WHAT_SHIFT) & 7;
        Some(Completion {
            what: WHATS[what as usize],
            token: done.user_data() & !(7 << WHAT_SHIFT),
            result,
            more: cqueue::more(done.flags()),
        })
    }
    // ANCHOR_END: completed

    /// What was received: of the completion that was given out last.
    pub fn bytes(&self) -> &[u8] {
        self.lent.map_or(&[], |(buffer, length)| self.buffers.bytes(buffer, length))
    }

    /// The descriptor that an [`Ring::install`] has made.
    pub fn descriptor(done: Completion) -> Option<OwnedFd> {
        let descriptor = RawFd::try_from(done.result.ok()?).ok()?;
        // SAFETY: the kernel has just made it for us, and says so only once: a completion is no copy.
        (done.what == What::Installed).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn take_back(&mut self) {
        if let Some((buffer, _)) = self.lent.take() {
            self.buffers.lend(buffer);
        }
    }

    // ANCHOR: operations
    /// Accepts whoever comes, one completion each, until one comes without `more`.
    pub fn accept(&mut self, listener: BorrowedFd<'_>) {
        let it = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).allocate_file_index(true);
        self.ask(it.build(), What::Accepted, 0);
    }

    /// Accepts one client.
    pub fn accept_one(&mut self, listener: BorrowedFd<'_>) {
        let nowhere = (ptr::null_mut(), ptr::null_mut());
        let it = opcode::Accept::new(Fd(listener.as_raw_fd()), nowhere.0, nowhere.1)
            .file_index(Some(DestinationSlot::auto_target()));
        self.ask(it.build(), What::Accepted, 0);
    }

    /// Ends all accepts that are under way.
    pub fn cancel_accepts(&mut self, listener: BorrowedFd<'_>) {
        let it = CancelBuilder::fd(Fd(listener.as_raw_fd())).all();
        self.silent(opcode::AsyncCancel2::new(it).build());
    }

    /// Receives whatever comes, into one of the ring's buffers each time, until it completes without
    /// `more`.
    pub fn receive(&mut self, file: u32, token: u64) {
        let it = opcode::RecvMulti::new(Fixed(file), GROUP);
        self.ask(it.build(), What::Received, token);
    }

    /// Sends both slices, or as much as the socket takes, when it takes something, or `at_once`.
    ///
    /// # Safety
    ///
    /// The bytes have to stay where they are, unchanged, until the completion has come.
    pub unsafe fn send(&mut self, file: u32, unsent: &Unsent<'_>, token: u64, at_once: bool) {
        let flags = libc::MSG_NOSIGNAL | if at_once { libc::MSG_DONTWAIT } else { 0 };
        let entry = if unsent.second.is_empty() {
            let length = u32::try_from(unsent.first.len()).unwrap_or(u32::MAX);
            let it = opcode::Send::new(Fixed(file), unsent.first.as_ptr(), length);
            it.flags(flags).build()
        } else {
            let message = Message::new([unsent.first, unsent.second]);
            let it = opcode::SendMsg::new(Fixed(file), &raw const message.header);
            self.messages.push(message);
            it.flags(flags.cast_unsigned()).build()
        };
        self.ask(entry, What::Sent, token);
    }

    /// Makes a descriptor of the process, too, of a direct one.
    pub fn install(&mut self, file: u32, token: u64) {
        // Without flags it is closed on exec.
        self.ask(opcode::FixedFdInstall::new(Fixed(file), 0).build(), What::Installed, token);
    }

    /// Ends the operation of that kind and token: it then completes with ECANCELED, unless it is over. (To
    /// end all that is under way on a socket, the kernel looks through all that is under way in the ring.)
    pub fn cancel(&mut self, what: What, token: u64) {
        let it = CancelBuilder::user_data(token | (what as u64) << WHAT_SHIFT);
        let entry = opcode::AsyncCancel2::new(it).build();
        self.ask(entry.flags(Flags::SKIP_SUCCESS), What::Cancelled, token);
    }

    /// Frees the place of a socket. While an operation is under way on it, it stays open.
    pub fn close(&mut self, file: u32) {
        self.silent(opcode::Close::new(Fixed(file)).build());
    }

    /// Completes when something can be read.
    pub fn readable(&mut self, descriptor: BorrowedFd<'_>) {
        let events = u32::from(libc::POLLIN.cast_unsigned());
        let it = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), events);
        self.ask(it.build(), What::Readable, 0);
    }

    /// No news is good news.
    fn silent(&mut self, entry: Entry) {
        self.ask(entry.flags(Flags::SKIP_SUCCESS), What::Silent, 0);
    }
    // ANCHOR_END: operations
}

/// What sendmsg(2) wants for two slices.
struct Message {
    header: libc::msghdr,
    slices: [libc::iovec; 2],
}

impl Message {
    fn new(slices: [&[u8]; 2]) -> Box<Message> {
        let slices = slices
            .map(|it| libc::iovec { iov_base: it.as_ptr().cast_mut().cast(), iov_len: it.len() });
        // SAFETY: a structure of numbers and pointers, for each of which zero is a value.
        let header = unsafe { std::mem::zeroed() };
        let mut message = Box::new(Message { header, slices });
        message.header.msg_iov = message.slices.as_mut_ptr();
        message.header.msg_iovlen = message.slices.len();
        message
    }
}

// ANCHOR: buffers
/// Buffers that are lent to the kernel. The crate has the structures and the registration, and leaves the
/// queue, its tail and the memory to us.
struct Buffers {
    queue: *mut BufRingEntry,
    /// The buffers themselves. Neither is ever freed: a receive that is under way when the ring goes may
    /// still write into it.
    memory: *mut u8,
    tail: u16,
}

impl Buffers {
    fn new(ring: &IoUring) -> anyhow::Result<Buffers> {
        let bytes = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).context("the buffers' queue")?;
        // SAFETY: there is at least one buffer, so that the size is not zero.
        let queue = unsafe { alloc::alloc_zeroed(layout) }.cast::<BufRingEntry>();
        ensure!(!queue.is_null(), "no memory for the queue of {BUFFERS} buffers");
        // Zeroes that nobody has written: a page of them is no memory yet.
        let memory = Box::leak(vec![0; usize::from(BUFFERS) * BUFFER_BYTES].into_boxed_slice());
        // SAFETY: the memory has room for so many entries and is never freed.
        unsafe { ring.submitter().register_buf_ring_with_flags(queue as u64, BUFFERS, GROUP, 0) }
            .map_err(|error| refused("io_uring_register(PBUF_RING)", &error))?;
        let mut buffers = Buffers { queue, memory: memory.as_mut_ptr(), tail: 0 };
        (0..BUFFERS).for_each(|number| buffers.lend(number));
        buffers.publish();
        Ok(buffers)
    }

    /// Puts a buffer into the queue, first or again. The kernel does not see it before `publish`.
    fn lend(&mut self, number: u16) {
        // SAFETY: within the memory, since the remainder is less than there are entries.
        let entry = unsafe { self.queue.add(usize::from(self.tail % BUFFERS)) };
        // SAFETY: aligned, and zeroes are an entry. The kernel reads none but those before the tail, and
        // since there are as many as buffers, and this one is not lent, this is none of them. It never
        // writes to one, and the setters below leave out the two bytes that are the tail.
        let entry = unsafe { &mut *entry };
        entry.set_addr(self.at(number) as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what was lent.
    fn publish(&self) {
        // SAFETY: it is the first entry of the ring.
        let tail = unsafe { BufRingEntry::tail(self.queue) };
        // SAFETY: aligned, within the memory, and from here on no reference to the first entry is used.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the acquire by which the kernel reads the tail when it takes a buffer.
        tail.store(self.tail, Ordering::Release);
    }

    /// What the kernel has put into a buffer.
    fn bytes(&self, number: u16, length: usize) -> &[u8] {
        assert!(number < BUFFERS && length <= BUFFER_BYTES, "{length} bytes in {number}");
        // SAFETY: within the memory, as was just checked, and zeroed in the beginning. The kernel has
        // written before it told us, and writes again only when the buffer is lent again, for which the
        // ring has to be borrowed mutably.
        unsafe { slice::from_raw_parts(self.at(number), length) }
    }

    fn at(&self, number: u16) -> *mut u8 {
        self.memory.wrapping_add(usize::from(number) * BUFFER_BYTES)
    }
}
// ANCHOR_END: buffers

// ANCHOR: refused
/// Why there is no ring, and what can be done about it.
fn refused(call: &str, error: &std::io::Error) -> anyhow::Error {
    let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
    let remedy = match errno {
        Errno::EINVAL => return too_old(call, errno, "6.8"),
        Errno::ENOSYS => {
            "io_uring is missing: this kernel was built without it, or a sandbox hides it; take Linux \
             6.8 or later, or --model epoll-level, which needs none"
        }
        Errno::EPERM if is_disabled() => {
            "io_uring is forbidden by a setting of the kernel: as root, `sysctl \
             kernel.io_uring_disabled=0` allows it"
        }
        Errno::EPERM | Errno::EACCES => {
            "io_uring is forbidden by a seccomp filter, as containers have one: take a profile that \
             allows io_uring_setup, io_uring_enter and io_uring_register"
        }
        Errno::ENOMEM => {
            "no more memory may be locked: raise `ulimit -l` (RLIMIT_MEMLOCK), or take fewer --workers"
        }
        Errno::EMFILE | Errno::ENFILE => "no descriptor is left: raise `ulimit -n`",
        _ => "this is not expected: see the call's manual page",
    };
    anyhow!("{call}: {errno}: {remedy}")
}

/// Whether the kernel was told (since Linux 6.6) to allow io_uring to nobody, or not to everybody: 2 or 1.
fn is_disabled() -> bool {
    let setting = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    ["1", "2"].contains(&setting.trim())
}

fn too_old(call: &str, what: impl Display, linux: &str) -> anyhow::Error {
    anyhow!("{call}: {what}: io_uring is too old here: take Linux {linux} or later")
}
// ANCHOR_END: refused
