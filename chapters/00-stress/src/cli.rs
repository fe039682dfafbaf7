//! The command line: what may be asked for, and how it becomes a plan.

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand};
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};
use stress::{Arrivals, Load, Plan, Query, Stall, StallKind, http};

/// Where the servers of the chapters listen when nobody says otherwise.
const PORT_DEFAULT: u16 = 8080;

/// Connections of a run over HTTP when nobody says otherwise.
const CONNECTIONS_DEFAULT: usize = 64;

/// An open-loop load generator for servers that answer one line and close, or speak HTTP; and the stalled client by hand
#[derive(Debug, Parser)]
#[command(name = "stress", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send requests on a schedule, whatever the server does, and report what became of them
    Run(Box<RunArgs>),
    /// Be the stalled client: hold one connection until Ctrl-C, or until the server lets it go
    Hold {
        /// silent, half-line, drip or deaf
        kind: StallKind,
        /// HOST:PORT of the server
        address: String,
    },
    /// Ask one number, and say what came back and how long it took
    Ask {
        /// The number to ask about; sent as it stands, so that 7abc can be tried too
        number: String,
        /// HOST:PORT of the server
        address: String,
        /// Seconds to wait for the answer
        #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
        timeout: Duration,
    },
    /// Check this instrument on this machine: its pacing, its accuracy and, given a server, its most load
    Calibrate {
        /// HOST:PORT of a server to load as far as this generator goes; without it, a server in this process
        address: Option<String>,
        /// The server's process, to say what a request costs it
        #[arg(long, value_name = "PID")]
        server_pid: Option<i32>,
    },
}

#[derive(Args, Debug)]
pub struct RunArgs {
    /// HOST:PORT of the server; a name is resolved once
    #[arg(required_unless_present = "host", conflicts_with = "host")]
    pub address: Option<String>,
    /// A server on another machine, by its name or IP address; at port 8080, unless it is HOST:PORT
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// Requests per second of a steady run
    #[arg(long, default_value_t = 10.0, conflicts_with = "staircase")]
    pub qps: f64,
    /// Seconds of a ramp from nothing to the first rate [default: 1, with --staircase 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds_or_zero)]
    pub warmup: Option<Duration>,
    /// Seconds at the full rate of a steady run
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds,
          conflicts_with = "staircase")]
    pub steady: Duration,
    /// Several rates in one run: FROM..TO:STEP, such as 10..460:50, or a list, such as 10,110,210
    #[arg(long, value_name = "RATES", value_parser = staircase)]
    pub staircase: Option<Staircase>,
    /// Seconds of each step of a staircase
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub hold: Duration,
    /// How requests are spread within a step: uniform or poisson
    #[arg(long, default_value = "uniform")]
    pub arrivals: Arrivals,
    /// The dice of --arrivals poisson
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds that a client waits, from its scheduled moment on
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    pub timeout: Duration,
    /// varying: request i asks 1 + (i - 1) mod 1000; or one number for all
    #[arg(long, value_name = "varying|N", default_value = "varying")]
    pub query: Query,
    /// Stalled clients on top, such as 0.5%:silent; half-line, drip, deaf; may be repeated
    #[arg(long, value_name = "SHARE:KIND")]
    pub stall: Vec<Stall>,
    /// Seconds that stalled clients hold on, at most to the end of the run [default: 4 times --timeout]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub stall_hold: Option<Duration>,
    /// Milliseconds between the end of connect and the request
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub think_ms: u64,
    /// The most requests under way at once [default: no limit, as the schedule demands]; with --http, how many
    /// connections stay open, each with its share of the rate [default: 64]
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
    /// Speak HTTP/1.1: ask for PATH again and again, over connections that stay open
    #[arg(long, value_name = "PATH", conflicts_with_all = [
        "staircase", "hold", "query", "stall", "stall_hold", "think_ms", "one_source", "chart",
    ])]
    pub http: Option<String>,
    /// A closed loop, as wrk: each connection asks when its answer has come, and latency is from no schedule
    #[arg(long, requires = "http", conflicts_with_all = ["qps", "arrivals", "seed"])]
    pub saturate: bool,
    /// The most requests of one connection under way at once
    #[arg(long, value_name = "DEPTH", requires = "http", default_value_t = 1)]
    pub pipeline: usize,
    /// Pin the threads that make load to one CPU
    #[arg(long, value_name = "CPU", requires = "http")]
    pub cpu: Option<usize>,
    /// Threads that make load: at most one for each core that may be spent on it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Keep to one source address, even if its ports run out
    #[arg(long)]
    pub one_source: bool,
    /// The server's process, to say what a request costs it
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<i32>,
    /// Write a line of JSON for each request
    #[arg(long, value_name = "FILE.jsonl")]
    pub log: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE.json")]
    pub json: Option<PathBuf>,
    /// Write an HdrHistogram interval log (version 2) of the latencies
    #[arg(long, value_name = "FILE.hlog")]
    pub hdr: Option<PathBuf>,
    /// Draw success, latency, throughput and concurrency over time
    #[arg(long, value_name = "FILE.svg")]
    pub chart: Option<PathBuf>,
}

