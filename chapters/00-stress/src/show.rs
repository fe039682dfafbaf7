//! What is said on the terminal while something goes on.

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::IsTerminal,
    net::SocketAddr,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};
use stress::{Load, Plan, Progress, Release, StallKind, http};

/// Between two plain lines of progress.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Holds a stalled client, and tells what it does and what to look at.
pub fn hold(kind: StallKind, address: &str, stop: &AtomicBool) -> Result<()> {
    let (target, _) = stress::resolve(address)?;
    println!("{}", what_it_does(kind));
    let mut opened = |local: SocketAddr, took: Duration| {
        println!("Connected from {local} after {took:.1?}. Ctrl-C lets go.");
        println!(
            "Look, in another terminal, at what it does to others:   cargo stress ask 7 {address}\n\
             and at where the server keeps it:                       ss -tn 'sport = :{port} or dport = :{port}'\n\
             (Recv-Q of the listening line in ss -ltn counts those who wait to be accepted.)",
            port = target.port()
        );
    };
    let held = stress::hold(kind, target, stop, &mut opened)?;
    if !held.received.is_empty() {
        let text = String::from_utf8_lossy(&held.received).trim_end().to_owned();
        println!("The server said: {text}");
    }
    let seconds = held.held.as_secs_f64();
    match held.release {
        Release::ServerClosed => println!("The server closed after {seconds:.1} s."),
        Release::ServerReset => println!("The server reset the connection after {seconds:.1} s."),
        Release::Stopped => println!("You let go after {seconds:.1} s; the server had not."),
    }
    Ok(())
}

fn what_it_does(kind: StallKind) -> &'static str {
    match kind {
        StallKind::Silent => "This client connects and then says nothing.",
        StallKind::HalfLine => {
            "This client connects, sends 100 without the end of the line, and then says nothing."
        }
        StallKind::Drip => {
            "This client connects and sends a digit each half second, and never the end of the line."
        }
        StallKind::Deaf => {
            "This client connects, sends a whole request, and never reads the answer."
        }
    }
}

/// Asks one number and prints the answer and its times.
pub fn ask(number: &str, address: &str, patience: Duration) -> Result<()> {
    let (target, _) = stress::resolve(address)?;
    if number.contains('\n') {
        bail!("one line at a time: the number must not contain a newline");
    }
    let answered = stress::ask(number, target, patience)?;
    println!("{}", answered.answer);
    println!(
        "connected after {:.1?}, first byte after {:.1?}, closed after {:.1?}",
        answered.connect, answered.first_byte, answered.total
    );
    if answered.reset {
        println!(
            "The server reset the connection instead of closing it: it had not read everything."
        );
    }
    Ok(())
}

/// Says what is about to be done.
pub fn begin(address: &str, plan: &Plan, took: Duration) {
    let steps = stress::steps(plan);
    let length_s: f64 = steps.iter().map(|step| step.length_ns as f64 / 1e9).sum();
    let resolved = resolved(address, plan.target, took);
    let rates = match &plan.load {
        Load::Steady { qps, .. } => format!("{qps} requests per second"),
        Load::Staircase { rates, .. } => {
            let ends = (rates.first().unwrap_or(&0.0), rates.last().unwrap_or(&0.0));
            format!("{} steps from {} to {} requests per second", rates.len(), ends.0, ends.1)
        }
    };
    eprintln!(
        "target {}{resolved}: {rates}, {length_s:.0} s; a client waits {:?}",
        plan.target, plan.timeout
    );
}

/// Says what is about to be done over HTTP.
pub fn begin_http(address: &str, plan: &http::Plan, took: Duration) {
    let rate = match plan.qps() {
        Some(qps) => format!("{qps} requests per second"),
        None => "as many requests as it answers".to_owned(),
    };
    eprintln!(
        "target {}{}: {rate} over {} connections, {:.0} s; a client waits {:?}",
        plan.target,
        resolved(address, plan.target, took),
        plan.connections,
        (plan.warmup + plan.length).as_secs_f64(),
        plan.timeout
    );
}

fn resolved(address: &str, target: SocketAddr, took: Duration) -> String {
    if address == target.to_string() {
        return String::new();
    }
    format!(" ({address}, resolved once, in {took:.1?})")
}

/// Progress: a bar on a terminal, now and then a line elsewhere.
pub struct Shown {
    bar: Option<ProgressBar>,
    next_line: Instant,
}

impl Shown {
    /// Nothing is shown yet.
    pub fn new() -> Shown {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            // No colours: NO_COLOR has nothing to forbid.
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Shown { bar, next_line: Instant::now() + LINE_EVERY }
    }

    /// Shows the state of a run.
    pub fn show(&mut self, state: &Progress) {
        let ended = state.correct + state.failed;
        let success = match ended {
            0 => "nothing has ended yet".to_owned(), // Which is not 100 %.
            _ => format!("{:.1} % correct", state.correct as f64 * 100.0 / ended as f64),
        };
        let rate = match state.target_qps {
            0.0 => "as fast as it goes".to_owned(),
            some => format!("{some}/s"),
        };
        let p99 = match state.p99_ms {
            0.0 => "–".to_owned(),
            some => format!("{some:.1} ms"),
        };
        let message = format!(
            "{:.0} s  {rate}  {success}  p99 {p99}  {} under way",
            state.elapsed_s, state.in_flight
        );
        if let Some(bar) = &self.bar {
            bar.set_position((state.fraction * 1000.0) as u64);
            bar.set_message(message);
        } else if Instant::now() >= self.next_line {
            self.next_line += LINE_EVERY;
            eprintln!("{:>3.0} %  {message}", state.fraction * 100.0);
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
