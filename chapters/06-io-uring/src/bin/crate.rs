//! Chapter 06 on the io-uring crate: the same server, where the crate makes the ring.
//!
//! What differs is `crate_ring.rs`, to be compared with `ring.rs`. The reactor does not see it.

#[path = "../clients.rs"]
mod clients;
#[path = "../command_line.rs"]
mod command_line;
#[path = "../cores.rs"]
mod cores;
#[path = "../group.rs"]
mod group;
#[path = "../orphan.rs"]
mod orphan;
#[path = "../reactor.rs"]
mod reactor;
#[expect(unsafe_code, reason = "a buffer that is lent to the kernel is the kernel's to write to")]
#[path = "../crate_ring.rs"]
mod ring;

use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::Context;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{self, SockFlag, SockType, SockaddrLike, sockopt};

use reactor::{LISTENER, NOBODY, QUEUE, Reactor, STOP};
use ring::{Operation, Ring};

const BACKLOG: i32 = 4096;
const BUFFERS: usize = 128;
const COMPLETIONS_MAX: usize = 256;
const ENTRIES: usize = 256;
const OPTIONS: [&str; 3] = ["--reactors", "--entries", "--buffers"];

fn main() -> ExitCode {
    command_line::run(OPTIONS, |address, [reactors, sizes @ ..]| {
        let cores = cores::allowed()?;
        let reactors = reactors.unwrap_or(cores.len());
        let elders = group::Elders::on(address);
        match elders.sentence() {
            Some(sentence) => command_line::say(sentence),
            None => orphan::wait_for(address), // Of a ring whose process was killed just now.
        }
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
    })
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
        command_line::say(format_args!("{}: {error:#}", env!("CARGO_BIN_NAME")));
        std::process::exit(1);
    }
}

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

fn serve(listener: OwnedFd, stop: &EventFd, mut ring: Ring) -> anyhow::Result<()> {
    let mut reactor = Reactor::new(listener.as_raw_fd());
    reactor.asked.push(Operation::readable(stop.as_raw_fd(), STOP));
    // None when this reactor takes in nobody any more; then it ends with its last client.
    let mut open = Some(listener);
    let mut is_told = false;
    while open.is_some() || reactor.clients() > 0 {
        let timeout = reactor.timeout(Instant::now());
        ring.enter(&mut reactor.asked, timeout)?;
        let now = Instant::now();
        for _ in 0..COMPLETIONS_MAX {
            let Some(done) = ring.completed() else { break };
            match done.token {
                LISTENER | QUEUE => reactor.accept(&done, now)?,
                STOP => reactor.stop(),
                NOBODY => {}
                _ => reactor.converse(&done),
            }
        }
        if ring.has_overflowed() && !mem::replace(&mut is_told, true) {
            command_line::say("the completion queue ran over: more --entries would save some work");
        }
        reactor.let_go(now);
        if reactor.is_closed() {
            open = None;
        }
    }
    Ok(())
}
