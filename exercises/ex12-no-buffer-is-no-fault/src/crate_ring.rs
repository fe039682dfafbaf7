//! The ring of `ch06-crate`: what `ring.rs` offers, made with the io-uring crate. Compare the two.
//!
//! The crate takes over the structures, the mapping of the queues, their heads and tails, the system calls.
//! It leaves to us what it cannot know: that what an operation points to lives for long enough (hence the
//! `unsafe` of `push`), that a chain must not be cut, when a buffer may be lent again, and what to tell a
//! reader whose machine has no ring.

use std::alloc::{self, Layout};
use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use io_uring::squeue::Flags;
use io_uring::types::{BufRingEntry, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use nix::errno::Errno;

/// How much is received at once: one byte more than a line may have, to see that it is too long.
const BUFFER_BYTES: usize = oddeven::LINE_BYTES_MAX + 1;

/// The number of the one group of buffers that we have.
const GROUP: u16 = 0;

/// What is discarded of a client's unread bytes at most.
const DISCARDED_BYTES_MAX: u32 = 64 * 1024;

/// The longest chain: a queue must have room for it.
const CHAIN_MAX: usize = 4;

/// The kernel's own limit to both queues.
const ENTRIES_MAX: usize = 32768;

/// A page, or a multiple of it, on every machine: where a ring of buffers has to begin.
const PAGE_BYTES: usize = 64 * 1024;

/// How long we wait when the kernel has no memory for another operation.
const WITHOUT_MEMORY: Duration = Duration::from_millis(1);

/// A ring, of one thread: the one that made it.
pub struct Ring {
    ring: IoUring,
    buffers: Buffers,
    /// The buffer of the completion that was given out last.
    lent: Option<u16>,
    has_overflowed: bool,
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
    /// A ring of `entries` submissions and twice as many completions, with so many `buffers`: the next
    /// powers of two.
    ///
    /// # Errors
    ///
    /// What the kernel said, and a sentence that fits all reasons. `ring.rs` tells them apart.
    pub fn new(entries: usize, buffers: usize) -> anyhow::Result<Ring> {
        let remedy = "io_uring is missing, forbidden or too old here: see what ch06 says of it";
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_clamp()
            .build(u32::try_from(entries.clamp(CHAIN_MAX, ENTRIES_MAX))?)
            .with_context(|| format!("io_uring_setup: {remedy}"))?;
        let params = ring.params();
        let has_all = params.is_feature_nodrop()
            && params.is_feature_ext_arg()
            && params.is_feature_skip_cqe_on_success();
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).context("io_uring_register(PROBE)")?;
        ensure!(has_all && probe.is_supported(opcode::LinkTimeout::CODE), "{remedy}");
        let entries = buffers.clamp(1, ENTRIES_MAX).next_power_of_two();
        let buffers = Buffers::new(&ring, u16::try_from(entries)?)?;
        Ok(Ring { ring, buffers, lent: None, has_overflowed: false })
    }

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
            let time = timeout.map(Timespec::from);
            let waiting =
                time.as_ref().map_or(SubmitArgs::new(), |it| SubmitArgs::new().timespec(it));
            let answer = match is_all {
                true => self.ring.submitter().submit_with_args(1, &waiting),
                false => self.ring.submit(),
            };
            match answer.map_err(|error| error.raw_os_error().map(Errno::from_raw)) {
                // The queue was full, and is empty now.
                Ok(_) if !is_all && put > 0 => continue,
                // A signal came, or the time is over, or completions have to be looked at first: who
                // called will do that, and come again.
                Ok(_) | Err(Some(Errno::EINTR | Errno::ETIME | Errno::EBUSY)) => break,
                Err(Some(Errno::EAGAIN)) => {
                    thread::sleep(WITHOUT_MEMORY);
                    break;
                }
                Err(errno) => {
                    let error = errno.map_or(io::ErrorKind::Other.into(), io::Error::from);
                    return Err(error).context("io_uring_enter");
                }
            }
        }
        asked.drain(..handed_in);
        self.has_overflowed |= self.ring.submission().cq_overflow();
        Ok(())
    }

    /// Writes whole chains into the submission queue, as many as have room, and says how many operations
    /// these were. A chain that was handed in in two parts would be two chains.
    fn put(&mut self, asked: &[Operation]) -> usize {
        let mut queue = self.ring.submission();
        let room = queue.capacity() - queue.len();
        let end = asked.iter().take(room).rposition(|it| !it.has_next);
        let fits = end.map_or(0, |at| at + 1);
        for operation in &asked[..fits] {
            // SAFETY: whatever an operation points to lives as long as the program.
            let pushed = unsafe { queue.push(&operation.entry) };
            debug_assert!(pushed.is_ok(), "there was room");
        }
        fits
    }

    /// The next completion, if there is one.
    pub fn completed(&mut self) -> Option<Completion<'_>> {
        self.take_back();
        let done = self.ring.completion().next()?;
        self.lent = cqueue::buffer_select(done.flags());
        let result = usize::try_from(done.result()).map_err(|_| Errno::from_raw(-done.result()));
        Some(Completion {
            token: done.user_data(),
            result,
            more: cqueue::more(done.flags()),
            has_unread: cqueue::sock_nonempty(done.flags()),
            bytes: self.lent.map_or(&[], |buffer| self.buffers.bytes(buffer, result.unwrap_or(0))),
        })
    }

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

