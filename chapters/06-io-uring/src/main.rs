//! Chapter 06: the waiting turned round.
//!
//! Chapter 05 asked which sockets are ready, and then made the calls. This one asks for the calls
//! themselves, many at a time, and is told when they are done. One ring for each core, made by hand in
//! `ring.rs`; a reactor here makes no system call but the ring's.

mod clients;
mod command_line;
mod cores;
mod group;
#[expect(unsafe_code, reason = "an io_uring is memory that is shared with the kernel")]
mod ring;

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{self, SockFlag, SockType, SockaddrLike, sockopt};
use oddeven::Session;

use clients::Clients;
use ring::{Completion, Operation, Ring};

// ANCHOR: constants
const BACKLOG: i32 = 4096;
const BUFFERS: usize = 128;
const COMPLETIONS_MAX: usize = 1024;
const ENTRIES: usize = 256;

// By what a completion is known: a client's token, with CLOSED or without, or one of these.
const LISTENER: u64 = u64::MAX;
const QUEUE: u64 = u64::MAX - 1;
const STOP: u64 = u64::MAX - 2;
const NOBODY: u64 = u64::MAX - 3;
const CLOSED: u64 = 1 << 63;

/// How long a client may take for its whole request and answer, from its accept.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long nobody is accepted at most when there is no descriptor for another client: the descriptors
/// may be somebody else's, who will not tell us when they are free.
const PAUSE: Duration = Duration::from_millis(250);

/// How many accepts may fail one after the other before each is followed by a pause, and how many before
/// it is clear that this will not end.
const FAILURES_PROMPT: u32 = 16;
const FAILURES_MAX: u32 = 1000;
const FAILURES_PAUSE: Duration = Duration::from_millis(10);
// ANCHOR_END: constants

/// A client, and how far its request and answer have come. One operation of it is under way at any time.
struct Client {
    socket: RawFd,
    is_late: bool,
    session: Session,
}

// ANCHOR: main
fn main() -> ExitCode {
    command_line::run(
        ["--reactors", "--entries", "--buffers"],
        |address, [reactors, sizes @ ..]| {
            let cores = cores::allowed()?;
            let reactors = reactors.unwrap_or(cores.len());
            let elders = group::Elders::on(address);
            elders.sentence().into_iter().for_each(command_line::say);
            let mut listeners = vec![listen(address)?];
            let address = command_line::bound(&listeners[0])?; // After port 0, the others need to know.
            for _ in 1..reactors {
                listeners.push(listen(address)?);
            }
            let first = listeners[0].try_clone().context("dup")?;
            let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
            signals.thread_block().context("sigprocmask")?; // For the reactors too, which inherit it.
            let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("eventfd")?;
            let ready = Barrier::new(2);
            thread::scope(|scope| {
                for (listener, core) in listeners.into_iter().zip(cores.into_iter().cycle()) {
                    let (stop, ready) = (&stop, &ready);
                    scope.spawn(move || run(listener, core, sizes, stop, ready));
                    ready.wait(); // One after the other, so that what is wanting is said once.
                }
                command_line::announce(&first)?;
                signals.wait().context("sigwait")?;
                signals.thread_unblock().context("sigprocmask")?; // A second signal ends us at once.
                group::leave(&first, reactors, &elders)?;
                drop(first); // Only the reactor's own descriptor of it is left, to be closed by it.
                stop.write(1).context("write(eventfd)")
            })?;
            Ok(())
        },
    )
}

/// One reactor, to its end. If it cannot go on, the others must not go on without it.
fn run(
    listener: OwnedFd,
    core: usize,
    [entries, buffers]: [Option<usize>; 2],
    stop: &EventFd,
    ready: &Barrier,
) {
    cores::pin(core);
    // Made by the thread that uses it: a ring has one owner.
    let ring = Ring::new(entries.unwrap_or(ENTRIES), buffers.unwrap_or(BUFFERS));
    let served = ring.and_then(|ring| {
        ready.wait();
        serve(listener, stop, ring)
    });
    if let Err(error) = served {
        command_line::say(format_args!("a reactor: {error:#}"));
        std::process::exit(1);
    }
}
// ANCHOR_END: main

