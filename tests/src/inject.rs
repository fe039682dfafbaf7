//! Makes chosen system calls of a server fail, or do a part only, from outside.
//!
//! Linux on loopback never returns ECONNABORTED from `accept` and never takes a part of a five-byte
//! answer, but servers have to live with both. A seccomp filter makes the server's kernel ask us
//! before each such call (`seccomp_unotify(2)`, Linux 5.5; no root needed), so that every server is
//! tried as it is, without a test build.
//!
//! Simplified: the filter does not look at the architecture of the caller, since it is there to try
//! servers of our own, not to confine strangers.

use std::collections::VecDeque;
use std::fs;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::sys::{self, Told};

/// What is done to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None: it is made as it is.
    Pass,
    /// It fails.
    Fail(Errno),
    /// It fails as a call does that cannot go on now: EAGAIN where the descriptor is non-blocking, EINTR
    /// where it blocks. A descriptor that is watched for edges meets EINTR too: after EAGAIN the
    /// kernel owes it an edge, which it would not give since nothing was really full.
    NotNow,
    /// It sends so many bytes and no more. For `sendto` alone.
    Part(usize),
}

/// The faults that a server is going to meet, per system call and in order. When they are used up,
/// its calls are made as they are.
#[derive(Clone, Debug, Default)]
pub struct Injection {
    faults: Vec<(i64, VecDeque<Fault>)>,
}

/// An injection whose server is not running yet.
#[derive(Debug)]
pub struct Pending {
    injection: Injection,
    channel: UnixStream,
}

/// An injection at work.
#[derive(Clone, Debug)]
pub struct Injector {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    faults: Vec<(i64, VecDeque<Fault>)>,
    /// How often each call was made, faults included.
    made: Vec<(i64, usize)>,
}

impl Injection {
    /// No faults yet: calls are only counted once they are named.
    pub fn new() -> Injection {
        Injection::default()
    }

    /// Lets the first calls of `call` (a `SYS_` number) meet `faults`.
    #[must_use]
    pub fn on(mut self, call: i64, faults: &[Fault]) -> Injection {
        self.faults.push((call, faults.iter().copied().collect()));
        self
    }

    /// Prepares `command`.
    ///
    /// # Errors
    ///
    /// Those of `socketpair(2)`.
    pub fn install(self, command: &mut Command) -> anyhow::Result<Pending> {
        let (ours, theirs) = UnixStream::pair().context("socketpair")?;
        let calls: Vec<i64> = self.faults.iter().map(|&(call, _)| call).collect();
        sys::ask_before(command, &calls, OwnedFd::from(theirs));
        Ok(Pending { injection: self, channel: ours })
    }
}

impl Pending {
    /// Takes over the calls of the process that was started: it waits for us until then.
    ///
    /// # Errors
    ///
    /// When the descriptor for it did not arrive.
    pub fn attach(self, pid: u32) -> anyhow::Result<Injector> {
        let notifier = receive_descriptor(&self.channel)?;
        let made = self.injection.faults.iter().map(|&(call, _)| (call, 0)).collect();
        let state = Arc::new(Mutex::new(State { faults: self.injection.faults, made }));
        thread::spawn({
            let state = Arc::clone(&state);
            move || supervise(&notifier, pid, &state)
        });
        Ok(Injector { state })
    }
}

impl Injector {
    /// How often `call` was made since the start, or [`Injector::forget`].
    pub fn made(&self, call: i64) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.made.iter().find(|it| it.0 == call).map_or(0, |it| it.1)
    }

    /// Whether all faults have been met.
    pub fn is_used_up(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.faults.iter().all(|(_, faults)| faults.is_empty())
    }
}

