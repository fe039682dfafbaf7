//! A reactor that asks for the calls themselves: io_uring.
//!
//! Each client has one operation under way, never two: receive, send, and at last discard and close. What
//! an operation reads or writes belongs to its client, who is not forgotten before it is over.
//!
//! There is no shutdown before the discarding: the kernel hands that operation to a thread of its own, and
//! a close with nothing unread says the same to the client.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use anyhow::Context;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use nix::errno::Errno;
use nix::libc;
use nix::sys::eventfd::EventFd;

use crate::frame::Session;
use crate::{PAUSE, has_too_little, patience};

const ENTRIES: u32 = 256;

/// How much is received at once.
const BUFFER_BYTES: usize = 4096;

/// What is discarded of a client's unread bytes at most.
const DISCARDED_BYTES_MAX: u32 = 64 * 1024;

/// The tokens of what is no client; clients are numbered from zero and never again by the same number.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const NOBODY: u64 = u64::MAX - 2;

/// One listener and its clients.
pub struct Reactor<'a> {
    // Dropped first, so that nothing is under way when what it uses goes.
    ring: IoUring,
    stop: &'a EventFd,
    listener: Option<TcpListener>,
    /// When nobody is let in for a while: until then.
    pause: Option<Instant>,
    is_stopping: bool,
    clients: HashMap<u64, Box<Client>>,
    next: u64,
}

struct Client {
    socket: RawFd,
    session: Session,
    buffer: Box<[u8; BUFFER_BYTES]>,
    step: Step,
    answered: u32,
    deadline: Instant,
    /// Its time is over, and its operation has been asked to end.
    is_late: bool,
}

/// What is under way for a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Receive,
    Send,
    Discard,
    Close,
}

impl<'a> Reactor<'a> {
    /// A reactor that ends when `stop` can be read and its last client has left; without a ring, the
    /// listener is given back.
    pub fn new(
        listener: TcpListener,
        stop: &'a EventFd,
    ) -> Result<Reactor<'a>, (TcpListener, anyhow::Error)> {
        let ring = match IoUring::builder().setup_clamp().build(ENTRIES) {
            Ok(ring) => ring,
            Err(error) => {
                return Err((listener, anyhow::Error::new(error).context("io_uring_setup")));
            }
        };
        Ok(Reactor {
            ring,
            stop,
            listener: Some(listener),
            pause: None,
            is_stopping: false,
            clients: HashMap::new(),
            next: 0,
        })
    }

    /// Serves, to the end.
    pub fn serve(mut self) -> anyhow::Result<()> {
        let readable = opcode::PollAdd::new(Fd(self.stop.as_raw_fd()), libc::POLLIN as u32);
        self.push(readable.build().user_data(STOP))?;
        self.accept()?;
        while self.listener.is_some() || !self.clients.is_empty() {
            self.enter()?;
            let completed: Vec<cqueue::Entry> = self.ring.completion().collect();
            for entry in completed {
                let result =
                    usize::try_from(entry.result()).map_err(|_| Errno::from_raw(-entry.result()));
                match entry.user_data() {
                    LISTENER => self.accepted(result, cqueue::more(entry.flags()))?,
                    STOP => self.leave()?,
                    NOBODY => {}
                    token => self.converse(token, result)?,
                }
            }
            self.let_go()?;
        }
        Ok(())
    }

    /// Hands in what was pushed and waits until something has completed, or a deadline has come.
    fn enter(&mut self) -> anyhow::Result<()> {
        let waiting = self.clients.values().filter(|it| !it.is_late);
        let deadlines = waiting.map(|it| it.deadline);
        let first = deadlines.chain(self.pause).min();
        let left = first.map(|it| it.saturating_duration_since(Instant::now()));
        let time = Timespec::from(left.unwrap_or(Duration::from_secs(3600)));
        let arguments = SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
                // A signal, the time, or completions that have to be looked at first.
                Errno::EINTR | Errno::ETIME | Errno::EBUSY | Errno::EAGAIN => Ok(()),
                _ => Err(error).context("io_uring_enter"),
            },
        }
    }

    #[expect(unsafe_code, reason = "what an operation points to has to live until it is over")]
    fn push(&mut self, operation: squeue::Entry) -> anyhow::Result<()> {
        // SAFETY: every operation here points to nothing, or to the buffer or the unsent bytes of a
        // client, which are on the heap, are not touched while its one operation is under way, and are
        // dropped when its last operation has completed. At the end of the process they are not dropped.
        while unsafe { self.ring.submission().push(&operation) }.is_err() {
            self.ring.submit().context("io_uring_enter")?;
        }
        Ok(())
    }

    fn accept(&mut self) -> anyhow::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let accept = opcode::AcceptMulti::new(Fd(listener.as_raw_fd()));
        self.push(accept.flags(libc::SOCK_CLOEXEC).build().user_data(LISTENER))
    }

    /// Somebody has come, or nobody can; without `goes_on`, it has to be asked for once more.
    fn accepted(&mut self, result: nix::Result<usize>, goes_on: bool) -> anyhow::Result<()> {
        match result {
            Ok(socket) => {
                self.take_in(RawFd::try_from(socket)?)?;
                match (goes_on, self.is_stopping) {
                    (true, _) => Ok(()),
                    (false, true) => self.close_listener(),
                    (false, false) => self.accept(),
                }
            }
            Err(_) if self.is_stopping => self.close_listener(),
            Err(errno) if has_too_little(errno) => {
                self.pause = Some(Instant::now() + PAUSE);
                Ok(())
            }
            Err(errno @ (Errno::EBADF | Errno::EINVAL | Errno::ENOTSOCK)) => {
                Err(errno).context("accept")
            }
            Err(_) => self.accept(),
        }
    }

    fn take_in(&mut self, socket: RawFd) -> anyhow::Result<()> {
        let token = self.next;
        self.next += 1;
        let mut client = Client {
            socket,
            session: Session::default(),
            buffer: Box::new([0; BUFFER_BYTES]),
            step: Step::Receive,
            answered: 0,
            deadline: Instant::now() + patience(),
            is_late: false,
        };
        let first = client.operation();
        self.clients.insert(token, Box::new(client));
        self.push(first.user_data(token))
    }

    /// Lets nobody in any more but those who have come already, and ends with the last client.
    fn leave(&mut self) -> anyhow::Result<()> {
        self.is_stopping = true;
        match self.pause.take() {
            // Nothing is under way that could be ended.
            Some(_) => self.close_listener(),
            None => self.push(opcode::AsyncCancel::new(LISTENER).build().user_data(NOBODY)),
        }
    }

    fn close_listener(&mut self) -> anyhow::Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        listener.set_nonblocking(true).context("ioctl(FIONBIO)")?;
        while let Ok((socket, _)) = listener.accept() {
            self.take_in(socket.into_raw_fd())?;
        }
        Ok(())
    }

    /// What follows for a client whose operation is over.
    fn converse(&mut self, token: u64, result: nix::Result<usize>) -> anyhow::Result<()> {
        let Some(client) = self.clients.get_mut(&token) else { return Ok(()) };
        if client.step == Step::Close {
            self.clients.remove(&token);
            return Ok(());
        }
        client.step = client.next(result);
        let operation = client.operation();
        self.push(operation.user_data(token))
    }

    /// Asks the operations of those to end who have had their time.
    fn let_go(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let mut late = Vec::new();
        for (token, client) in &mut self.clients {
            if client.deadline <= now && !client.is_late {
                client.is_late = true;
                late.push(*token);
            }
        }
        for token in late {
            self.push(opcode::AsyncCancel::new(token).build().user_data(NOBODY))?;
        }
        if self.pause.is_some_and(|it| it <= now) {
            self.pause = None;
            self.accept()?;
        }
        Ok(())
    }
}

