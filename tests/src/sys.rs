//! The few system calls that neither std nor nix makes for us. Every `unsafe` of this package is here.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

// Not in libc: `_IOWR('!', 0, struct seccomp_notif)` and its neighbours, <linux/seccomp.h>.
mod ioctl {
    nix::ioctl_readwrite!(notification_receive, b'!', 0, libc::seccomp_notif);
    nix::ioctl_readwrite!(notification_send, b'!', 1, libc::seccomp_notif_resp);
}

/// Lowers or raises the limit of open descriptors of a running process, as far as its hard limit lets
/// us: `prlimit(2)`.
///
/// # Errors
///
/// EPERM for a process of somebody else's; EINVAL above the hard limit; ESRCH when it has ended.
pub fn limit_descriptors(pid: u32, descriptors: u64) -> io::Result<()> {
    let pid = pid.cast_signed();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: no new limit is given, and `limit` outlives the call, which writes the old one into it.
    let result = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, ptr::null(), &raw mut limit) };
    check(result.into())?;
    limit.rlim_cur = descriptors;
    // SAFETY: `limit` outlives the call, and no old limit is asked for.
    let result =
        unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, ptr::null_mut()) };
    check(result.into()).map(drop)
}

/// Lets this process, and what it starts, open as many descriptors as the hard limit allows. How many
/// that are.
pub fn raise_descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call, which writes to it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == -1 {
        return 0;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` outlives the call, which only reads it.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        -1 => before,
        _ => limit.rlim_cur,
    }
}

/// Lets the child begin with a limit of open descriptors, of which the hard half stays as it is:
/// `setrlimit(2)`.
pub fn begin_with_descriptors(command: &mut Command, descriptors: u64) {
    let limit = move || {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` outlives the call, which writes to it.
        let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        check(result.into())?;
        limit.rlim_cur = descriptors;
        // SAFETY: `limit` outlives the call, which only reads it.
        let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        check(result.into()).map(drop)
    };
    // SAFETY: between fork and exec only these system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(limit) };
}

/// Lets the kernel kill the child when the thread that started it ends, however it ends: no server
/// outlives its test. The thread has to stay for as long as the child is wanted.
pub fn die_with_parent(command: &mut Command) {
    let attach = || {
        // SAFETY: takes no pointer.
        let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        check(result.into()).map(drop)
    };
    // SAFETY: between fork and exec only this one system call is made, and nothing is allocated.
    unsafe { command.pre_exec(attach) };
}

/// Lets the child begin with SIGINT and SIGTERM as a program in a terminal finds them. A shell starts
/// what it runs in the background with SIGINT ignored, and that is inherited: by us, and by our servers.
/// So is what we block ourselves, in order to wait for it in a thread of its own.
pub fn heed_signals(command: &mut Command) {
    let heed = || {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: the default is no function of ours, so that nothing is called later.
            let before = unsafe { libc::signal(signal, libc::SIG_DFL) };
            if before == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]).thread_unblock()?)
    };
    // SAFETY: between fork and exec only these system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(heed) };
}

/// Lets the child install a filter by which it asks us about its `calls`, before it runs the program.
/// The descriptor by which it asks arrives at the other end of `channel`.
///
/// # Errors
///
/// Those of `spawn`, later: EACCES, EINVAL or ENOSYS from `seccomp(2)` where a container or an old
/// kernel forbids it.
pub fn ask_before(command: &mut Command, calls: &[i64], channel: OwnedFd) {
    let filter = filter(calls);
    let install = move || {
        // SAFETY: takes no pointer.
        let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        check(result.into())?;
        let program = libc::sock_fprog {
            len: u16::try_from(filter.len()).unwrap_or(u16::MAX),
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: `program` and the filter that it points to outlive the call, which only reads them.
        let notifier = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const program,
            )
        };
        let notifier = check(notifier)?;
        send_descriptor(channel.as_raw_fd(), RawFd::try_from(notifier).unwrap_or(-1))
    };
    // SAFETY: between fork and exec only system calls are made; the filter was allocated before.
    unsafe { command.pre_exec(install) };
}

/// The filter as the kernel's little machine runs it: look at the number of the call; ask about ours,
/// allow all others.
fn filter(calls: &[i64]) -> Vec<libc::sock_filter> {
    let instruction = |code: u32, jt, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(u16::MAX),
        jt,
        jf: 0,
        k,
    };
    let number_at = mem::offset_of!(libc::seccomp_data, nr);
    let mut filter = vec![instruction(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        0,
        u32::try_from(number_at).unwrap_or(u32::MAX),
    )];
    for (at, &call) in calls.iter().enumerate() {
        // Those that are left, and the instruction that allows.
        let over = u8::try_from(calls.len() - at).unwrap_or(u8::MAX);
        let number = u32::try_from(call).unwrap_or(u32::MAX);
        filter.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, over, number));
    }
    filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_USER_NOTIF));
    filter
}

