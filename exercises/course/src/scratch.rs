//! The overlay: some sources, built with a pristine manifest in a crate of their own.
//!
//! The crate is generated below the target folder: one program for each of what is to be built, all of
//! them in one run of cargo. It is a workspace of its own with the versions of our `Cargo.lock`, is built
//! without the network, and has no build script. What somebody has written into the manifest or
//! the tests beside the source has no part in it.
//!
//! A file is only written when it changes, so that cargo builds only what has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use contract::microscope::doing;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Deserialize;
use toml::{Table, Value};

use crate::confine::{Confined, Limits, course};
use crate::home::Home;

/// How long a run waits while others build: as long as one of them may take.
pub const TURN: Duration = Limits::BUILD.wall;

/// How long a build may take, with the wait for its turn, on the busiest machine.
pub const AT_MOST: Duration = TURN.saturating_add(Limits::BUILD.at_most());

/// What wrong servers are not wrong about.
const COMMON: &str = "tests/wrong/common";

/// What every program may depend on.
const ALWAYS: [&str; 4] = ["anyhow", "libc", "nix", "oddeven"];

/// A program to build.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it is called: `ex03`, `ex03-wrong-reads-once`.
    pub name: String,
    /// The file that becomes its `main.rs`.
    pub main: PathBuf,
    /// The folder whose other files stand beside it.
    pub beside: Option<PathBuf>,
    /// The manifest that says what it depends on.
    pub manifest: PathBuf,
}

/// What became of them.
#[derive(Debug, Default)]
pub struct Built {
    /// The programs, by name.
    pub programs: BTreeMap<String, PathBuf>,
    /// What the compiler said of those that it refused, by name.
    pub refused: BTreeMap<String, String>,
}

impl Built {
    /// The program called `name`.
    ///
    /// # Errors
    ///
    /// What the compiler said of it.
    pub fn program(&self, name: &str) -> anyhow::Result<&Path> {
        match (self.programs.get(name), self.refused.get(name)) {
            (Some(path), _) => Ok(path),
            (None, Some(why)) => bail!("{name} does not compile:\n{why}"),
            (None, None) => bail!("{name} was not built, and cargo did not say why"),
        }
    }
}

/// Builds `programs` in the scratch crate called `crate_name`.
///
/// # Errors
///
/// When the crate cannot be written, cargo cannot be run, or says nothing of a program.
pub fn build(home: &Home, crate_name: &str, programs: &[Program]) -> anyhow::Result<Built> {
    cargo(home, crate_name, programs, "build", Limits::BUILD.wall)
}

/// The same, when cargo may take no more time than `wall`. How long it waits for its turn, while somebody
/// else builds, is not counted: [`TURN`] at most.
///
/// # Errors
///
/// As [`build`].
pub fn build_within(
    home: &Home,
    crate_name: &str,
    programs: &[Program],
    wall: Duration,
) -> anyhow::Result<Built> {
    cargo(home, crate_name, programs, "build", wall)
}

/// Looks at `programs` with clippy, whose warnings are refusals. No program is built.
///
/// # Errors
///
/// As [`build`].
pub fn lint(home: &Home, crate_name: &str, programs: &[Program]) -> anyhow::Result<Built> {
    cargo(home, crate_name, programs, "clippy", Limits::BUILD.wall)
}

