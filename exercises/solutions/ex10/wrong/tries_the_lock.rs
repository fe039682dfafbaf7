//! Misconception: whose lock is taken is busy, and there are others.
//!
//! It is asleep, with the lock. One silent client takes one reactor out of the door's choice, and as many
//! as there are reactors take them all.
//!
//! Killed by: half_a_line_stalls_nobody (others wait until it lets go)
//! Hint: The door passes over a reactor whose lock is taken. What if each of them has a client that is silent?

mod command_line;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{self, MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};
use oddeven::{LINE_BYTES_MAX, Session};

const BACKLOG: i32 = 4096;
const DISCARDS_MAX: usize = 16;
const EVENTS_MAX: usize = 256;
const NEWS: u64 = 0;

/// How long a client may take for its whole request and answer, from its accept.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long nobody is accepted for want of a descriptor. Only the door sleeps for so long.
const PAUSE: Duration = Duration::from_millis(50);

/// A client, and how far its request and answer have come.
struct Client {
    socket: OwnedFd,
    session: Session,
}

/// The clients of a reactor.
#[derive(Default)]
struct Table {
    clients: HashMap<u64, Client>,
    // Every client has the same patience, so that the queue is in order without being sorted.
    deadlines: VecDeque<(Instant, u64)>,
    token_last: u64,
}

/// A reactor, as the door sees it.
struct Reactor {
    epoll: Epoll,
    /// Wakes it when the door has put something into its table: it may have a deadline now.
    news: EventFd,
    table: Mutex<Table>,
}

fn main() -> ExitCode {
    command_line::run(["--reactors"], |address, [reactors]| {
        let listener = listen(address)?;
        let cores = thread::available_parallelism().context("sched_getaffinity")?.get();
        let reactors: Vec<Reactor> = (0..reactors.unwrap_or(cores.max(2)))
            .map(|_| Reactor::new())
            .collect::<anyhow::Result<_>>()?;
        let ready = &Barrier::new(reactors.len() + 1);
        thread::scope(|scope| {
            for reactor in &reactors {
                scope.spawn(move || {
                    ready.wait();
                    end_all(reactor.serve())
                });
            }
            ready.wait();
            end_all(command_line::announce(&listener).and_then(|()| door(&listener, &reactors)))
        })
    })
}

/// If one of the threads cannot go on, the others must not go on without it.
fn end_all(served: anyhow::Result<()>) -> anyhow::Result<()> {
    if let Err(error) = served {
        command_line::say(format_args!("{}: {error:#}", env!("CARGO_BIN_NAME")));
        std::process::exit(1);
    }
    Ok(())
}

fn listen(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let refused = |call, errno| command_line::refused(call, address, errno);
    let name = socket::SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    let listener = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|errno| refused("socket", errno))?;
    socket::setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt(SO_REUSEADDR)")?;
    if address.is_ipv6() {
        socket::setsockopt(&listener, sockopt::Ipv6V6Only, &false)
            .context("setsockopt(IPV6_V6ONLY)")?;
    }
    socket::bind(listener.as_raw_fd(), &name).map_err(|errno| refused("bind", errno))?;
    let backlog = socket::Backlog::new(BACKLOG).context("a backlog beyond SOMAXCONN")?;
    socket::listen(&listener, backlog).map_err(|errno| refused("listen", errno))?;
    Ok(listener)
}

/// Accepts everybody, and gives each to the reactor that has the fewest clients.
fn door(listener: &OwnedFd, reactors: &[Reactor]) -> anyhow::Result<()> {
    let mut turn = 0;
    loop {
        let Some(socket) = accept(listener)? else { continue };
        // Among those that have equally few, it is everybody's turn to be the first.
        turn = (turn + 1) % reactors.len();
        let in_turn = || reactors[turn..].iter().chain(&reactors[..turn]);
        let clients = |it: &&Reactor| it.table.try_lock().map_or(usize::MAX, |it| it.clients.len());
        let least_busy = loop {
            let least_busy = in_turn().min_by_key(clients).context("no reactor")?;
            if least_busy.table.try_lock().is_ok() {
                break least_busy;
            }
            thread::yield_now();
        };
        least_busy.take_in(socket)?;
    }
}

