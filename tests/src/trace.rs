//! The tracer: which system calls a server makes, in which order, and how many an answer takes.
//!
//! `ptrace(2)` stops each thread of the server before and after each of its system calls, and tells us.
//! Such a stop takes longer than most calls do: **order and counts are the server's, durations are
//! ours**, and nothing here is a latency. The calls that the kernel answers in user space without being
//! entered (the vDSO: what time is it) are not seen.
//!
//! A batch of requests that all wait at once needs a server that stands still meanwhile. SIGSTOP would
//! not do: a tracer that resumes the server undoes it. So the server is held by the tracer: every
//! thread is seized and interrupted, and stays in its stop until we let it go on. A call that was
//! interrupted returns EINTR to the server or is made again, whichever the kernel does with it after a
//! signal: once when it is held, and once when the tracer takes its leave.
//!
//! The kernel wants all requests about a thread from the thread that seized it, and a stop is waited
//! for by the number of the thread that stops, never for any child: tests share one process, and would
//! take each other's. So everything happens in the calling thread, which is the clients too.
//!
//! A server built for debugging makes one call more for each descriptor that it closes: the standard
//! library asks first whether it is open (`fcntl`, F_GETFD).
//!
//! Child processes that are there when the server is held are traced like its threads.
//!
//! Simplified: threads that begin meanwhile are followed, child processes are not; a SIGSTOP that comes meanwhile has no
//! effect (nix has no PTRACE_LISTEN); real-time signals are not passed on but end the trace.

use std::fs;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, gettid};

use crate::bounded::{self, LAST_WORDS, Listening};
use crate::server::{Client, End, Heard, Server, connect_soon, is_connected};
use crate::sys::{self, CallStop};
use crate::{microscope, sock_diag};

/// What every client asks, and how it knows that this is answered.
#[derive(Clone, Debug)]
pub struct Question {
    /// What it sends.
    pub request: Vec<u8>,
    /// What it is to hear.
    pub answer: Vec<u8>,
    /// Whether the server ends the stream after its answer. Otherwise a client has its answer when it has
    /// heard as many bytes, and then it leaves: one by one at once, in a batch when all have theirs.
    pub closes: bool,
}

impl Question {
    /// Of the chapters: is 7 odd or even?
    pub fn odd_or_even() -> Question {
        Question { request: b"7\n".into(), answer: b"Odd\n".into(), closes: true }
    }

    /// Whether `heard` is the answer, and all of it.
    fn is_answered_by(&self, heard: &Heard) -> bool {
        match self.closes {
            true => heard.is(&self.answer),
            false => heard.bytes == self.answer && heard.end != End::Reset,
        }
    }
}

/// How long a client waits for its answer when the server runs freely again.
const LAST_CHANCE: Duration = Duration::from_secs(5);

/// How much of what a program says of its options is read.
const HELP_BYTES_MAX: u64 = 1024 * 1024;

/// How long a trace goes on without a stop, or in all, before it is given up.
const SILENCE: Duration = Duration::from_secs(5);
const FOLLOW: Duration = Duration::from_secs(30);

/// How long nothing may have happened before a server that sleeps is taken to have nothing to do.
const SETTLED: Duration = Duration::from_millis(5);

/// A server that does not sleep is asked about all the same, after this time.
const AWAKE: Duration = Duration::from_millis(250);

/// How long a thread may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// How long a batch may take to get in, and its bytes to arrive. A SYN that was dropped is sent again
/// after a second: this is shorter.
const GET_IN: Duration = Duration::from_millis(500);

/// What was seen of a server.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// How many clients asked.
    pub asked: usize,
    /// How many of them were answered, rightly and to the end.
    pub answers: usize,
    /// What the first of the others heard.
    pub unanswered: Option<Heard>,
    /// How many had no answer yet when the server had long been asleep: what they cost was not seen.
    pub late: usize,
    /// How many threads the server had, those that ended meanwhile too.
    pub threads: usize,
    /// Its calls in the order in which they began.
    pub calls: Vec<Call>,
}

