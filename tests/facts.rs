//! What the pages say of Linux itself, each sentence a test on this machine.
//!
//! The servers stand on these facts, and some of them are commonly told otherwise. No server of ours
//! runs here: the tests make the sockets themselves.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{fs, thread};

use contract::server::{Client, End};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, SockaddrStorage, accept4, bind, connect,
    getpeername, getsockname, getsockopt, listen, send, setsockopt, socket, sockopt,
};

type Fact = fn() -> anyhow::Result<Completion>;

const FACTS: [(&str, Fact); 12] = [
    ("a_backlog_of_n_lets_n_plus_one_in", backlog_plus_one),
    ("the_others_come_in_later_and_nobody_is_refused", nobody_is_refused),
    ("even_tcp_abort_on_overflow_refuses_no_syn", abort_on_overflow),
    ("listen_cuts_the_backlog_to_somaxconn", somaxconn),
    ("keepalive_does_not_end_a_silent_client_that_lives", keepalive),
    ("an_accepted_socket_does_not_inherit_o_nonblock", nonblocking_is_not_inherited),
    ("accept_reports_emfile_before_it_looks_at_the_queue", emfile_before_eagain),
    ("a_client_that_reset_is_accepted_without_a_peer", no_peer),
    ("closing_with_unread_input_resets", unread_input_resets),
    ("a_half_close_is_one_event_in_and_rdhup", half_close_event),
    ("a_reset_is_reported_to_an_empty_interest_and_a_fin_is_not", empty_interest),
    ("a_port_in_time_wait_wants_so_reuseaddr_before_and_after", time_wait),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(4);
    let trials = FACTS.map(|(name, fact)| {
        Trial::ignorable_test(name, move || fact().map_err(|it| Failed::from(format!("{it:#}"))))
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

const SOON: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(10);

fn backlog_plus_one() -> anyhow::Result<Completion> {
    for backlog in [0, 1, 4, 16] {
        let listener = listener("127.0.0.1:0", backlog, true)?;
        let clients = burst(address(&listener)?, 40)?;
        thread::sleep(SOON);
        let inside = clients.iter().filter(|it| is_connected(it)).count();
        let expected = usize::try_from(backlog)? + 1;
        anyhow::ensure!(inside == expected, "listen({backlog}): {inside} got in, not {expected}");
    }
    Ok(Completion::Completed)
}

/// Those whose SYN was dropped send it again a second later, all at once. The kernel, whose queue of
/// handshakes is as short as the other one, then answers with SYN cookies: they believe that they are
/// connected, and the listener learns of them by their first byte. One that waits for the server to
/// speak first would wait for ever; our clients speak first.
fn nobody_is_refused() -> anyhow::Result<Completion> {
    let listener = listener("127.0.0.1:0", 1, true)?;
    let clients = burst(address(&listener)?, 10)?;
    thread::sleep(SOON);
    let start = Instant::now();
    let mut asked = vec![false; clients.len()];
    let mut accepted = Vec::new();
    while accepted.len() < clients.len() && start.elapsed() < 3 * LONG {
        for (client, asked) in clients.iter().zip(&mut asked) {
            let error = getsockopt(client, sockopt::SocketError)?;
            anyhow::ensure!(error == 0, "one was refused: {}", Errno::from_raw(error));
            if !*asked && is_connected(client) {
                *asked = send(client.as_raw_fd(), b"7\n", MsgFlags::MSG_NOSIGNAL).is_ok();
            }
        }
        let mut wait = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut wait, PollTimeout::from(20u8))? == 1 {
            accepted.push(accept4(&listener, SockFlag::SOCK_CLOEXEC)?);
        }
    }
    anyhow::ensure!(accepted.len() == clients.len(), "{} of 10 came in", accepted.len());
    Ok(Completion::Completed)
}

fn abort_on_overflow() -> anyhow::Result<Completion> {
    in_a_namespace(|| {
        fs::write("/proc/sys/net/ipv4/tcp_abort_on_overflow", "1")?;
        let listener = listener("127.0.0.1:0", 1, true)?;
        let clients = burst(address(&listener)?, 40)?;
        thread::sleep(SOON);
        // Even now a SYN that finds the queue full is dropped: the reset is for a handshake that was
        // under way when the queue filled up, and on loopback there is none.
        let inside = clients.iter().filter(|it| is_connected(it)).count();
        anyhow::ensure!(inside == 2, "{inside} got in");
        for client in &clients {
            let error = getsockopt(client, sockopt::SocketError)?;
            anyhow::ensure!(error == 0, "one was refused: {}", Errno::from_raw(error));
        }
        Ok(())
    })
}

fn somaxconn() -> anyhow::Result<Completion> {
    in_a_namespace(|| {
        fs::write("/proc/sys/net/core/somaxconn", "8")?;
        let listener = listener("127.0.0.1:0", 4096, true)?;
        let clients = burst(address(&listener)?, 40)?;
        thread::sleep(SOON);
        let inside = clients.iter().filter(|it| is_connected(it)).count();
        anyhow::ensure!(inside == 9, "listen(4096) with somaxconn 8: {inside} got in");
        Ok(())
    })
}

/// Runs `fact` in a network namespace of its own, whose switches are not the machine's.
fn in_a_namespace(
    fact: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<Completion> {
    // A thread of its own: its namespace ends with it.
    let outcome = thread::spawn(|| {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
            let needs = format!("NEEDS a network namespace: unshare: {errno}: run it as root");
            return Ok(Completion::ignored_with(needs));
        }
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        if !up.is_ok_and(|it| it.success()) {
            return Ok(Completion::ignored_with("NEEDS the command `ip`: install iproute2"));
        }
        fact().map(|()| Completion::Completed)
    });
    outcome.join().map_err(|_| anyhow::anyhow!("the thread panicked"))?
}

fn keepalive() -> anyhow::Result<Completion> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut silent = Client::connect(listener.local_addr()?, "a silent client", LONG)?;
    let (mut server, _) = listener.accept()?;
    // As eager as it can be: a probe after a second, and one lost probe ends the connection.
    setsockopt(&server, sockopt::KeepAlive, &true)?;
    setsockopt(&server, sockopt::TcpKeepIdle, &1)?;
    setsockopt(&server, sockopt::TcpKeepInterval, &1)?;
    setsockopt(&server, sockopt::TcpKeepCount, &1)?;
    // The client's kernel answers each probe; its program is not asked.
    server.set_read_timeout(Some(Duration::from_secs(4)))?;
    let error = server.read(&mut [0; 1]).expect_err("the client says nothing");
    anyhow::ensure!(error.kind() == ErrorKind::WouldBlock, "keepalive ended it: {error}");
    anyhow::ensure!(silent.is_held(), "the client was let go");
    Ok(Completion::Completed)
}

fn nonblocking_is_not_inherited() -> anyhow::Result<Completion> {
    let listener = listener("127.0.0.1:0", 1, true)?;
    let _client = TcpStream::connect(address(&listener)?)?;
    wait_for(&listener)?;
    let plain = accept4(&listener, SockFlag::SOCK_CLOEXEC)?;
    anyhow::ensure!(
        !is_nonblocking(&plain)?,
        "accept4 without the flag gave a non-blocking socket"
    );
    let _client = TcpStream::connect(address(&listener)?)?;
    wait_for(&listener)?;
    let flagged = accept4(&listener, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
    anyhow::ensure!(is_nonblocking(&flagged)?, "accept4 with the flag gave a blocking socket");
    Ok(Completion::Completed)
}

/// In a process of its own, since the limit is the process's.
fn emfile_before_eagain() -> anyhow::Result<Completion> {
    const INNER: &str = "THE_STALLED_CLIENT_EMFILE";
    if std::env::var_os(INNER).is_none() {
        let output = Command::new(std::env::current_exe()?)
            .args([
                "--exact",
                "accept_reports_emfile_before_it_looks_at_the_queue",
                "--test-threads=1",
            ])
            .env(INNER, "1")
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        anyhow::ensure!(output.status.success(), "{text}");
        return Ok(Completion::Completed);
    }
    let listener = listener("127.0.0.1:0", 1, true)?;
    let empty = accept4(&listener, SockFlag::SOCK_CLOEXEC);
    anyhow::ensure!(matches!(empty, Err(Errno::EAGAIN)), "an empty queue gave {empty:?}");
    // One descriptor after the other, until there is none.
    let mut held = Vec::new();
    contract::sys::limit_descriptors(std::process::id(), 64)?;
    while let Ok(file) = fs::File::open("/dev/null") {
        held.push(file);
    }
    let full = accept4(&listener, SockFlag::SOCK_CLOEXEC);
    anyhow::ensure!(
        matches!(full, Err(Errno::EMFILE)),
        "an empty queue at the limit gave {full:?}"
    );
    Ok(Completion::Completed)
}

fn no_peer() -> anyhow::Result<Completion> {
    let listener = listener("127.0.0.1:0", 1, true)?;
    Client::connect(address(&listener)?, "a client", LONG)?.reset()?;
    wait_for(&listener)?;
    thread::sleep(Duration::from_millis(50));
    let accepted = accept4(&listener, SockFlag::SOCK_CLOEXEC)?;
    let peer = getpeername::<SockaddrStorage>(accepted.as_raw_fd());
    anyhow::ensure!(peer == Err(Errno::ENOTCONN), "getpeername gave {peer:?}");
    let mut accepted = TcpStream::from(accepted);
    let first = accepted.read(&mut [0; 1]).map_err(|it| it.kind());
    anyhow::ensure!(first == Err(ErrorKind::ConnectionReset), "the first read gave {first:?}");
    let second = accepted.read(&mut [0; 1]).map_err(|it| it.kind());
    anyhow::ensure!(second == Ok(0), "the second read gave {second:?}");
    Ok(Completion::Completed)
}

fn unread_input_resets() -> anyhow::Result<Completion> {
    for (read_first, end) in [(false, End::Reset), (true, End::Closed)] {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut client = Client::connect(listener.local_addr()?, "a client", LONG)?;
        client.send(b"7\nand more")?;
        let (mut server, _) = listener.accept()?;
        server.read_exact(&mut [0; 2])?;
        if read_first {
            server.read_exact(&mut [0; 8])?;
        }
        server.write_all(b"Odd\n")?;
        drop(server);
        let heard = client.hear(LONG);
        anyhow::ensure!(heard.bytes == b"Odd\n" && heard.end == end, "heard {heard}");
    }
    Ok(Completion::Completed)
}

fn half_close_event() -> anyhow::Result<Completion> {
    let (mut client, server) = pair()?;
    let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    let epoll = watch(&server, interest)?;
    client.write_all(b"7\n")?;
    client.shutdown(Shutdown::Write)?;
    thread::sleep(Duration::from_millis(50));
    let expected = vec![EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP];
    let seen = events(&epoll)?;
    anyhow::ensure!(seen == expected, "a request and a half-close gave {seen:?}");
    Ok(Completion::Completed)
}

fn empty_interest() -> anyhow::Result<Completion> {
    let (client, server) = pair()?;
    let epoll = watch(&server, EpollFlags::empty())?;
    client.shutdown(Shutdown::Write)?;
    thread::sleep(Duration::from_millis(50));
    let seen = events(&epoll)?;
    anyhow::ensure!(seen.is_empty(), "a FIN was reported: {seen:?}");
    Client::adopt(client, "a client")?.reset()?;
    thread::sleep(Duration::from_millis(50));
    for _ in 0..3 {
        let seen = events(&epoll)?;
        let hang_up = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP;
        anyhow::ensure!(seen.len() == 1 && seen[0].contains(hang_up), "a reset gave {seen:?}");
    }
    Ok(Completion::Completed)
}

fn time_wait() -> anyhow::Result<Completion> {
    for (before, after, allowed) in [(true, true, true), (false, true, false), (true, false, false)]
    {
        // An address of its own: other tests' clients hold ports of 127.0.0.1.
        let old = listener_with("127.45.6.7:0", 1, false, before)?;
        let at = address(&old)?;
        let mut client = TcpStream::connect(at)?;
        let accepted = accept4(&old, SockFlag::SOCK_CLOEXEC)?;
        drop(accepted); // The server closes first, so that TIME_WAIT is its own.
        client.read_to_end(&mut Vec::new())?;
        drop((client, old));
        thread::sleep(Duration::from_millis(50));
        let new = listener_with(&at.to_string(), 1, false, after);
        anyhow::ensure!(
            new.is_ok() == allowed,
            "SO_REUSEADDR on the old one: {before}, on the new one: {after}: bind gave {new:?}"
        );
    }
    Ok(Completion::Completed)
}

// Helpers.

fn listener(at: &str, backlog: i32, nonblocking: bool) -> anyhow::Result<OwnedFd> {
    listener_with(at, backlog, nonblocking, true)
}

fn listener_with(
    at: &str,
    backlog: i32,
    nonblocking: bool,
    reuse: bool,
) -> anyhow::Result<OwnedFd> {
    let mut flags = SockFlag::SOCK_CLOEXEC;
    flags.set(SockFlag::SOCK_NONBLOCK, nonblocking);
    let listener = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    setsockopt(&listener, sockopt::ReuseAddr, &reuse)?;
    bind(listener.as_raw_fd(), &SockaddrStorage::from(at.parse::<SocketAddr>()?))?;
    listen(&listener, Backlog::new(backlog)?)?;
    Ok(listener)
}

fn address(listener: &OwnedFd) -> anyhow::Result<SocketAddr> {
    let name: SockaddrStorage = getsockname(listener.as_raw_fd())?;
    Ok(name.to_string().parse()?)
}

/// So many clients that begin to connect at once.
fn burst(server: SocketAddr, clients: usize) -> anyhow::Result<Vec<OwnedFd>> {
    let mut sockets = Vec::new();
    for _ in 0..clients {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let client = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
        match connect(client.as_raw_fd(), &SockaddrStorage::from(server)) {
            Ok(()) | Err(Errno::EINPROGRESS) => sockets.push(client),
            Err(errno) => anyhow::bail!("connect: {errno}"),
        }
    }
    Ok(sockets)
}

fn is_connected(client: &OwnedFd) -> bool {
    getpeername::<SockaddrStorage>(client.as_raw_fd()).is_ok()
}

fn is_nonblocking(socket: &OwnedFd) -> anyhow::Result<bool> {
    let flags = OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL)?);
    Ok(flags.contains(OFlag::O_NONBLOCK))
}

fn wait_for(listener: &OwnedFd) -> anyhow::Result<()> {
    let mut wait = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    anyhow::ensure!(poll(&mut wait, PollTimeout::from(10_000u16))? == 1, "nobody came");
    Ok(())
}

/// A client and its connection at the server.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    Ok((client, listener.accept()?.0))
}

fn watch(socket: &TcpStream, interest: EpollFlags) -> anyhow::Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(socket, EpollEvent::new(interest, 0))?;
    Ok(epoll)
}

/// What one look reports.
fn events(epoll: &Epoll) -> anyhow::Result<Vec<EpollFlags>> {
    let mut events = [EpollEvent::empty(); 8];
    let ready = epoll.wait(&mut events, EpollTimeout::ZERO)?;
    Ok(events[..ready].iter().map(EpollEvent::events).collect())
}