/// The next client, or `None` when it went away or there is no descriptor for it.
fn accept(listener: &OwnedFd) -> anyhow::Result<Option<OwnedFd>> {
    match socket::accept4(listener, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
        Ok(client) => return Ok(Some(client)),
        Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
            return Err(errno).context("accept4");
        }
        Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => thread::sleep(PAUSE),
        Err(_) => {}
    }
    Ok(None)
}

impl Reactor {
    fn new() -> anyhow::Result<Reactor> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let news = EventFd::from_flags(flags).context("eventfd")?;
        epoll.add(&news, readable(NEWS)).context("epoll_ctl(ADD, news)")?;
        Ok(Reactor { epoll, news, table: Mutex::default() })
    }

    /// The table, for as long as the guard lives. Nobody may sleep while it does.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The door gives it a client.
    fn take_in(&self, socket: OwnedFd) -> anyhow::Result<()> {
        let mut table = self.lock();
        table.token_last += 1;
        let token = table.token_last;
        self.epoll.add(&socket, readable(token)).context("epoll_ctl(ADD)")?;
        table.clients.insert(token, Client { socket, session: Session::new() });
        table.deadlines.push_back((Instant::now() + PATIENCE, token));
        drop(table);
        self.news.write(1).context("write(eventfd)").map(drop)
    }

    fn serve(&self) -> anyhow::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        loop {
            // Until the first of them has to be let go, or, when nobody is there, until somebody comes.
            let ready = if let Some(&(deadline, _)) = self.lock().deadlines.front() {
                self.epoll.wait(&mut events, timeout(deadline))
            } else {
                self.epoll.wait(&mut events, EpollTimeout::NONE)
            };
            let ready = match ready {
                Err(Errno::EINTR) => continue,
                ready => ready.context("epoll_wait")?,
            };
            let mut table = self.lock();
            for event in &events[..ready] {
                match event.data() {
                    // It is in the table already: this was to end the wait. EAGAIN: it has been read.
                    NEWS => {
                        let _ = self.news.read();
                    }
                    token => table.go_on_with(token, &self.epoll)?,
                }
            }
            table.let_go(Instant::now());
        }
    }
}

impl Table {
    fn go_on_with(&mut self, token: u64, epoll: &Epoll) -> anyhow::Result<()> {
        // An event without a client is one of this batch for a client that is already gone.
        let Some(client) = self.clients.get_mut(&token) else { return Ok(()) };
        if !matches!(converse(client), Err(Errno::EAGAIN | Errno::EINTR)) {
            self.clients.remove(&token);
        } else if !client.session.unsent().is_empty() {
            let mut writable = EpollEvent::new(EpollFlags::EPOLLOUT, token);
            epoll.modify(&client.socket, &mut writable).context("epoll_ctl(MOD)")?;
        }
        Ok(())
    }

    fn let_go(&mut self, now: Instant) {
        while let Some(&(deadline, token)) = self.deadlines.front()
            && (deadline <= now || !self.clients.contains_key(&token))
        {
            self.deadlines.pop_front();
            self.clients.remove(&token);
        }
    }
}

/// How long `epoll_wait` may sleep: until `deadline`, in milliseconds, rounded up so that it has come.
fn timeout(deadline: Instant) -> EpollTimeout {
    let left = deadline.saturating_duration_since(Instant::now());
    EpollTimeout::from(u16::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u16::MAX))
}

fn readable(token: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, token)
}

/// Reads and answers as far as that goes without waiting: EAGAIN means "not yet".
fn converse(Client { socket, session }: &mut Client) -> nix::Result<()> {
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while !session.is_done() {
        if session.unsent().is_empty() {
            let length = socket::recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
            session.feed(&bytes[..length]);
        } else {
            let length =
                socket::send(socket.as_raw_fd(), session.unsent(), MsgFlags::MSG_NOSIGNAL)?;
            session.sent(length);
        }
    }
    hang_up(socket);
    Ok(())
}

fn hang_up(client: &OwnedFd) {
    let _ = socket::shutdown(client.as_raw_fd(), Shutdown::Write);
    let mut bytes = [0; 4096];
    let mut discard = || socket::recv(client.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT);
    (0..DISCARDS_MAX).all(|_| matches!(discard(), Ok(1..)));
}