/// One system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which of the server's threads made it, from 1 in the order of their numbers.
    pub thread: usize,
    /// The number of the call, a `libc::SYS_…`.
    pub number: i64,
    /// The descriptor that it is about: its first argument, or the third one of `epoll_ctl`.
    pub descriptor: Option<i32>,
    /// When it began, since the server was let go on. It includes what the tracer costs.
    pub start_us: u64,
    /// How long it took, the tracer included; `None` while it has not returned.
    pub duration_us: Option<u64>,
    /// What it returned, or the negative errno; `None` while it has not returned.
    pub returned: Option<i64>,
}

/// This machine does not let us trace the server.
#[derive(Debug)]
pub struct Refused {
    request: &'static str,
    errno: Errno,
}

impl std::error::Error for Refused {}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let remedy = match self.errno {
            Errno::EPERM | Errno::EACCES => {
                "a debugger may be attached already; else see kernel.yama.ptrace_scope (2 and 3 forbid \
                 it) and the container's seccomp profile (docker run --cap-add SYS_PTRACE)"
            }
            _ => "Linux 5.3 or later has it, some sandboxes have not: run it on the machine itself",
        };
        write!(f, "ptrace: {} failed with {}: {remedy}", self.request, self.errno)
    }
}

impl Trace {
    /// How often each call was made, by name, the most frequent one first.
    pub fn counts(&self) -> Vec<(String, usize)> {
        let mut counts: Vec<(String, usize)> = Vec::new();
        for call in &self.calls {
            let name = call.name();
            match counts.iter_mut().find(|it| it.0 == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name, 1)),
            }
        }
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        counts
    }

    /// How many calls an answer took; infinite when there was none.
    pub fn per_answer(&self) -> f64 {
        self.calls.len() as f64 / self.answers as f64
    }

    /// Notes what `asker` has heard, for which it waits now that the server runs freely.
    fn note(&mut self, mut asker: Asker, within: Duration) {
        asker.listen_to_its_end(within);
        if asker.question.is_answered_by(&asker.heard) {
            self.answers += 1;
        } else {
            self.unanswered.get_or_insert(asker.heard);
        }
    }
}

impl Call {
    /// Its name, or its number where we have no name for it.
    pub fn name(&self) -> String {
        let known = microscope::name(self.number).or_else(|| name(self.number));
        known.map_or_else(|| format!("system call {}", self.number), |it| it.0.to_owned())
    }
}

/// Starts `exe` on a free port of 127.0.0.1, with `--reactors N` if it has such an option: a server that
/// makes one loop for each core pays for each of them.
///
/// Whether it has the option is what `exe --help` says.
///
/// # Errors
///
/// As [`Server::start`].
pub fn start(exe: &Path, reactors: usize) -> anyhow::Result<Server> {
    const OPTION: &str = "--reactors";
    let reactors = reactors.to_string();
    let options: &[&str] = match help(exe)?.contains(OPTION) {
        true => &[OPTION, &reactors],
        false => &[],
    };
    Server::start_with_options(exe, "127.0.0.1:0", options)
}

/// What `exe --help` prints; nothing if it does something else instead.
fn help(exe: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(exe);
    command.arg("--help").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    sys::die_with_parent(&mut command);
    let mut child = command.spawn().with_context(|| format!("cannot run {}", exe.display()))?;
    let stdout = Listening::to(child.stdout.take().context("stdout was piped")?, HELP_BYTES_MAX)?;
    // A program that takes any argument for nothing serves now.
    bounded::wait(&mut child, LAST_CHANCE).context("waitpid")?;
    bounded::end(&mut child).with_context(|| format!("{} --help", exe.display()))?;
    Ok(stdout.heard(LAST_WORDS).text())
}

/// Sends `clients` requests, each when the server sleeps again after the one before, and notes its calls.
///
/// # Errors
///
/// [`Refused`] where the machine does not let us; [`crate::server::Ended`] when the server ends.
pub fn one_at_a_time(server: &Server, clients: usize) -> anyhow::Result<Trace> {
    one_at_a_time_asking(server, clients, &Question::odd_or_even())
}