fn listen(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let refused = |call, errno| command_line::refused(call, address, errno);
    let name = socket::SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    // Not SOCK_NONBLOCK: in a ring no call sleeps, and whoever says that it must not may be told EAGAIN.
    let listener = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|errno| refused("socket", errno))?;
    socket::setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt(SO_REUSEADDR)")?;
    // Each listener of the address has to ask for it, and all have to be of one user.
    socket::setsockopt(&listener, sockopt::ReusePort, &true).context("setsockopt(SO_REUSEPORT)")?;
    if address.is_ipv6() {
        socket::setsockopt(&listener, sockopt::Ipv6V6Only, &false)
            .context("setsockopt(IPV6_V6ONLY)")?;
    }
    socket::bind(listener.as_raw_fd(), &name).map_err(|errno| refused("bind", errno))?;
    let backlog = socket::Backlog::new(BACKLOG).context("a backlog beyond SOMAXCONN")?;
    socket::listen(&listener, backlog).map_err(|errno| refused("listen", errno))?;
    Ok(listener)
}

/// What a reactor knows between two waits. Completions go in, operations come out: it makes no call.
struct Reactor {
    listener: RawFd,
    clients: Clients<Client>,
    // Every client has the same patience, so that the queue is in order without being sorted.
    deadlines: VecDeque<(Instant, u64)>,
    pause: Option<Pause>,
    /// How many accepts have failed since one succeeded.
    failures: u32,
    is_stopping: bool,
    /// How often, since then, nobody was in the queue.
    nobody_left: u32,
    /// What is to be handed in with the next wait.
    asked: Vec<Operation>,
}

/// The time during which nobody is accepted: until then, or until one of so many clients leaves.
struct Pause {
    until: Instant,
    clients: usize,
}

// ANCHOR: serve
fn serve(listener: OwnedFd, stop: &EventFd, mut ring: Ring) -> anyhow::Result<()> {
    let mut reactor = Reactor::new(listener.as_raw_fd());
    reactor.asked.push(Operation::readable(stop.as_raw_fd(), STOP));
    // None when this reactor takes in nobody any more; then it ends with its last client.
    let mut open = Some(listener);
    let mut is_told = false;
    while open.is_some() || reactor.clients.len() > 0 {
        let timeout = reactor.timeout();
        ring.enter(&mut reactor.asked, timeout)?;
        let now = Instant::now();
        for _ in 0..COMPLETIONS_MAX {
            let Some(done) = ring.completed() else { break };
            match done.token {
                LISTENER | QUEUE => reactor.accept(&done, now)?,
                STOP => reactor.stop(),
                NOBODY => {} // What may fail, and whose failure means nothing.
                _ => reactor.converse(&done),
            }
        }
        if ring.has_overflowed() && !mem::replace(&mut is_told, true) {
            command_line::say("the completion queue ran over: more --entries would save some work");
        }
        reactor.let_go(now);
        if reactor.nobody_left == 2 {
            open = None;
        }
    }
    Ok(())
}
// ANCHOR_END: serve

impl Reactor {
    fn new(listener: RawFd) -> Reactor {
        Reactor {
            listener,
            clients: Clients::new(),
            deadlines: VecDeque::new(),
            pause: None,
            failures: 0,
            is_stopping: false,
            nobody_left: 0,
            asked: vec![Operation::accept(listener, LISTENER)],
        }
    }

    /// How long a wait may be.
    fn timeout(&self) -> Option<Duration> {
        let deadline = self.deadlines.front().map(|&(deadline, _)| deadline);
        let wake_at = deadline.into_iter().chain(self.pause.as_ref().map(|it| it.until)).min();
        wake_at.map(|it| it.saturating_duration_since(Instant::now()))
    }

