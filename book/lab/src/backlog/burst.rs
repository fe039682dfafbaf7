//! One burst: a listener that accepts nobody for a while, and clients that all connect in that time.

use crate::link::netlink::Netlink;
use anyhow::{Context, Result, anyhow};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, unshare},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        socket::{
            AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, accept4, bind, connect,
            getsockname, listen, socket,
        },
    },
};
use std::{
    fs,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long the server is busy from the beginning of the burst on. All clients have come by then.
pub const BUSY: Duration = Duration::from_millis(500);

/// Who has not got in by then is given up. The kernel sends a SYN again 1, 2, 3 and 4 s later.
const GIVE_UP: Duration = Duration::from_secs(8);

const LOOK_MS: u16 = 20;

/// The counters of the kernel that say what became of a SYN.
const COUNTERS: [&str; 3] = ["ListenOverflows", "ListenDrops", "TCPReqQFullDoCookies"];

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How long after the beginning each got in, of those who did.
    pub in_after: Vec<Duration>,
    /// The counters, in the order ListenOverflows, ListenDrops, TCPReqQFullDoCookies.
    pub before: Option<[u64; 3]>,
    /// As above.
    pub after: Option<[u64; 3]>,
    /// Whether they are of a namespace in which nothing else happens.
    pub own_namespace: bool,
}

/// Lets `clients` connect to a listener that asked for `backlog`.
///
/// # Errors
/// If a system call fails, such as for want of descriptors.
pub fn burst(backlog: usize, clients: usize, stop: &AtomicBool) -> Result<Seen> {
    // A namespace is a thread's: this one has none but ours, and both end together.
    thread::scope(|scope| {
        let all = scope.spawn(|| {
            let own_namespace = unshare_loopback();
            let before = counters();
            let in_after = connect_all(backlog, clients, stop)?;
            Ok(Seen { in_after, before, after: counters(), own_namespace })
        });
        all.join().unwrap_or_else(|_| Err(anyhow!("a thread of the burst panicked")))
    })
}

/// Takes this thread to a network of its own, in which there is only loopback. `false` where that is not
/// allowed: then it stays where it is.
fn unshare_loopback() -> bool {
    unshare(CloneFlags::CLONE_NEWNET).is_ok()
        && Netlink::open().and_then(|netlink| netlink.switch_on("lo", 0)).is_ok()
}

/// The counters of this thread's network; `None` where the kernel does not show them.
fn counters() -> Option<[u64; 3]> {
    parse(&fs::read_to_string("/proc/thread-self/net/netstat").ok()?)
}

/// In pairs of lines: names, and below them the values.
fn parse(text: &str) -> Option<[u64; 3]> {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let [names, values] = lines[..] else { return None };
    let value = |name: &str| {
        let at = names.split(' ').position(|it| it == name)?;
        values.split(' ').nth(at)?.parse().ok()
    };
    Some([value(COUNTERS[0])?, value(COUNTERS[1])?, value(COUNTERS[2])?])
}

fn connect_all(backlog: usize, clients: usize, stop: &AtomicBool) -> Result<Vec<Duration>> {
    let listener = tcp_socket()?;
    bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).context("bind to 127.0.0.1")?;
    let length = Backlog::new(i32::try_from(backlog)?).context("a backlog beyond SOMAXCONN")?;
    listen(&listener, length).context("listen")?;
    let address: SockaddrIn = getsockname(listener.as_raw_fd()).context("getsockname")?;
    let (start, over) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        let server = scope.spawn(|| accept_all(&listener, start, &over));
        let seen = come(address, clients, start, stop);
        over.store(true, Ordering::Relaxed);
        let served = server.join().unwrap_or_else(|_| Err(anyhow!("the listener panicked")));
        served.and(seen)
    })
}

/// Is busy, and then accepts everybody and lets them go.
fn accept_all(listener: &OwnedFd, start: Instant, over: &AtomicBool) -> Result<()> {
    thread::sleep(BUSY.saturating_sub(start.elapsed()));
    while !over.load(Ordering::Relaxed) {
        match accept4(listener, SockFlag::SOCK_CLOEXEC) {
            Ok(client) => drop(client),
            Err(Errno::EAGAIN) => {
                let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
                poll(&mut ready, PollTimeout::from(LOOK_MS)).context("poll")?;
            }
            Err(Errno::EINTR | Errno::ECONNABORTED) => {}
            Err(error) => return Err(error).context("accept4"),
        }
    }
    Ok(())
}

/// All connect, as quickly as one thread can, and then wait until they are in. How long each took.
fn come(
    address: SockaddrIn,
    clients: usize,
    start: Instant,
    stop: &AtomicBool,
) -> Result<Vec<Duration>> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
    let mut sockets = Vec::with_capacity(clients);
    let mut in_after = Vec::with_capacity(clients);
    for number in 0..clients as u64 {
        let client = tcp_socket()?;
        match connect(client.as_raw_fd(), &address) {
            Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => {}
            Err(error) => return Err(error).context("connect: one of the burst"),
        }
        let once = EpollFlags::EPOLLOUT | EpollFlags::EPOLLONESHOT;
        epoll.add(&client, EpollEvent::new(once, number)).context("epoll_ctl(ADD)")?;
        sockets.push(client);
        // Whoever is in already is seen as soon as possible.
        if number % 64 == 63 {
            collect(&epoll, start, 0, &mut in_after)?;
        }
    }
    while in_after.len() < clients && start.elapsed() < GIVE_UP && !stop.load(Ordering::Relaxed) {
        collect(&epoll, start, LOOK_MS, &mut in_after)?;
    }
    // They stay until the listener has had its time: who has left takes no place in the queue.
    thread::sleep(BUSY.saturating_sub(start.elapsed()));
    Ok(in_after)
}

fn collect(
    epoll: &Epoll,
    start: Instant,
    wait_ms: u16,
    in_after: &mut Vec<Duration>,
) -> Result<()> {
    let mut events = [EpollEvent::empty(); 256];
    let count = match epoll.wait(&mut events, EpollTimeout::from(wait_ms)) {
        Err(Errno::EINTR) => 0,
        other => other.context("epoll_wait")?,
    };
    let is_in = |event: &&EpollEvent| !event.events().contains(EpollFlags::EPOLLERR);
    let now = start.elapsed();
    in_after.extend(events[..count].iter().filter(is_in).map(|_| now));
    Ok(())
}

fn tcp_socket() -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Inet, SockType::Stream, flags, None).context("socket")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_stand_below_their_names() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPReqQFullDoCookies Last\n\
                    TcpExt: 1 22 333 0 5\nIpExt: InNoRoutes\nIpExt: 7\n";
        assert_eq!(parse(text), Some([22, 333, 0]));
        assert_eq!(parse("TcpExt: A\nTcpExt: 1\n"), None);
        assert_eq!(parse(""), None);
        assert!(counters().is_some(), "this kernel has them");
    }

    #[test]
    fn the_queue_lets_in_its_limit_and_one() {
        let seen = burst(4, 20, &AtomicBool::new(false)).unwrap();
        let at_once = seen.in_after.iter().filter(|it| **it < BUSY).count();
        assert_eq!(at_once, 5);
        assert!(seen.in_after.len() > at_once, "the others get in when their SYN comes again");
        if seen.own_namespace {
            let grown = seen.after.unwrap()[0] - seen.before.unwrap()[0];
            assert!(grown >= 15, "each of the others overflowed the queue: {grown}");
        }
    }
}
