//! Waits for other processes, each with a bound after which it says what it waited for.
//!
//! Neither `wait(2)` nor a read to the end of a pipe has a timeout. A pipe ends when the last process that
//! holds its other end has closed it, and that may be a grandchild of which nobody knows; a child that
//! was killed ends when the kernel has let go of it, and until all of its threads have been traced to
//! their end. So the child is asked about now and then, and a pipe is read by a thread that may be left
//! behind.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::{microscope, processes};

/// How long a process that was killed may take to be gone, on a busy machine.
pub const GONE: Duration = Duration::from_secs(10);

/// How long a program may take that says its version or looks at a file, on a busy machine.
pub const TOOL: Duration = Duration::from_secs(60);

/// How long a pipe may take to end when whoever wrote to it has ended, on a busy machine.
pub const LAST_WORDS: Duration = Duration::from_secs(2);

/// Waits until `child` has ended, at most `within`: `None` when it still runs.
///
/// # Errors
///
/// Those of `waitpid(2)`.
pub fn wait(child: &mut Child, within: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + within;
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(5));
    }
}

/// The same when a machine with too much to do is not the child's fault: how long its first thread has
/// waited for a core is not counted, as [`is_up`] says.
///
/// # Errors
///
/// As [`wait`].
pub fn wait_fairly(child: &mut Child, within: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = wait(child, Duration::from_millis(20))? {
            return Ok(Some(status));
        }
        if is_up(within, start.elapsed(), processes::starved(child.id())) {
            return Ok(None);
        }
    }
}

/// How many times its own time somebody may take who seldom gets a core.
pub const STRETCH: u32 = 3;

/// Whether the time of somebody is up who may take `within`, `elapsed` after their start, in which they
/// have been `starved` of a core so long.
pub fn is_up(within: Duration, elapsed: Duration, starved: Duration) -> bool {
    elapsed > (within + starved).min(STRETCH * within)
}

/// Kills `child`, and waits until it is gone.
///
/// # Errors
///
/// A sentence that says what it does, when it is not gone after [`GONE`]; those of `waitpid(2)`.
pub fn end(child: &mut Child) -> anyhow::Result<ExitStatus> {
    // It may have ended by itself, and then this fails.
    let _ = child.kill();
    match wait(child, GONE).context("waitpid")? {
        Some(status) => Ok(status),
        None => bail!("killed, but not gone {GONE:?} later: {}", microscope::doing(child.id())),
    }
}

/// Runs `command` to its end, which is to come `within` that time, and hears what it says on stdout
/// and stderr. On stdin it hears nothing.
///
/// # Errors
///
/// When it cannot be run; when it does not end in time, and is killed: the sentence says what it did.
pub fn output(command: &mut Command, within: Duration) -> anyhow::Result<Output> {
    output_of(command, Stdio::null(), within)
}

/// The same with something on stdin.
///
/// # Errors
///
/// As [`output`].
pub fn output_of(command: &mut Command, stdin: Stdio, within: Duration) -> anyhow::Result<Output> {
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    let stdout = Listening::to(child.stdout.take().context("stdout was piped")?, u64::MAX)?;
    let stderr = Listening::to(child.stderr.take().context("stderr was piped")?, u64::MAX)?;
    let status = ends(&mut child, command, within);
    let (stdout, stderr) = (stdout.heard(LAST_WORDS), stderr.heard(LAST_WORDS));
    let said = [&stdout.bytes, &stderr.bytes].map(|it| String::from_utf8_lossy(it).into_owned());
    let status = status.with_context(|| format!("it had said: {}", said.concat().trim()))?;
    Ok(Output { status, stdout: stdout.bytes, stderr: stderr.bytes })
}

/// Runs `command` to its end, which is to come `within` that time. What it says goes where it is sent.
///
/// # Errors
///
/// As [`output`].
pub fn status(command: &mut Command, within: Duration) -> anyhow::Result<ExitStatus> {
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    ends(&mut child, command, within)
}

/// Demands that `child` ends in time, and kills it if it does not.
fn ends(child: &mut Child, command: &Command, within: Duration) -> anyhow::Result<ExitStatus> {
    if let Some(status) = wait(child, within).context("waitpid")? {
        return Ok(status);
    }
    let doing = microscope::doing_all(child.id());
    end(child)?;
    bail!("{command:?} did not end in {within:?}: {doing}")
}

