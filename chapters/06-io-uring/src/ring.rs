//! An io_uring by hand: two queues in memory that the kernel and this thread share.
//!
//! We write what we want done into the submission queue (an [`Operation`], 64 bytes), the kernel writes
//! what became of it into the completion queue (16 bytes), and one system call, [`Ring::enter`], hands
//! over any number of the ones and waits for the others. Each queue is an array with two numbers that only
//! grow: whoever writes entries moves the `tail`, whoever reads them moves the `head`, and a number's
//! place in the array is its last bits.
//!
//! The two sides meet in five pairs of a release and an acquire, and the comment at each of ours says what
//! it pairs with. (Here the kernel's side runs in our own call. It might run on another core, and the
//! agreement is made for that.) What an operation reads or writes has to live until it has completed. Here that is
//! easy: the answers are constants of the program, and what is received goes into [`Buffers`], which are
//! never freed.

use std::fmt::Display;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, anyhow, ensure};
use nix::errno::Errno;

use crate::abi::{self, Buf, BufReg, Cqe, GeteventsArg, Params, Probe, ProbeOp, Sqe, Timespec};

/// How much is received at once: one byte more than a line may have, to see that it is too long.
const BUFFER_BYTES: usize = oddeven::LINE_BYTES_MAX + 1;

/// What is discarded of a client's unread bytes at most.
const DISCARDED_BYTES_MAX: u32 = 64 * 1024;

/// The longest chain: a queue must have room for it.
const CHAIN_MAX: usize = 4;

/// The kernel's own limit to both queues.
const ENTRIES_MAX: usize = 32768;

/// How long we wait when the kernel has no memory for another operation.
const WITHOUT_MEMORY: Duration = Duration::from_millis(1);

/// What a kernel must have, and says so in `features`; the last of them is of Linux 5.17.
const FEATURES: u32 =
    abi::FEAT_SINGLE_MMAP | abi::FEAT_NODROP | abi::FEAT_EXT_ARG | abi::FEAT_CQE_SKIP;

/// The operations that this chapter asks for.
const OPERATIONS: [u8; 7] = [
    abi::OP_POLL_ADD,
    abi::OP_ACCEPT,
    abi::OP_ASYNC_CANCEL,
    abi::OP_LINK_TIMEOUT,
    abi::OP_CLOSE,
    abi::OP_SEND,
    abi::OP_RECV,
];

// ANCHOR: ring
/// A ring, of one thread: the one that made it.
#[derive(Debug)]
pub struct Ring {
    // Dropped first: the kernel then begins to cancel what is under way.
    descriptor: OwnedFd,
    /// Both queues: the numbers of either, and the array of the completions.
    queues: Mapping,
    /// The array of the submissions.
    submissions: Mapping,
    places: Places,
    /// The tail of the submissions, and the head of the completions: only we move them.
    submitted: u32,
    seen: u32,
    buffers: Buffers,
    /// The buffer of the completion that was given out last.
    lent: Option<u16>,
    has_overflowed: bool,
}
// ANCHOR_END: ring

/// Where in [`Ring::queues`] things are, in bytes, and how many entries the queues have.
#[derive(Debug)]
struct Places {
    submission_head: usize,
    submission_tail: usize,
    submission_flags: usize,
    submission_entries: u32,
    completion_head: usize,
    completion_tail: usize,
    completions: usize,
    completion_entries: u32,
}

