//! The process that becomes a student's program: it lowers its own limits, gives up root, and then is
//! that program, under the same number, so that nothing has to be looked for.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, anyhow, bail};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{User, getppid, getuid, setgroups, setresgid, setresuid};

/// The hidden command.
pub const STUDENT: &str = "__student";

/// How many processes and threads a submission may have.
pub const TASKS: u64 = 128;

/// How much memory of its own each of its processes may write, in MiB: heap, stacks of threads, and what
/// it maps for itself.
pub const MEMORY_MIB: u64 = 512;

/// How much address space: much of it is only reserved, as by an allocator for each thread.
const ADDRESSES_MIB: u64 = 4096;

/// How many descriptors each of its processes may have open.
pub const DESCRIPTORS: u64 = 512;

/// How large a file it may write, in bytes.
const FILE_BYTES: u64 = 1024 * 1024;

/// The user whom nothing belongs to.
const NOBODY: &str = "nobody";

/// What follows the hidden command: how many descriptors there may be, the program, and its arguments.
///
/// # Errors
///
/// When the program's path is no text.
pub fn arguments(descriptors: u64, exe: &Path, rest: &[&str]) -> anyhow::Result<Vec<String>> {
    let exe = exe.to_str().context("a path that is no text")?.to_owned();
    let first = [descriptors.to_string(), exe];
    Ok(first.into_iter().chain(rest.iter().map(|it| (*it).to_owned())).collect())
}

/// Whether we can run a submission as somebody else.
pub fn is_apart() -> bool {
    getuid().is_root() && nobody().is_some()
}

/// The number of the user that a submission runs as, where it is not ours.
pub fn nobody() -> Option<u32> {
    let user = User::from_name(NOBODY).ok()?;
    user.filter(|_| getuid().is_root()).map(|it| it.uid.as_raw())
}

/// The main function of the hidden command: `DESCRIPTORS PROGRAM ARGUMENTS`.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let error = match become_it(arguments) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    eprintln!("the grader could not run it: {error:#}");
    ExitCode::from(126)
}

fn become_it(arguments: &[OsString]) -> anyhow::Result<Infallible> {
    let [descriptors, program, rest @ ..] = arguments else { bail!("no program was named") };
    let descriptors = descriptors.to_string_lossy().parse().context("a number of descriptors")?;
    let parent = getppid();
    lower(Resource::RLIMIT_DATA, MEMORY_MIB * 1024 * 1024)?;
    lower(Resource::RLIMIT_AS, ADDRESSES_MIB * 1024 * 1024)?;
    lower(Resource::RLIMIT_NOFILE, descriptors)?;
    lower(Resource::RLIMIT_FSIZE, FILE_BYTES)?;
    lower(Resource::RLIMIT_CORE, 0)?;
    match User::from_name(NOBODY).context("getpwnam(nobody)")? {
        Some(nobody) if getuid().is_root() => {
            // The limit counts all that this user has, on a shared machine others' too.
            lower(Resource::RLIMIT_NPROC, TASKS)?;
            setgroups(&[]).context("setgroups")?;
            setresgid(nobody.gid, nobody.gid, nobody.gid).context("setresgid")?;
            setresuid(nobody.uid, nobody.uid, nobody.uid).context("setresuid")?;
        }
        // What this user has already was counted when the grader itself was limited.
        _ => {}
    }
    prctl::set_no_new_privs().context("prctl(PR_SET_NO_NEW_PRIVS)")?;
    // Changing the user has forgotten it.
    prctl::set_pdeathsig(Signal::SIGKILL).context("prctl(PR_SET_PDEATHSIG)")?;
    if getppid() != parent {
        bail!("the grader has ended");
    }
    let mut command = Command::new(program);
    command.args(rest).env_clear().current_dir("/");
    for (name, value) in std::env::vars_os() {
        // Nothing that says where the grader is, or what its servers are told.
        if name == "LANG" || name == "RUST_BACKTRACE" {
            command.env(name, value);
        }
    }
    Err(anyhow!(command.exec()).context(PathBuf::from(program).display().to_string()))
}

/// Lowers a limit, soft and hard: what was lower stays.
fn lower(resource: Resource, most: u64) -> anyhow::Result<()> {
    let (soft, hard) = getrlimit(resource).with_context(|| format!("getrlimit({resource:?})"))?;
    setrlimit(resource, soft.min(most), hard.min(most))
        .with_context(|| format!("setrlimit({resource:?}, {most})"))
}
