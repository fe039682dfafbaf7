//! The stall microscope: which thread of a server sleeps, in which system call, on which client, and
//! who waits meanwhile.
//!
//! Nearly all of it is read from /proc (see proc(5)): `task/TID/syscall` names the call and its first argument,
//! which for the calls that matter here is a descriptor; `fd/N` names the socket behind it; the kernel's
//! list of sockets names its two ends. A client that the server has not accepted yet is ESTABLISHED
//! there with inode 0, since no process has it open. No root is needed to look at a child of one's own; where
//! /proc refuses, the view says so and holds the rest.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;

use crate::{processes, sock_diag};

/// What a server is doing at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// Its threads, the first one first.
    pub threads: Vec<Thread>,
    /// How many clients the kernel holds in the accept queue, or `None` where that cannot be seen.
    pub queue_length: Option<usize>,
    /// The clients that have connected and that nobody has accepted.
    pub waiting: Vec<SocketAddr>,
    /// What could not be looked at, and why.
    pub refused: Option<String>,
}

/// One thread of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The kernel's number.
    pub id: u32,
    /// What it does.
    pub does: Does,
}

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// It runs, or waits for a core.
    Runs,
    /// It sleeps in a system call.
    Sleeps {
        /// The call's name, or its number where we have no name for it.
        call: String,
        /// What it waits for.
        on: Object,
    },
    /// It could not be seen.
    Hidden,
}

/// What a system call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// Bytes from this client.
    Client(SocketAddr),
    /// A client to accept.
    Listener,
    /// Anything at all: an epoll instance or a ring.
    Everything,
    /// Something else, or nothing.
    Other,
}

/// Looks at process `pid`, which listens on `port`.
pub fn look(pid: u32, port: u16) -> View {
    look_at(&[pid], port)
}

/// Looks at a process and its children, `pids`, that listen on `port`.
pub fn look_at(pids: &[u32], port: u16) -> View {
    // The threads first: they are what changes.
    let calls: Vec<_> = pids
        .iter()
        .flat_map(|&pid| processes::tasks(pid).into_iter().map(move |id| (pid, id)))
        .map(|(pid, id)| (pid, id, fs::read_to_string(format!("/proc/{pid}/task/{id}/syscall"))))
        .collect();
    let sockets = sockets(pids.first().copied().unwrap_or(0), port);
    let mut refused = None;
    let threads = calls
        .into_iter()
        .map(|(pid, id, call)| {
            let does = match call {
                Ok(text) => interpret(&text, |descriptor| object(pid, descriptor, &sockets)),
                Err(error) => {
                    refused = Some(format!(
                        "/proc/{pid}/task/{id}/syscall: {error}: a container or \
                         kernel.yama.ptrace_scope may forbid to look at another process"
                    ));
                    Does::Hidden
                }
            };
            Thread { id, does }
        })
        .collect();
    // Where several share the port, each has a queue of its own.
    let listeners = sockets.iter().filter(|it| it.state == LISTEN && it.local.port() == port);
    let queue_length = listeners.map(|it| it.receive_queue).reduce(|a, b| a + b);
    let unaccepted =
        |it: &&Socket| it.state == ESTABLISHED && it.inode == 0 && it.local.port() == port;
    let waiting = sockets.iter().filter(unaccepted).map(|it| it.peer).collect();
    View { threads, queue_length, waiting, refused }
}

/// Whether the server on `port` of process `pid` has accepted the client at `client`, and taken in all
/// that it sent. `None` where that cannot be seen.
pub fn has_taken_in(pid: u32, port: u16, client: SocketAddr) -> Option<bool> {
    let sockets = sockets(pid, port);
    if sockets.is_empty() {
        return None;
    }
    let ours = sockets.iter().find(|it| it.local == client && it.peer.port() == port);
    let its = sockets.iter().find(|it| it.peer == client && it.local.port() == port);
    // Sent is not arrived: on a busy machine, even loopback delivers later.
    let arrived = ours.is_some_and(|it| it.transmit_queue == 0);
    Some(arrived && its.is_some_and(|it| it.inode != 0 && it.receive_queue == 0))
}