/// The same with another question.
///
/// # Errors
///
/// As [`one_at_a_time`].
pub fn one_at_a_time_asking(
    server: &Server,
    clients: usize,
    question: &Question,
) -> anyhow::Result<Trace> {
    let mut trace = Trace::default();
    let mut session = Session::hold(server)?;
    // Nobody has asked yet: what it does until it sleeps again is our doing.
    session.follow(|| Ok(true))?;
    session.forget();
    let mut now: Option<Asker<'_>> = None;
    session.follow(|| {
        if let Some(mut asker) = now.take() {
            if !asker.is_done() {
                now = Some(asker);
                return Ok(false);
            }
            trace.note(asker, LAST_CHANCE);
            if !question.closes {
                return Ok(false); // It has left just now, and what the server does then is seen first.
            }
        }
        if trace.asked == clients {
            return Ok(true);
        }
        trace.asked += 1;
        let mut client = server.connect("one client at a time")?;
        client.send(&question.request)?;
        now = Some(Asker::new(client, question));
        Ok(false)
    })?;
    trace.late = now.iter_mut().map(Asker::is_done).filter(|done| !done).count();
    session.end(&mut trace);
    finish(server, trace, now)
}

/// Holds the server, sends `clients` requests at once, lets it go on, and notes its calls until all are
/// answered and it sleeps again. Who does not get into the server's queue has not asked.
///
/// # Errors
///
/// As [`one_at_a_time`]; and when nobody gets in.
pub fn batch(server: &Server, clients: usize) -> anyhow::Result<Trace> {
    batch_asking(server, clients, &Question::odd_or_even())
}

/// The same with another question.
///
/// # Errors
///
/// As [`batch`].
pub fn batch_asking(server: &Server, clients: usize, question: &Question) -> anyhow::Result<Trace> {
    let mut session = Session::hold(server)?;
    let mut askers = crowd(server.address(), clients, question)?;
    if askers.is_empty() {
        bail!("connect({}): nobody got in while the server was held", server.address());
    }
    let mut trace = Trace { asked: askers.len(), ..Trace::default() };
    session.follow(|| Ok(askers.iter_mut().all(Asker::is_done)))?;
    // As long as we are there: who is answered when we have left was not seen.
    trace.late = askers.iter_mut().map(Asker::is_done).filter(|done| !done).count();
    session.end(&mut trace);
    finish(server, trace, askers)
}

/// Lets each of `clients` send `request` over the connection that it has, at a moment in which the server
/// sleeps, and notes its calls until each has heard what `is_answer` takes for one and the server sleeps
/// again. A thread that wakes meanwhile goes no further than to the end of the call in which it slept.
///
/// # Errors
///
/// As [`one_at_a_time`].
pub fn exchange(
    server: &Server,
    clients: &mut [Client],
    request: &[u8],
    is_answer: fn(&[u8]) -> bool,
) -> anyhow::Result<Trace> {
    let mut session = Session::hold(server)?;
    // Nobody has asked yet: what it does until it sleeps again is our doing.
    session.follow(|| Ok(true))?;
    session.forget();
    let mut trace = Trace::default();
    let mut heard: Vec<Vec<u8>> = vec![Vec::new(); clients.len()];
    let port = server.address().port();
    session.follow(|| {
        if trace.asked == 0 {
            ask(clients, request, port)?;
            trace.asked = clients.len();
            return Ok(false);
        }
        Ok(missing(clients, &mut heard, is_answer, Duration::ZERO).is_empty())
    })?;
    let late = missing(clients, &mut heard, is_answer, Duration::ZERO);
    trace.late = late.iter().filter(|it| it.1 == End::Open).count();
    session.end(&mut trace);
    let missing = missing(clients, &mut heard, is_answer, LAST_CHANCE);
    trace.answers = trace.asked - missing.len();
    if let Some(&(at, end)) = missing.first() {
        server.must_run()?;
        let bytes = std::mem::take(&mut heard[at]);
        trace.unanswered = Some(Heard { bytes, end, after: LAST_CHANCE });
    }
    Ok(trace)
}