    // ANCHOR: accept
    /// A client has come, or the one accept that brings them all has a problem, or is over.
    fn accept(&mut self, done: &Completion, now: Instant) -> anyhow::Result<()> {
        let mut pause = None;
        match done.result {
            Ok(socket) => {
                self.failures = 0;
                let socket = RawFd::try_from(socket)?;
                let client = Client { socket, is_late: false, session: Session::new() };
                let token = self.clients.insert(client);
                self.deadlines.push_back((now + PATIENCE, token));
                self.asked.push(Operation::receive(socket, token));
            }
            Err(Errno::ECANCELED) if done.token == QUEUE => self.nobody_left += 1,
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                pause = Some(PAUSE);
            }
            Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
                return Err(errno).context("accept");
            }
            // One client went away, a signal came, or it was cancelled: the next one may be there.
            Err(errno) => {
                self.failures += 1;
                if self.failures == FAILURES_MAX {
                    return Err(errno)
                        .with_context(|| format!("accept, {FAILURES_MAX} times in a row"));
                }
                pause = (self.failures > FAILURES_PROMPT).then_some(FAILURES_PAUSE);
            }
        }
        if !done.more {
            match pause {
                Some(time) => {
                    self.pause = Some(Pause { until: now + time, clients: self.clients.len() })
                }
                None => self.accept_again(),
            }
        }
        Ok(())
    }

    fn accept_again(&mut self) {
        self.pause = None;
        if !self.is_stopping {
            self.asked.push(Operation::accept(self.listener, LISTENER));
        } else if self.nobody_left < 2 {
            self.asked.push(Operation::accept_one(self.listener, QUEUE).then());
            self.asked.push(Operation::at_once(NOBODY));
        }
    }
    // ANCHOR_END: accept

    /// From here on nobody is waited for: who is in the queue is taken in, one after the other.
    fn stop(&mut self) {
        self.is_stopping = true;
        self.asked.push(Operation::cancel(LISTENER, NOBODY).silent());
    }

    // ANCHOR: converse
    /// Something was received or sent, or the socket is closed: asks for what comes next.
    fn converse(&mut self, done: &Completion) {
        if done.token & CLOSED != 0 {
            // Cancelled: the send before it has failed, and tells so itself.
            if done.result != Err(Errno::ECANCELED) {
                self.clients.remove(done.token & !CLOSED);
            }
            return;
        }
        // Without a client it would be of one who has gone.
        let Some(client) = self.clients.get_mut(done.token) else { return };
        let Client { socket, is_late, session } = client;
        let is_lost = match done.result {
            Ok(_) if session.unsent().is_empty() => {
                session.feed(done.bytes);
                *is_late
            }
            Ok(length) => {
                session.sent(length);
                *is_late
            }
            // No buffer was free: by now those who had them have given them back.
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => *is_late,
            Err(_) => true,
        };
        let is_speaking = done.has_unread || !matches!(done.bytes.last(), None | Some(b'\n'));
        if is_lost || session.is_done() {
            hang_up(*socket, done.token, is_speaking, &mut self.asked);
        } else if session.unsent().is_empty() {
            self.asked.push(Operation::receive(*socket, done.token));
        } else {
            let send = Operation::send(*socket, session.unsent(), done.token);
            self.asked.push(send.silent().then());
            hang_up(*socket, done.token, is_speaking, &mut self.asked);
        }
    }
    // ANCHOR_END: converse

    // ANCHOR: let_go
    /// Ends what is under way of those who are late, and tries to accept again when it is time.
    fn let_go(&mut self, now: Instant) {
        while let Some(&(deadline, token)) = self.deadlines.front() {
            let client = self.clients.get_mut(token);
            if deadline > now && client.is_some() {
                break;
            }
            self.deadlines.pop_front();
            if let Some(client) = client {
                // A close would wait for what is under way. It will complete, and then we hang up.
                client.is_late = true;
                self.asked.push(Operation::cancel(token, NOBODY).silent());
            }
        }
        if self.pause.as_ref().is_some_and(|it| it.until <= now || it.clients > self.clients.len())
        {
            self.accept_again();
        }
    }
    // ANCHOR_END: let_go
}

// ANCHOR: hang_up
/// Closes, as a chain that takes no call and no wait of ours. Whoever is still speaking gets the end of
/// the stream first, since what comes after the discard turns a close into a reset.
///
/// Simplified: for all others the close is the end of the stream, though a byte that comes just then
/// would do the same. The kernel has a thread of its own make each shutdown, which costs more than it saves
/// to everybody.
fn hang_up(socket: RawFd, token: u64, is_speaking: bool, asked: &mut Vec<Operation>) {
    if is_speaking {
        asked.push(Operation::shutdown(socket, NOBODY).silent().in_any_case_then());
    }
    asked.push(Operation::discard(socket, NOBODY).silent().in_any_case_then());
    asked.push(Operation::close(socket, token | CLOSED));
}
// ANCHOR_END: hang_up
