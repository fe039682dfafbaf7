//! `cargo course doctor`: what this machine is, and which chapters run on it.
//!
//! Nothing is inferred from a version that can be tried: a ring is set up, a user namespace is made, a
//! child is looked at, each in the way that the chapters and their tests do it.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use contract::bounded::{self, TOOL};
use io_uring::{IoUring, Probe, opcode};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::utsname::uname;

use crate::confine::course;
use crate::home::Home;
use crate::say::{line, wrapped};

/// The hidden commands of the processes that are tried things with.
pub const NAMESPACE: &str = "__namespace";
/// See [`NAMESPACE`].
pub const WAIT: &str = "__wait";

/// What the workspace's `rust-version` is.
const RUST: Version = Version(1, 88);

/// What chapters 02 and later ask `listen` for.
const BACKLOG: u64 = 4096;

/// A version as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The first two numbers in `text`.
fn version(text: &str) -> Option<Version> {
    let text = text.trim_start_matches(|it: char| !it.is_ascii_digit());
    let mut numbers = text.split(|it: char| !it.is_ascii_digit());
    Some(Version(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What chapters need of a kernel: what it is, whose it is, and since when it is there. Of the eleven models
/// of 07 one needs more than the others.
const CHAPTERS: [(&str, &[&str], Version); 5] = [
    ("a shared epoll listener", &["01", "02", "03", "04"], Version(4, 5)),
    ("a BPF program for SO_REUSEPORT", &["05"], Version(4, 6)),
    ("io_uring", &["06"], Version(6, 1)),
    ("a BPF program for SO_REUSEPORT", &["07"], Version(4, 6)),
    ("io_uring", &[MODEL], Version(6, 8)),
];

/// The model of 07 that needs a ring.
const MODEL: &str = "07 --model io-uring";

/// What a ring of 06 does.
const OPERATIONS: [(&str, u8); 6] = [
    ("accept", opcode::Accept::CODE),
    ("recv", opcode::Recv::CODE),
    ("send", opcode::Send::CODE),
    ("close", opcode::Close::CODE),
    ("async cancel", opcode::AsyncCancel::CODE),
    ("link timeout", opcode::LinkTimeout::CODE),
];

/// What one of 07 does beside that.
const OPERATIONS_OF_07: [(&str, u8); 2] =
    [("sendmsg", opcode::SendMsg::CODE), ("fixed fd install", opcode::FixedFdInstall::CODE)];

/// What was looked at.
enum Finding {
    /// As it should be.
    Good(String),
    /// Something works less well, or not at all, and the sentence says what to do.
    Note(String),
    /// Nothing works without it.
    Bad(String),
}

/// Says what this machine is, and which chapters run here: whether all of them do.
///
/// # Errors
///
/// Those of uname(2).
pub fn doctor(home: &Home) -> anyhow::Result<bool> {
    let kernel = uname().context("uname")?;
    let release = kernel.release().to_string_lossy().into_owned();
    let machine = kernel.machine().to_string_lossy().into_owned();
    line("This machine");
    let tools = [rustc(), tool("cc", "a C linker: sudo apt install gcc, or your distribution's")];
    let (rest, is_bad) = (findings(home, &release, &machine), tools.iter().any(Finding::is_bad));
    tools.iter().chain(&rest).for_each(Finding::tell);
    line("\nChapters");
    let ring = ring();
    let here = version(&release).unwrap_or(Version(0, 0));
    let mut is_all = !is_bad;
    for (what, chapters, needs) in CHAPTERS {
        for chapter in chapters {
            let tried = match *chapter {
                "06" => ring.as_ref().err().map(|it| format!("{it:#}")),
                MODEL => ring_of(&OPERATIONS_OF_07, needs).err().map(|it| format!("{it:#}")),
                _ => None,
            };
            let lack = match here < needs {
                true => Some(format!("{what} needs Linux {needs}")),
                false => tried,
            };
            is_all &= lack.is_none();
            match lack {
                None => {
                    let also = if chapter.starts_with("07") { "" } else { ", and its exercises" };
                    line(format_args!("  runs   {chapter}{also} (Linux {needs})"));
                }
                Some(lack) => {
                    let text = wrapped(&format!("{chapter}: {lack}"), "         ");
                    line(format_args!("  LACKS  {}", text.trim_start()));
                }
            }
        }
    }
    if is_bad {
        line("\nNext: mend what is marked BAD, cargo course doctor");
    } else if is_all {
        line("\nAll chapters run here. Next: cargo course start");
    } else {
        let is_forbidden = ring.is_err_and(|it| format!("{it:#}").contains("forbidden"));
        line("\nOne command for the rest:");
        if is_forbidden {
            line(format_args!("  {}", crate::ELSEWHERE));
        } else {
            line(format_args!("  {}", crate::NEWER));
            line(
                "  (this kernel is the reason, and a container has the kernel of its host; clone anew in there)",
            );
        }
        line("Next: cargo course start, for the chapters that run here");
    }
    Ok(is_all)
}

impl Finding {
    fn is_bad(&self) -> bool {
        matches!(self, Finding::Bad(_))
    }

    fn tell(&self) {
        let (mark, text) = match self {
            Finding::Good(text) => ("good", text),
            Finding::Note(text) => ("note", text),
            Finding::Bad(text) => ("BAD ", text),
        };
        let text = wrapped(text, "         ");
        line(format_args!("  {mark}   {}", text.trim_start()));
    }
}

/// `good` where it is so, and `otherwise` where not.
fn good_if(is_so: bool, good: impl Into<String>, otherwise: impl Into<String>) -> Finding {
    if is_so { Finding::Good(good.into()) } else { Finding::Note(otherwise.into()) }
}

fn findings(home: &Home, release: &str, machine: &str) -> Vec<Finding> {
    vec![
        kind_of_machine(&home.path(""), release, machine),
        somaxconn(),
        descriptors(),
        outcome(
            look_at_a_child(),
            "a child's system call can be seen: the microscope works",
            "The microscope is blind, and says so: `--cap-add=SYS_PTRACE` in a container, or \
             `sysctl kernel.yama.ptrace_scope=1`",
        ),
        outcome(
            faults(home),
            "the tests can make system calls fail (seccomp)",
            "The rows about failing calls are not tried, and say so: `--security-opt \
             seccomp=unconfined` in a container",
        ),
        outcome(
            namespaces(),
            "user namespaces can be made: the emulated link works without root",
            "The emulated link needs them or root: `sysctl kernel.unprivileged_userns_clone=1`, on \
             Ubuntu `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
        ),
        outcome(
            inotify(home),
            "the kernel tells of changed files: cargo course watch asks it",
            "So cargo course watch looks at the file twice a second instead",
        ),
        outcome(
            ring(),
            "io_uring can be set up, as chapter 06 does it",
            "Only chapter 06, its exercises and one of the eleven models of 07 need it",
        ),
    ]
}

fn outcome(tried: anyhow::Result<()>, good: &str, otherwise: &str) -> Finding {
    match tried {
        Ok(()) => Finding::Good(good.into()),
        Err(error) => Finding::Note(format!("{error:#}. {otherwise}")),
    }
}

fn rustc() -> Finding {
    let output = bounded::output(Command::new("rustc").arg("--version"), TOOL);
    let text = output.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    match text.as_deref().map(|it| (it, version(it))) {
        Ok((text, Some(found))) if found >= RUST => Finding::Good(text.into()),
        Ok((text, Some(_))) => {
            Finding::Bad(format!("{text}: Rust {RUST} or newer is needed: rustup update stable"))
        }
        _ => Finding::Bad("rustc does not run: install Rust from https://rustup.rs".into()),
    }
}

fn tool(name: &str, remedy: &str) -> Finding {
    let mut command = Command::new(name);
    match bounded::output(command.arg("--version"), TOOL) {
        Ok(_) => Finding::Good(format!("{name} is there")),
        Err(error) => Finding::Bad(format!("{name}: {error:#}: {remedy}")),
    }
}

/// Linux on itself, in WSL or in a container.
fn kind_of_machine(home: &Path, release: &str, machine: &str) -> Finding {
    let linux = format!("Linux {release} on {machine}");
    let name = release.to_lowercase();
    if name.contains("microsoft") {
        if !name.contains("wsl2") {
            return Finding::Note(format!(
                "{linux}: WSL 1, which is no Linux kernel: wsl --set-version Ubuntu 2"
            ));
        }
        return good_if(
            !home.starts_with("/mnt"),
            format!("{linux}: WSL 2"),
            format!(
                "{linux}: WSL 2, and the clone is on a drive of Windows, where builds are slow and \
                 changes are not told: clone into the home folder of the Linux"
            ),
        );
    }
    let init = fs::read("/proc/1/environ").unwrap_or_default();
    let names_one = init.split(|it| *it == 0).any(|it| it.starts_with(b"container="));
    let cgroup = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    let marks = ["docker", "containerd", "kubepods", "lxc", "libpod"];
    let is_container = names_one
        || Path::new("/.dockerenv").exists()
        || Path::new("/run/.containerenv").exists()
        || marks.iter().any(|it| cgroup.contains(it));
    if is_container {
        return Finding::Good(format!("{linux}, in a container"));
    }
    Finding::Good(linux)
}

fn somaxconn() -> Finding {
    let text = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    let most: u64 = text.trim().parse().unwrap_or(0);
    good_if(
        most >= BACKLOG,
        format!("net.core.somaxconn is {most}"),
        format!(
            "net.core.somaxconn is {most}, and chapters 02 and later ask for {BACKLOG}: queues are \
             shorter here, sysctl net.core.somaxconn={BACKLOG} as root"
        ),
    )
}

fn descriptors() -> Finding {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) => good_if(
            hard >= BACKLOG,
            format!("{soft} descriptors a process, {hard} when it asks for them"),
            format!("only {hard} descriptors a process: raise it, ulimit -Hn {BACKLOG} as root"),
        ),
        Err(errno) => Finding::Note(format!("getrlimit(RLIMIT_NOFILE): {errno}")),
    }
}

/// Reads where a child of ours sleeps, as the microscope does.
fn look_at_a_child() -> anyhow::Result<()> {
    let mut child =
        Command::new(course()?).arg(WAIT).stdin(Stdio::piped()).spawn().context("this program")?;
    std::thread::sleep(Duration::from_millis(50));
    let path = format!("/proc/{}/syscall", child.id());
    let looked = fs::read_to_string(&path).with_context(|| path.clone());
    drop(child.stdin.take());
    bounded::end(&mut child).context("a child of ours")?;
    looked.map(drop)
}

/// The hidden command: reads until stdin ends.
pub fn wait() -> ExitCode {
    let _ = io::stdin().read(&mut [0; 1]);
    ExitCode::SUCCESS
}

/// Starts a program with the filter by which the tests make calls fail.
fn faults(_home: &Home) -> anyhow::Result<()> {
    use contract::inject::Injection;
    let mut command = Command::new(course()?);
    command.arg(WAIT).stdin(Stdio::null());
    let pending = Injection::new().on(nix::libc::SYS_accept4, &[]).install(&mut command)?;
    let mut child = command.spawn().context("seccomp")?;
    drop(command);
    let attached = pending.attach(child.id());
    bounded::end(&mut child).context("a child of ours")?;
    attached.map(drop)
}

/// Makes a user namespace and a network in it, in a process of its own.
fn namespaces() -> anyhow::Result<()> {
    let output = bounded::output(Command::new(course()?).arg(NAMESPACE), TOOL)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", said.trim().trim_start_matches("course: "));
    Ok(())
}

/// The hidden command: makes them.
///
/// # Errors
///
/// Those of unshare(2).
pub fn namespace() -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .context("unshare(CLONE_NEWUSER | CLONE_NEWNET)")
}