/// Each of them asks; when this returns, all of it has arrived.
fn ask(clients: &mut [Client], request: &[u8], port: u16) -> anyhow::Result<()> {
    for client in clients.iter_mut() {
        client.send(request)?;
    }
    wait(|| {
        let Ok(sockets) = sock_diag::sockets(port) else { return false };
        let ours = |client: &Client| sockets.iter().find(|it| it.local == client.address());
        clients.iter().all(|it| ours(it).is_none_or(|it| it.transmit_queue == 0))
    });
    Ok(())
}

/// Those who have no answer yet, and how their streams stand. All together are waited for within `within`.
fn missing(
    clients: &mut [Client],
    heard: &mut [Vec<u8>],
    is_answer: fn(&[u8]) -> bool,
    within: Duration,
) -> Vec<(usize, End)> {
    let mut missing = Vec::new();
    let deadline = Instant::now() + within;
    for (at, (client, heard)) in clients.iter_mut().zip(heard).enumerate() {
        let mut end = End::Open;
        let begun = Instant::now();
        // A look, not a wait, where there is no time: the server may stand still and need us.
        while !is_answer(heard) && (!within.is_zero() || !client.is_held()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(ended) = client.hear_some(left, heard) {
                end = ended;
                break;
            }
            // It says something all the time, and never what is wanted.
            if left.is_zero() && begun.elapsed() > LAST_CHANCE {
                break;
            }
        }
        if !is_answer(heard) {
            missing.push((at, end));
        }
    }
    missing
}

fn finish<'a>(
    server: &Server,
    mut trace: Trace,
    askers: impl IntoIterator<Item = Asker<'a>>,
) -> anyhow::Result<Trace> {
    // All of them together have the time that one has.
    let deadline = Instant::now() + LAST_CHANCE;
    for asker in askers {
        trace.note(asker, deadline.saturating_duration_since(Instant::now()));
    }
    if trace.unanswered.is_some() {
        server.must_run()?;
    }
    Ok(trace)
}

/// A server under `ptrace`, from the stop in which it is held to our leave.
struct Session<'a> {
    server: &'a Server,
    threads: Vec<Thread>,
    /// How many there were in all.
    seen: usize,
    calls: Vec<Call>,
    began: Instant,
    /// The calling thread's, to be given back.
    slack_ns: Option<u32>,
    /// The kernel wants all requests from one thread.
    _stays: PhantomData<*const ()>,
}

/// A thread that we trace.
struct Thread {
    id: Pid,
    /// Which one it is, from 1.
    at: usize,
    state: State,
    /// The call that it is in, if it has begun under our eyes: its place in the list.
    inside: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    /// It stands still until it is resumed, and then meets this signal.
    Stopped(Option<Signal>),
    Gone,
}