/// Answers the server's questions until it has ended.
fn supervise(notifier: &OwnedFd, pid: u32, state: &Mutex<State>) {
    loop {
        let mut wait = [PollFd::new(notifier.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wait, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        // When nobody is left who could ask, the descriptor says HUP.
        if !wait[0].revents().is_some_and(|it| it.contains(PollFlags::POLLIN)) {
            return;
        }
        let Ok(question) = sys::question(notifier.as_fd()) else { continue };
        let fault = state.lock().unwrap_or_else(PoisonError::into_inner).next(&question);
        let told = tell(pid, &question, fault);
        // It may have been killed meanwhile, and then nobody wants to know.
        let _ = sys::answer(notifier.as_fd(), question.id, told);
    }
}

impl State {
    fn next(&mut self, question: &libc::seccomp_notif) -> Option<Fault> {
        let call = i64::from(question.data.nr);
        if let Some((_, made)) = self.made.iter_mut().find(|it| it.0 == call) {
            *made += 1;
        }
        self.faults.iter_mut().find(|it| it.0 == call)?.1.pop_front()
    }
}

fn tell(pid: u32, question: &libc::seccomp_notif, fault: Option<Fault>) -> Told {
    let descriptor = RawFd::try_from(question.data.args[0]).unwrap_or(-1);
    match fault {
        None | Some(Fault::Pass) => Told::Make,
        Some(Fault::Fail(errno)) => Told::Fail(errno),
        Some(Fault::NotNow) => {
            let waits = is_nonblocking(pid, descriptor) && !is_edge_triggered(pid, descriptor);
            Told::Fail(if waits { Errno::EAGAIN } else { Errno::EINTR })
        }
        Some(Fault::Part(length)) => {
            let sent = send_part(pid, descriptor, question.data.args[1], length);
            // Where we may not read the server's memory, the call is made whole, and the probe finds
            // that its fault was not met.
            sent.map_or(Told::Make, |length| Told::Return(length.try_into().unwrap_or(0)))
        }
    }
}

/// Whether O_NONBLOCK is set: the `flags` line of `/proc/PID/fdinfo/N` is octal.
fn is_nonblocking(pid: u32, descriptor: RawFd) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = text.lines().find_map(|it| it.strip_prefix("flags:"));
    let flags = flags.and_then(|it| i32::from_str_radix(it.trim(), 8).ok()).unwrap_or(0);
    flags & libc::O_NONBLOCK != 0
}

/// Whether an epoll instance of the process watches the descriptor for edges: `/proc/PID/fdinfo/N` of
/// an epoll instance has a line `tfd: DESCRIPTOR events: MASK …` for each.
fn is_edge_triggered(pid: u32, descriptor: RawFd) -> bool {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
    let texts = folder.flatten().filter_map(|it| fs::read_to_string(it.path()).ok());
    texts.into_iter().any(|text| {
        text.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let ["tfd:", watched, "events:", mask, ..] = fields[..] else { return false };
            let mask = u32::from_str_radix(mask, 16).unwrap_or(0);
            watched.parse() == Ok(descriptor) && mask & libc::EPOLLET.cast_unsigned() != 0
        })
    })
}

/// Sends the first `length` bytes that the server wanted to send, on its socket.
fn send_part(pid: u32, descriptor: RawFd, from: u64, length: usize) -> anyhow::Result<usize> {
    let mut bytes = vec![0; length];
    let remote = RemoteIoVec { base: usize::try_from(from)?, len: length };
    let pid_of_it = Pid::from_raw(pid.cast_signed());
    let read = process_vm_readv(pid_of_it, &mut [IoSliceMut::new(&mut bytes)], &[remote])?;
    let socket = sys::borrow_descriptor(pid, descriptor)?;
    Ok(send(socket.as_raw_fd(), &bytes[..read], MsgFlags::MSG_NOSIGNAL)?)
}

/// How long a child may take to send the descriptor: it does so before it runs its program.
const ATTACH: Duration = Duration::from_secs(10);

fn receive_descriptor(channel: &UnixStream) -> anyhow::Result<OwnedFd> {
    channel.set_read_timeout(Some(ATTACH)).context("setsockopt(SO_RCVTIMEO)")?;
    let mut byte = [0; 1];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut control = nix::cmsg_space!(RawFd);
    let message = recvmsg::<()>(
        channel.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )
    .with_context(|| format!("recvmsg: the descriptor of the filter, within {ATTACH:?}"))?;
    for part in message.cmsgs().context("control message")? {
        if let ControlMessageOwned::ScmRights(descriptors) = part
            && let [descriptor] = descriptors[..]
        {
            return Ok(sys::own(descriptor));
        }
    }
    anyhow::bail!("the server did not send the descriptor by which it asks")
}
