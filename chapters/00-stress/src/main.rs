//! `stress`: an open-loop load generator, and the stalled client by hand.

mod cli;
mod show;

use anyhow::{Context, Result, bail};
use clap::Parser;
use cli::{Cli, Command, RunArgs};
use nix::sys::signal::{SigSet, Signal};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use stress::http;

/// 0 and 2 (usage) are clap's too.
const EXIT_COULD_NOT_RUN: u8 = 1;
const EXIT_USAGE: u8 = 2;
const EXIT_CLIENT_BOUND: u8 = 3;

/// Set by Ctrl-C: end, and report what there is.
static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = stop_on_signals() {
        return fail(&error, EXIT_COULD_NOT_RUN);
    }
    let result = match cli.command {
        Command::Run(args) => return run(&args),
        Command::Hold { kind, address } => show::hold(kind, &address, &STOP),
        Command::Ask { number, address, timeout } => show::ask(&number, &address, timeout),
        Command::Calibrate { address, server_pid } => {
            stress::calibrate::calibrate(address.as_deref(), server_pid, &STOP)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, EXIT_COULD_NOT_RUN),
    }
}

fn run(args: &RunArgs) -> ExitCode {
    if let Err(error) = check_folders(args) {
        return fail(&error, EXIT_USAGE);
    }
    let address = args.target();
    let (target, took) = match stress::resolve(&address) {
        Ok(resolved) => resolved,
        Err(error) => return fail(&error, EXIT_USAGE),
    };
    match args.http_plan(target) {
        Ok(Some(plan)) => return run_http(args, &address, &plan, took),
        Ok(None) => {}
        Err(error) => return fail(&error, EXIT_USAGE),
    }
    let plan = match args.plan(target) {
        Ok(plan) => plan,
        Err(error) => return fail(&error, EXIT_USAGE),
    };
    show::begin(&address, &plan, took);
    let mut progress = show::Shown::new();
    let report = stress::run(&plan, &mut |state| progress.show(state), &STOP);
    progress.end();
    let report = match report {
        Ok(report) => report,
        Err(error) => return fail(&error, EXIT_COULD_NOT_RUN),
    };
    print!("{}", stress::table(&report));
    let files: [File<'_, stress::Report>; 4] = [
        (&args.log, stress::files::log),
        (&args.json, stress::files::json),
        (&args.hdr, stress::files::hdr),
        (&args.chart, stress::files::chart),
    ];
    if let Err(error) = write_files(&report, &files) {
        return fail(&error, EXIT_COULD_NOT_RUN);
    }
    if report.client_bound { ExitCode::from(EXIT_CLIENT_BOUND) } else { ExitCode::SUCCESS }
}

fn run_http(args: &RunArgs, address: &str, plan: &http::Plan, took: Duration) -> ExitCode {
    show::begin_http(address, plan, took);
    let mut progress = show::Shown::new();
    let report = http::run(plan, &mut |state| progress.show(state), &STOP);
    progress.end();
    let report = match report {
        Ok(report) => report,
        Err(error) => return fail(&error, EXIT_COULD_NOT_RUN),
    };
    print!("{}", http::table(&report));
    let files: [File<'_, http::Report>; 3] =
        [(&args.log, http::log), (&args.json, http::json), (&args.hdr, http::hdr)];
    if let Err(error) = write_files(&report, &files) {
        return fail(&error, EXIT_COULD_NOT_RUN);
    }
    if report.client_bound { ExitCode::from(EXIT_CLIENT_BOUND) } else { ExitCode::SUCCESS }
}

/// A run whose result has no place to go is not begun.
fn check_folders(args: &RunArgs) -> Result<()> {
    for path in [&args.log, &args.json, &args.hdr, &args.chart].into_iter().flatten() {
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|it| !it.is_dir()) {
            bail!("{}: there is no folder {}: make it first", path.display(), folder.display());
        }
    }
    Ok(())
}

/// A file that may be asked for, and who writes it.
type File<'a, R> = (&'a Option<PathBuf>, fn(&R, &Path) -> Result<()>);

fn write_files<R>(report: &R, files: &[File<'_, R>]) -> Result<()> {
    for (path, write) in files {
        if let Some(path) = path {
            write(report, path)?;
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(())
}

/// A thread of its own waits for the signals; all others, made later, have them blocked. The second one
/// ends the process at once.
fn stop_on_signals() -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("pthread_sigmask")?;
    let wait = move || {
        while let Ok(signal) = signals.wait() {
            if STOP.swap(true, Ordering::Relaxed) {
                std::process::exit(128 + signal as i32);
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("clone: no thread")?;
    Ok(())
}

fn fail(error: &anyhow::Error, status: u8) -> ExitCode {
    eprintln!("stress: {error:#}");
    ExitCode::from(status)
}
