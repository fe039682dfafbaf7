//! A right HTTP server on the chapter's core, one thread and epoll, of which a wrong one replaces a part.
//!
//! [`serve`] is the loop, [`Ways`] are the parts that can be replaced, and [`converse`] serves one client in a
//! thread of its own. Sockets are `std::net`'s here: these servers need not show a system call, only what a
//! program thinks of it.
#![allow(dead_code, reason = "each server takes what it is not wrong about")]

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use http::{Connection, Limits, OddEven, Wants};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{self, SockFlag, SockType, SockaddrLike, SockaddrStorage, sockopt};

/// What the clients of one thread share.
pub type Core = http::Core<OddEven>;

/// How many clients wait to be accepted, where that is not the misconception.
pub const BACKLOG: i32 = 4096;

/// What a server is told on its command line.
#[derive(Clone, Copy)]
pub struct Config {
    pub limits: Limits,
    pub drain: Duration,
    pub connections_max: usize,
}

impl Config {
    /// What it is when nobody says otherwise.
    pub fn new() -> Config {
        let limits = Limits::default();
        Config { limits, drain: Duration::from_secs(5), connections_max: 15_000 }
    }
}

/// Serves at the address of the command line, with its options. Those that it does not know, such as
/// `--model`, are another program's.
pub fn run(serve: impl FnOnce(TcpListener, Config) -> anyhow::Result<()>) -> ExitCode {
    run_on(|address| listen(address, BACKLOG, true), serve)
}

/// The same for a server whose misconception is about listening.
pub fn run_on(
    listen: impl FnOnce(SocketAddr) -> anyhow::Result<TcpListener>,
    serve: impl FnOnce(TcpListener, Config) -> anyhow::Result<()>,
) -> ExitCode {
    let mut config = Config::new();
    let mut address: SocketAddr = ([127, 0, 0, 1], 8080).into();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if let Ok(given) = argument.parse() {
            address = given;
            continue;
        }
        let number = arguments.next().and_then(|it| it.parse::<u32>().ok()).unwrap_or(0);
        match argument.as_str() {
            "--patience-ms" => config.limits.head_patience_ms = number,
            "--idle-ms" => config.limits.idle_patience_ms = number,
            "--drain-ms" => config.drain = Duration::from_millis(number.into()),
            "--max-connections" => config.connections_max = number as usize,
            _ => {}
        }
    }
    let served = listen(address).and_then(|listener| {
        println!("listening on {}", listener.local_addr().context("getsockname")?);
        serve(listener, config)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A socket at `address` to which clients can connect.
pub fn listen(address: SocketAddr, backlog: i32, reuse: bool) -> anyhow::Result<TcpListener> {
    let name = SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    let listener =
        socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).context("socket")?;
    socket::setsockopt(&listener, sockopt::ReuseAddr, &reuse).context("setsockopt")?;
    socket::bind(listener.as_raw_fd(), &name).with_context(|| format!("bind({address})"))?;
    socket::listen(&listener, socket::Backlog::new(backlog)?).context("listen")?;
    Ok(listener.into())
}

/// Milliseconds since the start.
pub fn now_ms() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Says to `core` what time it is.
pub fn clock(core: &mut Core) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    core.clock(now.as_secs());
}

/// A client.
pub struct Client {
    pub socket: TcpStream,
    pub connection: Connection,
    /// What epoll watches it for.
    interest: EpollFlags,
    has_said_goodbye: bool,
    /// When something is due for it, as [`Times`] has it.
    due_ms: u64,
}

/// When something is due for each client, the next one first, and its token.
type Times = BTreeSet<(u64, u64)>;

/// The parts of a server that a wrong one replaces.
#[derive(Clone, Copy)]
pub struct Ways {
    /// The next client, when there are so many; `None` when nobody is there.
    pub accept: fn(&TcpListener, &mut Core, usize, &Config) -> anyhow::Result<Option<Client>>,
    /// Reads, answers and writes as far as that goes without waiting: whether the client stays.
    pub turn: fn(&mut Client, &mut Core) -> bool,
    /// What a client is watched for.
    pub interest: fn(&Client) -> EpollFlags,
    /// When something is due for a client, in the time of [`now_ms`].
    pub deadline_ms: fn(&Client) -> u64,
    /// What is done to a client whose time has come: whether it stays.
    pub expire: fn(&mut Client, &mut Core) -> bool,
    /// What a first signal to stop does: whether the server goes on to drain.
    pub stop: fn(&SigSet) -> bool,
    /// Whether nobody is accepted while there are as many as there may be.
    pub waits_when_full: bool,
}

impl Ways {
    /// All of them right.
    pub const RIGHT: Ways = Ways {
        accept,
        turn,
        interest,
        deadline_ms: |client| client.connection.deadline_ms(),
        expire,
        // From now on a signal does what it does by default.
        stop: |signals| signals.thread_unblock().is_ok(),
        waits_when_full: true,
    };
}