impl Places {
    fn of(params: &Params) -> Places {
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        Places {
            submission_head: sq.head as usize,
            submission_tail: sq.tail as usize,
            submission_flags: sq.flags as usize,
            submission_entries: params.sq_entries,
            completion_head: cq.head as usize,
            completion_tail: cq.tail as usize,
            completions: cq.cqes as usize,
            completion_entries: params.cq_entries,
        }
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// What the operation was given to be known by.
    pub token: u64,
    /// What the system call of that name would have returned.
    pub result: nix::Result<usize>,
    /// Whether the same operation will complete again. If not, it is over, for whatever reason.
    pub more: bool,
    /// Whether the socket had more than was received.
    pub has_unread: bool,
    /// What was received, until the next completion is looked at.
    pub bytes: &'a [u8],
}

impl Ring {
    // ANCHOR: setup
    /// A ring of `entries` submissions and twice as many completions, with so many `buffers`: the next
    /// powers of two.
    ///
    /// # Errors
    ///
    /// One sentence that says whether io_uring is missing, forbidden, too old or short of memory.
    pub fn new(entries: usize, buffers: usize) -> anyhow::Result<Ring> {
        let mut params = Params {
            // One thread submits; what completes is worked off when that thread waits, and not
            // whenever it happens to be in the kernel; a mistake ends one operation, not the call.
            flags: abi::SETUP_SINGLE_ISSUER
                | abi::SETUP_DEFER_TASKRUN
                | abi::SETUP_SUBMIT_ALL
                | abi::SETUP_CLAMP,
            ..Params::default()
        };
        let entries = entries.clamp(CHAIN_MAX, ENTRIES_MAX);
        let descriptor =
            setup(entries as u32, &mut params).map_err(|errno| refused("io_uring_setup", errno))?;
        let has_all = params.features & FEATURES == FEATURES;
        ensure!(has_all, too_old("io_uring_setup", "a feature is missing"));
        let ring = descriptor.as_raw_fd();
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        let in_memory = |errno| refused("mmap", errno);
        let bytes = [
            sq.array as usize + params.sq_entries as usize * size_of::<u32>(),
            cq.cqes as usize + params.cq_entries as usize * size_of::<Cqe>(),
        ];
        let queues = Mapping::new(bytes[0].max(bytes[1]), Some((ring, abi::OFF_SQ_RING)))
            .map_err(in_memory)?;
        let bytes = params.sq_entries as usize * size_of::<Sqe>();
        let submissions = Mapping::new(bytes, Some((ring, abi::OFF_SQES))).map_err(in_memory)?;
        // The queue holds numbers of places in the other array. Ours are always in their own places.
        for at in 0..params.sq_entries {
            queues
                .word(sq.array as usize + at as usize * size_of::<u32>())
                .store(at, Ordering::Relaxed);
        }
        let buffers = Buffers::new(ring, buffers.clamp(1, ENTRIES_MAX).next_power_of_two() as u16)?;
        probe(ring)?;
        let mut ring = Ring {
            descriptor,
            queues,
            submissions,
            places: Places::of(&params),
            submitted: 0,
            seen: 0,
            buffers,
            lent: None,
            has_overflowed: false,
        };
        // A filter may forbid this call alone: better to know now.
        ring.call(0, None).map_err(|errno| refused("io_uring_enter", errno))?;
        Ok(ring)
    }
    // ANCHOR_END: setup

    // ANCHOR: enter
    /// Hands in all that is `asked` and waits until something has completed, at most for `timeout`.
    ///
    /// What the kernel does not take now stays in `asked`.
    ///
    /// # Errors
    ///
    /// Those that only a mistake of ours can cause.
    pub fn enter(
        &mut self,
        asked: &mut Vec<Operation>,
        timeout: Option<Duration>,
    ) -> anyhow::Result<()> {
        self.take_back();
        let mut handed_in = 0;
        loop {
            let put = self.put(&asked[handed_in..]);
            handed_in += put;
            let is_all = handed_in == asked.len();
            match self.call(u32::from(is_all), timeout) {
                // The queue was full, and is empty now.
                Ok(()) if !is_all && put > 0 => continue,
                // A signal came, or the time is over, or completions have to be looked at first: who
                // called will do that, and come again.
                Ok(()) | Err(Errno::EINTR | Errno::ETIME | Errno::EBUSY) => break,
                Err(Errno::EAGAIN) => {
                    thread::sleep(WITHOUT_MEMORY);
                    break;
                }
                Err(errno) => return Err(errno).context("io_uring_enter"),
            }
        }
        asked.drain(..handed_in);
        // Relaxed: nothing is read because of it.
        let flags = self.queues.word(self.places.submission_flags).load(Ordering::Relaxed);
        self.has_overflowed |= flags & abi::SQ_CQ_OVERFLOW != 0;
        Ok(())
    }
    // ANCHOR_END: enter