fn cargo(
    home: &Home,
    crate_name: &str,
    programs: &[Program],
    command: &str,
    wall: Duration,
) -> anyhow::Result<Built> {
    let target = home.target()?.join("course");
    let folder = target.join(home.unique(crate_name));
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    // Two runs at once (a watch and a check) would put their programs into one place.
    let _lock = lock(&target.join("lock"), TURN)?;
    for program in programs {
        write_sources(home, &folder, program).with_context(|| program.name.clone())?;
    }
    remove_strangers(&folder.join("programs"), programs)?;
    let is_new = write_manifest(home, &folder, crate_name, programs)?;
    let mut arguments: Vec<OsString> =
        [command, "--bins", "--keep-going", "--offline"].map(Into::into).into();
    arguments.extend(["--message-format", "json"].map(Into::into));
    // The versions of our lock file are taken over when the crate is new, and kept from then on.
    if !is_new {
        arguments.push("--locked".into());
    }
    arguments.push("--target-dir".into());
    arguments.push(target.join("build").into());
    if command == "clippy" {
        arguments.extend(["--", "-D", "warnings"].map(Into::into));
    }
    let confined = Confined {
        course: course()?,
        limits: Limits { wall, ..Limits::BUILD },
        program: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into(),
        arguments,
        folder: folder.clone(),
        variables: Vec::new(),
    };
    let mut messages = Messages::default();
    let ended = confined.run(|line| messages.hear(line))?;
    let mut built = messages.sorted(home, programs);
    let is_told = |it: &Program| {
        built.programs.contains_key(&it.name) || built.refused.contains_key(&it.name)
    };
    ensure!(ended.status.is_some(), "cargo {command} did not end in {wall:?}: {}", ended.doing());
    let untold = programs.iter().find(|it| !is_told(it));
    if let (Some(program), true) = (untold, command == "build" || ended.status != Some(0)) {
        bail!(
            "cargo {command} in {} said nothing of {}:\n{}",
            folder.display(),
            program.name,
            ended.stderr.trim()
        );
    }
    for (name, path) in &mut built.programs {
        *path = set_aside(path, &folder.join("bin").join(name))?;
    }
    Ok(built)
}

/// Waits until no other run of ours builds; the lock ends with the value. Whoever has it says so in it.
fn lock(path: &Path, within: Duration) -> anyhow::Result<Flock<File>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let file = file.with_context(|| path.display().to_string())?;
    let (say, said) = mpsc::channel();
    // The kernel lets those who wait have their turns in order, but for as long as it takes. Whoever is no
    // longer waited for gives the lock back.
    thread::spawn(move || {
        let mut waiting = file;
        let locked = loop {
            match Flock::lock(waiting, FlockArg::LockExclusive) {
                Err((again, Errno::EINTR)) => waiting = again,
                Err((_, errno)) => break Err(errno),
                Ok(lock) => break Ok(lock),
            }
        };
        let _ = say.send(locked);
    });
    match said.recv_timeout(within) {
        Ok(Ok(mut lock)) => {
            // For the sentence below alone, and a full disk is told by what is built.
            let _ = lock.set_len(0);
            let _ = lock.write_all(std::process::id().to_string().as_bytes());
            Ok(lock)
        }
        Ok(Err(errno)) => bail!("flock({}): {errno}", path.display()),
        Err(_) => {
            let holder = fs::read_to_string(path).unwrap_or_default();
            let holder = holder.trim().parse().map_or("a process without a number".into(), doing);
            bail!(
                "flock({}): for {within:?} another run has been building: {holder}. If that one hangs, end it",
                path.display()
            )
        }
    }
}

/// Gives a program a second name, which the next run of cargo does not write to.
fn set_aside(path: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    let linked = || -> io::Result<()> {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        match fs::remove_file(to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::hard_link(path, to).or_else(|_| fs::copy(path, to).map(drop))
    };
    linked().with_context(|| to.display().to_string())?;
    Ok(to.to_owned())
}

/// Writes `programs/NAME/main.rs` and what stands beside it.
fn write_sources(home: &Home, folder: &Path, program: &Program) -> anyhow::Result<()> {
    let to = folder.join("programs").join(&program.name);
    let text = read(&program.main)?;
    let mut wanted = BTreeSet::from([to.join("main.rs")]);
    write(&to.join("main.rs"), &text)?;
    if let Some(beside) = &program.beside {
        for (inside, path) in rust_files(beside)? {
            if inside != Path::new("main.rs") {
                write(&to.join(&inside), &read(&path)?)?;
                wanted.insert(to.join(&inside));
            }
        }
    }
    if text.lines().any(|it| it.trim() == "mod common;") {
        for (inside, path) in rust_files(&home.path(COMMON))? {
            write(&to.join("common").join(&inside), &read(&path)?)?;
            wanted.insert(to.join("common").join(&inside));
        }
    }
    for (_, path) in rust_files(&to)? {
        if !wanted.contains(&path) {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// The Rust files in `folder` and below, by their paths inside; of `bin`, which holds programs, none.
fn rust_files(folder: &Path) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inside) = folders.pop() {
        let entries = fs::read_dir(folder.join(&inside));
        for entry in entries.with_context(|| folder.join(&inside).display().to_string())? {
            let entry = entry?;
            let inside = inside.join(entry.file_name());
            // A link could lead anywhere.
            let kind = entry.file_type()?;
            if kind.is_dir() && inside != Path::new("bin") {
                folders.push(inside);
            } else if kind.is_file() && inside.extension().is_some_and(|it| it == "rs") {
                found.push((inside, entry.path()));
            }
        }
    }
    Ok(found)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, text: &str) -> anyhow::Result<bool> {
    if fs::read_to_string(path).is_ok_and(|it| it == text) {
        return Ok(false);
    }
    let written = || -> io::Result<()> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text)
    };
    written().with_context(|| path.display().to_string())?;
    Ok(true)
}