impl Client {
    /// The step after one that has ended so.
    fn next(&mut self, result: nix::Result<usize>) -> Step {
        match (self.step, result) {
            (Step::Receive | Step::Send, _) if self.is_late => Step::Close,
            (Step::Receive, Err(Errno::EINTR | Errno::EAGAIN)) => Step::Receive,
            (Step::Send, Err(Errno::EINTR | Errno::EAGAIN)) => Step::Send,
            (_, Err(_)) if self.step != Step::Discard => Step::Close,
            (Step::Discard | Step::Close, _) => Step::Close,
            (Step::Receive, Ok(length)) => {
                self.session.feed(&self.buffer[..length]);
                self.speak()
            }
            (Step::Send, Ok(length)) => {
                self.session.sent(length);
                self.speak()
            }
            (_, Err(_)) => Step::Close,
        }
    }

    fn speak(&mut self) -> Step {
        if !self.session.unsent().is_empty() {
            return Step::Send;
        }
        if self.session.is_over() {
            return Step::Discard;
        }
        if self.session.answered() > self.answered {
            self.answered = self.session.answered();
            self.deadline = Instant::now() + patience();
        }
        Step::Receive
    }

    /// The operation of its step.
    fn operation(&mut self) -> squeue::Entry {
        let socket = Fd(self.socket);
        match self.step {
            Step::Receive => {
                let start = self.buffer.as_mut_ptr();
                opcode::Recv::new(socket, start, BUFFER_BYTES as u32).build()
            }
            Step::Send => {
                let bytes = self.session.unsent();
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                opcode::Send::new(socket, bytes.as_ptr(), length).flags(libc::MSG_NOSIGNAL).build()
            }
            // With MSG_TRUNC, TCP copies nothing, so that no buffer is needed.
            Step::Discard => opcode::Recv::new(socket, ptr::null_mut(), DISCARDED_BYTES_MAX)
                .flags(libc::MSG_DONTWAIT | libc::MSG_TRUNC)
                .build(),
            Step::Close => opcode::Close::new(socket).build(),
        }
    }
}