/// What a process does, in a few words, for whoever waits for it in vain: `sleep (process 7) sleeps in
/// clock_nanosleep`.
pub fn doing(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // A process gives itself what name it likes.
    let name: String = name.trim().chars().filter(|it| !it.is_control()).collect();
    let name = if name.is_empty() { "a process that is gone" } else { &name };
    let tasks = processes::tasks(pid);
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for task in &tasks {
        let does = doing_task(pid, *task);
        match kinds.iter_mut().find(|it| it.0 == does) {
            Some((_, count)) => *count += 1,
            None => kinds.push((does, 1)),
        }
    }
    let each = kinds.iter().map(|(does, count)| match (tasks.len(), count) {
        (1, _) => does.clone(),
        (_, 1) => format!("one thread {does}"),
        (_, count) => format!("{count} threads: each {does}"),
    });
    format!("{name} (process {pid}) {}", each.collect::<Vec<_>>().join(", "))
}

/// The same of a process and of its children and theirs, the first few of them.
pub fn doing_all(pid: u32) -> String {
    const TOLD: usize = 8;
    let family = processes::family(pid);
    let told: Vec<String> = family.iter().take(TOLD).map(|it| doing(*it)).collect();
    let others = match family.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("{}{others}", told.join("; "))
}

fn doing_task(pid: u32, task: u32) -> String {
    let folder = format!("/proc/{pid}/task/{task}");
    let state = fs::read_to_string(format!("{folder}/stat")).unwrap_or_default();
    let state = state.rsplit_once(')').and_then(|it| it.1.trim_start().chars().next());
    match (state, fs::read_to_string(format!("{folder}/syscall"))) {
        (Some('Z' | 'X'), _) => "has ended, and nobody has taken note of it".into(),
        (Some('T'), _) => "is stopped".into(),
        (Some('t'), _) => "is stopped by its tracer".into(),
        (_, Ok(text)) => match interpret(&text, |_| Object::Other) {
            Does::Sleeps { call, .. } if state == Some('D') => format!("is stuck in {call}"),
            Does::Sleeps { call, .. } => format!("sleeps in {call}"),
            Does::Runs | Does::Hidden => "runs".into(),
        },
        (Some(state), Err(error)) => format!("is in state {state} ({error})"),
        (None, Err(_)) => "is gone".into(),
    }
}

/// Whether there is room for one more in each queue of the server on `port` of process `pid`. `None` where that
/// cannot be seen: /proc does not say how long a queue may be.
pub fn has_room(pid: u32, port: u16) -> Option<bool> {
    let sockets = sockets(pid, port);
    let mut rooms =
        sockets.iter().filter(|it| it.state == LISTEN && it.local.port() == port).map(|it| {
            // The kernel takes one more than was asked for.
            (it.transmit_queue > 0).then_some(it.receive_queue <= it.transmit_queue)
        });
    let first = rooms.next()??;
    rooms.try_fold(first, |all, it| Some(all && it?))
}

/// Whether all that the client at `client` has sent to `port` of process `pid` has arrived there, read or
/// not. `None` where that cannot be seen.
pub fn has_arrived(pid: u32, port: u16, client: SocketAddr) -> Option<bool> {
    let sockets = sockets(pid, port);
    let ours = sockets.iter().find(|it| it.local == client && it.peer.port() == port);
    ours.map(|it| it.transmit_queue == 0)
}

