//! What somebody has handed in, and what is taken from it: the Rust files of its `src`, and its choice.
//!
//! Everything else that is there (a manifest, tests, a build script, settings for cargo) has no part in
//! what is built. A source that reads another file while it is compiled is refused, since the compiler
//! may read what the student may not.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::home::Home;
use crate::scratch::{self, Program};

/// How much is taken.
const FILES_MAX: usize = 64;
const BYTES_MAX: u64 = 1024 * 1024;

/// The manifest that is built with, whatever the submission's own says.
const MANIFEST: &str = "exercises/project/template/Cargo.toml";

/// Its programs, built.
#[derive(Debug)]
pub struct Programs {
    /// The server, or why there is none.
    pub server: Result<PathBuf, String>,
    /// The student's test, or why there is none.
    pub check: Result<PathBuf, String>,
}

/// How a student has decided about milestone 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// io_uring, which the grader tries.
    #[default]
    Completion,
    /// Something else, which people judge.
    Defended,
}

/// `submission.toml`, as far as it concerns us.
#[derive(Debug, Default, Deserialize)]
struct Settings {
    #[serde(default)]
    milestone_4: Choice,
}

/// What the student has chosen. A file that cannot be read has chosen nothing else than most do.
pub fn choice(submission: &Path) -> Choice {
    let text = fs::read_to_string(submission.join("submission.toml")).unwrap_or_default();
    toml::from_str::<Settings>(&text).unwrap_or_default().milestone_4
}

/// Copies what is taken of `submission` to `to`.
///
/// # Errors
///
/// A sentence to the student: what it has that cannot be taken.
pub fn take(submission: &Path, to: &Path) -> anyhow::Result<()> {
    let from = submission.join("src");
    ensure!(from.is_dir(), "the submission has no folder src");
    let mut folders = vec![PathBuf::new()];
    let (mut files, mut bytes) = (0, 0);
    while let Some(inside) = folders.pop() {
        let entries = fs::read_dir(from.join(&inside)).with_context(|| shown(&inside))?;
        for entry in entries {
            let entry = entry.with_context(|| shown(&inside))?;
            let inside = inside.join(entry.file_name());
            let kind = entry.file_type().with_context(|| shown(&inside))?;
            if kind.is_dir() && inside != Path::new("bin") {
                folders.push(inside);
            } else if kind.is_file() && inside.extension().is_some_and(|it| it == "rs") {
                files += 1;
                bytes += entry.metadata().with_context(|| shown(&inside))?.len();
                ensure!(files <= FILES_MAX, "more than {FILES_MAX} files in src");
                ensure!(bytes <= BYTES_MAX, "more than {BYTES_MAX} bytes in src");
                let text = fs::read_to_string(entry.path()).with_context(|| shown(&inside))?;
                refuse_included(&text).with_context(|| shown(&inside))?;
                let to = to.join(&inside);
                fs::create_dir_all(to.parent().unwrap_or(&to)).context("the grader's folder")?;
                fs::write(&to, text).context("the grader's folder")?;
            }
        }
    }
    Ok(())
}

fn shown(inside: &Path) -> String {
    Path::new("src").join(inside).display().to_string()
}

/// Refuses a source in which another file is read while it is compiled.
///
/// Simplified: it looks for the words, wherever they stand but in a line that is a comment.
fn refuse_included(text: &str) -> anyhow::Result<()> {
    const WORDS: [&str; 3] = ["include", "include_str", "include_bytes"];
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        // A line that looks like a comment may be the end of one, or of a string, with code behind it.
        if line.starts_with("//") && !line.contains("*/") && !line.contains('"') {
            continue;
        }
        let mut words = line.split(|it: char| !it.is_alphanumeric() && it != '_');
        if let Some(word) = words.find(|it| WORDS.contains(it)) {
            bail!(
                "line {}: the word `{word}`: the grader compiles no file into another. In a text, say it \
                 otherwise",
                at + 1
            );
        }
    }
    Ok(())
}