fn inotify(home: &Home) -> anyhow::Result<()> {
    use notify::{RecursiveMode, Watcher};
    let mut watcher = notify::recommended_watcher(|_| {}).context("inotify_init")?;
    let watched = watcher.watch(&home.path("exercises"), RecursiveMode::NonRecursive);
    watched.context("inotify_add_watch")
}

/// Sets up a ring as chapter 06 does, asks for its operations, and hands it to the kernel once.
///
/// # Errors
///
/// A sentence that says what is in the way, and what to do.
pub fn ring() -> anyhow::Result<()> {
    ring_of(&OPERATIONS, Version(6, 1))
}

/// A ring that does all of `wanted`, which came with Linux `since`.
fn ring_of(wanted: &[(&str, u8)], since: Version) -> anyhow::Result<()> {
    let ring: io::Result<IoUring> =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_submit_all().build(8);
    let ring = match ring {
        Ok(ring) => ring,
        Err(error) => bail!("io_uring_setup: {error}: {}", remedy(&error)),
    };
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).context("io_uring_register(PROBE)")?;
    if let Some((name, _)) = wanted.iter().find(|it| !probe.is_supported(it.1)) {
        bail!("io_uring has no operation {name}: it is too old here: take Linux {since} or later");
    }
    // A filter may forbid this call alone.
    ring.submitter().submit().context("io_uring_enter: a seccomp filter may forbid it")?;
    Ok(())
}