const LISTENER: u64 = 0;
const SIGNALS: u64 = 1;

/// The loop.
pub fn serve(listener: TcpListener, config: Config, ways: Ways) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    signals.thread_block().context("sigprocmask")?;
    let told = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&told, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let mut door = Some(listener);
    let mut is_open = true;
    let mut core = Core::new(config.limits, OddEven);
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let mut token_last = SIGNALS;
    let mut times = Times::new();
    let mut end: Option<Instant> = None;
    let mut events = [EpollEvent::empty(); 256];
    while end.is_none_or(|end| !clients.is_empty() && Instant::now() < end) {
        let ready = match epoll.wait(&mut events, timeout(&times, end)) {
            Err(Errno::EINTR) => 0,
            ready => ready.context("epoll_wait")?,
        };
        clock(&mut core);
        for event in &events[..ready] {
            match (event.data(), &door) {
                (LISTENER, Some(listener)) => {
                    let next = (ways.accept)(listener, &mut core, clients.len(), &config)?;
                    let Some(mut client) = next else { continue };
                    token_last += 1;
                    epoll.add(&client.socket, EpollEvent::new(client.interest, token_last))?;
                    note(&mut times, token_last, &mut client, &ways);
                    clients.insert(token_last, client);
                }
                (SIGNALS, _) => {
                    let _ = told.read_signal();
                    if !(ways.stop)(&signals) {
                        return Ok(());
                    }
                    door = None;
                    core.stop();
                    end.get_or_insert(Instant::now() + config.drain);
                    clients.values_mut().for_each(|it| it.connection.drain(&mut core, now_ms()));
                    clients.retain(|_, it| it.connection.wants() != Wants::Close);
                    times = clients.iter_mut().map(|(&token, it)| time(token, it, &ways)).collect();
                }
                (token, _) => {
                    let Some(client) = clients.get_mut(&token) else { continue };
                    if (ways.turn)(client, &mut core) && watch(&epoll, token, client, &ways) {
                        note(&mut times, token, client, &ways);
                    } else {
                        times.remove(&(client.due_ms, token));
                        clients.remove(&token);
                    }
                }
            }
        }
        expire_all(&mut clients, &mut times, &mut core, &epoll, &ways);
        let has_room = !ways.waits_when_full || clients.len() < config.connections_max;
        if let Some(listener) = &door
            && is_open != has_room
        {
            is_open = has_room;
            let mask = if is_open { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
            epoll.modify(listener, &mut EpollEvent::new(mask, LISTENER))?;
        }
    }
    Ok(())
}

fn timeout(times: &Times, end: Option<Instant>) -> EpollTimeout {
    let left = times.first().map_or(u64::MAX, |it| it.0.saturating_sub(now_ms()));
    let left = left.min(end.map_or(u64::MAX, |_| 50));
    u16::try_from(left).map_or(EpollTimeout::from(u16::MAX), EpollTimeout::from)
}

/// Asks when something is due for `client`, and puts it into `times`.
fn note(times: &mut Times, token: u64, client: &mut Client, ways: &Ways) {
    let before = (client.due_ms, token);
    let after = time(token, client, ways);
    if before != after {
        times.remove(&before);
        times.insert(after);
    }
}

fn time(token: u64, client: &mut Client, ways: &Ways) -> (u64, u64) {
    client.due_ms = (ways.deadline_ms)(client);
    (client.due_ms, token)
}

fn watch(epoll: &Epoll, token: u64, client: &mut Client, ways: &Ways) -> bool {
    let interest = (ways.interest)(client);
    if interest == client.interest {
        return true;
    }
    client.interest = interest;
    epoll.modify(&client.socket, &mut EpollEvent::new(interest, token)).is_ok()
}

fn expire_all(
    clients: &mut HashMap<u64, Client>,
    times: &mut Times,
    core: &mut Core,
    epoll: &Epoll,
    ways: &Ways,
) {
    let now = now_ms();
    while let Some(&(due_ms, token)) = times.first()
        && due_ms <= now
    {
        times.pop_first();
        let Some(client) = clients.get_mut(&token) else { continue };
        let stays = (ways.deadline_ms)(client) > now
            || (ways.expire)(client, core)
                && (ways.turn)(client, core)
                && watch(epoll, token, client, ways);
        if stays {
            // In the next millisecond, if it is due already: nobody is gone round for ever.
            let (due_ms, token) = time(token, client, ways);
            client.due_ms = due_ms.max(now + 1);
            times.insert((client.due_ms, token));
        } else {
            clients.remove(&token);
        }
    }
}