impl<'a> Session<'a> {
    /// Seizes every thread of `server`, interrupts it, and waits until it has stopped.
    fn hold(server: &'a Server) -> anyhow::Result<Session<'a>> {
        // A tracer sleeps for moments, and each would be 50 µs longer.
        let slack_ns = prctl::get_timerslack().ok().and_then(|it| u32::try_from(it).ok());
        let _ = prctl::set_timerslack(1);
        let mut session = Session {
            server,
            threads: Vec::new(),
            seen: 0,
            calls: Vec::new(),
            began: Instant::now(),
            slack_ns,
            _stays: PhantomData,
        };
        session.wait_until_started();
        // A thread may start another one until it has stopped, but not for ever.
        let deadline = Instant::now() + STOP;
        while session.seize()? {
            session.wait_until_all_stopped(STOP)?;
            if Instant::now() > deadline {
                bail!(
                    "{} starts threads all the time: after {STOP:?} not all were traced",
                    server.exe().display()
                );
            }
        }
        Ok(session)
    }

    /// Waits until all threads sleep: a server that says where it listens may be about to start them.
    fn wait_until_started(&self) {
        let began = Instant::now();
        let mut awake_last = began;
        while awake_last.elapsed() < SETTLED && began.elapsed() < AWAKE {
            thread::sleep(Duration::from_millis(1));
            let tasks = self.tasks().unwrap_or_default();
            if tasks.iter().any(|it| state(*it, *it) != Some('S')) {
                awake_last = Instant::now();
            }
        }
    }

    /// Seizes and interrupts the threads that are not traced yet. Whether there were any.
    fn seize(&mut self) -> anyhow::Result<bool> {
        // Should this thread end without taking its leave, the server ends too: nothing is left behind.
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_EXITKILL;
        let before = self.threads.len();
        for id in self.tasks()? {
            if self.threads.iter().any(|it| it.id == id) || is_worker(id, id) {
                continue;
            }
            match ptrace::seize(id, options) {
                // It ended meanwhile.
                Err(Errno::ESRCH) => continue,
                // The kernel has made it ours already, as a thread of one that we had seized.
                Err(Errno::EPERM) if is_ours(id, id) => {}
                Err(errno) => {
                    self.server.must_run()?; // Who has ended cannot be traced either.
                    return Err(Refused { request: "PTRACE_SEIZE", errno }.into());
                }
                Ok(()) => {}
            }
            self.add(id);
            // ESRCH: it ended meanwhile, which is what we see next.
            let _ = ptrace::interrupt(id);
        }
        if self.threads.is_empty() {
            self.server.must_run()?;
            bail!("process {} has no thread that could be traced", self.pid());
        }
        Ok(self.threads.len() > before)
    }

    fn add(&mut self, id: Pid) {
        self.seen += 1;
        self.threads.push(Thread { id, at: self.seen, state: State::Runs, inside: None });
    }

    /// The threads of the server and of its children. Of a thread, too, /proc has a folder.
    fn tasks(&self) -> anyhow::Result<Vec<Pid>> {
        let mut all = tasks(self.pid())?;
        for child in self.server.processes().into_iter().skip(1) {
            // It may end meanwhile.
            all.extend(tasks(Pid::from_raw(child.cast_signed())).unwrap_or_default());
        }
        Ok(all)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.server.pid().cast_signed())
    }

    fn wait_until_all_stopped(&mut self, within: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + within;
        while self.threads.iter().any(|it| it.state == State::Runs) {
            if self.look()? {
                continue;
            }
            self.must_live()?;
            if Instant::now() > deadline {
                let (exe, doing) =
                    (self.server.exe().display(), microscope::doing(self.server.pid()));
                bail!("PTRACE_INTERRUPT: a thread of {exe} did not stop in {within:?}: {doing}");
            }
            pause();
        }
        Ok(())
    }

    /// Lets the server go on from call to call. When it sleeps and has nothing to do, `is_over` is asked,
    /// until it says so or nothing happens any more.
    fn follow(&mut self, mut is_over: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        self.began = Instant::now();
        let (mut stopped_last, mut asked_last) = (self.began, self.began);
        self.resume();
        while self.began.elapsed() < FOLLOW && stopped_last.elapsed() < SILENCE {
            let stopped = self.look()?;
            self.resume();
            if stopped {
                stopped_last = Instant::now();
            } else {
                pause();
            }
            let settled = stopped_last.elapsed().min(asked_last.elapsed()) > SETTLED;
            if (settled && self.sleeps()?) || asked_last.elapsed() > AWAKE {
                self.must_live()?;
                if is_over()? {
                    break;
                }
                asked_last = Instant::now();
            }
        }
        Ok(())
    }