    // ANCHOR: submit
    /// Writes whole chains into the submission queue, as many as have room, and says how many operations
    /// these were. A chain that was handed in in two parts would be two chains.
    fn put(&mut self, asked: &[Operation]) -> usize {
        // Acquire: pairs with the release by which the kernel moves the head when it has read entries. It
        // no longer reads what we overwrite.
        let head = self.queues.word(self.places.submission_head).load(Ordering::Acquire);
        let entries = self.places.submission_entries;
        let room = entries - self.submitted.wrapping_sub(head);
        let end = asked.iter().take(room as usize).rposition(|it| !it.has_next());
        let fits = end.map_or(0, |at| at + 1);
        for operation in &asked[..fits] {
            let place = self.submitted % entries;
            let at = self.submissions.at::<Sqe>(place as usize * size_of::<Sqe>());
            // SAFETY: the place is within the mapping and aligned, as `at` has checked, and the kernel
            // has read what was there: we have come round no further than its head.
            unsafe { at.write(operation.0) };
            self.submitted = self.submitted.wrapping_add(1);
        }
        // Release: pairs with the acquire by which the kernel reads the tail. Who sees the tail sees the
        // entries before it.
        self.queues.word(self.places.submission_tail).store(self.submitted, Ordering::Release);
        fits
    }
    // ANCHOR_END: submit

    /// io_uring_enter(2): hands in what is in the queue and waits for so many completions.
    fn call(&mut self, completions: u32, timeout: Option<Duration>) -> nix::Result<()> {
        let head = self.queues.word(self.places.submission_head).load(Ordering::Relaxed);
        let submissions = self.submitted.wrapping_sub(head);
        let time = timeout.map(|it| Timespec {
            seconds: i64::try_from(it.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: it.subsec_nanos().into(),
        });
        let argument = GeteventsArg {
            timeout: time.as_ref().map_or(0, |it| ptr::from_ref(it) as u64),
            ..GeteventsArg::default()
        };
        // Without GETEVENTS, and this ring's DEFER_TASKRUN, nothing would ever complete.
        let flags = abi::ENTER_GETEVENTS | abi::ENTER_EXT_ARG;
        // SAFETY: `argument`, and the time that it points to, outlive the call, which only reads them.
        // All that the submissions point to lives as long as the program, see `Operation`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.descriptor.as_raw_fd(),
                submissions,
                completions,
                flags,
                &raw const argument,
                size_of::<GeteventsArg>(),
            )
        };
        Errno::result(result).map(drop)
    }

    // ANCHOR: completions
    /// The next completion, if there is one.
    pub fn completed(&mut self) -> Option<Completion<'_>> {
        self.take_back();
        // Acquire: pairs with the release by which the kernel moves the tail when it has written
        // entries. We see the entries before it, and what their buffers hold.
        let tail = self.queues.word(self.places.completion_tail).load(Ordering::Acquire);
        if self.seen == tail {
            return None;
        }
        let place = self.seen % self.places.completion_entries;
        let at = self.queues.at::<Cqe>(self.places.completions + place as usize * size_of::<Cqe>());
        // SAFETY: the place is within the mapping and aligned, as `at` has checked; it is before the tail,
        // so that the kernel has written it, and not before our head, so that it does not write it now.
        let cqe = unsafe { at.read() };
        self.seen = self.seen.wrapping_add(1);
        // Release: pairs with the kernel's look at the head before it writes where this entry was. By
        // then we have copied it.
        self.queues.word(self.places.completion_head).store(self.seen, Ordering::Release);
        let has_buffer = cqe.flags & abi::CQE_BUFFER != 0;
        self.lent = has_buffer.then_some((cqe.flags >> abi::CQE_BUFFER_SHIFT) as u16);
        let result = usize::try_from(cqe.result).map_err(|_| Errno::from_raw(-cqe.result));
        Some(Completion {
            token: cqe.user_data,
            result,
            more: cqe.flags & abi::CQE_MORE != 0,
            has_unread: cqe.flags & abi::CQE_SOCK_NONEMPTY != 0,
            bytes: self.lent.map_or(&[], |buffer| self.buffers.bytes(buffer, result.unwrap_or(0))),
        })
    }
    // ANCHOR_END: completions

    fn take_back(&mut self) {
        if let Some(buffer) = self.lent.take() {
            self.buffers.lend(buffer);
        }
    }

    /// Whether there were ever more completions than their queue has room for. The kernel keeps the rest,
    /// and puts them into the queue when it is entered again.
    pub fn has_overflowed(&self) -> bool {
        self.has_overflowed
    }
}

