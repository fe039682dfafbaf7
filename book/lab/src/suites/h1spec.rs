//! h1spec: a test of HTTP/1.1 servers in plain Python, whose cases connect, send, and say themselves
//! whether what came back was right.
//!
//! It is run as it is, without its strict cases, and its report is read.

use super::tally::{Miss, Tally};
use anyhow::{Context, Result, ensure};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What the suite is called in the record.
pub const SUITE: &str = "h1spec";

/// What its command does.
const MAIN: &str = "import h1spec; h1spec.main()";

/// One line of its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// Whether the server did right.
    pub passed: bool,
    /// What it did instead.
    pub detail: String,
}

/// The checkout at `folder`.
///
/// # Errors
/// If it is none.
pub fn find(folder: &Path) -> Result<PathBuf> {
    let module = folder.join("h1spec/__init__.py");
    ensure!(
        module.is_file(),
        "{}: no such file: give --h1spec the folder of a checkout of dropseed/h1spec",
        module.display()
    );
    folder.canonicalize().with_context(|| format!("realpath({})", folder.display()))
}

/// Runs all cases against `server` at `address`.
///
/// # Errors
/// If there is no Python (3.10 or later), or it does not end with a report.
pub fn ask(folder: &Path, server: &'static str, address: SocketAddr) -> Result<Tally> {
    let output = Command::new("python3")
        .args(["-c", MAIN, &address.to_string()])
        .current_dir(folder)
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1") // The folder is the reader's.
        .env("PYTHONIOENCODING", "utf-8")
        .stdin(Stdio::null())
        .output()
        .context("python3 cannot be started: apt-get install python3")?;
    let report = String::from_utf8_lossy(&output.stdout);
    let cases = parse(&report).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("h1spec ended without a report ({}): {}", output.status, errors.trim())
    })?;
    let misses = cases.iter().filter(|it| !it.passed);
    let misses = misses.map(|it| Miss { name: it.name.clone(), heard: it.detail.clone() });
    Ok(Tally { server, suite: SUITE, kind: "case", total: cases.len(), misses: misses.collect() })
}

/// The cases of a report. Its last line says how many there are, so that none is overlooked.
///
/// # Errors
/// If that line is missing, or there are not so many.
pub fn parse(report: &str) -> Result<Vec<Case>> {
    let report = without_colours(report);
    let mut cases: Vec<Case> = Vec::new();
    let mut counted = None;
    for line in report.lines() {
        let text = line.trim();
        let (mark, rest) = text.split_once(' ').unwrap_or((text, ""));
        if let "\u{2713}" | "\u{2717}" = mark {
            let name = rest.split_once(". ").context("a case without a number")?.1.to_owned();
            cases.push(Case { name, passed: mark == "\u{2713}", detail: String::new() });
        } else if let Some((passed, total)) = last_line(text) {
            counted = Some((passed, total));
        } else if let Some(case) = cases.last_mut().filter(|it| !it.passed && !text.is_empty())
            && line.starts_with("      ")
        {
            case.detail = text.to_owned();
        }
    }
    let (passed, total) = counted.context("it does not say how many cases passed")?;
    let seen = (cases.iter().filter(|it| it.passed).count(), cases.len());
    ensure!(total > 0, "no case was run");
    ensure!(
        seen == (passed, total),
        "it says {passed} of {total}, and shows {} of {}",
        seen.0,
        seen.1
    );
    Ok(cases)
}

/// From `28/32 passed, 4 failed`.
fn last_line(text: &str) -> Option<(usize, usize)> {
    let (counts, _) = text.split_once(" passed")?;
    let (passed, total) = counts.split_once('/')?;
    Some((passed.parse().ok()?, total.parse().ok()?))
}

/// Without what makes a terminal colour: from ESC to `m`.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain += piece.split_once('m').map_or("", |it| it.1);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\n\u{1b}[1mHTTP/1.1 Conformance (RFC 9112)\u{1b}[0m\n\n\
        \u{1b}[1mHeaders (RFC 9112 S5)\u{1b}[0m\n  \u{1b}[32m\u{2713}\u{1b}[0m 1. Missing Host header rejected\n  \
        \u{1b}[31m\u{2717}\u{1b}[0m 2. Expect: 100-continue handling\n      \
        \u{1b}[2mExpected 100 or immediate 4xx, got 200\u{1b}[0m\n\n\
        \u{1b}[31m1/2 passed, 1 failed\u{1b}[0m\n";

    #[test]
    fn a_report_is_read() {
        let cases = parse(REPORT).unwrap();
        assert_eq!(cases.len(), 2);
        assert_eq!(
            (cases[0].name.as_str(), cases[0].passed),
            ("Missing Host header rejected", true)
        );
        assert_eq!(cases[1].name, "Expect: 100-continue handling");
        assert_eq!(cases[1].detail, "Expected 100 or immediate 4xx, got 200");
    }

    #[test]
    fn a_report_that_is_cut_or_overlooked_is_told() {
        assert!(parse("").is_err());
        assert!(parse(REPORT.split("\n\n\u{1b}[31m1/2").next().unwrap()).is_err());
        let error = parse(&REPORT.replace("1/2", "2/3")).unwrap_err().to_string();
        assert_eq!(error, "it says 2 of 3, and shows 1 of 2");
        assert!(parse("0/0 passed").is_err());
    }

    #[test]
    fn a_folder_that_is_no_checkout_is_named() {
        let error = find(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/h1spec/__init__.py: no such file"), "{error}");
    }
}