/// Removes the programs that are no longer asked for.
fn remove_strangers(folder: &Path, programs: &[Program]) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        if !programs.iter().any(|it| it.name.as_str() == name) {
            fs::remove_dir_all(entry.path()).with_context(|| entry.path().display().to_string())?;
        }
    }
    Ok(())
}

/// Writes the crate's `Cargo.toml`, and our `Cargo.lock` where either has changed: whether one has.
fn write_manifest(
    home: &Home,
    folder: &Path,
    crate_name: &str,
    programs: &[Program],
) -> anyhow::Result<bool> {
    let root: Table = read(&home.path("Cargo.toml"))?.parse().context("Cargo.toml")?;
    let section = |names: &[&str]| -> Option<&Table> {
        names.iter().try_fold(&root, |at, name| at.get(*name)?.as_table())
    };
    let of_workspace =
        section(&["workspace", "dependencies"]).context("[workspace.dependencies]")?;
    let package = section(&["workspace", "package"]).context("[workspace.package]")?;
    let mut manifest = Table::new();
    let mut about = Table::from_iter([
        ("name".to_owned(), Value::from(format!("scratch-{crate_name}"))),
        ("version".to_owned(), Value::from("0.0.0")),
        ("description".to_owned(), Value::from("An exercise")),
        ("publish".to_owned(), Value::from(false)),
        ("autobins".to_owned(), Value::from(false)),
        ("build".to_owned(), Value::from(false)),
    ]);
    for name in ["edition", "rust-version"] {
        about.insert(name.into(), package.get(name).context(name)?.clone());
    }
    manifest.insert("package".into(), about.into());
    let bins = programs.iter().map(|it| {
        Table::from_iter([
            ("name".to_owned(), Value::from(it.name.clone())),
            ("path".to_owned(), Value::from(format!("programs/{}/main.rs", it.name))),
            ("test".to_owned(), Value::from(false)),
        ])
    });
    manifest.insert("bin".into(), Value::from(bins.map(Value::from).collect::<Vec<_>>()));
    let dependencies = dependencies(home, of_workspace, programs)?;
    manifest.insert("dependencies".into(), dependencies.into());
    if let Some(lints) = section(&["workspace", "lints"]) {
        manifest.insert("lints".into(), lints.clone().into());
    }
    manifest.insert("workspace".into(), Table::new().into());
    // Nobody debugs what is built here, and it is built once: nothing that makes that slower.
    let lean = [("debug".to_owned(), Value::from(false)), ("incremental".into(), false.into())];
    let profile = Table::from_iter([("dev".to_owned(), Table::from_iter(lean).into())]);
    manifest.insert("profile".into(), profile.into());
    let text = toml::to_string(&manifest).context("the scratch crate's manifest")?;
    let lock = read(&home.path("Cargo.lock"))?;
    let has_changed = [
        write(&folder.join("Cargo.toml"), &text)?,
        write(&folder.join("Cargo.lock.taken-over"), &lock)?,
        !folder.join("Cargo.lock").exists(),
    ];
    let is_new = has_changed.contains(&true);
    if is_new {
        write(&folder.join("Cargo.lock"), &lock)?;
    }
    Ok(is_new)
}