/// Something to be done by the kernel. Whatever it points to lives as long as the program.
pub struct Operation {
    entry: squeue::Entry,
    has_next: bool,
}

impl Operation {
    fn new(entry: squeue::Entry, token: u64) -> Operation {
        Operation { entry: entry.user_data(token), has_next: false }
    }

    /// Accepts whoever comes, one completion each, until one comes without `more`.
    pub fn accept(listener: RawFd, token: u64) -> Operation {
        let it = opcode::AcceptMulti::new(Fd(listener)).flags(libc::SOCK_CLOEXEC);
        Operation::new(it.build(), token)
    }

    /// Accepts one client.
    pub fn accept_one(listener: RawFd, token: u64) -> Operation {
        let it = opcode::Accept::new(Fd(listener), ptr::null_mut(), ptr::null_mut());
        Operation::new(it.flags(libc::SOCK_CLOEXEC).build(), token)
    }

    /// Chained to an operation: ends it, with ECANCELED, if it cannot be done without waiting.
    pub fn at_once(token: u64) -> Operation {
        static NO_TIME: Timespec = Timespec::new();
        Operation::new(opcode::LinkTimeout::new(&raw const NO_TIME).build(), token)
    }

    /// Receives once, into one of the ring's buffers, which the kernel takes when there is something to
    /// put into it and not before.
    pub fn receive(socket: RawFd, token: u64) -> Operation {
        let it = opcode::Recv::new(Fd(socket), ptr::null_mut(), 0).buf_group(GROUP);
        Operation::new(it.build().flags(Flags::BUFFER_SELECT), token)
    }

    /// Sends all of `bytes`. If a part only is sent, that is a failure to whoever is chained to it.
    pub fn send(socket: RawFd, bytes: &'static [u8], token: u64) -> Operation {
        let length = u32::try_from(bytes.len()).expect("an answer of some bytes");
        let it = opcode::Send::new(Fd(socket), bytes.as_ptr(), length);
        Operation::new(it.flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build(), token)
    }

    /// Discards what has come and was not read, without waiting: with MSG_TRUNC, TCP copies nothing, so
    /// that no buffer is needed.
    pub fn discard(socket: RawFd, token: u64) -> Operation {
        let it = opcode::Recv::new(Fd(socket), ptr::null_mut(), DISCARDED_BYTES_MAX);
        Operation::new(it.flags(libc::MSG_DONTWAIT | libc::MSG_TRUNC).build(), token)
    }

    /// Closes the descriptor.
    pub fn close(socket: RawFd, token: u64) -> Operation {
        Operation::new(opcode::Close::new(Fd(socket)).build(), token)
    }

