//! A server whose behaviour is known, inside of this process: the ruler by which the generator is checked.

use crate::clock::{now_ns, to_timespec};
use anyhow::{Context, Result};
use mio::{
    Events, Interest, Poll, Token, Waker,
    net::{TcpListener, TcpStream},
    unix::SourceFd,
};
use nix::sys::{
    socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
    },
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use std::{
    collections::{HashMap, VecDeque},
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

const LISTENER: Token = Token(usize::MAX - 1);
const TIMER: Token = Token(usize::MAX - 2);
const WAKER: Token = Token(usize::MAX - 3);

/// What the server does to each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers right, this long after the request is complete.
    Answer(Duration),
    /// Answers at once, and once, this long after its first client, does nothing at all for a second.
    FreezeAfter(Duration),
    /// Answers something else than the protocol demands.
    Wrong,
    /// Answers right, and resets instead of closing.
    AnswerAndReset,
    /// Answers right, and never closes.
    AnswerAndStay,
    /// Sends the first byte of the answer, and closes.
    Half,
    /// Closes without an answer.
    Close,
    /// Resets without an answer.
    Reset,
    /// Neither answers nor closes.
    Never,
    /// Answers at once, and lets go who has not asked this long after it came.
    Patience(Duration),
}

/// One request as the server saw it, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// When the last byte of the request had been read.
    pub requested_ns: u64,
    /// When the answer was about to be sent: nobody can have it earlier.
    pub answered_ns: u64,
}

/// A server in a thread of its own. It ends when it is dropped.
pub struct KnownServer {
    /// Where it listens.
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<Served>>>,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl KnownServer {
    /// Starts to listen on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If a system call fails, such as for want of descriptors.
    pub fn start(behaviour: Behaviour) -> Result<KnownServer> {
        let poll = Poll::new().context("epoll_create1")?;
        let mut listener = listen()?;
        let address = listener.local_addr().context("getsockname")?;
        let registry = poll.registry();
        registry.register(&mut listener, LISTENER, Interest::READABLE).context("epoll_ctl")?;
        let waker = Arc::new(Waker::new(registry, WAKER).context("eventfd")?);
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).context("timerfd_create")?;
        let raw = timer.as_fd().as_raw_fd();
        registry.register(&mut SourceFd(&raw), TIMER, Interest::READABLE).context("epoll_ctl")?;
        let log = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let mut server = Server {
            behaviour,
            poll,
            listener,
            timer,
            stop: stop.clone(),
            log: log.clone(),
            clients: HashMap::new(),
            next: 0,
            owed: VecDeque::new(),
            freeze_ns: None,
        };
        let builder = thread::Builder::new().name("known-server".into());
        let thread = builder.spawn(move || server.serve()).context("clone: no thread")?;
        Ok(KnownServer { address, log, stop, waker, thread: Some(thread) })
    }

    /// Every request that has been answered so far.
    pub fn log(&self) -> Vec<Served> {
        self.log.lock().map(|log| log.clone()).unwrap_or_default()
    }
}

/// A listener on a free port, with the longest accept queue that there is: while the server stands still,
/// nobody's SYN may be dropped, for it would come again in a second, and somebody else's wait would show.
fn listen() -> Result<TcpListener> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Inet, SockType::Stream, flags, None).context("socket")?;
    bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).context("bind to 127.0.0.1")?;
    nix::sys::socket::listen(&listener, Backlog::MAXALLOWABLE).context("listen")?;
    Ok(TcpListener::from_std(std::net::TcpListener::from(listener)))
}

impl Drop for KnownServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.waker.wake();
        // A test that has met a server which ended early is told why.
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the known server has ended: {error:#}");
        }
    }
}

struct Server {
    behaviour: Behaviour,
    poll: Poll,
    listener: TcpListener,
    timer: TimerFd,
    stop: Arc<AtomicBool>,
    log: Arc<Mutex<Vec<Served>>>,
    clients: HashMap<usize, Client>,
    next: usize,
    /// Answers that are due later. All wait equally long, so that the queue is sorted by itself.
    owed: VecDeque<(u64, usize)>,
    freeze_ns: Option<u64>,
}

struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    requested_ns: u64,
}

impl Server {
    fn serve(&mut self) -> Result<()> {
        nix::sys::prctl::set_timerslack(1).context("prctl(PR_SET_TIMERSLACK)")?;
        let mut events = Events::with_capacity(1024);
        while !self.stop.load(Ordering::Relaxed) {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other.context("epoll_wait")?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    TIMER | WAKER => {}
                    Token(key) => self.read(key)?,
                }
            }
            self.freeze_once();
            self.pay()?;
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                // Out of descriptors, or a client that went early: the next event tries again.
                Err(_) => return Ok(()),
            };
            if let (Behaviour::FreezeAfter(after), None) = (self.behaviour, self.freeze_ns) {
                self.freeze_ns = Some(now_ns() + after.as_nanos() as u64);
            }
            let key = self.next;
            self.next += 1;
            let registry = self.poll.registry();
            registry
                .register(&mut stream, Token(key), Interest::READABLE)
                .context("epoll_ctl(ADD) of a client")?;
            self.clients.insert(key, Client { stream, request: Vec::new(), requested_ns: 0 });
            if let Behaviour::Patience(patience) = self.behaviour {
                self.owed.push_back((now_ns() + patience.as_nanos() as u64, key));
            }
            // The request is often there already: mio tells of it in the next round.
        }
    }

    fn read(&mut self, key: usize) -> Result<()> {
        let Some(client) = self.clients.get_mut(&key) else { return Ok(()) };
        let mut buffer = [0; 256];
        loop {
            match client.stream.read(&mut buffer) {
                Ok(0) => {
                    self.clients.remove(&key);
                    return Ok(());
                }
                Ok(count) => client.request.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.clients.remove(&key);
                    return Ok(());
                }
            }
        }
        if client.request.last() != Some(&b'\n') || client.requested_ns != 0 {
            return Ok(());
        }
        client.requested_ns = now_ns();
        match self.behaviour {
            Behaviour::Answer(delay) if !delay.is_zero() => {
                self.owed.push_back((client.requested_ns + delay.as_nanos() as u64, key));
            }
            Behaviour::Never => {}
            _ => self.answer(key),
        }
        Ok(())
    }

    fn answer(&mut self, key: usize) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let odd = client.request.iter().rev().find(|byte| byte.is_ascii_digit());
        let right: &[u8] = match odd.is_some_and(|digit| digit % 2 == 1) {
            true => b"Odd\n",
            false => b"Even\n",
        };
        let said: &[u8] = match self.behaviour {
            Behaviour::Wrong => b"Perhaps\n",
            Behaviour::Half => &right[..1],
            Behaviour::Close | Behaviour::Reset => b"",
            _ => right,
        };
        let served = Served { requested_ns: client.requested_ns, answered_ns: now_ns() };
        if let Ok(mut log) = self.log.lock() {
            log.push(served);
        }
        // A few bytes always fit into the empty buffer of a new connection.
        let _ = client.stream.write_all(said);
        match self.behaviour {
            Behaviour::AnswerAndStay => return,
            Behaviour::Reset | Behaviour::AnswerAndReset => {
                let linger = libc::linger { l_onoff: 1, l_linger: 0 };
                let _ = setsockopt(&client.stream, sockopt::Linger, &linger);
            }
            _ => drop(client.stream.shutdown(Shutdown::Write)),
        }
        self.clients.remove(&key);
    }

    fn freeze_once(&mut self) {
        if self.freeze_ns.is_some_and(|at| at <= now_ns()) {
            self.freeze_ns = Some(u64::MAX);
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// Sends the answers that are due, and sets the timer for the next one.
    fn pay(&mut self) -> Result<()> {
        while let Some((at, key)) = self.owed.front().copied() {
            if at > now_ns() {
                let expiration = Expiration::OneShot(to_timespec(at));
                let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
                return self.timer.set(expiration, flags).context("timerfd_settime");
            }
            self.owed.pop_front();
            match self.behaviour {
                Behaviour::Patience(_) => drop(self.clients.remove(&key)),
                _ => self.answer(key),
            }
        }
        Ok(())
    }
}