// ANCHOR: operation
/// Something to be done by the kernel. Whatever it points to lives as long as the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(Sqe);

impl Operation {
    fn new(opcode: u8, descriptor: RawFd, token: u64) -> Operation {
        Operation(Sqe { opcode, fd: descriptor, user_data: token, ..Sqe::default() })
    }

    /// Accepts whoever comes, one completion each, until one comes without `more`.
    pub fn accept(listener: RawFd, token: u64) -> Operation {
        let mut it = Operation::new(abi::OP_ACCEPT, listener, token);
        it.0.ioprio = abi::ACCEPT_MULTISHOT;
        it.0.of_operation = libc::SOCK_CLOEXEC.cast_unsigned();
        it
    }

    /// Accepts one client.
    pub fn accept_one(listener: RawFd, token: u64) -> Operation {
        let mut it = Operation::accept(listener, token);
        it.0.ioprio = 0;
        it
    }

    /// Chained to an operation: ends it, with ECANCELED, if it cannot be done without waiting.
    pub fn at_once(token: u64) -> Operation {
        static NO_TIME: Timespec = Timespec { seconds: 0, nanoseconds: 0 };
        let mut it = Operation::new(abi::OP_LINK_TIMEOUT, -1, token);
        it.0.address = ptr::from_ref(&NO_TIME) as u64;
        it.0.length = 1;
        it
    }

    /// Receives once, into one of the ring's buffers, which the kernel takes when there is something to
    /// put into it and not before.
    pub fn receive(socket: RawFd, token: u64) -> Operation {
        let mut it = Operation::new(abi::OP_RECV, socket, token);
        it.0.flags = abi::SQE_BUFFER_SELECT;
        it.0.buffer_group = Buffers::GROUP;
        it
    }

    /// Sends all of `bytes`. If a part only is sent, that is a failure to whoever is chained to it.
    pub fn send(socket: RawFd, bytes: &'static [u8], token: u64) -> Operation {
        let mut it = Operation::new(abi::OP_SEND, socket, token);
        it.0.address = bytes.as_ptr() as u64;
        it.0.length = u32::try_from(bytes.len()).expect("an answer of some bytes");
        it.0.of_operation = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL).cast_unsigned();
        it
    }

    /// Discards what has come and was not read, without waiting: with MSG_TRUNC, TCP copies nothing, so
    /// that no buffer is needed.
    pub fn discard(socket: RawFd, token: u64) -> Operation {
        let mut it = Operation::new(abi::OP_RECV, socket, token);
        it.0.length = DISCARDED_BYTES_MAX;
        it.0.of_operation = (libc::MSG_DONTWAIT | libc::MSG_TRUNC).cast_unsigned();
        it
    }

    /// Closes the descriptor.
    pub fn close(socket: RawFd, token: u64) -> Operation {
        Operation::new(abi::OP_CLOSE, socket, token)
    }

    /// Ends the operation known by `which`: it then completes with ECANCELED, unless it is over.
    pub fn cancel(which: u64, token: u64) -> Operation {
        let mut it = Operation::new(abi::OP_ASYNC_CANCEL, -1, token);
        it.0.address = which;
        it
    }

    /// Completes when something can be read.
    pub fn readable(descriptor: RawFd, token: u64) -> Operation {
        let mut it = Operation::new(abi::OP_POLL_ADD, descriptor, token);
        let events = u32::from(libc::POLLIN.cast_unsigned());
        // The kernel reads two halves, and wants them in this order on every machine.
        it.0.of_operation =
            if cfg!(target_endian = "big") { events.rotate_left(16) } else { events };
        it
    }

    /// The next operation begins when this one has succeeded; if it fails, all that are chained to it are
    /// cancelled.
    pub fn then(mut self) -> Operation {
        self.0.flags |= abi::SQE_LINK;
        self
    }

    /// The next operation begins when this one is over, however that was.
    pub fn in_any_case_then(mut self) -> Operation {
        self.0.flags |= abi::SQE_HARDLINK;
        self
    }

    /// Completes silently if it succeeds: no news is good news.
    pub fn silent(mut self) -> Operation {
        self.0.flags |= abi::SQE_CQE_SKIP_SUCCESS;
        self
    }

    /// What is sent.
    #[cfg(test)]
    pub fn bytes(&self) -> &'static [u8] {
        assert_eq!(self.0.opcode, abi::OP_SEND, "only a send has bytes");
        // SAFETY: address and length are those of the constant that `send` was given.
        unsafe { std::slice::from_raw_parts(self.0.address as *const u8, self.0.length as usize) }
    }

    fn has_next(self) -> bool {
        self.0.flags & (abi::SQE_LINK | abi::SQE_HARDLINK) != 0
    }
}
// ANCHOR_END: operation