/// What the programs depend on, all of them together, with the versions of the workspace.
fn dependencies(home: &Home, of_workspace: &Table, programs: &[Program]) -> anyhow::Result<Table> {
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in ALWAYS {
        features.insert(name.into(), BTreeSet::new());
    }
    // What `common` uses.
    let mut manifests: BTreeSet<PathBuf> = programs.iter().map(|it| it.manifest.clone()).collect();
    manifests.insert(home.path("tests/Cargo.toml"));
    for path in manifests {
        let is_of_common = path == home.path("tests/Cargo.toml");
        let manifest: Table = read(&path)?.parse().with_context(|| home.shown(&path))?;
        let table = manifest.get("dependencies").and_then(Value::as_table);
        for (name, value) in table.into_iter().flatten() {
            if is_of_common && !ALWAYS.contains(&name.as_str()) {
                continue;
            }
            let of_it = features.entry(name.clone()).or_default();
            let listed = value.get("features").and_then(Value::as_array);
            of_it.extend(listed.into_iter().flatten().filter_map(|it| it.as_str()).map(Into::into));
        }
    }
    let mut table = Table::new();
    for (name, wanted) in features {
        let ours =
            of_workspace.get(&name).with_context(|| format!("the workspace has no {name}"))?;
        let mut entry = match ours {
            Value::Table(entry) => entry.clone(),
            version => Table::from_iter([("version".to_owned(), version.clone())]),
        };
        if let Some(path) = entry.get("path").and_then(Value::as_str) {
            let path = home.path(path).canonicalize().with_context(|| name.clone())?;
            entry.insert("path".into(), path.display().to_string().into());
        }
        let listed = entry.get("features").and_then(Value::as_array);
        let mut all: BTreeSet<String> =
            listed.into_iter().flatten().filter_map(|it| it.as_str()).map(Into::into).collect();
        all.extend(wanted);
        if !all.is_empty() {
            let all: Vec<Value> = all.into_iter().map(Value::from).collect();
            entry.insert("features".into(), all.into());
        }
        table.insert(name, entry.into());
    }
    Ok(table)
}

/// What cargo has said, one JSON object a line.
#[derive(Debug, Default)]
struct Messages {
    executables: BTreeMap<String, PathBuf>,
    /// Errors and warnings, by program.
    diagnostics: BTreeMap<String, Vec<(bool, String)>>,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    target: Option<Target>,
    executable: Option<PathBuf>,
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
}

impl Messages {
    fn hear(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Message>(line) else { return };
        let Some(Target { name }) = message.target else { return };
        if let ("compiler-artifact", Some(path)) = (message.reason.as_str(), message.executable) {
            self.executables.insert(name, path);
        } else if let Some(Diagnostic { level, rendered: Some(rendered) }) = message.message {
            let is_error = level.starts_with("error");
            self.diagnostics.entry(name).or_default().push((is_error, rendered));
        }
    }

    /// What is told of each program, with the paths that its author knows.
    fn sorted(self, home: &Home, programs: &[Program]) -> Built {
        let mut built = Built::default();
        for program in programs {
            let said = self.diagnostics.get(&program.name).map_or(&[][..], Vec::as_slice);
            if said.iter().any(|it| it.0) {
                let mut text: String =
                    said.iter().filter(|it| it.0).map(|it| it.1.as_str()).collect();
                let ours = format!("programs/{}/", program.name);
                let main = home.shown(&program.main);
                text = text.replace(&format!("{ours}main.rs"), &main);
                if let Some(beside) = &program.beside {
                    text = text.replace(&ours, &format!("{}/", home.shown(beside)));
                }
                built.refused.insert(program.name.clone(), text);
            } else if let Some(path) = self.executables.get(&program.name) {
                built.programs.insert(program.name.clone(), path.clone());
            }
        }
        built
    }
}