/// The next client, or none when nobody is there. Where that fails, it is waited a little: the reason may stay.
pub fn accept(
    listener: &TcpListener,
    core: &mut Core,
    _: usize,
    _: &Config,
) -> anyhow::Result<Option<Client>> {
    match listener.accept() {
        Ok((socket, _)) => Client::new(socket, core).map(Some),
        Err(error) => match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
            Errno::EAGAIN => Ok(None),
            Errno::EBADF | Errno::EINVAL => Err(error).context("accept4"),
            _ => {
                std::thread::sleep(Duration::from_millis(50));
                Ok(None)
            }
        },
    }
}

impl Client {
    pub fn new(socket: TcpStream, core: &Core) -> anyhow::Result<Client> {
        socket.set_nonblocking(true).context("ioctl(FIONBIO)")?;
        let _ = socket.set_nodelay(true); // It may be gone already.
        let connection = Connection::new(core, now_ms());
        Ok(Client {
            socket,
            connection,
            interest: EpollFlags::EPOLLIN,
            has_said_goodbye: false,
            due_ms: u64::MAX,
        })
    }
}

pub fn interest(client: &Client) -> EpollFlags {
    match client.connection.wants() {
        Wants::Read | Wants::Linger => EpollFlags::EPOLLIN,
        Wants::Write => EpollFlags::EPOLLOUT,
        // That it has gone is reported all the same.
        Wants::Wait | Wants::Close => EpollFlags::empty(),
    }
}

pub fn expire(client: &mut Client, core: &mut Core) -> bool {
    client.connection.expire(core, now_ms());
    true
}

/// How many calls a client has in a turn before the others have theirs.
const CALLS_MAX: usize = 8;

pub fn turn(client: &mut Client, core: &mut Core) -> bool {
    for _ in 0..CALLS_MAX {
        let has_answered = client.connection.wants() == Wants::Write;
        let done = step(client, core);
        match client.connection.wants() {
            Wants::Close => return false,
            // Level-triggered, epoll says when there is more: no call is made to hear that there is none.
            Wants::Read if has_answered => return true,
            _ => {}
        }
        match done {
            Ok(true) => {}
            Ok(false) => return true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}

/// One call, whichever the client wants: whether there is another one to make.
pub fn step(client: &mut Client, core: &mut Core) -> io::Result<bool> {
    match client.connection.wants() {
        Wants::Read => read(client, core).map(|_| true),
        Wants::Write => write(client, core).map(|()| true),
        Wants::Linger => linger(client),
        Wants::Wait if has_gone(client) => Err(io::ErrorKind::ConnectionReset.into()),
        Wants::Wait | Wants::Close => Ok(false),
    }
}

/// Whether the client has reset its connection: epoll says so at every wait, whatever it is asked.
fn has_gone(client: &Client) -> bool {
    let mut look = [PollFd::new(client.socket.as_fd(), PollFlags::empty())];
    poll(&mut look, PollTimeout::ZERO) == Ok(1)
}

pub fn read(client: &mut Client, core: &mut Core) -> io::Result<usize> {
    let mut bytes = [0; 16384];
    let length = client.socket.read(&mut bytes)?;
    client.connection.feed(core, &bytes[..length], now_ms());
    Ok(length)
}

pub fn write(client: &mut Client, core: &mut Core) -> io::Result<()> {
    let unsent = client.connection.unsent();
    let parts = [io::IoSlice::new(unsent.first), io::IoSlice::new(unsent.second)];
    let length = client.socket.write_vectored(&parts)?;
    client.connection.sent(core, length, now_ms());
    Ok(())
}

/// Everything is sent: half-closes once, and takes what still comes. An error when the client is gone.
fn linger(client: &mut Client) -> io::Result<bool> {
    if !client.has_said_goodbye {
        client.has_said_goodbye = true;
        client.socket.shutdown(Shutdown::Write)?;
    }
    match client.socket.read(&mut [0; 16384])? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(true),
    }
}

/// Serves one client to its end, and waits for nobody else meanwhile.
pub fn converse(socket: TcpStream, config: &Config) -> anyhow::Result<()> {
    let mut core = Core::new(config.limits, OddEven);
    let mut client = Client::new(socket, &core)?;
    loop {
        clock(&mut core);
        if !turn(&mut client, &mut core) {
            return Ok(());
        }
        let events = match client.connection.wants() {
            Wants::Read | Wants::Linger => PollFlags::POLLIN,
            Wants::Write => PollFlags::POLLOUT,
            Wants::Wait | Wants::Close => PollFlags::empty(),
        };
        let left = client.connection.deadline_ms().saturating_sub(now_ms());
        let left = u16::try_from(left).unwrap_or(u16::MAX);
        let mut wait = [PollFd::new(client.socket.as_fd(), events)];
        match poll(&mut wait, PollTimeout::from(left)) {
            Ok(_) | Err(Errno::EINTR) => client.connection.expire(&mut core, now_ms()),
            Err(errno) => return Err(errno).context("poll"),
        }
    }
}