fn remedy(error: &io::Error) -> String {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match error.raw_os_error() {
        Some(nix::libc::ENOSYS) => {
            "io_uring is missing: this kernel was built without it, or a sandbox hides it".into()
        }
        Some(nix::libc::EPERM | nix::libc::EACCES) if disabled.trim_end() > "0" => {
            "io_uring is forbidden by a setting of the kernel: sudo sysctl kernel.io_uring_disabled=0"
                .into()
        }
        Some(nix::libc::EPERM | nix::libc::EACCES) => {
            "io_uring is forbidden by a seccomp filter, as containers have one: `--security-opt \
             seccomp=unconfined` allows it"
                .into()
        }
        Some(nix::libc::EINVAL) => "io_uring is too old here: take Linux 6.1 or later".into(),
        _ => "io_uring cannot be set up: `ulimit -l` may be too low".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_is_recognised_by_its_kernel() {
        let told = |home: &str, release| match kind_of_machine(Path::new(home), release, "x86_64") {
            Finding::Good(text) => (true, text),
            Finding::Note(text) | Finding::Bad(text) => (false, text),
        };
        let two = "5.15.167.4-microsoft-standard-WSL2";
        assert_eq!(told("/clone", two), (true, format!("Linux {two} on x86_64: WSL 2")));
        assert!(told("/mnt/c/a", two).1.contains("clone into the home folder"));
        let (is_good, text) = told("/clone", "4.4.0-19041-Microsoft");
        assert!(!is_good && text.contains("--set-version"), "{text}");
    }

    #[test]
    fn versions_are_found_and_compared() {
        assert_eq!(version("rustc 1.95.0 (f2d3ce0bd)"), Some(Version(1, 95)));
        assert_eq!(version("6.1.0-13-amd64"), Some(Version(6, 1)));
        assert!(Version(6, 1) > Version(5, 19) && Version(1, 88) < Version(1, 100));
        assert_eq!(version("none"), None);
    }
}
