//! The command line, by hand: a library that parses it would be most of the memory of an idle server, and
//! this chapter weighs that.

use std::ffi::OsString;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::net::SocketAddr;

use http::Limits;

use crate::model::{Config, Model};
use crate::models::MODELS;
use crate::{cores, net};

/// Where it listens when nobody says otherwise.
const ADDRESS_DEFAULT: &str = "127.0.0.1:8080";

/// The shortest queue that is taken in a burst without a loss, and long enough for most.
const BACKLOG_MIN: u32 = 1024;
const BACKLOG_DEFAULT: u32 = 4096;
/// More than that nix hands to no kernel.
const BACKLOG_MAX: u32 = nix::libc::SOMAXCONN as u32;
const DRAIN_MS_DEFAULT: u32 = 5000;

/// How many workers there are where each of them belongs to one client until that leaves. They wait for
/// clients, and not for cores.
const POOL_DEFAULT: usize = 64;

/// What is to be done.
pub enum Command {
    /// Say how it is used.
    Help,
    /// Serve.
    Serve(Serve),
}

/// Who serves, where and how.
pub struct Serve {
    /// One of the eleven.
    pub model: &'static dyn Model,
    /// Where it listens.
    pub address: SocketAddr,
    /// The rest.
    pub config: Config,
}

/// The options that take a number: the name, the smallest, the largest, and what it means.
const NUMBERS: [(&str, u32, u32, &str); 7] = [
    (
        "--workers",
        1,
        4096,
        "threads or processes of a model with a fixed number (default: the cores;\n\
         \x20                        64 of prefork and thread-pool, whose workers sleep most of the time)",
    ),
    (
        "--backlog",
        BACKLOG_MIN,
        BACKLOG_MAX,
        "length of the queue for accept (default 4096); net.core.somaxconn may allow less",
    ),
    ("--patience-ms", 1, 3_600_000, "for a whole request, from its first byte (default 6000)"),
    ("--idle-ms", 1, 3_600_000, "for a connection that says nothing (default 15000)"),
    ("--drain-ms", 1, 3_600_000, "for what is in flight when it is asked to stop (default 5000)"),
    ("--max-connections", 1, u32::MAX, "held at once (default: as many as there are descriptors)"),
    ("--batch-wait-us", 0, 1_000_000, "io-uring: wait so long for company (default 0)"),
];

/// What the `arguments` say.
///
/// # Errors
///
/// A sentence about the first of them that cannot be used.
pub fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let (mut model, mut address) = (None, None);
    let mut numbers = [None; NUMBERS.len()];
    let mut arguments = arguments.map(|it| it.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            return Ok(Command::Help);
        } else if argument == "--model" {
            let name = arguments.next().unwrap_or_default();
            model = Some(find(&name)?);
        } else if let Some(option) = NUMBERS.iter().position(|it| it.0 == argument) {
            numbers[option] = Some(number(option, arguments.next())?);
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
    let address = address.map_or_else(|| ADDRESS_DEFAULT.parse(), Ok);
    Ok(Command::Serve(Serve {
        model: model.ok_or_else(|| format!("--model NAME is missing: one of {}", names()))?,
        address: address.map_err(|error| format!("{ADDRESS_DEFAULT}: {error}"))?,
        config: config(numbers)?,
    }))
}

fn find(name: &str) -> Result<&'static dyn Model, String> {
    let found = MODELS.iter().find(|it| it.name() == name);
    found.copied().ok_or_else(|| format!("--model wants one of {}", names()))
}

fn number(option: usize, text: Option<String>) -> Result<u32, String> {
    let (name, least, most, _) = NUMBERS[option];
    let number = text.and_then(|it| it.parse().ok()).filter(|it| (least..=most).contains(it));
    number.ok_or_else(|| match most {
        u32::MAX => format!("{name} wants a number of at least {least}"),
        _ => format!("{name} wants a number from {least} to {most}"),
    })
}

fn config(numbers: [Option<u32>; NUMBERS.len()]) -> Result<Config, String> {
    let [workers, backlog, patience_ms, idle_ms, drain_ms, connections_max, batch_wait_us] =
        numbers;
    let mut limits = Limits::default();
    limits.head_patience_ms = patience_ms.unwrap_or(limits.head_patience_ms);
    limits.idle_patience_ms = idle_ms.unwrap_or(limits.idle_patience_ms);
    let possible = net::connections_max().map_err(|error| format!("{error:#}"))?;
    let connections_max = match connections_max {
        // Refused now, or the limit would be met as EMFILE in the middle of the night.
        Some(wanted) if wanted as usize > possible => {
            return Err(format!(
                "--max-connections {wanted}: this process may hold {possible}: raise `ulimit -n`"
            ));
        }
        wanted => wanted.map_or(possible, |it| it as usize),
    };
    Ok(Config {
        pool: workers.map_or(POOL_DEFAULT, |it| it as usize),
        workers: match workers {
            Some(workers) => workers as usize,
            None => cores::allowed().map_err(|error| format!("{error:#}"))?.len(),
        },
        backlog: i32::try_from(backlog.unwrap_or(BACKLOG_DEFAULT)).unwrap_or(i32::MAX),
        limits,
        drain_ms: drain_ms.unwrap_or(DRAIN_MS_DEFAULT).into(),
        connections_max,
        batch_wait_us: batch_wait_us.unwrap_or(0),
    })
}

fn names() -> String {
    MODELS.map(|it| it.name()).join(", ")
}

/// The first lines of the help.
pub fn usage() -> String {
    format!(
        "Usage: ch07 --model NAME [ADDRESS] [OPTION N]...\n\
         ADDRESS is IP:PORT as in 127.0.0.1:8080 or [::1]:0 (0 takes a free port); \
         default {ADDRESS_DEFAULT}\n"
    )
}

/// The whole help.
pub fn help() -> String {
    let mut text =
        format!("ch07: {}\n\n{}\nNAME is one of\n", env!("CARGO_PKG_DESCRIPTION"), usage());
    for model in MODELS {
        let _ = writeln!(text, "  {:<22} {}", model.name(), model.about());
    }
    text += "\nOPTION is one of\n";
    for (name, _, _, about) in NUMBERS {
        let _ = writeln!(text, "  {name:<22} {about}");
    }
    text
}

/// Says something on stdout, which nobody needs to read.
pub fn print(what: impl Display) {
    let mut stdout = io::stdout().lock();
    let _ = write!(stdout, "{what}").and_then(|()| stdout.flush());
}

/// Says something on stderr. Nobody needs to be listening: that stderr is closed is no reason to serve
/// nobody, and `eprintln!` would end the program.
pub fn say(what: impl Display) {
    let _ = writeln!(io::stderr(), "{what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backlog_that_may_be_said_can_be_listened_with() {
        let with = |backlog: u32| {
            let said = format!("--model poll 127.0.0.1:0 --backlog {backlog}");
            parse(said.split(' ').map(OsString::from))
        };
        for backlog in [BACKLOG_MIN, BACKLOG_MAX] {
            let Ok(Command::Serve(serve)) = with(backlog) else { panic!("{backlog} is refused") };
            net::listen(serve.address, &serve.config, net::Sharing::Alone).unwrap();
        }
        assert!(with(BACKLOG_MIN - 1).is_err() && with(BACKLOG_MAX + 1).is_err());
    }
}
