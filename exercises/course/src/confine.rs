//! Runs a program that may do anything, so that it can do little: limits on what it uses, a cap on how
//! long it takes, and an end to all that it has started.
//!
//! Three processes: we start a *supervisor*, which is this program again with a hidden command. It starts
//! the program through a second one, which lowers its own limits and then becomes the program: so
//! nothing has to be done between fork and exec. Whatever the program leaves behind becomes the
//! supervisor's child (`PR_SET_CHILD_SUBREAPER`), wherever it went, and is killed. When we die, the
//! supervisor dies, and then the program.
//!
//! Simplified: this is no sandbox. The program is the same user as we are, reads what we may read and can
//! kill what we can kill.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use contract::bounded::{self, LAST_WORDS, Listening};
use contract::{microscope, processes};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid, getuid};

/// The hidden command of the supervisor, and that of the process which becomes the program.
pub const SUPERVISE: &str = "__supervise";
/// See [`SUPERVISE`].
pub const LIMIT: &str = "__limit";

/// The supervisor's exit status when the time was up.
const TIME_UP: u8 = 124;

/// How much longer than its program a supervisor may take, on a busy machine.
const SUPERVISOR: Duration = Duration::from_secs(10);

/// How much of what a program says is kept, in bytes.
const KEPT_BYTES_MAX: u64 = 1024 * 1024;

/// What a program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long it may take, by the clock on the wall. How long its first thread waits for a core is not
    /// counted, up to twice this time: a machine with too much to do is not the program's fault.
    pub wall: Duration,
    /// How many processes and threads may be added to those that this user has. Root is not limited.
    pub processes: u64,
    /// How much address space each process may have.
    pub memory_mib: u64,
    /// How many descriptors each process may have open.
    pub descriptors: u64,
}

impl Limits {
    /// For a server of an exercise, and the rows that it is held to.
    pub const SERVER: Limits = Limits {
        wall: Duration::from_secs(60),
        processes: 512,
        memory_mib: 8192,
        descriptors: 16384,
    };
    /// For a compiler.
    pub const BUILD: Limits = Limits {
        wall: Duration::from_secs(600),
        processes: 1024,
        memory_mib: 16384,
        descriptors: 65536,
    };

    /// How long it may take on the busiest machine.
    pub const fn at_most(&self) -> Duration {
        self.wall.saturating_mul(bounded::STRETCH)
    }

    fn arguments(&self) -> Vec<OsString> {
        let wall_ms = self.wall.as_millis();
        let numbers =
            [wall_ms, self.processes.into(), self.memory_mib.into(), self.descriptors.into()];
        numbers.into_iter().map(|it| it.to_string().into()).collect()
    }

    fn parse(arguments: &[OsString]) -> anyhow::Result<Limits> {
        let number = |at: usize| -> anyhow::Result<u64> {
            let text = arguments.get(at).context("a limit is missing")?;
            text.to_string_lossy().parse().context("a limit is no number")
        };
        Ok(Limits {
            wall: Duration::from_millis(number(0)?),
            processes: number(1)?,
            memory_mib: number(2)?,
            descriptors: number(3)?,
        })
    }
}

/// How many arguments [`Limits::arguments`] makes.
const LIMITS: usize = 4;

/// A program and its surroundings.
#[derive(Clone, Debug)]
pub struct Confined {
    /// The program that has the hidden commands.
    pub course: PathBuf,
    /// What it may use.
    pub limits: Limits,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Where it runs.
    pub folder: PathBuf,
    /// Variables that it finds besides ours.
    pub variables: Vec<(OsString, OsString)>,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status, or `None` when the time was up.
    pub status: Option<i32>,
    /// What it said on stderr.
    pub stderr: String,
}

impl Ended {
    /// When the time was up, and what its processes did then, as far as the supervisor could see it.
    pub fn doing(&self) -> String {
        let told = self.stderr.lines().rev().find_map(|it| it.strip_prefix(WHEN_TIME_WAS_UP));
        told.unwrap_or("in its time, and nobody saw what it did").to_owned()
    }
}

/// How the supervisor's line begins that says what was waited for.
const WHEN_TIME_WAS_UP: &str = "course: when the time was up: ";

/// This program, which has the hidden commands.
///
/// # Errors
///
/// Those of reading `/proc/self/exe`.
pub fn course() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("where this program is")
}