/// Sends one descriptor over a Unix socket: SCM_RIGHTS of `unix(7)`. Allocates nothing.
fn send_descriptor(channel: RawFd, descriptor: RawFd) -> io::Result<()> {
    #[repr(C)]
    union Control {
        _aligned: libc::cmsghdr,
        bytes: [u8; 64],
    }
    let mut control = Control { bytes: [0; 64] };
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zeroes is a valid msghdr, an empty one.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    let size = u32::try_from(mem::size_of::<RawFd>()).unwrap_or(u32::MAX);
    // SAFETY: computes a length, no pointer.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: `message` has room for one header, so that there is a first one.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: computes a length, no pointer.
    let length = unsafe { libc::CMSG_LEN(size) };
    let filled = libc::cmsghdr {
        cmsg_len: length as _,
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    // SAFETY: `header` points into `control`, which is large and aligned enough for one.
    unsafe { header.write(filled) };
    // SAFETY: the data of a header follow it within `control`.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: `control` has room for one descriptor there; alignment is not asked for.
    unsafe { data.cast::<RawFd>().write_unaligned(descriptor) };
    // SAFETY: everything that `message` points to outlives the call.
    let result = unsafe { libc::sendmsg(channel, &raw const message, 0) };
    check(result as i64).map(drop)
}

/// The next question of a process that [`ask_before`] made ask: `SECCOMP_IOCTL_NOTIF_RECV`.
///
/// # Errors
///
/// ENOENT when the asking thread was killed meanwhile; EINTR.
pub fn question(notifier: BorrowedFd<'_>) -> nix::Result<libc::seccomp_notif> {
    let mut question = MaybeUninit::<libc::seccomp_notif>::zeroed();
    // SAFETY: the kernel wants zeroes there and writes one notification into them.
    unsafe { ioctl::notification_receive(notifier.as_raw_fd(), question.as_mut_ptr()) }?;
    // SAFETY: zeroes are a valid notification, and the kernel has written a better one.
    Ok(unsafe { question.assume_init() })
}

/// What the process that asked `id` is told: its call returns `value`, or fails with `errno`, or, with
/// neither, is made.
///
/// # Errors
///
/// ENOENT when the asking thread was killed or interrupted meanwhile.
pub fn answer(notifier: BorrowedFd<'_>, id: u64, told: Told) -> nix::Result<()> {
    // SAFETY: zeroes are a valid response.
    let mut response: libc::seccomp_notif_resp = unsafe { mem::zeroed() };
    response.id = id;
    match told {
        Told::Make => response.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        Told::Fail(errno) => response.error = -(errno as i32),
        Told::Return(value) => response.val = value,
    }
    // SAFETY: the kernel reads one response from it.
    unsafe { ioctl::notification_send(notifier.as_raw_fd(), &raw mut response) }.map(drop)
}

/// What is done with a call that was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is made as if nobody had asked.
    Make,
    /// It is not made, and fails.
    Fail(Errno),
    /// It is not made, and returns this.
    Return(i64),
}

/// A second descriptor of ours for descriptor `number` of another process: `pidfd_getfd(2)`.
///
/// # Errors
///
/// EPERM unless we may trace it (a direct child we may), EBADF when it has no such descriptor.
pub fn borrow_descriptor(pid: u32, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let process = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel has just made it, and nobody else holds it.
    let process = unsafe { OwnedFd::from_raw_fd(RawFd::try_from(process).unwrap_or(-1)) };
    // SAFETY: takes no pointer.
    let ours = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    let ours = check(ours)?;
    // SAFETY: the kernel has just made it, and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(RawFd::try_from(ours).unwrap_or(-1)) })
}

/// Why a traced thread has stopped at a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallStop {
    /// It is about to make it.
    Entry { number: i64, arguments: [u64; 6] },
    /// It has made it: what it returned, or the negative errno.
    Exit { returned: i64 },
    /// It has stopped for something else.
    Other,
}

/// What `thread`, which the calling thread traces and which has stopped, has stopped for:
/// PTRACE_GET_SYSCALL_INFO, which is the same on every architecture.
///
/// # Errors
///
/// ESRCH when it was killed meanwhile; EIO before Linux 5.3.
pub(crate) fn call_stop(thread: Pid) -> nix::Result<CallStop> {
    let info = ptrace::syscall_info(thread)?;
    Ok(match info.op {
        libc::PTRACE_SYSCALL_INFO_ENTRY => {
            // SAFETY: the kernel says by `op` which member it has filled in.
            let entry = unsafe { info.u.entry };
            CallStop::Entry { number: entry.nr.cast_signed(), arguments: entry.args }
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: the kernel says by `op` which member it has filled in.
            let exit = unsafe { info.u.exit };
            CallStop::Exit { returned: exit.sval }
        }
        _ => CallStop::Other,
    })
}

/// Takes ownership of a descriptor that the kernel has just handed to this process, which for SCM_RIGHTS
/// arrives as a number.
pub(crate) fn own(received: RawFd) -> OwnedFd {
    // SAFETY: the one caller passes what `recvmsg` has just installed, and nobody else knows of it.
    unsafe { OwnedFd::from_raw_fd(received) }
}

/// The convention of libc: -1 means look at `errno`.
/// Lets `socket` acknowledge what it hears with what it says next, or when the kernel's timer rings, after 40 ms
/// or more, whichever comes first: TCP_QUICKACK off, tcp(7). The kernel forgets it at that timer.
///
/// # Errors
///
/// EBADF, ENOTSOCK and EOPNOTSUPP for what is no TCP socket.
pub fn acknowledge_late(socket: BorrowedFd<'_>) -> io::Result<()> {
    let off: libc::c_int = 0;
    let size = mem::size_of_val(&off) as libc::socklen_t;
    // SAFETY: `off` outlives the call, which reads so many bytes of it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUICKACK,
            (&raw const off).cast(),
            size,
        )
    };
    check(result.into()).map(drop)
}

/// How many segments `socket` has sent, those that only acknowledge included: `tcpi_segs_out` of TCP_INFO,
/// tcp(7), since Linux 4.2.
///
/// # Errors
///
/// As [`acknowledge_late`].
pub fn segments_sent(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: it has numbers only, for each of which zero is a value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut size = mem::size_of_val(&info) as libc::socklen_t;
    // SAFETY: both outlive the call, which writes at most `size` bytes of `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        )
    };
    check(result.into()).map(|_| info.tcpi_segs_out)
}

fn check(result: i64) -> io::Result<i64> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
