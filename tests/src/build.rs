//! The chapters' programs, built once for a test that does not stand in their own package.
//!
//! `CARGO_BIN_EXE_ch03` exists only in the tests of `ch03`. A test of several chapters asks cargo to
//! build them, with the profile and into the directory that the test itself was built with, and takes
//! the paths from what cargo says. When they are fresh this costs a fraction of a second.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::bounded::{self, LAST_WORDS, Listening};
use crate::{microscope, verdicts};

/// How long cargo may take, with a lock that another cargo holds, on a slow machine.
const BUILD: Duration = Duration::from_secs(1800);

/// The file of the program called `name`, such as `ch03` or `ch03-one-recv`.
///
/// The first call builds the programs of all columns of the table, and the others wait for it.
///
/// # Errors
/// When cargo cannot be run, when the programs do not compile (cargo's own message is on stderr), or
/// when no chapter has a program of that name.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    static PROGRAMS: OnceLock<Result<BTreeMap<String, PathBuf>, String>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(|| build(&packages()).map_err(|it| format!("{it:#}")));
    let programs = programs.as_ref().map_err(|it| anyhow::anyhow!("{it}"))?;
    let path = programs.get(name);
    path.cloned().with_context(|| format!("no chapter has a program {name}: see its Cargo.toml"))
}

/// The program of a column of the table, or of a server of `tests/wrong` by the name of its program.
///
/// # Errors
///
/// As [`program`].
pub fn server(name: &str) -> anyhow::Result<PathBuf> {
    if !name.starts_with("wrong-") {
        return program(name);
    }
    let built = cargo(&["-p", "contract", "--bin", name])?;
    built.get(name).cloned().with_context(|| format!("there is no wrong server {name}"))
}

/// The packages of the columns: `ch03` for `ch03` and for `ch03-one-recv`.
fn packages() -> Vec<&'static str> {
    verdicts::CHAPTERS.iter().map(|it| it.name).collect()
}

/// Builds all programs of `packages`, and says where each of them is.
fn build(packages: &[&str]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let packages = packages.iter().flat_map(|it| ["-p", it]);
    cargo(&["--bins"].into_iter().chain(packages).collect::<Vec<_>>())
}

/// Builds the `programs` of chapters with `--cfg elsewhere`, in a directory of their own, and says where
/// each is: what stands in for Linux on another system, see `chapters/01-blocking/src/socket.rs`.
///
/// # Errors
///
/// As [`program`].
pub fn elsewhere(programs: &[&str]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let package = |program: &&str| program.split('-').next().unwrap_or_default().to_owned();
    let packages: Vec<String> = programs.iter().map(package).collect();
    let packages = packages.iter().flat_map(|it| ["-p", it]);
    let programs = programs.iter().flat_map(|it| ["--bin", it]);
    cargo_with(&packages.chain(programs).collect::<Vec<_>>(), Some("elsewhere"))
}

/// Builds what the `arguments` name, and says where each program is.
fn cargo(arguments: &[&str]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    cargo_with(arguments, None)
}

/// The same with a `--cfg`, if one is given: in a folder called so within the target directory, since all
/// would be built anew in the directory itself, and then again without it.
fn cargo_with(arguments: &[&str], cfg: Option<&str>) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let test = std::env::current_exe().context("where this test's own program is")?;
    let (target, profile) = place(&test).context("this test was not built by cargo")?;
    let target = cfg.map_or(target.to_owned(), |it| target.join(it));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from(env!("CARGO")));
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--message-format", "json-render-diagnostics"]);
    command.args(["--profile", profile]).arg("--target-dir").arg(target);
    command.arg("--manifest-path").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    command.args(arguments);
    if let Some(cfg) = cfg {
        let others = std::env::var("RUSTFLAGS").unwrap_or_default();
        command.env("RUSTFLAGS", format!("{others} --cfg {cfg}"));
        command.env_remove("CARGO_ENCODED_RUSTFLAGS"); // It would be taken instead.
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let stdout = Listening::to(child.stdout.take().context("stdout was piped")?, u64::MAX)?;
    // Another cargo may hold the lock of the directory, and says so on stderr.
    let Some(status) = bounded::wait(&mut child, BUILD).context("waitpid")? else {
        let doing = microscope::doing_all(child.id());
        bounded::end(&mut child)?;
        bail!("{command:?} did not end in {BUILD:?}: {doing}");
    };
    ensure!(status.success(), "{command:?}: {status}");
    let programs = executables(&stdout.heard(LAST_WORDS).text());
    if programs.is_empty() {
        bail!("{command:?} names no program: has cargo changed its messages?");
    }
    Ok(programs)
}

/// The target directory and the profile of the test at `TARGET/PROFILE/deps/NAME-HASH`.
fn place(test: &Path) -> Option<(&Path, &str)> {
    let directory = test.ancestors().find(|it| it.ends_with("deps"))?.parent()?;
    let profile = match directory.file_name()?.to_str()? {
        "debug" => "dev",
        named => named,
    };
    Some((directory.parent()?, profile))
}

/// What cargo's messages, one JSON object a line, say of executables, by the names of their files.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    let mut programs = BTreeMap::new();
    for line in messages.lines() {
        let Some((_, rest)) = line.split_once(r#""executable":""#) else { continue };
        let path = PathBuf::from(unescaped(rest));
        if let Some(name) = path.file_name().and_then(|it| it.to_str()) {
            programs.insert(name.to_owned(), path.clone());
        }
    }
    programs
}

/// The JSON string that `text` begins within.
///
/// Simplified: `\u…` stays as it is written. Cargo uses it for control characters alone, and a path
/// with one of those is then not found, which is said.
fn unescaped(text: &str) -> String {
    let mut string = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => string.extend(characters.next()),
            other => string.push(other),
        }
    }
    string
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_tells_where_it_was_built() {
        let found =
            |path| place(Path::new(path)).map(|(target, profile)| (target.to_str(), profile));
        assert_eq!(found("/t/debug/deps/kill-0"), Some((Some("/t"), "dev")));
        assert_eq!(found("/t/release/deps/kill-0"), Some((Some("/t"), "release")));
        assert_eq!(found("/t/debug/kill"), None);
    }

    #[test]
    fn messages_name_executables() {
        let messages = r#"{"reason":"compiler-artifact","executable":null,"fresh":true}
{"reason":"compiler-artifact","executable":"/a \"b\"\\c/ch01","fresh":true}"#;
        let expected = BTreeMap::from([("ch01".to_owned(), PathBuf::from(r#"/a "b"\c/ch01"#))]);
        assert_eq!(executables(messages), expected);
    }
}