    /// Takes in what the threads have stopped for, of each that has. Whether any had.
    fn look(&mut self) -> anyhow::Result<bool> {
        let mut any = false;
        for at in 0..self.threads.len() {
            let id = self.threads[at].id;
            if self.threads[at].state != State::Runs {
                continue;
            }
            let mut flags = WaitPidFlag::WNOHANG | WaitPidFlag::WSTOPPED | WaitPidFlag::__WALL;
            // How the process ended is for whoever started it to hear. Of its other threads nobody
            // else hears.
            flags.set(WaitPidFlag::WEXITED, id != self.pid());
            let state = match waitid(Id::Pid(id), flags) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => continue,
                Ok(WaitStatus::PtraceSyscall(_)) => self.note(at)?,
                Ok(WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_CLONE)) => {
                    // ESRCH: it was killed meanwhile.
                    if let Ok(new) = ptrace::getevent(id) {
                        self.add(Pid::from_raw(i32::try_from(new)?));
                    }
                    State::Stopped(None)
                }
                // Before a signal reaches it; it shall.
                Ok(WaitStatus::PtraceEvent(_, signal, 0) | WaitStatus::Stopped(_, signal)) => {
                    State::Stopped(Some(signal))
                }
                Ok(WaitStatus::PtraceEvent(..) | WaitStatus::Continued(_)) => State::Stopped(None),
                // Nothing of the process can stop any more.
                Err(Errno::ECHILD) if id == self.pid() => {
                    self.must_live()?;
                    continue;
                }
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => {
                    State::Gone
                }
                Err(errno) => {
                    // nix has no name for what it stopped for.
                    self.threads[at].state = State::Stopped(None);
                    return Err(errno).context("waitid: a signal that cannot be passed on");
                }
            };
            self.threads[at].state = state;
            any = true;
        }
        self.threads.retain(|it| it.state != State::Gone);
        Ok(any)
    }

    /// Notes the call before or after which thread `at` has stopped.
    fn note(&mut self, at: usize) -> anyhow::Result<State> {
        let thread = &mut self.threads[at];
        let now_us = u64::try_from(self.began.elapsed().as_micros())?;
        match sys::call_stop(thread.id) {
            Ok(CallStop::Entry { number, arguments }) => {
                thread.inside = Some(self.calls.len());
                self.calls.push(Call {
                    thread: thread.at,
                    number,
                    descriptor: descriptor(number, arguments),
                    start_us: now_us,
                    duration_us: None,
                    returned: None,
                });
            }
            Ok(CallStop::Exit { returned }) => {
                let inside = thread.inside.take();
                if let Some(call) = inside.and_then(|it| self.calls.get_mut(it)) {
                    call.duration_us = Some(now_us.saturating_sub(call.start_us));
                    call.returned = Some(returned);
                }
            }
            Ok(CallStop::Other) | Err(Errno::ESRCH) => {}
            Err(errno) => {
                thread.state = State::Stopped(None);
                return Err(Refused { request: "PTRACE_GET_SYSCALL_INFO", errno }.into());
            }
        }
        Ok(State::Stopped(None))
    }

    /// Lets every thread that has stopped go on to its next call.
    fn resume(&mut self) {
        for thread in &mut self.threads {
            if let State::Stopped(signal) = thread.state {
                thread.state = State::Runs;
                // ESRCH: it was killed in its stop, which is what we see next.
                let _ = ptrace::syscall(thread.id, signal);
            }
        }
    }

    /// Whether every thread sleeps in a call that it has begun under our eyes.
    fn sleeps(&self) -> anyhow::Result<bool> {
        let asleep = |it: &Thread| it.inside.is_some() && state(it.id, it.id) == Some('S');
        Ok(self.threads.iter().all(asleep))
    }

    fn lives(&self) -> bool {
        !matches!(state(self.pid(), self.pid()), None | Some('Z' | 'X'))
    }

    /// Takes note of the end of all threads but the first: until somebody has, the kernel does not tell
    /// whoever started the process that it has ended.
    fn bury(&mut self) {
        let (pid, deadline) = (self.pid(), Instant::now() + STOP);
        self.threads.retain(|it| it.id != pid);
        while !self.threads.is_empty() && Instant::now() < deadline {
            self.threads.iter_mut().for_each(|it| it.state = State::Runs);
            if !self.look().unwrap_or(false) {
                pause();
            }
        }
    }

    fn must_live(&self) -> anyhow::Result<()> {
        if !self.lives() {
            self.server.must_run()?;
            bail!("{} has ended while it was traced", self.server.exe().display());
        }
        Ok(())
    }

    /// Forgets what was seen so far.
    fn forget(&mut self) {
        self.calls.clear();
        for thread in &mut self.threads {
            thread.inside = thread.inside.map(|_| usize::MAX); // None that is in the list.
        }
    }

    /// Hands over what was seen, and takes its leave.
    fn end(mut self, trace: &mut Trace) {
        trace.threads = self.seen;
        trace.calls = std::mem::take(&mut self.calls);
    }
}