/// Builds the server and the student's test in `staged`, for which the compiler has the time `wall`.
///
/// # Errors
///
/// When cargo itself fails: what the compiler says of the submission is in the result.
pub fn build(home: &Home, staged: &Path, id: &str, wall: Duration) -> anyhow::Result<Programs> {
    let program = |name: &str, file: &str| Program {
        name: format!("{name}-{id}"),
        main: staged.join(file),
        beside: Some(staged.to_owned()),
        manifest: home.path(MANIFEST),
    };
    let wanted = [("server", "main.rs"), ("check", "check.rs")];
    let programs: Vec<Program> = wanted
        .iter()
        .filter(|(_, file)| staged.join(file).is_file())
        .map(|(name, file)| program(name, file))
        .collect();
    ensure!(!programs.is_empty(), "src has neither main.rs nor check.rs");
    let built = scratch::build_within(home, &format!("grade-{id}"), &programs, wall)?;
    let of = |name: &str, file: &str| -> Result<PathBuf, String> {
        if !staged.join(file).is_file() {
            return Err(format!("src/{file} is not there"));
        }
        let exe = built.program(&format!("{name}-{id}"));
        let exe = exe.map_err(|error| {
            let text = format!("{error:#}").replace(&format!("-{id}"), "");
            said(&text, &home.shown(staged))
        })?;
        match foreign(exe, home, id) {
            None => Ok(exe.to_owned()),
            Some(path) => Err(format!("it was compiled from a file outside of src: {path}")),
        }
    };
    Ok(Programs { server: of("server", "main.rs"), check: of("check", "check.rs") })
}

/// What the compiler said, with the student's own paths, unless it quotes from somewhere else.
fn said(text: &str, staged: &str) -> String {
    let text = text.replace(&format!("{staged}/"), "src/");
    let is_elsewhere = |line: &str| {
        let place =
            line.trim_start().strip_prefix("--> ").or(line.trim_start().strip_prefix("::: "));
        place.is_some_and(|it| !it.starts_with("src/") && !it.starts_with("programs/"))
    };
    if text.lines().any(is_elsewhere) {
        return "it does not compile, and what the compiler says of it has to do with a file outside of src"
            .into();
    }
    text
}

/// A file outside of the submission from which `exe` was made: cargo notes them all down.
fn foreign(exe: &Path, home: &Home, id: &str) -> Option<String> {
    let Ok(target) = home.target() else { return Some("cargo's folder is not there".into()) };
    let course = target.join("course");
    let noted = exe.file_name().map(|it| course.join("build/debug").join(it).with_extension("d"));
    let noted = noted.and_then(|it| fs::read_to_string(it).ok());
    let folder = course.join(format!("grade-{id}"));
    // The library that each program may use, and what was taken of the submission.
    let ours = [home.path("chapters/oddeven"), folder];
    let ours: Vec<PathBuf> = ours.iter().filter_map(|it| it.canonicalize().ok()).collect();
    let Some(noted) = noted else { return Some("cargo did not say from which files".into()) };
    let files = noted.lines().filter_map(|it| it.split_once(": ")).flat_map(|it| {
        // A blank in a path is written with a backslash before it.
        let files = it.1.replace("\\ ", "\0");
        files.split(' ').map(|it| it.replace('\0', " ")).collect::<Vec<_>>()
    });
    let is_ours = |it: &String| {
        let path = Path::new(it).canonicalize();
        path.is_ok_and(|path| ours.iter().any(|ours| path.starts_with(ours)))
    };
    files.filter(|it| !it.is_empty()).find(|it| !is_ours(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_reads_another_file_is_refused() {
        for text in [
            "const A: &str = include_str!(\"/etc/passwd\");",
            "use core::include as x;",
            "#[doc = include_str ! (\"x\")]",
            "/*\n// */ include!(\"x\");",
            "let a = \"\n// \"; r#include_bytes!(\"x\");",
        ] {
            assert!(refuse_included(text).is_err(), "{text}");
        }
        assert!(refuse_included("// we include the last byte\nlet included = 1;\n").is_ok());
    }

    #[test]
    fn what_the_compiler_quotes_from_elsewhere_is_not_passed_on() {
        let staged = "/x/staged";
        assert!(said("error: no\n --> /x/staged/main.rs:1:1\n", staged).contains("src/main.rs"));
        assert!(!said("error: no\n --> /etc/shadow:1:1\n | root\n", staged).contains("root"));
    }
}
