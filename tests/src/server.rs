//! Runs a server on a port that the kernel picks, and is its clients.
//!
//! A server is a direct child of the test, so that /proc tells us what it does without root. Where it has
//! children of its own, what it uses is counted with theirs, and they end with it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, str};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, setsockopt, socket,
    sockopt,
};
use nix::unistd::Pid;

use crate::inject::{Injection, Injector};
use crate::microscope::{self, View};
use crate::{bounded, processes, sys};

/// How long a server may take to say where it listens.
const START: Duration = Duration::from_secs(10);

/// How long a client takes in what has come when its time is over: long against what a socket can hold.
pub(crate) const OVERTIME: Duration = Duration::from_secs(5);

/// How much of what a server writes on stderr is kept.
const STDERR_LINES_KEPT: usize = 100;

/// A program and the arguments that make it a server of a certain kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    exe: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    /// The program `exe`, always to be run with `arguments`.
    pub fn new(exe: &Path, arguments: &[&str]) -> Program {
        Program { exe: exe.into(), arguments: arguments.iter().map(|&it| it.into()).collect() }
    }

    /// The same with further arguments.
    #[must_use]
    pub fn with(&self, arguments: &[&str]) -> Program {
        let mut program = self.clone();
        program.arguments.extend(arguments.iter().map(|&it| it.to_owned()));
        program
    }
}

/// A running server; killed on drop.
///
/// It is also killed when the thread that started it ends (see [`sys::die_with_parent`]).
#[derive(Debug)]
pub struct Server {
    child: Child,
    exe: PathBuf,
    address: SocketAddr,
    stderr: Arc<Mutex<Stderr>>,
    injector: Option<Injector>,
}

/// The server has ended, though nobody ended it.
#[derive(Debug)]
pub struct Ended {
    exe: PathBuf,
    last_words: String,
}

impl std::error::Error for Ended {}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has ended by itself{}", self.exe.display(), self.last_words)
    }
}

/// The server has ended before it said where it listens.
#[derive(Debug)]
pub struct Unstarted {
    exe: PathBuf,
    last_words: String,
}

impl std::error::Error for Unstarted {}

impl std::fmt::Display for Unstarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (exe, last_words) = (self.exe.display(), &self.last_words);
        write!(f, "{exe} ended without saying where it listens{last_words}")
    }
}

/// What a server said on stderr.
#[derive(Debug, Default)]
struct Stderr {
    lines: usize,
    last: VecDeque<String>,
}

impl Server {
    /// Starts `exe` on a free port of 127.0.0.1 and waits for the line that says where it listens.
    ///
    /// # Errors
    ///
    /// When it cannot be run, or does not say where it listens.
    pub fn start(exe: &Path) -> anyhow::Result<Server> {
        Server::start_at(exe, "127.0.0.1:0")
    }

