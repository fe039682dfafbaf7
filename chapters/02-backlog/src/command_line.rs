//! What every chapter's program needs and no chapter is about: `chNN [ADDRESS]`, the line that says
//! where it listens, and one sentence when it cannot. The same file in every chapter.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use nix::errno::Errno;
use nix::sys::socket::{SockaddrStorage, getsockname};

/// What this program is called.
const NAME: &str = env!("CARGO_BIN_NAME");

/// Where it listens when nobody says otherwise.
const ADDRESS_DEFAULT: &str = "127.0.0.1:8080";

/// Runs `serve` at the address of the command line.
/// The exit status is 1 when it cannot go on, 2 when the command line is wrong.
pub fn run(serve: impl FnOnce(SocketAddr) -> anyhow::Result<()>) -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let argument = arguments.next().map(|it| it.to_string_lossy().into_owned());
    let address = argument.as_deref().unwrap_or(ADDRESS_DEFAULT);
    if address == "--help" || address == "-h" {
        let about = env!("CARGO_PKG_DESCRIPTION");
        let help = format!("{NAME}: {about}\n\n{}\n", usage());
        let _ = io::stdout().write_all(help.as_bytes());
        return ExitCode::SUCCESS;
    }
    if let Some(second) = arguments.next() {
        return misused(format_args!("one ADDRESS, please: {second:?} is a second one"));
    }
    if address.starts_with('-') {
        return misused(format_args!("there is no option {address}"));
    }
    let Ok(address) = address.parse() else {
        return misused(format_args!("{address:?} is not an IP address and a port"));
    };
    match serve(address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{NAME}: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Says on stdout where `listener` really listens, which only the kernel knows after port 0.
pub fn announce(listener: &OwnedFd) -> anyhow::Result<()> {
    let address: SockaddrStorage = getsockname(listener.as_raw_fd()).context("getsockname")?;
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "listening on {address}").and_then(|()| stdout.flush());
    Ok(())
}

/// Says something on stderr. Nobody needs to be listening: that stderr (or stdout) is closed is no
/// reason to serve nobody, and `eprintln!` would end the program.
pub fn say(what: impl Display) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// The error of a call that makes a listener, with what can be done about it.
pub fn refused(call: &str, address: SocketAddr, errno: Errno) -> anyhow::Error {
    let remedy = match errno {
        Errno::EADDRINUSE => {
            "another program listens there: stop it, or give another port (0 takes a free one)"
        }
        Errno::EADDRNOTAVAIL => "this machine has no such address: see `ip address`",
        Errno::EACCES => "ports below net.ipv4.ip_unprivileged_port_start are root's: take another",
        Errno::EAFNOSUPPORT => {
            "this machine does not speak that family: take an address of another"
        }
        Errno::EMFILE | Errno::ENFILE => "no descriptor is left: raise `ulimit -n`",
        _ => "this is not expected: see the call's manual page",
    };
    anyhow!("{call}({address}): {errno}: {remedy}")
}

fn misused(problem: impl Display) -> ExitCode {
    say(format_args!("{NAME}: {problem}\n{}", usage()));
    ExitCode::from(2)
}

fn usage() -> String {
    format!(
        "Usage: {NAME} [ADDRESS]\n\
         ADDRESS is IP:PORT as in 127.0.0.1:8080 or [::1]:0 (0 takes a free port); \
         default {ADDRESS_DEFAULT}"
    )
}