// ANCHOR: buffers
/// Buffers that are lent to the kernel, for all receives together: an idle client holds none. They are a
/// queue too, in which we write and the kernel reads; here the kernel keeps the head to itself.
#[derive(Debug)]
struct Buffers {
    /// The queue, and behind it the buffers themselves. Never unmapped: a receive that is under way
    /// when the ring goes may still write into it.
    memory: ManuallyDrop<Mapping>,
    entries: u16,
    tail: u16,
}

impl Buffers {
    /// The number of the one group that we have.
    const GROUP: u16 = 0;

    fn new(ring: RawFd, entries: u16) -> anyhow::Result<Buffers> {
        let bytes = usize::from(entries) * (abi::BUF_BYTES + BUFFER_BYTES);
        let memory = Mapping::new(bytes, None).map_err(|errno| refused("mmap", errno))?;
        let registration = BufReg {
            ring_address: memory.start.as_ptr() as u64,
            ring_entries: entries.into(),
            buffer_group: Buffers::GROUP,
            ..BufReg::default()
        };
        let memory = ManuallyDrop::new(memory);
        // SAFETY: the call reads one registration. The memory that this names is never unmapped.
        unsafe { register(ring, abi::REGISTER_PBUF_RING, (&raw const registration).cast_mut(), 1) }
            .map_err(|errno| refused("io_uring_register(PBUF_RING)", errno))?;
        let mut buffers = Buffers { memory, entries, tail: 0 };
        (0..entries).for_each(|number| buffers.lend(number));
        Ok(buffers)
    }

    /// Gives a buffer to the kernel, first or again.
    fn lend(&mut self, number: u16) {
        let buf = Buf {
            address: self.at(number) as u64,
            length: u32::try_from(BUFFER_BYTES).expect("less than 4 GiB"),
            number,
        };
        let entry = usize::from(self.tail % self.entries) * abi::BUF_BYTES;
        let at = self.memory.at::<Buf>(entry);
        // SAFETY: within the mapping and aligned, as `at` has checked. The kernel reads no entry but
        // those between its head and the tail, and since there are as many entries as buffers, and
        // this buffer is not lent, this entry is none of them.
        unsafe { at.write(buf) };
        self.tail = self.tail.wrapping_add(1);
        let tail = self.memory.at::<AtomicU16>(abi::BUF_TAIL);
        // SAFETY: within the mapping and aligned, as `at` has checked, and both sides only ever make
        // atomic accesses to these two bytes: `Buf` ends before them.
        let tail = unsafe { &*tail };
        // Release: pairs with the acquire by which the kernel reads the tail when it takes a buffer. It
        // sees the entry then, and no longer writes into bytes that we still look at.
        tail.store(self.tail, Ordering::Release);
    }

    /// What the kernel has put into a buffer.
    fn bytes(&self, number: u16, length: usize) -> &[u8] {
        // SAFETY: within the mapping, as `at` has checked, and never uninitialised, since new pages are
        // zeroes. The kernel has written before it told us, and writes again only when the buffer is
        // lent again, for which the ring has to be borrowed mutably.
        let bytes = unsafe { &*self.at(number) };
        &bytes[..length]
    }

    fn at(&self, number: u16) -> *mut [u8; BUFFER_BYTES] {
        let queue = usize::from(self.entries) * abi::BUF_BYTES;
        self.memory.at(queue + usize::from(number) * BUFFER_BYTES)
    }
}
// ANCHOR_END: buffers