    /// Starts `exe` with `address` as its argument.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_at(exe: &Path, address: &str) -> anyhow::Result<Server> {
        Server::run(exe, &[address.as_ref()], None)
    }

    /// Starts `program` on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_program(program: &Program) -> anyhow::Result<Server> {
        Server::start_program_at(program, "127.0.0.1:0")
    }

    /// Starts `program` with `address` as one more argument.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_program_at(program: &Program, address: &str) -> anyhow::Result<Server> {
        Server::launch(program, address, None, None)
    }

    /// Starts `program`; some of its system calls do not do what it expects, if there is an
    /// `injection`, and it may open the numbers below `descriptors` only, if that is given.
    ///
    /// # Errors
    ///
    /// As [`Server::start`], and where the kernel refuses the filter.
    pub fn launch(
        program: &Program,
        address: &str,
        injection: Option<Injection>,
        descriptors: Option<u64>,
    ) -> anyhow::Result<Server> {
        let arguments: Vec<&OsStr> =
            program.arguments.iter().map(OsStr::new).chain([address.as_ref()]).collect();
        Server::run_limited(&program.exe, &arguments, injection, descriptors)
    }

    /// Starts `exe`, some of whose system calls do not do what it expects.
    ///
    /// # Errors
    ///
    /// As [`Server::start`], and where the kernel refuses the filter.
    pub fn start_with(exe: &Path, injection: Injection) -> anyhow::Result<Server> {
        Server::run(exe, &["127.0.0.1:0".as_ref()], Some(injection))
    }

    /// Starts `exe` with the numbers below `descriptors` as all it may open. For a ring it has to be so
    /// from the start: the kernel looks at the limit when an accept is handed in, and an accept that
    /// goes on knows nothing of a limit that comes later.
    ///
    /// # Errors
    ///
    /// As [`Server::start`], which these may be too few for.
    pub fn start_with_descriptors(exe: &Path, descriptors: u64) -> anyhow::Result<Server> {
        Server::run_limited(exe, &["127.0.0.1:0".as_ref()], None, Some(descriptors))
    }

    /// Starts `exe` with `address` as its argument, and `options` after it.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_with_options(
        exe: &Path,
        address: &str,
        options: &[&str],
    ) -> anyhow::Result<Server> {
        let arguments: Vec<&OsStr> =
            [address].into_iter().chain(options.iter().copied()).map(OsStr::new).collect();
        Server::run(exe, &arguments, None)
    }

    fn run(
        exe: &Path,
        arguments: &[&OsStr],
        injection: Option<Injection>,
    ) -> anyhow::Result<Server> {
        Server::run_limited(exe, arguments, injection, None)
    }

    fn run_limited(
        exe: &Path,
        arguments: &[&OsStr],
        injection: Option<Injection>,
        descriptors: Option<u64>,
    ) -> anyhow::Result<Server> {
        let name = exe.display();
        let mut command = Command::new(exe);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        sys::die_with_parent(&mut command);
        sys::heed_signals(&mut command);
        if let Some(descriptors) = descriptors {
            sys::begin_with_descriptors(&mut command, descriptors);
        }
        let pending = injection.map(|it| it.install(&mut command)).transpose()?;
        let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
        drop(command); // It holds the other end of the injector's channel.
        let stderr = Arc::new(Mutex::new(Stderr::default()));
        let pipe = child.stderr.take().context("stderr was piped")?;
        thread::spawn({
            let stderr = Arc::clone(&stderr);
            move || drain(pipe, &stderr)
        });
        let injector = match pending.map(|it| it.attach(child.id())).transpose() {
            Ok(injector) => injector,
            Err(error) => {
                let _ = bounded::end(&mut child);
                return Err(error);
            }
        };
        // Not yet: the address. From here on, dropping it kills the child.
        let mut server =
            Server { child, exe: exe.into(), address: ([0, 0, 0, 0], 0).into(), stderr, injector };
        let stdout = server.child.stdout.take().context("stdout was piped")?;
        let (say, heard) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines();
            let _ = say.send(lines.next());
            lines.for_each(drop); // A server that says more must not block on it.
        });
        let line = match heard.recv_timeout(START) {
            Ok(Some(line)) => line.context("stdout")?,
            Ok(None) => {
                let last_words = server.last_words();
                return Err(Unstarted { exe: exe.into(), last_words }.into());
            }
            Err(_) => bail!("{name} did not say in {START:?} where it listens"),
        };
        let address = line.strip_prefix("listening on ").and_then(|it| it.parse().ok());
        server.address = address.with_context(|| {
            format!("{name} has to print `listening on ADDRESS` first, not {line:?}")
        })?;
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The program that it runs.
    pub fn exe(&self) -> &Path {
        &self.exe
    }

    /// What happens to its system calls, if it was started with an injection.
    pub fn injector(&self) -> Option<&Injector> {
        self.injector.as_ref()
    }

    /// How it ended, or `None` while it runs.
    ///
    /// # Errors
    ///
    /// Those of `waitpid(2)`.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Demands that it runs, since it did something that a server does when it ends: it is given a moment
    /// to do so.
    ///
    /// # Errors
    ///
    /// [`Ended`].
    pub fn must_run(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline {
            if processes::has_ended(self.pid()) {
                return Err(Ended { exe: self.exe.clone(), last_words: self.last_words() }.into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether it has ended and we have not asked how.
    fn is_zombie(&self) -> bool {
        processes::state(self.pid()).is_none_or(|it| matches!(it, 'Z' | 'X'))
    }

    /// Waits until it has ended, at most `within`.
    ///
    /// # Errors
    ///
    /// When it still runs then.
    pub fn wait(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let status = bounded::wait(&mut self.child, within).context("waitpid")?;
        status.with_context(|| format!("{} still runs {within:?} later", self.exe.display()))
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// Those of `kill(2)`.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill(Pid::from_raw(self.pid().cast_signed()), signal)
            .with_context(|| format!("kill({}, {signal})", self.pid()))
    }

    /// Stops it and its children, and waits until they have stopped: `kill` returns before that.
    /// SIGCONT lets it go on, and [`Server::resume`] it and its children.
    ///
    /// # Errors
    ///
    /// Those of `kill(2)`, and when it does not stop.
    pub fn stop(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START;
        loop {
            // The children again each time: it may have had another one until it stopped.
            let family = self.processes();
            if family.iter().all(|&it| processes::is_stopped(it)) {
                return Ok(());
            }
            self.signal(Signal::SIGSTOP)?;
            for &child in &family[1..] {
                let _ = kill(Pid::from_raw(child.cast_signed()), Signal::SIGSTOP);
            }
            if Instant::now() > deadline {
                self.must_run()?;
                bail!("{} did not stop", self.exe.display());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it and its children go on after [`Server::stop`].
    ///
    /// # Errors
    ///
    /// Those of `kill(2)`.
    pub fn resume(&self) -> anyhow::Result<()> {
        for &child in &self.processes()[1..] {
            let _ = kill(Pid::from_raw(child.cast_signed()), Signal::SIGCONT);
        }
        self.signal(Signal::SIGCONT)
    }

    /// Its process, and then its children and theirs.
    pub fn processes(&self) -> Vec<u32> {
        processes::family(self.pid())
    }

    /// Whether it and its children sleep until something happens: what it does not do now, it does not do by
    /// itself. A server that has been woken and waits for a core does not sleep.
    pub fn is_asleep(&self) -> bool {
        self.processes().into_iter().all(processes::is_asleep)
    }

    /// What it and its children do at this moment.
    pub fn look(&self) -> View {
        microscope::look_at(&self.processes(), self.address.port())
    }

    /// Limits its open descriptors to the numbers below `descriptors`.
    ///
    /// # Errors
    ///
    /// Those of `prlimit(2)`.
    pub fn limit_descriptors(&self, descriptors: u64) -> anyhow::Result<()> {
        sys::limit_descriptors(self.pid(), descriptors).context("prlimit(RLIMIT_NOFILE)")
    }

    /// How many descriptors it has open.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn descriptors(&self) -> anyhow::Result<usize> {
        self.sum(|pid| processes::count(pid, "fd"))
    }

    /// How many descriptors its process alone has open, without its children.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn descriptors_of_one(&self) -> anyhow::Result<usize> {
        processes::count(self.pid(), "fd").context("/proc/PID/fd")
    }

    /// Whether it has each of the numbers below `descriptors` open.
    pub fn has_all_below(&self, descriptors: u64) -> bool {
        let link = |number| format!("/proc/{}/fd/{number}", self.pid());
        (0..descriptors).all(|number| fs::read_link(link(number)).is_ok())
    }

    /// Whether it has an io_uring open. Such a server makes none of the calls that can be made to fail
    /// from outside, since the kernel does the work without them.
    pub fn has_a_ring(&self) -> bool {
        // Its descriptors, not its calls: they are the same whatever its threads do just now.
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid())).into_iter().flatten();
        descriptors.flatten().any(|it| {
            fs::read_link(it.path()).is_ok_and(|it| it.ends_with("anon_inode:[io_uring]"))
        })
    }

    /// How many threads it has.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn threads(&self) -> anyhow::Result<usize> {
        self.sum(processes::threads)
    }

    /// What `measure` says of its process and of each of its children, in all.
    fn sum<T: std::iter::Sum>(&self, measure: impl Fn(u32) -> Option<T>) -> anyhow::Result<T> {
        if self.is_zombie() {
            self.must_run()?;
        }
        Ok(self.processes().into_iter().filter_map(measure).sum())
    }

    /// Its resident memory in bytes; with children, what all of them use together, in which a page that they
    /// share counts once.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn resident_bytes(&self) -> anyhow::Result<usize> {
        match self.processes().len() {
            1 => self.sum(processes::resident_bytes),
            _ => self.sum(processes::proportional_bytes),
        }
    }

    /// The CPU time that it has used, of all its threads, in steps of a clock tick (10 ms).
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.sum(processes::cpu_time)
    }

    /// The CPU time that it has used, of all its threads, to the nanosecond. What a child used that has ended is
    /// not in it.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn run_time(&self) -> anyhow::Result<Duration> {
        self.sum(processes::run_time)
    }

    /// How long its threads have run or have waited for a core to run on: `schedstat` of proc(5). A
    /// thread that never sleeps wants all of the time, however little of it a busy machine gives.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn wanted_time(&self) -> anyhow::Result<Duration> {
        let each = |pid| processes::wanted_times(pid).into_iter().map(|it| it.1).sum::<Duration>();
        self.sum(|pid| Some(each(pid)))
    }

    /// How often its threads went to sleep of their own will: `voluntary_ctxt_switches` of proc(5).
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn sleeps(&self) -> anyhow::Result<u64> {
        self.sum(|pid| {
            let each = |task| processes::sleeps(pid, task);
            Some(processes::tasks(pid).into_iter().filter_map(each).sum::<u64>())
        })
    }

    /// How many lines it has written on stderr.
    pub fn stderr_lines(&self) -> usize {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).lines
    }

    /// The last lines that it wrote on stderr.
    pub fn stderr(&self) -> String {
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        stderr.last.iter().map(|it| format!("{it}\n")).collect()
    }

    fn last_words(&self) -> String {
        thread::sleep(Duration::from_millis(50)); // What it wrote may still be in the pipe.
        let stderr = self.stderr();
        if stderr.is_empty() { String::new() } else { format!(": {}", stderr.trim_end()) }
    }

    /// A new client, named for what is told about it.
    ///
    /// # Errors
    ///
    /// When the handshake is not done within `within`.
    pub fn connect_within(&self, name: &'static str, within: Duration) -> io::Result<Client> {
        Client::connect(self.address, name, within)
    }

    /// A new client that waits for its handshake as long as it takes, within reason.
    ///
    /// # Errors
    ///
    /// When the handshake is not done within ten seconds.
    pub fn connect(&self, name: &'static str) -> anyhow::Result<Client> {
        self.connect_within(name, START).or_else(|error| {
            self.must_run()?;
            Err(error).with_context(|| format!("connect({})", self.address))
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Stopped, it has no further children, and the present ones are still its own. A server that has
        // ended already cannot be killed, which is as good.
        let running = matches!(self.ended(), Ok(None));
        let children = match running && self.signal(Signal::SIGSTOP).is_ok() {
            true => self.processes().split_off(1),
            false => Vec::new(),
        };
        let _ = self.child.kill();
        for child in children {
            let _ = kill(Pid::from_raw(child.cast_signed()), Signal::SIGKILL);
        }
        if let Err(error) = bounded::end(&mut self.child) {
            // Nobody can be told otherwise: whoever drops it has what they wanted of it.
            eprintln!("{}: {error:#}", self.exe.display());
        }
    }
}

fn drain(pipe: impl Read, stderr: &Mutex<Stderr>) {
    for line in BufReader::new(pipe).split(b'\n') {
        let Ok(line) = line else { return };
        let mut stderr = stderr.lock().unwrap_or_else(PoisonError::into_inner);
        stderr.lines += 1;
        stderr.last.push_back(String::from_utf8_lossy(&line).into_owned());
        if stderr.last.len() > STDERR_LINES_KEPT {
            stderr.last.pop_front();
        }
    }
}

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    /// What it is called where it is told about: "client A".
    pub name: &'static str,
    stream: TcpStream,
    address: SocketAddr,
    connected_at: Instant,
}