impl Confined {
    /// Runs it to its end, and hands each line of its stdout to `heard`.
    ///
    /// # Errors
    ///
    /// When it cannot be run.
    pub fn run(&self, mut heard: impl FnMut(&str)) -> anyhow::Result<Ended> {
        let mut command = Command::new(&self.course);
        command.arg(SUPERVISE).args(self.limits.arguments()).arg(&self.program);
        command.args(&self.arguments).current_dir(&self.folder);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("{}", self.course.display()))?;
        let stdout = child.stdout.take().context("stdout was piped")?;
        let stderr = child.stderr.take().context("stderr was piped")?;
        let errors = Listening::to(stderr, KEPT_BYTES_MAX).context("a pipe")?;
        let (say, said) = mpsc::channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(stdout.take(64 * KEPT_BYTES_MAX));
            let mut bytes = Vec::new();
            while let Ok(1..) = reader.read_until(b'\n', &mut bytes) {
                let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                if say.send(line).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        // The supervisor has a cap of its own; this one is for a supervisor that was killed or stopped.
        let deadline = Instant::now() + self.limits.at_most() + SUPERVISOR;
        let status = loop {
            match said.recv_timeout(Duration::from_millis(20)) {
                Ok(line) => heard(&line),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if let Some(status) = child.try_wait().context("waitpid")? {
                break Some(status);
            }
            if Instant::now() > deadline {
                let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                bounded::end(&mut child).context("the supervisor")?;
                break None;
            }
        };
        // All that it has started has ended, so that the pipes have; unless something is stuck in the kernel.
        let deadline = Instant::now() + LAST_WORDS;
        while let Ok(line) = said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            heard(&line);
        }
        let status = status.map(code).filter(|it| *it != i32::from(TIME_UP));
        Ok(Ended { status, stderr: errors.heard(LAST_WORDS).text() })
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The main function of the supervisor: runs the program in `arguments`, and ends all of it.
pub fn supervise(arguments: &[OsString]) -> ExitCode {
    match supervised(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("course: {error:#}");
            ExitCode::from(125)
        }
    }
}

fn supervised(arguments: &[OsString]) -> anyhow::Result<u8> {
    die_with_parent()?;
    prctl::set_child_subreaper(true).context("prctl(PR_SET_CHILD_SUBREAPER)")?;
    let limits = Limits::parse(arguments)?;
    let mut command = Command::new(course()?);
    command.arg(LIMIT).args(arguments).process_group(0);
    let child = command.spawn().context("this program again")?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let start = Instant::now();
    let status = loop {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => break u8::try_from(code).unwrap_or(1),
            Ok(WaitStatus::Signaled(_, signal, _)) => break 128 + signal as u8,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("waitpid"),
        }
        let starved = processes::starved(child.id());
        if bounded::is_up(limits.wall, start.elapsed(), starved) {
            // Before anything of it is ended: afterwards nobody can say what was waited for.
            let doing = microscope::doing_all(child.id());
            let (took, of_it) = (start.elapsed().as_secs(), starved.as_secs());
            eprintln!(
                "{WHEN_TIME_WAS_UP}{took} s after its start ({of_it} s without a core): {doing}"
            );
            break TIME_UP;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let _ = killpg(pid, Signal::SIGKILL);
    end_all_children();
    Ok(status)
}

/// Kills what is still our child, and what becomes our child when its own parent is killed, until there
/// is nothing left; for two seconds at most, for something may be stuck in the kernel.
fn end_all_children() {
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        for child in children() {
            let _ = kill(child, Signal::SIGKILL);
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return,
            Ok(WaitStatus::StillAlive) => thread::sleep(Duration::from_millis(5)),
            _ => {}
        }
    }
}

/// The children of all our threads: `/proc/self/task/*/children` of proc(5).
fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let numbers = |list: String| -> Vec<i32> {
        list.split_whitespace().filter_map(|it| it.parse().ok()).collect()
    };
    lists.flat_map(numbers).map(Pid::from_raw).collect()
}

/// The main function of the process that becomes the program in `arguments`.
pub fn limit(arguments: &[OsString]) -> ExitCode {
    let error = match limited(arguments) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    eprintln!("course: {error:#}");
    ExitCode::from(126)
}

fn limited(arguments: &[OsString]) -> anyhow::Result<std::convert::Infallible> {
    die_with_parent()?;
    let limits = Limits::parse(arguments)?;
    // The limit counts what this user has, in this machine's other windows too.
    lower(Resource::RLIMIT_NPROC, tasks_of_this_user() + limits.processes)?;
    lower(Resource::RLIMIT_AS, limits.memory_mib * 1024 * 1024)?;
    lower(Resource::RLIMIT_NOFILE, limits.descriptors)?;
    lower(Resource::RLIMIT_CORE, 0)?;
    let [program, rest @ ..] = &arguments[LIMITS..] else { bail!("no program was named") };
    let error = Command::new(program).args(rest).exec();
    Err(anyhow!(error).context(PathBuf::from(program).display().to_string()))
}

/// Lowers a limit, soft and hard: what was lower stays.
fn lower(resource: Resource, most: u64) -> anyhow::Result<()> {
    let (soft, hard) = getrlimit(resource).with_context(|| format!("getrlimit({resource:?})"))?;
    setrlimit(resource, soft.min(most), hard.min(most))
        .with_context(|| format!("setrlimit({resource:?}, {most})"))
}

fn tasks_of_this_user() -> u64 {
    let own = getuid().as_raw();
    let mut tasks = 0;
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        use std::os::unix::fs::MetadataExt;
        if process.metadata().is_ok_and(|it| it.uid() == own)
            && let Ok(threads) = fs::read_dir(process.path().join("task"))
        {
            tasks += threads.count() as u64;
        }
    }
    tasks
}

/// Lets the kernel kill this process when its parent ends.
fn die_with_parent() -> anyhow::Result<()> {
    let parent = getppid();
    prctl::set_pdeathsig(Signal::SIGKILL).context("prctl(PR_SET_PDEATHSIG)")?;
    if getppid() != parent {
        bail!("the process that started this one has ended");
    }
    Ok(())
}