/// Memory that is shared with the kernel; unmapped on drop.
#[derive(Debug)]
struct Mapping {
    start: NonNull<libc::c_void>,
    bytes: usize,
}

impl Mapping {
    /// Maps a part of a ring, given by its descriptor and an offset, or new memory.
    fn new(bytes: usize, of: Option<(RawFd, i64)>) -> nix::Result<Mapping> {
        let (descriptor, offset) = of.unwrap_or((-1, 0));
        let source = if of.is_some() { 0 } else { libc::MAP_ANONYMOUS };
        let kind = libc::MAP_SHARED | libc::MAP_POPULATE | source;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at a place that the kernel picks, takes nothing away from anybody.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, descriptor, offset) };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let start = NonNull::new(start).ok_or(Errno::ENOMEM)?;
        Ok(Mapping { start, bytes })
    }

    /// Where the `T` at `offset` bytes is.
    fn at<T>(&self, offset: usize) -> *mut T {
        let is_within = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.bytes);
        assert!(
            is_within && offset.is_multiple_of(align_of::<T>()),
            "{offset} of {} bytes",
            self.bytes
        );
        self.start.as_ptr().wrapping_byte_add(offset).cast()
    }

    /// The number at `offset` bytes, which the kernel reads or writes too.
    fn word(&self, offset: usize) -> &AtomicU32 {
        let at = self.at::<AtomicU32>(offset);
        // SAFETY: within the mapping and aligned, as `at` has checked, and both sides only ever make
        // atomic accesses to the numbers of a ring.
        unsafe { &*at }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is ours, and no reference into it outlives this.
        unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
    }
}

/// io_uring_setup(2).
fn setup(entries: u32, params: &mut Params) -> nix::Result<OwnedFd> {
    let params: *mut Params = params;
    // SAFETY: the kernel reads and writes one `Params`, which outlives the call.
    let descriptor = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params) };
    let descriptor = RawFd::try_from(Errno::result(descriptor)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made it, and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// io_uring_register(2).
///
/// # Safety
///
/// `argument` has to be what `opcode` reads or writes, and what it points to has to live as long as the
/// ring.
unsafe fn register<T>(ring: RawFd, opcode: u32, argument: *mut T, count: u32) -> nix::Result<()> {
    // SAFETY: the caller promises it.
    let result =
        unsafe { libc::syscall(libc::SYS_io_uring_register, ring, opcode, argument, count) };
    Errno::result(result).map(drop)
}

/// Asks the kernel which operations it knows.
fn probe(ring: RawFd) -> anyhow::Result<()> {
    let mut probe =
        Probe { last_op: 0, ops_length: 0, reserved: [0; 7], ops: [ProbeOp::default(); 64] };
    let count = u32::try_from(probe.ops.len())?;
    // SAFETY: the call writes so many answers at most, and keeps nothing.
    unsafe { register(ring, abi::REGISTER_PROBE, &raw mut probe, count) }
        .map_err(|errno| refused("io_uring_register(PROBE)", errno))?;
    let knows = |op: u8| probe.ops[usize::from(op)].flags & abi::OP_SUPPORTED != 0;
    match OPERATIONS.into_iter().find(|&op| !knows(op)) {
        Some(op) => {
            Err(too_old("io_uring_register(PROBE)", format_args!("operation {op} is missing")))
        }
        None => Ok(()),
    }
}

// ANCHOR: refused
/// Why there is no ring, and what can be done about it.
fn refused(call: &str, errno: Errno) -> anyhow::Error {
    let remedy = match errno {
        Errno::EINVAL => return too_old(call, errno),
        Errno::ENOSYS => {
            "io_uring is missing: this kernel was built without it, or a sandbox hides it; take Linux \
             6.1 or later, or ch05, which needs none"
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
            "no more memory may be locked: raise `ulimit -l` (RLIMIT_MEMLOCK), or take fewer --reactors"
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

fn too_old(call: &str, what: impl Display) -> anyhow::Error {
    anyhow!("{call}: {what}: io_uring is too old here: take Linux 6.1 or later")
}
// ANCHOR_END: refused