    /// Ends the operation known by `which`: it then completes with ECANCELED, unless it is over.
    pub fn cancel(which: u64, token: u64) -> Operation {
        Operation::new(opcode::AsyncCancel::new(which).build(), token)
    }

    /// Completes when something can be read.
    pub fn readable(descriptor: RawFd, token: u64) -> Operation {
        let events = u32::from(libc::POLLIN.cast_unsigned());
        Operation::new(opcode::PollAdd::new(Fd(descriptor), events).build(), token)
    }

    /// The next operation begins when this one has succeeded; if it fails, all that are chained to it are
    /// cancelled.
    pub fn then(self) -> Operation {
        Operation { entry: self.entry.flags(Flags::IO_LINK), has_next: true }
    }

    /// The next operation begins when this one is over, however that was.
    pub fn in_any_case_then(self) -> Operation {
        Operation { entry: self.entry.flags(Flags::IO_HARDLINK), has_next: true }
    }

    /// Completes silently if it succeeds: no news is good news.
    pub fn silent(self) -> Operation {
        Operation { entry: self.entry.flags(Flags::SKIP_SUCCESS), ..self }
    }
}

/// Buffers that are lent to the kernel. The crate has the structures and the registration, and leaves the
/// queue, its tail and the memory to us.
struct Buffers {
    /// The queue, and behind it the buffers themselves. Never freed: a receive that is under way when the
    /// ring goes may still write into it.
    memory: *mut u8,
    entries: u16,
    tail: u16,
}

impl Buffers {
    fn new(ring: &IoUring, entries: u16) -> anyhow::Result<Buffers> {
        let bytes = usize::from(entries) * (size_of::<BufRingEntry>() + BUFFER_BYTES);
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).context("the buffers' memory")?;
        // SAFETY: there is at least one buffer, so that the size is not zero.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        ensure!(!memory.is_null(), "no memory for {entries} buffers: take fewer --buffers");
        // SAFETY: the memory has room for so many entries and is never freed.
        unsafe { ring.submitter().register_buf_ring_with_flags(memory as u64, entries, GROUP, 0) }
            .context("io_uring_register(PBUF_RING)")?;
        let mut buffers = Buffers { memory, entries, tail: 0 };
        (0..entries).for_each(|number| buffers.lend(number));
        Ok(buffers)
    }

    /// Gives a buffer to the kernel, first or again.
    fn lend(&mut self, number: u16) {
        let base = self.memory.cast::<BufRingEntry>();
        // SAFETY: within the memory, since the remainder is less than there are entries.
        let entry = unsafe { base.add(usize::from(self.tail % self.entries)) };
        // SAFETY: aligned, and zeroes are an entry. The kernel reads none but those before the tail, and
        // since there are as many as buffers, and this one is not lent, this is none of them. It never
        // writes to one, and the setters below leave out the two bytes that are the tail.
        let entry = unsafe { &mut *entry };
        entry.set_addr(self.at(number) as u64);
        entry.set_len(u32::try_from(BUFFER_BYTES).expect("less than 4 GiB"));
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: it is the first entry of the ring.
        let tail = unsafe { BufRingEntry::tail(base) };
        // SAFETY: aligned, within the memory, and from here on no reference to the first entry is used.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the acquire by which the kernel reads the tail when it takes a buffer.
        tail.store(self.tail, Ordering::Release);
    }

    /// What the kernel has put into a buffer.
    fn bytes(&self, number: u16, length: usize) -> &[u8] {
        assert!(number < self.entries && length <= BUFFER_BYTES, "{length} bytes in {number}");
        // SAFETY: within the memory, as was just checked, and zeroed in the beginning. The kernel has
        // written before it told us, and writes again only when the buffer is lent again, for which the
        // ring has to be borrowed mutably.
        unsafe { slice::from_raw_parts(self.at(number), length) }
    }

    fn at(&self, number: u16) -> *mut u8 {
        let queue = usize::from(self.entries) * size_of::<BufRingEntry>();
        self.memory.wrapping_add(queue + usize::from(number) * BUFFER_BYTES)
    }
}