/// Whatever happened, the server runs freely again. A thread leaves its tracer out of a stop only.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        for thread in self.threads.iter().filter(|it| it.state == State::Runs) {
            let _ = ptrace::interrupt(thread.id);
        }
        // A thread that does not stop goes when we do.
        if self.wait_until_all_stopped(STOP).is_err() && !self.lives() {
            self.bury();
        }
        for thread in &self.threads {
            if let State::Stopped(signal) = thread.state {
                let _ = ptrace::detach(thread.id, signal);
            }
        }
        if let Some(slack_ns) = self.slack_ns {
            let _ = prctl::set_timerslack(slack_ns.into());
        }
    }
}

/// A client that has asked.
struct Asker<'a> {
    client: Client,
    question: &'a Question,
    heard: Heard,
}

impl Asker<'_> {
    fn new(client: Client, question: &Question) -> Asker<'_> {
        let heard = Heard { bytes: Vec::new(), end: End::Open, after: Duration::ZERO };
        Asker { client, question, heard }
    }

    /// Whether its stream has ended, or it has heard enough. It does not wait: the server may stand
    /// still and need us.
    fn is_done(&mut self) -> bool {
        if self.heard.end == End::Open && !self.client.is_held() {
            self.listen(Duration::ZERO);
        }
        self.heard.end != End::Open || self.has_enough()
    }

    fn has_enough(&self) -> bool {
        !self.question.closes && self.heard.bytes.len() >= self.question.answer.len()
    }

    fn listen_to_its_end(&mut self, within: Duration) {
        if self.question.closes {
            return self.listen(within);
        }
        let deadline = Instant::now() + within;
        while !self.is_done() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn listen(&mut self, within: Duration) {
        if self.heard.end == End::Open {
            let more = self.client.hear(within);
            self.heard.bytes.extend(more.bytes);
            self.heard.end = more.end;
            self.heard.after += more.after;
        }
    }
}

/// Those of `clients` clients who get in at once, and have asked. The others leave without a trace.
fn crowd(
    server: SocketAddr,
    clients: usize,
    question: &Question,
) -> anyhow::Result<Vec<Asker<'_>>> {
    let sockets: Vec<OwnedFd> =
        (0..clients).map(|_| connect_soon(server)).collect::<anyhow::Result<_>>()?;
    wait(|| sockets.iter().all(is_connected));
    let mut inside = Vec::new();
    for socket in sockets.into_iter().filter(is_connected) {
        let mut client = Client::adopt(TcpStream::from(socket), "one of a batch")?;
        client.send(&question.request)?;
        inside.push(client);
    }
    // Sent is not arrived: on a busy machine, even loopback delivers later. And who only believes to
    // have got in, since the last packet of the handshake was dropped, is never heard.
    let mut arrived: Vec<SocketAddr> = Vec::new();
    wait(|| {
        // Where the kernel does not answer, all are taken to have arrived after a while.
        let Ok(sockets) = sock_diag::sockets(server.port()) else { return false };
        let taken = sockets.iter().filter(|it| it.peer == server && it.transmit_queue == 0);
        arrived = taken.map(|it| it.local).collect();
        inside.iter().all(|it| arrived.contains(&it.address()))
    });
    let mut askers = Vec::new();
    for client in inside {
        if arrived.is_empty() || arrived.contains(&client.address()) {
            askers.push(Asker::new(client, question));
        } else {
            client.reset().context("setsockopt(SO_LINGER)")?;
        }
    }
    Ok(askers)
}

/// Waits until `condition` holds, at most [`GET_IN`].
fn wait(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + GET_IN;
    while !condition() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
}

/// A moment in which nothing has stopped: short against a stop, long against a look.
fn pause() {
    thread::sleep(Duration::from_micros(20));
}