/// What a client heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The bytes, all of them.
    pub bytes: Vec<u8>,
    /// How the stream ended.
    pub end: End,
    /// How long it listened.
    pub after: Duration,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server closed it in good order.
    Closed,
    /// The server reset it.
    Reset,
    /// It had not ended when the client stopped listening.
    Open,
}

impl Client {
    /// Connects to `server`.
    ///
    /// # Errors
    ///
    /// When the handshake is not done within `within`.
    pub fn connect(server: SocketAddr, name: &'static str, within: Duration) -> io::Result<Client> {
        Client::adopt(TcpStream::connect_timeout(&server, within)?, name)
    }

    /// A client whose handshake is done.
    ///
    /// # Errors
    ///
    /// When the connection is gone already.
    pub fn adopt(stream: TcpStream, name: &'static str) -> io::Result<Client> {
        stream.set_nonblocking(false)?;
        // Each piece that is sent is a packet of its own.
        stream.set_nodelay(true)?;
        let address = stream.local_addr()?;
        Ok(Client { name, stream, address, connected_at: Instant::now() })
    }

    /// Its own end of the connection.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How long it has been connected.
    pub fn age(&self) -> Duration {
        self.connected_at.elapsed()
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    ///
    /// When the server has closed or reset the connection, or has not taken all of it in ten seconds.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_within(bytes, START)
    }