impl View {
    /// The view in one sentence. `names` are the clients that have one.
    pub fn sentence(&self, names: &[(&str, SocketAddr)]) -> String {
        let name = |address: SocketAddr| match names.iter().find(|it| it.1 == address) {
            Some((name, _)) => format!("{name} ({address})"),
            None => format!("the client at {address}"),
        };
        let mut sentence = String::new();
        for (at, thread) in self.threads.iter().take(THREADS_TOLD).enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            let _ = write!(sentence, "{separator}thread {} (task {}) ", at + 1, thread.id);
            let _ = match &thread.does {
                Does::Runs => write!(sentence, "runs"),
                Does::Hidden => write!(sentence, "cannot be seen"),
                Does::Sleeps { call, on: Object::Client(client) } => {
                    write!(sentence, "sleeps in {call} on {}", name(*client))
                }
                Does::Sleeps { call, on: Object::Listener } => {
                    write!(sentence, "sleeps in {call} on its listener")
                }
                Does::Sleeps { call, on: Object::Everything } => {
                    write!(sentence, "sleeps in {call} on all its descriptors")
                }
                Does::Sleeps { call, on: Object::Other } => write!(sentence, "sleeps in {call}"),
            };
        }
        sentence += &self.others();
        let named: Vec<&str> =
            names.iter().filter(|it| self.waiting.contains(&it.1)).map(|it| it.0).collect();
        match (&named[..], self.queue_length) {
            ([], Some(0)) => sentence.push_str("; nobody waits in its accept queue"),
            ([], Some(length)) => {
                let _ = write!(sentence, "; {length} wait in its accept queue");
            }
            ([], None) => sentence.push_str("; its accept queue cannot be seen"),
            (named, length) => {
                let verb = if named.len() == 1 { "waits" } else { "wait" };
                let _ = write!(sentence, "; {} {verb} in its accept queue", named.join(" and "));
                if let Some(length) = length {
                    let _ = write!(sentence, " ({length} in all)");
                }
            }
        }
        if let Some(refused) = &self.refused {
            let _ = write!(sentence, " [not all could be seen: {refused}]");
        }
        sentence
    }

    /// The threads after the first few, by what they do: `, and 60 more sleep in recvfrom`.
    fn others(&self) -> String {
        let mut kinds: Vec<(String, usize)> = Vec::new();
        for thread in self.threads.iter().skip(THREADS_TOLD) {
            let does = match &thread.does {
                Does::Runs => "run".to_owned(),
                Does::Hidden => "cannot be seen".to_owned(),
                Does::Sleeps { call, .. } => format!("sleep in {call}"),
            };
            match kinds.iter_mut().find(|it| it.0 == does) {
                Some((_, count)) => *count += 1,
                None => kinds.push((does, 1)),
            }
        }
        kinds.iter().map(|(does, count)| format!(", and {count} more {does}")).collect()
    }
}

/// How many threads are told one by one.
const THREADS_TOLD: usize = 4;

/// One end of a connection, or a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) state: u8,
    /// Bytes that the peer has not acknowledged; for a listener, the most that may wait (sock_diag only).
    pub(crate) transmit_queue: usize,
    /// Unread bytes; for a listener, the clients that wait to be accepted.
    pub(crate) receive_queue: usize,
    pub(crate) inode: u64,
}

/// States of a TCP socket as /proc writes them: `include/net/tcp_states.h`.
const ESTABLISHED: u8 = 0x01;
const LISTEN: u8 = 0x0A;

/// The sockets that concern `port`: by sock_diag, or where that is not answered, from /proc.
fn sockets(pid: u32, port: u16) -> Vec<Socket> {
    if let Ok(sockets) = sock_diag::sockets(port) {
        return sockets;
    }
    let read = |table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
    let lines = read("tcp") + &read("tcp6");
    lines.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, peer, state, queues, _, _, _, _, inode, ..] = fields[..] else { return None };
    let (transmit_queue, receive_queue) = queues.split_once(':')?;
    Some(Socket {
        local: parse_address(local)?,
        peer: parse_address(peer)?,
        state: u8::from_str_radix(state, 16).ok()?,
        transmit_queue: usize::from_str_radix(transmit_queue, 16).ok()?,
        receive_queue: usize::from_str_radix(receive_queue, 16).ok()?,
        inode: inode.parse().ok()?,
    })
}

/// `0100007F:1F90`: words of 32 bits in the byte order of the machine, then the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for word in ip.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let ip: IpAddr = match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

/// `/proc/PID/task/TID/syscall`: `running`, or the number of the call and its arguments.
fn interpret(text: &str, object: impl Fn(u64) -> Object) -> Does {
    let mut fields = text.split_whitespace();
    let Some(number) = fields.next().and_then(|it| it.parse::<i64>().ok()) else {
        return Does::Runs;
    };
    if number < 0 {
        return Does::Runs; // Blocked, but not in a system call: a page fault, for one.
    }
    let argument = fields.next().and_then(|it| it.strip_prefix("0x"));
    let argument = argument.and_then(|it| u64::from_str_radix(it, 16).ok());
    let Some((name, takes_descriptor)) = name(number) else {
        return Does::Sleeps { call: format!("system call {number}"), on: Object::Other };
    };
    let on = match argument {
        Some(descriptor) if takes_descriptor => object(descriptor),
        _ => Object::Other,
    };
    Does::Sleeps { call: name.into(), on }
}