/// The threads of process `pid`.
fn tasks(pid: Pid) -> anyhow::Result<Vec<Pid>> {
    let path = format!("/proc/{pid}/task");
    let folder = fs::read_dir(&path).with_context(|| path.clone())?;
    let ids = folder.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
    let mut ids: Vec<Pid> = ids.map(Pid::from_raw).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Whether `id` is a thread of the kernel's that works for a ring: it stands among the threads of the
/// process and makes no system calls.
fn is_worker(pid: Pid, id: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/task/{id}/comm")).is_ok_and(|it| it.starts_with("iou-"))
}

/// Whether the calling thread traces thread `id`.
fn is_ours(pid: Pid, id: Pid) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{id}/status")).unwrap_or_default();
    let tracer = text.lines().find_map(|it| it.strip_prefix("TracerPid:"));
    tracer.and_then(|it| it.trim().parse().ok()) == Some(gettid().as_raw())
}

/// What thread `id` does, as a letter: the third field of its `stat` (proc(5)). `None` when it is gone.
fn state(pid: Pid, id: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The descriptor that a call is about.
fn descriptor(number: i64, arguments: [u64; 6]) -> Option<i32> {
    let known = microscope::name(number).or_else(|| name(number));
    let at = if number == libc::SYS_epoll_ctl { 2 } else { 0 };
    // The kernel reads the lower half of the register.
    known.filter(|it| it.1).map(|_| arguments[at] as i32)
}

/// The calls of a server that have no name in [`microscope`], since no client of ours finds it asleep in
/// one, and whether they are about a descriptor.
fn name(number: i64) -> Option<(&'static str, bool)> {
    let calls = [
        (libc::SYS_bind, "bind", true),
        (libc::SYS_brk, "brk", false),
        (libc::SYS_clone, "clone", false),
        (libc::SYS_clone3, "clone3", false),
        (libc::SYS_close, "close", true),
        (libc::SYS_dup, "dup", true),
        (libc::SYS_dup3, "dup3", true),
        (libc::SYS_epoll_create1, "epoll_create1", false),
        (libc::SYS_epoll_ctl, "epoll_ctl", true),
        (libc::SYS_eventfd2, "eventfd2", false),
        (libc::SYS_exit, "exit", false),
        (libc::SYS_exit_group, "exit_group", false),
        (libc::SYS_fcntl, "fcntl", true),
        (libc::SYS_getpeername, "getpeername", true),
        (libc::SYS_getrandom, "getrandom", false),
        (libc::SYS_getsockname, "getsockname", true),
        (libc::SYS_getsockopt, "getsockopt", true),
        (libc::SYS_gettid, "gettid", false),
        (libc::SYS_io_uring_register, "io_uring_register", true),
        (libc::SYS_io_uring_setup, "io_uring_setup", false),
        (libc::SYS_ioctl, "ioctl", true),
        (libc::SYS_listen, "listen", true),
        (libc::SYS_madvise, "madvise", false),
        (libc::SYS_mmap, "mmap", false),
        (libc::SYS_mprotect, "mprotect", false),
        (libc::SYS_mremap, "mremap", false),
        (libc::SYS_munmap, "munmap", false),
        (libc::SYS_openat, "openat", false),
        (libc::SYS_restart_syscall, "restart_syscall", false),
        (libc::SYS_rseq, "rseq", false),
        (libc::SYS_rt_sigaction, "rt_sigaction", false),
        (libc::SYS_rt_sigprocmask, "rt_sigprocmask", false),
        (libc::SYS_rt_sigreturn, "rt_sigreturn", false),
        (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait", false),
        (libc::SYS_sched_getaffinity, "sched_getaffinity", false),
        (libc::SYS_sched_setaffinity, "sched_setaffinity", false),
        (libc::SYS_sched_yield, "sched_yield", false),
        (libc::SYS_set_robust_list, "set_robust_list", false),
        (libc::SYS_setsockopt, "setsockopt", true),
        (libc::SYS_shutdown, "shutdown", true),
        (libc::SYS_sigaltstack, "sigaltstack", false),
        (libc::SYS_socket, "socket", false),
        (libc::SYS_timerfd_create, "timerfd_create", false),
        (libc::SYS_timerfd_settime, "timerfd_settime", true),
    ];
    calls.iter().find(|it| it.0 == number).map(|&(_, name, takes)| (name, takes))
}