/// The rates of `--staircase`.
#[derive(Clone, Debug)]
pub struct Staircase(Vec<f64>);

impl RunArgs {
    /// HOST:PORT of the server, as it was given or completed.
    pub fn target(&self) -> String {
        let host = self.host.as_deref().map(with_port);
        host.or_else(|| self.address.clone()).unwrap_or_default() // clap wants one of them.
    }

    /// The plan of these arguments for the HTTP server at `target`, if `--http` is among them.
    pub fn http_plan(&self, target: SocketAddr) -> Result<Option<http::Plan>> {
        let Some(path) = &self.http else { return Ok(None) };
        let connections = self.connections.unwrap_or(CONNECTIONS_DEFAULT);
        let plan = match self.saturate {
            true => http::Plan::saturate(target, path, connections, self.steady),
            false => http::Plan::steady(target, path, connections, self.qps, self.steady),
        };
        let mut plan = plan
            .with_arrivals(self.arrivals, self.seed)
            .with_pipeline(self.pipeline)
            .with_warmup(self.warmup.unwrap_or(Duration::from_secs(1)))
            .with_timeout(self.timeout)
            .with_threads(self.threads);
        plan.cpu = self.cpu;
        plan.server_pid = self.server_pid;
        plan.keep_records = self.log.is_some();
        plan.check()?;
        Ok(Some(plan))
    }

    /// The plan of these arguments, against a server whose address is known.
    pub fn plan(&self, target: SocketAddr) -> Result<Plan> {
        let mut plan = match &self.staircase {
            Some(Staircase(rates)) => Plan::steps(target, rates.clone(), self.hold),
            None => {
                let warmup = self.warmup.unwrap_or(Duration::from_secs(1));
                Plan::steady(target, self.qps, warmup, self.steady)
            }
        };
        if let (Load::Staircase { warmup, .. }, Some(given)) = (&mut plan.load, self.warmup) {
            *warmup = given;
        }
        plan = plan
            .with_timeout(self.timeout)
            .with_arrivals(self.arrivals, self.seed)
            .with_query(self.query)
            .with_think(Duration::from_millis(self.think_ms))
            .with_threads(self.threads);
        if let Some(hold) = self.stall_hold {
            plan = plan.with_stall_hold(hold);
        }
        plan.stalls = self.stall.clone();
        plan.connections = self.connections;
        plan.spread_sources = !self.one_source;
        plan.server_pid = self.server_pid;
        plan.check()?;
        Ok(plan)
    }
}

/// `host` with the port of every server of this course, if it has none. The colons of a bare IPv6 address
/// are not those of a port.
fn with_port(host: &str) -> String {
    if let Ok(address) = host.parse::<IpAddr>() {
        return SocketAddr::new(address, PORT_DEFAULT).to_string();
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { host.into() } else { format!("{host}:{PORT_DEFAULT}") }
}

fn staircase(text: &str) -> Result<Staircase> {
    stress::parse_staircase(text).map(Staircase)
}

fn seconds(text: &str) -> Result<Duration> {
    let duration = seconds_or_zero(text)?;
    ensure!(!duration.is_zero(), "it has to be above 0");
    Ok(duration)
}

fn seconds_or_zero(text: &str) -> Result<Duration> {
    let value: f64 = text.strip_suffix('s').unwrap_or(text).parse()?;
    ensure!((0.0..=86_400.0).contains(&value), "give seconds, from 0 to 86400, such as 2.5");
    Ok(Duration::from_secs_f64(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_port_has_that_of_the_chapters() {
        for (host, completed) in [
            ("raspberrypi.local", "raspberrypi.local:8080"),
            ("raspberrypi.local:1", "raspberrypi.local:1"),
            ("192.0.2.1", "192.0.2.1:8080"),
            ("192.0.2.1:1", "192.0.2.1:1"),
            ("2001:db8::1", "[2001:db8::1]:8080"),
            ("[2001:db8::1]", "[2001:db8::1]:8080"),
            ("[2001:db8::1]:1", "[2001:db8::1]:1"),
        ] {
            assert_eq!(with_port(host), completed, "--host {host}");
        }
    }
}
