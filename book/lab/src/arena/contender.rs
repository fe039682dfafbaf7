//! Who takes part in the arena, and how each is started: a model of chapter 07, or a server of other
//! people's making that gives the same answer.

use anyhow::{Context, Result, bail, ensure};
use contract::{server::Server, sys};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    env, fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a server may take until it listens, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// The body that all answer with: that of `GET /` of chapter 07.
const BODY: &str = "Ask /parity/7\\n";

/// A server that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A model of chapter 07, with the options that are its own.
    Model {
        /// What `--model` calls it.
        name: &'static str,
        /// More options, such as `--workers 1`.
        options: Vec<String>,
    },
    /// A loop on epoll that reads and answers the same bytes, whatever comes: what is left for everybody
    /// else to lose.
    Bare,
    /// nginx of the distribution, one worker, `return 200`.
    Nginx,
    /// haproxy of the distribution, one thread, `http-request return`.
    Haproxy,
    /// A small program on a library, of `book/lab/peers`.
    Peer {
        /// What it is called in the record.
        name: &'static str,
        /// Its program.
        program: &'static str,
    },
}

/// One that runs. It ends when this is dropped.
#[derive(Debug)]
pub enum Running {
    /// One that says where it listens.
    Ours(Server),
    /// One that does not.
    Theirs(Theirs),
}

/// A server of the distribution's, with the folder of its configuration.
#[derive(Debug)]
pub struct Theirs {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Contender {
    /// A model as it is by itself.
    pub const fn model(name: &'static str) -> Contender {
        Contender::Model { name, options: Vec::new() }
    }

    /// A model with one worker, where it has workers.
    pub fn alone(name: &'static str) -> Contender {
        Contender::with(name, &["--workers", "1"])
    }

    /// A model with options.
    pub fn with(name: &'static str, options: &[&str]) -> Contender {
        Contender::Model { name, options: options.iter().map(|it| (*it).to_owned()).collect() }
    }

    /// What it is called in the record.
    pub const fn name(&self) -> &'static str {
        match self {
            Contender::Model { name, .. } | Contender::Peer { name, .. } => name,
            Contender::Bare => "bare",
            Contender::Nginx => "nginx",
            Contender::Haproxy => "haproxy",
        }
    }

    /// Which kind of waiting it is of, in a few words.
    pub fn family(&self) -> &'static str {
        match self.name() {
            "fork" | "thread-per-connection" => "one for each connection",
            "iterative" | "prefork" | "thread-pool" => "a fixed number",
            "io-uring" => "completion",
            _ if matches!(self, Contender::Model { .. }) => "readiness",
            _ => "peers",
        }
    }

    /// Starts it on a free port of 127.0.0.1 and waits until it listens. What it inherits, such as the
    /// cores of the calling thread, it keeps.
    ///
    /// # Errors
    /// If it is not there (the sentence says how to get it), or does not listen in time.
    pub fn start(&self, programs: &Programs) -> Result<Running> {
        match self {
            Contender::Model { name, options } => {
                let options: Vec<&str> = ["--model", name]
                    .into_iter()
                    .chain(options.iter().map(String::as_str))
                    .collect();
                let server = Server::start_with_options(&programs.ch07, "127.0.0.1:0", &options);
                Ok(Running::Ours(
                    server.with_context(|| format!("ch07 --model {name} cannot run"))?,
                ))
            }
            Contender::Peer { name, program } => {
                let folder = programs.peers.as_ref().with_context(|| {
                    format!("{name}: its program is not built: `cargo lab arena peers` does that")
                })?;
                Ok(Running::Ours(Server::start(&folder.join(program))?))
            }
            Contender::Bare => {
                let program = env::current_exe().context("readlink(/proc/self/exe)")?;
                Ok(Running::Ours(Server::start_with_options(&program, "bare", &["--stay"])?))
            }
            Contender::Nginx => Theirs::start("nginx", nginx_configuration, &["-c"]),
            Contender::Haproxy => Theirs::start("haproxy", haproxy_configuration, &["-db", "-f"]),
        }
    }
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `ch07`.
    pub ch07: PathBuf,
    /// The folder of the peers' programs, if they have been built.
    pub peers: Option<PathBuf>,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match self {
            Running::Ours(server) => server.address(),
            Running::Theirs(theirs) => theirs.address,
        }
    }

    /// The first of its processes.
    pub fn pid(&self) -> u32 {
        match self {
            Running::Ours(server) => server.pid(),
            Running::Theirs(theirs) => theirs.child.id(),
        }
    }
}

impl Theirs {
    fn start(
        program: &str,
        configuration: fn(&Path, SocketAddr) -> String,
        options: &[&str],
    ) -> Result<Running> {
        let folder = tempfile::Builder::new().prefix("arena-").tempdir().context("mkdtemp")?;
        // Neither says which port 0 has become, so that a free one is found first. Simplification:
        // somebody else may take it in between, and then this says so.
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|it| it.local_addr())
            .context("bind: no free port")?;
        let file = folder.path().join("configuration");
        fs::write(&file, configuration(folder.path(), address))
            .context("write: a configuration")?;
        let mut command = Command::new(program);
        sys::heed_signals(&mut command); // We wait for them in a thread, and it is ended by one.
        sys::die_with_parent(&mut command);
        let child = command
            .args(options)
            .arg(&file)
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{program} cannot be started: apt-get install {program}"))?;
        let mut theirs = Theirs { child, address, _folder: folder };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = theirs.child.try_wait().context("waitpid")? {
                bail!("{program} ended before it listened: {status}");
            }
            ensure!(start.elapsed() < PATIENCE, "{program} does not listen after {PATIENCE:?}");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Running::Theirs(theirs))
    }
}

impl Drop for Theirs {
    /// Asks it to end, so that it takes its own children with it, and makes it end where it does not.
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One worker, no log, keep-alive without an end: what chapter 07 does.
fn nginx_configuration(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off; master_process off; worker_processes 1; worker_rlimit_nofile 20000;\n\
         pid {folder}/pid; error_log /dev/null;\n\
         events {{ worker_connections 16384; multi_accept on; }}\n\
         http {{\n\
           access_log off; keepalive_requests 1000000000; keepalive_timeout 3600s; server_tokens off;\n\
           client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;\n\
           uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; default_type text/plain;\n\
           server {{ listen {address} backlog=4096; location / {{ return 200 \"{BODY}\"; }} }}\n\
         }}\n"
    )
}

/// One thread, the answer from memory.
fn haproxy_configuration(_: &Path, address: SocketAddr) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 8000\n\
         defaults\n  mode http\n  timeout client 3600s\n  timeout http-keep-alive 3600s\n  \
         timeout http-request 60s\n\
         frontend arena\n  bind {address} backlog 4096\n  \
         http-request return status 200 content-type text/plain string \"{BODY}\"\n"
    )
}
