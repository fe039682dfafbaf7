//! What every chapter's program needs and no chapter is about: `chNN [ADDRESS] [OPTION N]`, the line that
//! says where it listens, and one sentence when it cannot. The same file in every chapter.

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

/// Runs `serve` at the address of the command line, with the numbers of those `options` that are given.
/// The exit status is 1 when it cannot go on, 2 when the command line is wrong.
pub fn run<const N: usize>(
    options: [&str; N],
    serve: impl FnOnce(SocketAddr, [Option<usize>; N]) -> anyhow::Result<()>,
) -> ExitCode {
    match parse(options) {
        Ok(Some((address, numbers))) => match serve(address, numbers) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(format_args!("{NAME}: {error:#}"));
                ExitCode::FAILURE
            }
        },
        Ok(None) => {
            let about = env!("CARGO_PKG_DESCRIPTION");
            let help = format!("{NAME}: {about}\n\n{}\n", usage(options));
            let _ = io::stdout().write_all(help.as_bytes());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            say(format_args!("{NAME}: {problem}\n{}", usage(options)));
            ExitCode::from(2)
        }
    }
}

/// What the command line says: `None` where it asks for help.
#[expect(clippy::type_complexity, reason = "used once")]
fn parse<const N: usize>(
    options: [&str; N],
) -> Result<Option<(SocketAddr, [Option<usize>; N])>, String> {
    let (mut address, mut numbers) = (None, [None; N]);
    let mut arguments = std::env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            return Ok(None);
        }
        if let Some(option) = options.iter().position(|it| *it == argument) {
            let number = arguments.next().and_then(|it| it.parse().ok()).filter(|it| *it > 0);
            let number = number.ok_or(format!("{argument} wants a number of at least 1"))?;
            numbers[option] = Some(number);
        } else if argument.starts_with('-') {
            return Err(format!("there is no option {argument}"));
        } else if address.is_some() {
            return Err(format!("one ADDRESS, please: {argument:?} is a second one"));
        } else {
            let parsed = argument.parse();
            address =
                Some(parsed.map_err(|_| format!("{argument:?} is not an IP address and a port"))?);
        }
    }
    match address.map_or_else(|| ADDRESS_DEFAULT.parse(), Ok) {
        Ok(address) => Ok(Some((address, numbers))),
        Err(error) => Err(format!("{ADDRESS_DEFAULT}: {error}")),
    }
}

/// Says on stdout where `listener` really listens, which only the kernel knows after port 0.
pub fn announce(listener: &OwnedFd) -> anyhow::Result<()> {
    let address = bound(listener)?;
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "listening on {address}").and_then(|()| stdout.flush());
    Ok(())
}

/// Where `listener` really listens.
pub fn bound(listener: &OwnedFd) -> anyhow::Result<SocketAddr> {
    let name: SockaddrStorage = getsockname(listener.as_raw_fd()).context("getsockname")?;
    name.to_string().parse().with_context(|| format!("getsockname: {name} is no address"))
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

fn usage<const N: usize>(options: [&str; N]) -> String {
    let options: String = options.iter().map(|it| format!(" [{it} N]")).collect();
    format!(
        "Usage: {NAME} [ADDRESS]{options}\n\
         ADDRESS is IP:PORT as in 127.0.0.1:8080 or [::1]:0 (0 takes a free port); \
         default {ADDRESS_DEFAULT}"
    )
}
