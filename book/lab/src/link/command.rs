//! `cargo lab link`: a command on the client's side of a link, for the curious.

use super::{
    Link, Outage, Profile, Side,
    enter::{self, THIS},
    pair,
    profile::NAMES,
};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use nix::{
    sched::{CloneFlags, unshare},
    sys::signal::{SigSet, Signal},
};
use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitCode, ExitStatus},
    thread,
    time::Duration,
};

/// What may be said on the command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Start this on the server's side before, with a shell
    #[arg(long, value_name = "COMMAND")]
    on_server: Option<String>,
    #[command(flatten)]
    pub(crate) parameters: Parameters,
    /// What to run on the client's side, where the other one is called `server`: ping -c 20 server, or
    /// bash
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A profile, and what is different from it.
#[derive(Debug, Args)]
pub struct Parameters {
    /// Begin with the numbers of this link
    #[arg(long, value_name = "NAME", default_value = "wifi-2.4", value_parser = NAMES)]
    profile: String,
    /// Begin the dice with this number: the same ones lose the same packets
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Carry so many packets a second, both ways together; 0: as many as come
    #[arg(long, value_name = "PACKETS")]
    packets_per_second: Option<f64>,
    /// Let so many packets wait for their turn
    #[arg(long, value_name = "PACKETS")]
    queue: Option<usize>,
    /// Lose so many of a hundred packets
    #[arg(long, value_name = "PERCENT")]
    loss: Option<f64>,
    /// Let every packet take this long, each way
    #[arg(long, value_name = "MS")]
    delay: Option<f64>,
    /// Add this to it on the average, by a Gamma distribution
    #[arg(long, value_name = "MS")]
    jitter: Option<f64>,
    /// Let the distribution have this standard deviation
    #[arg(long, value_name = "MS")]
    jitter_sd: Option<f64>,
    /// Never add more than this
    #[arg(long, value_name = "MS")]
    jitter_cap: Option<f64>,
    /// Let packets arrive in the order in which they left (true), or overtake each other (false)
    #[arg(long, value_name = "true|false")]
    keep_order: Option<bool>,
    /// Let nothing through in the last FOR_MS of every EVERY_MS
    #[arg(long, value_names = ["EVERY_MS", "FOR_MS"], num_args = 2)]
    outage: Option<Vec<f64>>,
}

impl Parameters {
    /// The profile that they make.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn profile(&self) -> Result<Profile> {
        let begin = Profile::named(&self.profile).context("no such profile")?;
        let outage = match self.outage.as_deref() {
            Some(&[every_ms, for_ms]) => Some(Outage { every_ms, for_ms }),
            _ => begin.outage,
        };
        let budget = self.packets_per_second.map_or(begin.packets_per_second, Some);
        let mut profile = Profile {
            name: begin.name.clone(),
            packets_per_second: budget.filter(|rate| *rate != 0.0),
            queue_packets: self.queue.unwrap_or(begin.queue_packets),
            loss_percent: self.loss.unwrap_or(begin.loss_percent),
            delay_base_ms: self.delay.unwrap_or(begin.delay_base_ms),
            jitter_mean_ms: self.jitter.unwrap_or(begin.jitter_mean_ms),
            jitter_sd_ms: self.jitter_sd.unwrap_or(begin.jitter_sd_ms),
            jitter_cap_ms: self.jitter_cap.unwrap_or(begin.jitter_cap_ms),
            keep_order: self.keep_order.unwrap_or(begin.keep_order),
            outage,
        };
        if profile != begin {
            profile.name += ", changed";
        }
        profile.check().map_err(|sentence| anyhow!(sentence))?;
        Ok(profile)
    }
}

/// Runs it. The status is that of the command; 1 without a link, 2 if the parameters make no sense.
///
/// # Errors
/// If there is no link, or the command cannot be started.
pub fn command(arguments: &Arguments) -> Result<ExitCode> {
    let profile = match arguments.parameters.profile() {
        Ok(profile) => profile,
        Err(error) => {
            eprintln!("cargo lab: {error:#}");
            return Ok(ExitCode::from(2));
        }
    };
    // Before there is a second thread.
    super::prepare()?;
    // Ctrl-C is for the command, which is in the same terminal: we stay, to say what the link did. Any
    // other signal ends us, and with us the command. (Before there are threads, which inherit it.)
    let mut interrupt = SigSet::empty();
    interrupt.add(Signal::SIGINT);
    interrupt.thread_block().context("pthread_sigmask(SIGINT)")?;
    let link = Link::open(&profile, arguments.parameters.seed)?;
    eprintln!(
        "{} ({}): you are {}, and `server` is {}",
        profile.name,
        link.kind(),
        link.client_ip(),
        link.server_ip()
    );
    let status = match &arguments.on_server {
        None => run(&link, &arguments.command),
        Some(shell) => beside(&link, shell, || run(&link, &arguments.command)),
    }?;
    eprint!("\n{}", link.counts().summary());
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn run(link: &Link, command: &[OsString]) -> Result<ExitStatus> {
    let ended = link.on(Side::Client, || start(link, Side::Client, command)?.wait());
    ended.context("setns")?.context("the command on the client's side")
}

/// Runs `work` while a shell runs `command` on the server's side.
fn beside<T>(link: &Link, command: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let command: Vec<OsString> = ["sh", "-c", command].map(OsString::from).into();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (begun, begin) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let tell = begun.clone();
            let run = move || -> io::Result<()> {
                let mut child = start(link, Side::Server, &command)?;
                // Nobody listening means that the work was given up.
                let _ = tell.send(Ok(()));
                // Ends when the sender is dropped.
                let _ = ended.recv();
                child.kill()?;
                child.wait().map(drop)
            };
            match link.on(Side::Server, run) {
                Ok(Ok(())) => {}
                Ok(Err(error)) | Err(error) => drop(begun.send(Err(error))),
            }
        });
        match begin.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error).context("the command on the server's side"),
            Err(_) => bail!("the command on the server's side: its thread has ended"),
        }
        // A server needs a moment to listen; one that takes longer is the reader's to wait for.
        thread::sleep(Duration::from_millis(200));
        let done = work();
        drop(end);
        done
    })
}

/// Starts `command` and all that it will start in a PID namespace of their own, so that nothing is left
/// when it ends, or we do. The calling thread is on that side, and can start no threads afterwards.
fn start(link: &Link, side: Side, command: &[OsString]) -> io::Result<Child> {
    unshare(CloneFlags::CLONE_NEWPID)?;
    let mut init = Command::new(THIS);
    init.args(enter::arguments(&link.path(side))).arg("--family");
    for (name, side) in [("server", Side::Server), ("client", Side::Client)] {
        init.arg("--name").arg(format!("{} {name}", pair::address(side)));
    }
    init.arg("--").args(command).spawn()
}
