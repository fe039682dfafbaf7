//! Exports the course project for a term: a template repository for the students, and, if asked for, the
//! folder that a Gradescope assignment is made of.
//!
//! The template is what stands in `exercises/project/template`, and nothing else of the project: no
//! solution, no wrong servers, no grader.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use contract::bounded;

use crate::grade::parameters::Parameters;
use crate::home::Home;
use crate::say::line;

const TEMPLATE: &str = "exercises/project/template";
const GRADESCOPE: &str = "exercises/project/gradescope";

/// The student whose variant the template shows until somebody has asked for their own.
const EXAMPLE: &str = "YOUR-NAME";

/// What the grader is built from, besides the manifest.
const GRADER: [&str; 6] = [
    "chapters/oddeven",
    "tests",
    "exercises/course",
    "exercises/project/template",
    "exercises/project/solution",
    "exercises/project/bank",
];

/// What cargo is told: to ask nobody.
const VENDORED: &str = "[source.crates-io]\nreplace-with = \"vendored-sources\"\n\n\
    [source.vendored-sources]\ndirectory = \"vendor\"\n";

/// Exports the template for the term `seed` to `out`, which must not be there yet or be empty.
///
/// # Errors
///
/// When something is in `out`, the seed is no plain word, or a file cannot be written.
pub fn export(home: &Home, seed: &str, out: &Path) -> anyhow::Result<()> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    ensure!(
        !seed.is_empty() && seed.chars().all(is_plain),
        "{seed:?}: a term's seed is letters, digits, `-`, `_` and `.`, as in 2027S"
    );
    make_empty(out)?;
    copy_tree(&home.path(TEMPLATE), out)?;
    copy(&home.path("exercises/AGENTS.md"), &out.join("AGENTS.md"))?;
    // Cargo takes from it what the template needs, in the versions that the grader has.
    copy(&home.path("Cargo.lock"), &out.join("Cargo.lock"))?;
    write(&out.join(".gitignore"), "/target\n")?;
    let term = "src/bin/parameters/term.rs";
    let text = read(&home.path(TEMPLATE).join(term))?;
    ensure!(text.contains("\"0000X\""), "{TEMPLATE}/{term} has no place for the term");
    write(&out.join(term), &text.replace("\"0000X\"", &format!("\"{seed}\"")))?;
    let mine = mine(&format!("{seed}/{EXAMPLE}"), out)?;
    write(&out.join("src/mine.rs"), &mine)?;
    line(format_args!("the template of term {seed} is in {}", out.display()));
    Ok(())
}

/// Exports what a Gradescope assignment is made of: zip what is in `out`, and hand it in there.
///
/// # Errors
///
/// As [`export`]; and when `cargo vendor` fails, which needs the network once.
pub fn export_gradescope(home: &Home, seed: &str, out: &Path) -> anyhow::Result<()> {
    make_empty(out)?;
    for name in ["setup.sh", "run_autograder"] {
        copy(&home.path(GRADESCOPE).join(name), &out.join(name))?;
    }
    write(&out.join("term"), &format!("{seed}\n"))?;
    let grader = out.join("grader");
    for folder in GRADER {
        copy_tree(&home.path(folder), &grader.join(folder))?;
    }
    write(&grader.join("exercises/solutions/README.md"), "A grader has no exercises.\n")?;
    write(&grader.join("Cargo.toml"), &manifest(&read(&home.path("Cargo.toml"))?)?)?;
    for folder in [&grader, &grader.join(TEMPLATE)] {
        copy(&home.path("Cargo.lock"), &folder.join("Cargo.lock"))?;
    }
    vendor(&grader)?;
    line(format_args!(
        "the assignment is in {0}: `cd {0} && zip -qr ../autograder.zip .`",
        out.display()
    ));
    Ok(())
}

/// Our manifest with the members that the grader has.
fn manifest(ours: &str) -> anyhow::Result<String> {
    let mut table: toml::Table = ours.parse().context("Cargo.toml")?;
    let workspace = table.get_mut("workspace").and_then(toml::Value::as_table_mut);
    let workspace = workspace.context("Cargo.toml has no [workspace]")?;
    let members = ["chapters/oddeven", "tests", "exercises/course"];
    for key in ["members", "default-members"] {
        let members: Vec<toml::Value> = members.iter().map(|it| (*it).into()).collect();
        workspace.insert(key.into(), members.into());
    }
    toml::to_string(&table).context("the grader's manifest")
}

/// How long cargo may take to fetch them, over a slow network.
const VENDOR: Duration = Duration::from_secs(1800);

/// Puts the sources of all dependencies into `grader/vendor`, and says so to cargo.
fn vendor(grader: &Path) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // A submission may depend on more than the grader does.
    let template = Path::new(TEMPLATE).join("Cargo.toml");
    command.args(["vendor", "--quiet", "--sync"]).arg(template).arg("vendor").current_dir(grader);
    let output = bounded::output(&mut command, VENDOR).context("cargo vendor")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo vendor: {}", said.trim());
    write(&grader.join(".cargo/config.toml"), VENDORED)?;
    for entry in fs::read_dir(grader.join("vendor")).context("vendor")?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("windows") {
            shrink(&entry.path())?;
        }
    }
    Ok(())
}

/// Empties the sources of a package for another system: cargo wants to see its manifest, and no more.
fn shrink(package: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(package).with_context(|| package.display().to_string())?.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name == "Cargo.toml" || name == ".cargo-checksum.json" {
            continue;
        }
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.with_context(|| path.display().to_string())?;
    }
    // Without a target, a manifest is none.
    write(&package.join("src/lib.rs"), "")
}

/// The file `src/mine.rs` of `seed`, as the template's own program makes it.
fn mine(seed: &str, template: &Path) -> anyhow::Result<String> {
    let text = read(&template.join("src/bin/parameters/mine.txt"))?;
    Ok(Parameters::of(seed).mine(seed, &text))
}

fn make_empty(out: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let mut entries = fs::read_dir(out).with_context(|| out.display().to_string())?;
    ensure!(entries.next().is_none(), "{} is not empty: name another folder", out.display());
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut folders = vec![PathBuf::new()];
    while let Some(inside) = folders.pop() {
        let folder = from.join(&inside);
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry.with_context(|| folder.display().to_string())?;
            let inside = inside.join(entry.file_name());
            let kind = entry.file_type().with_context(|| inside.display().to_string())?;
            if kind.is_dir() && entry.file_name() != "target" {
                folders.push(inside);
            } else if kind.is_file() {
                copy(&entry.path(), &to.join(inside))?;
            }
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = || -> io::Result<u64> {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        fs::copy(from, to)
    };
    copied().with_context(|| from.display().to_string()).map(drop)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = || -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text)
    };
    written().with_context(|| path.display().to_string())
}