/// A pipe that is read by a thread, to its end or beyond our patience.
#[derive(Debug)]
pub struct Listening {
    /// Its number; the descriptor itself is the thread's, so that the pipe is closed with it.
    inode: u64,
    bytes: Arc<Mutex<Vec<u8>>>,
    is_over: mpsc::Receiver<()>,
}

/// What has come out of a pipe.
#[derive(Debug)]
pub struct Heard {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// When the pipe has not ended: who holds its other end.
    pub held_by: Option<String>,
}

impl Listening {
    /// Reads `pipe` from now on, and keeps no more than its first `bytes_max`; whoever writes more than
    /// that finds the pipe closed.
    ///
    /// # Errors
    ///
    /// When there is no descriptor left for it.
    pub fn to<P>(pipe: P, bytes_max: u64) -> io::Result<Listening>
    where
        P: Read + AsFd + Send + 'static,
    {
        let inode = File::from(pipe.as_fd().try_clone_to_owned()?).metadata()?.ino();
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (over, is_over) = mpsc::channel();
        thread::spawn({
            let bytes = Arc::clone(&bytes);
            move || {
                read(pipe.take(bytes_max), &bytes);
                drop(over);
            }
        });
        Ok(Listening { inode, bytes, is_over })
    }

    /// What has come until the pipe ends, or until `within` is over. Then its thread is left behind, and
    /// ends with the pipe.
    pub fn heard(self, within: Duration) -> Heard {
        let is_held = self.is_over.recv_timeout(within) == Err(RecvTimeoutError::Timeout);
        let held_by = is_held.then(|| holders(self.inode));
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        Heard { bytes: std::mem::take(&mut bytes), held_by }
    }
}

impl Heard {
    /// The bytes as text, and who held the pipe, if anybody did.
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.bytes).into_owned();
        if let Some(holders) = &self.held_by {
            text += &format!("\n[this pipe did not end: {holders} held its other end]\n");
        }
        text
    }
}

fn read(mut pipe: impl Read, bytes: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 8192];
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => {
                let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&chunk[..length]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Who holds an end of this pipe but us, as far as /proc lets us see it.
fn holders(inode: u64) -> String {
    let link = format!("pipe:[{inode}]");
    let mut holders = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|it| it.parse::<u32>().ok()) else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        let mut open = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        if open.any(|it| fs::read_link(it.path()).is_ok_and(|it| it.as_os_str() == link.as_str())) {
            holders.push(microscope::doing(pid));
        }
    }
    match holders.is_empty() {
        true => "somebody who cannot be seen".into(),
        false => holders.join(" and "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_ends_in_time_is_heard() {
        let output = output(&mut shell("echo one; echo two >&2; exit 3"), GONE).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert_eq!((text(output.stdout), text(output.stderr)), ("one\n".into(), "two\n".into()));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn what_does_not_end_is_told_with_what_it_does() {
        let within = Duration::from_millis(300);
        let error = output(&mut shell("echo begun; exec sleep 7201.5"), within).unwrap_err();
        let told = format!("{error:#}");
        for word in ["begun", "sleep 7201.5", "did not end in 300ms", "sleeps in clock_nanosleep"] {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
    }

    #[test]
    fn a_busy_machine_stretches_the_time_but_not_for_ever() {
        let is_up = |elapsed, starved| {
            is_up(GONE, Duration::from_secs(elapsed), Duration::from_secs(starved))
        };
        assert!(!is_up(9, 0) && is_up(11, 0));
        assert!(!is_up(17, 8) && is_up(17, 6));
        assert!(is_up(31, 30));
    }

    /// What hangs for ever where a pipe is read to its end: the shell has ended, and a process that it
    /// left behind holds the pipe.
    #[test]
    fn a_pipe_that_somebody_keeps_is_not_waited_for() {
        let start = Instant::now();
        let mut command = shell("sleep 30 & echo $!; exec >&-; sleep 0.1");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = Listening::to(child.stdout.take().unwrap(), 100).unwrap();
        assert!(wait(&mut child, GONE).unwrap().is_some());
        let heard = stdout.heard(Duration::from_millis(300));
        let pid: i32 = str::from_utf8(&heard.bytes).unwrap().trim().parse().unwrap();
        let held_by = heard.held_by.unwrap();
        assert!(held_by.contains("sleep") && held_by.contains(&pid.to_string()), "{held_by}");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
