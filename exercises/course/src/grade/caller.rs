//! A client of a student's server, and that server as the grader runs it.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use contract::server::Server;
use nix::sys::socket::{setsockopt, sockopt};

use super::parameters::{Dice, Parameters};
use super::protocol::framed;
use super::student;

/// How long an answer may take when nobody holds the server up, on a busy machine.
pub const ANSWER: Duration = Duration::from_secs(4);

/// How long it may take beside somebody who stalls.
pub const PROMPT: Duration = Duration::from_secs(1);

/// How much later than its patience a server may act, on a busy machine.
pub const GRACE: Duration = Duration::from_secs(2);

/// What a scenario needs to know.
#[derive(Debug)]
pub struct Ground {
    /// The student's program, where the student's user may run it.
    pub exe: PathBuf,
    /// Their variant.
    pub parameters: Parameters,
    /// What is asked.
    pub dice: Dice,
    /// How many reactors the server is told to have.
    pub reactors: usize,
    /// How many descriptors it may have.
    pub descriptors: u64,
}

/// This machine lacks something, so that nothing was found.
#[derive(Debug)]
pub struct Lacks(pub String);

impl std::error::Error for Lacks {}

impl std::fmt::Display for Lacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ground {
    /// The server, on a free port.
    pub fn start(&self) -> anyhow::Result<Server> {
        self.start_at("127.0.0.1:0")
    }

    /// The server at `address`: really its own process that listens there.
    pub fn start_at(&self, address: &str) -> anyhow::Result<Server> {
        let reactors = self.reactors.to_string();
        let arguments = student::arguments(self.descriptors, &self.exe, &[address, &reactors])?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let course = crate::confine::course()?;
        // The name of its hidden command is the first argument, where a server has its address.
        let server =
            Server::start_with_options(&course, student::STUDENT, &arguments).map_err(|error| {
                // Which program it was before it became the student's is nothing to them.
                let said = format!("{error:#}").replace(&course.display().to_string(), "it");
                anyhow!(said).context("the server did not start")
            })?;
        let port = server.address().port();
        ensure!(server.address().ip().is_loopback(), "it listens at {}", server.address());
        ensure!(
            owns_listener(server.pid(), port),
            "it says that it listens on port {port}, and none of its own sockets does"
        );
        Ok(server)
    }

    /// The patience of this variant.
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.parameters.patience_ms)
    }

    /// A text in a frame of this variant.
    pub fn framed(&self, text: &str) -> Vec<u8> {
        framed(self.parameters, text)
    }

    /// Asks for one sum, on a connection of its own.
    pub fn must_serve(&self, server: &Server, within: Duration) -> anyhow::Result<()> {
        let mut caller = Caller::connect(server.address(), within)?;
        caller.send(&self.framed("20 22"))?;
        caller.must_hear(&self.framed("42"), within)
    }
}

/// Whether process `pid` itself has open a socket that listens on `port`.
///
/// Simplified: where this machine does not let root look into another user's process (a container
/// without CAP_SYS_PTRACE), it is enough that the socket is that user's.
fn owns_listener(pid: u32, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    let tables = ["tcp", "tcp6"].map(|it| fs::read_to_string(format!("/proc/{pid}/net/{it}")));
    let text: String = tables.into_iter().flatten().collect();
    let listeners: Vec<(String, &str)> = text
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, "0A", _, _, _, user, _, inode, ..] = fields[..] else { return None };
            local.ends_with(&ending).then(|| (format!("socket:[{inode}]"), user))
        })
        .collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links: Vec<_> = open.filter_map(|it| fs::read_link(it.path()).ok()).collect();
    if links.is_empty() {
        let user = student::nobody().map(|it| it.to_string());
        return user.is_some_and(|user| listeners.iter().any(|it| it.1 == user));
    }
    links.iter().any(|link| listeners.iter().any(|it| link.to_string_lossy() == it.0.as_str()))
}

/// One connection.
#[derive(Debug)]
pub struct Caller {
    stream: TcpStream,
    /// When it was made.
    pub since: Instant,
}

impl Caller {
    /// Connects.
    pub fn connect(server: SocketAddr, within: Duration) -> anyhow::Result<Caller> {
        let stream = TcpStream::connect_timeout(&server, within)
            .with_context(|| format!("no connection within {within:?}"))?;
        stream.set_nodelay(true).context("setsockopt(TCP_NODELAY)")?;
        Ok(Caller { stream, since: Instant::now() })
    }

    /// Its own end.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        self.stream.local_addr().context("getsockname")
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.set_write_timeout(Some(ANSWER))?;
        self.stream.write_all(bytes).context("the server did not take what was sent")
    }

    /// Sends what the server takes without a wait of more than a moment: how much that was.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(Duration::from_millis(300)))?;
        match self.stream.write(bytes) {
            Err(error) if is_waiting(&error) => Ok(0),
            result => result,
        }
    }

    /// Sends no more.
    pub fn half_close(&self) -> anyhow::Result<()> {
        self.stream.shutdown(Shutdown::Write).context("shutdown")
    }

    /// Leaves by a reset.
    pub fn reset(self) -> anyhow::Result<()> {
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        setsockopt(&self.stream, sockopt::Linger, &linger).context("setsockopt(SO_LINGER)")
    }

    /// Hears exactly these bytes.
    pub fn must_hear(&mut self, expected: &[u8], within: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut heard = Vec::new();
        let mut end = "nothing more";
        while heard.len() < expected.len() {
            let left = within.saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut bytes = vec![0; expected.len() - heard.len()];
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    end = "the end";
                    break;
                }
                Ok(length) => heard.extend_from_slice(&bytes[..length]),
                Err(error) if is_waiting(&error) => {}
                Err(_) => {
                    end = "a reset";
                    break;
                }
            }
        }
        ensure!(
            heard == expected,
            "within {:.1} s it heard {}, and then {end}, instead of {}",
            within.as_secs_f64(),
            shown(&heard),
            shown(expected)
        );
        Ok(())
    }

    /// Hears the end of the stream, in good order, and nothing before it.
    pub fn must_end(&mut self, within: Duration) -> anyhow::Result<Duration> {
        let start = Instant::now();
        loop {
            let left = within.saturating_sub(start.elapsed());
            ensure!(!left.is_zero(), "after {:.1} s it was still held", within.as_secs_f64());
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut bytes = [0; 256];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(start.elapsed()),
                Ok(length) => {
                    anyhow::bail!("it heard {} instead of the end", shown(&bytes[..length]))
                }
                Err(error) if is_waiting(&error) => {}
                Err(error) => {
                    return Err(error).context("a reset instead of the end in good order");
                }
            }
        }
    }

    /// Whether the server has let it go, in whatever way, within this time.
    pub fn is_let_go(&mut self, within: Duration) -> bool {
        match self.must_end(within) {
            Ok(_) => true,
            Err(error) => error.is::<io::Error>(),
        }
    }

    /// Whether the server still holds it and has said nothing: a look, not a wait.
    pub fn is_held(&self) -> bool {
        let looked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0; 1]));
        let _ = self.stream.set_nonblocking(false);
        matches!(looked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

fn is_waiting(error: &io::Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Bytes as they are told, the first of them.
fn shown(bytes: &[u8]) -> String {
    match bytes {
        [] => "nothing".into(),
        _ => format!("\"{}\"", bytes[..bytes.len().min(60)].escape_ascii()),
    }
}
