//! Serve many, answer all: one reactor for each core, each with a listener and a ring of its own.

mod frame;
mod mine;
mod poll;
mod ring;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{self, SockFlag, SockType, SockaddrLike, SockaddrStorage, sockopt};

const BACKLOG: i32 = 4096;

/// How long nobody is accepted when there is no descriptor for them.
const PAUSE: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let reactors = std::env::args().nth(2).and_then(|it| it.parse().ok());
    match run(&address, reactors) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(address: &str, reactors: Option<usize>) -> anyhow::Result<()> {
    let address: SocketAddr =
        address.parse().with_context(|| format!("{address:?} is no IP address and port"))?;
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let first = listen(address)?;
    let address = first.local_addr().context("getsockname")?;
    let mut listeners = vec![first];
    for _ in 1..reactors.unwrap_or_else(cores).max(1) {
        listeners.push(listen(address)?);
    }
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block().context("sigprocmask")?;
    let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("eventfd")?;
    thread::scope(|scope| {
        for listener in listeners {
            let stop = &stop;
            scope.spawn(move || {
                if let Err(error) = react(listener, stop) {
                    eprintln!("server: {error:#}");
                    std::process::exit(1);
                }
            });
        }
        println!("listening on {address}");
        signals.wait().context("sigwait")?;
        stop.write(1).context("write(eventfd)")?;
        Ok(())
    })
}

/// One reactor, to its end: with a ring where there is one, else with epoll.
fn react(listener: TcpListener, stop: &EventFd) -> anyhow::Result<()> {
    match ring::Reactor::new(listener, stop) {
        Ok(reactor) => reactor.serve(),
        Err((listener, error)) => {
            eprintln!("server: epoll instead of io_uring: {error:#}");
            poll::Reactor::new(listener, stop)?.serve()
        }
    }
}

fn patience() -> Duration {
    Duration::from_millis(mine::patience_ms())
}

/// Whether an `accept` has failed since there is too little of something: a wait may help.
fn has_too_little(errno: Errno) -> bool {
    matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let name = SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    // Not SOCK_NONBLOCK: an operation of a ring that must not wait would fail instead.
    let listener = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let listener = listener.context("socket")?;
    socket::setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt")?;
    socket::setsockopt(&listener, sockopt::ReusePort, &true).context("setsockopt")?;
    socket::bind(listener.as_raw_fd(), &name).with_context(|| format!("bind({address})"))?;
    socket::listen(&listener, socket::Backlog::new(BACKLOG)?).context("listen")?;
    Ok(listener.into())
}