    /// The same with a bound of its own. It holds for all of `bytes`: a server that takes one now and then
    /// would renew a bound of each call.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn send_within(&mut self, bytes: &[u8], within: Duration) -> io::Result<()> {
        let deadline = Instant::now() + within;
        let mut left = bytes;
        while !left.is_empty() {
            // Zero would mean for ever.
            let time = deadline.saturating_duration_since(Instant::now());
            self.stream.set_write_timeout(Some(time.max(Duration::from_millis(1))))?;
            match self.stream.write(left) {
                Ok(length) => left = &left[length..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if !left.is_empty() && time.is_zero() {
                let (sent, all) = (bytes.len() - left.len(), bytes.len());
                let told = format!("the server took {sent} of {all} bytes in {within:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, told));
            }
        }
        Ok(())
    }

    /// Says that it will send no more: `shutdown(SHUT_WR)`.
    ///
    /// # Errors
    ///
    /// When the connection is gone.
    pub fn half_close(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// As [`sys::acknowledge_late`].
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn acknowledge_late(&self) -> io::Result<()> {
        sys::acknowledge_late(self.stream.as_fd())
    }

    /// As [`sys::segments_sent`].
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn segments_sent(&self) -> io::Result<u32> {
        sys::segments_sent(self.stream.as_fd())
    }

    /// Waits until there is something to read, or the stream has ended, at most `within`, and reads nothing.
    ///
    /// # Errors
    ///
    /// Those of `recv(2)`.
    pub fn wait_for_more(&self, within: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(within))?;
        match self.stream.peek(&mut [0]) {
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Leaves by a reset: SO_LINGER with no time to linger, then close.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn reset(self) -> io::Result<()> {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        setsockopt(&self.stream, sockopt::Linger, &linger).map_err(io::Error::from)
    }

    /// Reads until the server ends the stream, at most `within`.
    pub fn hear(&mut self, within: Duration) -> Heard {
        let start = Instant::now();
        let mut bytes = Vec::new();
        let end = loop {
            let left = within.saturating_sub(start.elapsed());
            if let Some(end) = self.hear_some(left, &mut bytes) {
                break end;
            }
            // What is there is heard though the time is over; but a server may go on for ever.
            if start.elapsed() > within + OVERTIME {
                break End::Open;
            }
        };
        Heard { bytes, end, after: start.elapsed() }
    }

    /// Reads what has come, or comes within `within`, and adds it to `bytes`: `None`. How the stream is
    /// otherwise: [`End::Open`] when nothing came.
    pub fn hear_some(&mut self, within: Duration, bytes: &mut Vec<u8>) -> Option<End> {
        let deadline = Instant::now() + within;
        let mut chunk = [0; 65536];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Zero would mean for ever.
            let timeout = left.max(Duration::from_millis(1));
            if self.stream.set_read_timeout(Some(timeout)).is_err() {
                return Some(End::Reset);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Some(End::Closed),
                Ok(length) => {
                    bytes.extend_from_slice(&chunk[..length]);
                    return None;
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if left.is_zero() => {
                        return Some(End::Open);
                    }
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    _ => return Some(End::Reset),
                },
            }
        }
    }

    /// The socket itself, for what only some clients do with it.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the server still holds the connection open and has said nothing: a look, not a wait.
    pub fn is_held(&mut self) -> bool {
        let looked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0; 1]));
        let _ = self.stream.set_nonblocking(false);
        matches!(looked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends a request and reads the answer to its end, at most `within`.
    pub fn ask(&mut self, request: &[u8], within: Duration) -> Heard {
        // If it cannot be sent, the server has ended the stream, which is then what is heard.
        let _ = self.send(request);
        self.hear(within)
    }
}

/// A socket that has begun to connect: whether it gets in is for [`is_connected`] to say.
///
/// # Errors
///
/// Those of `socket(2)`, and of `connect(2)` but for EINPROGRESS.
pub(crate) fn connect_soon(server: SocketAddr) -> anyhow::Result<OwnedFd> {
    let family = if server.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, None).context("socket")?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(server)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket),
        Err(errno) => Err(errno).context("connect"),
    }
}

/// Whether the handshake that [`connect_soon`] began is done: a look, not a wait.
pub(crate) fn is_connected(socket: &OwnedFd) -> bool {
    let mut wait = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    let polled = poll(&mut wait, PollTimeout::ZERO);
    polled == Ok(1) && getsockopt(socket, sockopt::SocketError) == Ok(0)
}

impl Heard {
    /// Whether these bytes came, and then the end in good order.
    pub fn is(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes && self.end == End::Closed
    }
}

impl std::fmt::Display for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = str::from_utf8(&self.bytes).unwrap_or("bytes that are no text");
        match (bytes, self.end) {
            ("", End::Closed) => f.write_str("nothing, and then the end"),
            ("", End::Reset) => f.write_str("a reset"),
            ("", End::Open) => f.write_str("nothing"),
            (bytes, End::Closed) => write!(f, "{bytes:?} and then the end"),
            (bytes, End::Reset) => write!(f, "{bytes:?} and then a reset"),
            (bytes, End::Open) => write!(f, "{bytes:?} and no end"),
        }
    }
}