fn object(pid: u32, descriptor: u64, sockets: &[Socket]) -> Object {
    let Ok(link) = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")) else {
        return Object::Other;
    };
    let link = link.to_string_lossy();
    if link.contains("[eventpoll]") || link.contains("[io_uring]") {
        return Object::Everything;
    }
    let inode = link.strip_prefix("socket:[").and_then(|it| it.strip_suffix(']'));
    let Some(inode) = inode.and_then(|it| it.parse::<u64>().ok()) else { return Object::Other };
    match sockets.iter().find(|it| it.inode == inode) {
        Some(socket) if socket.state == LISTEN => Object::Listener,
        Some(socket) => Object::Client(socket.peer),
        None => Object::Other,
    }
}

/// The calls in which a server may sleep, and whether their first argument is a descriptor.
pub(crate) fn name(number: i64) -> Option<(&'static str, bool)> {
    let calls = [
        (libc::SYS_accept, "accept", true),
        (libc::SYS_accept4, "accept4", true),
        (libc::SYS_clock_nanosleep, "clock_nanosleep", false),
        (libc::SYS_connect, "connect", true),
        (libc::SYS_epoll_pwait, "epoll_pwait", true),
        (libc::SYS_epoll_pwait2, "epoll_pwait2", true),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_epoll_wait, "epoll_wait", true),
        (libc::SYS_flock, "flock", true),
        (libc::SYS_futex, "futex", false),
        (libc::SYS_io_uring_enter, "io_uring_enter", true),
        (libc::SYS_nanosleep, "nanosleep", false),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_poll, "poll", false),
        (libc::SYS_ppoll, "ppoll", false),
        (libc::SYS_read, "read", true),
        (libc::SYS_readv, "readv", true),
        (libc::SYS_recvfrom, "recvfrom", true),
        (libc::SYS_recvmsg, "recvmsg", true),
        (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait", false),
        (libc::SYS_sendmsg, "sendmsg", true),
        (libc::SYS_sendto, "sendto", true),
        (libc::SYS_wait4, "wait4", false),
        (libc::SYS_write, "write", true),
        (libc::SYS_writev, "writev", true),
    ];
    calls.iter().find(|it| it.0 == number).map(|&(_, name, takes)| (name, takes))
}

/// Whether this machine lets a process look at its own child; the remedy where it does not.
///
/// # Errors
///
/// The errno with which /proc refused.
pub fn may_look(pid: u32) -> Result<(), Errno> {
    match fs::read_to_string(format!("/proc/{pid}/syscall")) {
        Ok(_) => Ok(()),
        Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_net_tcp_is_read() {
        let line = "   1: 0100007F:1F90 0100007F:C35A 01 00000000:00000003 00:00000000 00000000 \
                    1000        0 4711 1 0000000000000000 20 4 30 10 -1";
        let socket = parse(line).unwrap();
        assert_eq!(socket.local, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(socket.peer, "127.0.0.1:50010".parse().unwrap());
        assert_eq!((socket.state, socket.receive_queue, socket.inode), (ESTABLISHED, 3, 4711));
        assert_eq!(parse("  sl  local_address rem_address   st tx_queue rx_queue"), None);
    }

    #[test]
    fn a_sleeping_thread_is_named_with_its_client() {
        let client: SocketAddr = "127.0.0.1:50010".parse().unwrap();
        let text = format!("{} 0x4 0x7ffd 0x41 0x0 0x0 0x0 0x7ffd 0x7f", libc::SYS_recvfrom);
        let does = interpret(&text, |descriptor| {
            assert_eq!(descriptor, 4);
            Object::Client(client)
        });
        let waiting: SocketAddr = "127.0.0.1:50012".parse().unwrap();
        let view = View {
            threads: vec![Thread { id: 7, does }],
            queue_length: Some(1),
            waiting: vec![waiting],
            refused: None,
        };
        assert_eq!(
            view.sentence(&[("client A", client), ("client B", waiting)]),
            "thread 1 (task 7) sleeps in recvfrom on client A (127.0.0.1:50010); \
             client B waits in its accept queue (1 in all)"
        );
        assert_eq!(interpret("running\n", |_| Object::Other), Does::Runs);
    }
}
