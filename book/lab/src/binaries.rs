//! The servers, built: cargo does it, in release, and says where they are.

use crate::{
    screen::Screen,
    servers::{package, short},
};
use anyhow::{Context, Result, bail, ensure};
use contract::{server::Server, verdicts::Column};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The packages whose servers ask for io_uring.
const NEEDS_IO_URING: [&str; 1] = ["ch06"];

/// A server that can be started.
#[derive(Clone, Debug)]
pub struct Binary {
    /// Its column of the table of promises.
    pub column: Column,
    /// The program.
    pub path: PathBuf,
}

/// Builds `servers` in release and shows what cargo is at.
///
/// # Errors
/// If cargo cannot be started or the build fails: its own words are on stderr by then.
pub fn build(workspace: &Path, servers: &[Column], screen: &Screen) -> Result<Vec<Binary>> {
    let mut packages: Vec<&str> = servers.iter().map(|it| package(it.name)).collect();
    packages.sort_unstable();
    packages.dedup();
    let mut command = Command::new(cargo());
    command.current_dir(workspace).args(["build", "--release", "--quiet"]);
    command.arg("--message-format=json-render-diagnostics");
    for name in packages {
        command.args(["--package", name]);
    }
    for server in servers {
        command.args(["--bin", server.name]);
    }
    let spinner = screen.spinner("building the servers");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo: cannot be started: is it in PATH?")?;
    let output = child.stdout.take().context("cargo: no pipe to read from")?;
    let mut found = BTreeMap::new();
    for line in BufReader::new(output).lines() {
        let line = line.context("read: cargo's messages")?;
        let Some(artifact) = Artifact::parse(&line) else { continue };
        spinner.at(0.0, &artifact.name);
        if let Some(path) = artifact.executable {
            found.insert(artifact.name, path);
        }
    }
    let status = child.wait().context("waitpid: cargo")?;
    spinner.end();
    ensure!(status.success(), "cargo build --release: {status}: the compiler's words are above");
    servers.iter().map(|column| Binary::of(*column, found.get(column.name).cloned())).collect()
}

/// Takes `servers` from `folder` and builds nothing.
///
/// # Errors
/// If one is not there.
pub fn take(folder: &Path, servers: &[Column]) -> Result<Vec<Binary>> {
    let take = |column: &Column| {
        let path = folder.join(column.name);
        ensure!(
            path.is_file(),
            "{}: no such program: build it, or leave --binaries out",
            path.display()
        );
        Ok(Binary { column: *column, path })
    };
    servers.iter().map(take).collect()
}

/// Those of `servers` that this machine lets run, and a sentence for each that it does not: io_uring may
/// be missing, or forbidden. Whatever else keeps a server from starting is told where it is to run.
pub fn that_may_run(servers: Vec<Binary>) -> (Vec<Binary>, Vec<String>) {
    let mut left_out = Vec::new();
    let may_run = |server: &Binary| {
        if !NEEDS_IO_URING.contains(&package(server.column.name)) {
            return true;
        }
        let Err(error) = Server::start(&server.path) else { return true };
        let error = format!("{error:#}");
        let is_refused = error.contains("io_uring");
        if is_refused {
            left_out.push(format!("{} is left out: {error}", short(server.column.name)));
        }
        !is_refused
    };
    let servers = servers.into_iter().filter(may_run).collect();
    (servers, left_out)
}

/// The folder of the workspace that this program was built from.
///
/// # Errors
/// If the repository is not where it was.
pub fn workspace() -> Result<PathBuf> {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = built_in.canonicalize();
    found.with_context(|| {
        format!(
            "{}: the repository has moved since this was built: build it again",
            built_in.display()
        )
    })
}

impl Binary {
    fn of(column: Column, path: Option<PathBuf>) -> Result<Binary> {
        match path {
            Some(path) => Ok(Binary { column, path }),
            None => bail!("cargo has built no program called {}", column.name),
        }
    }
}

/// Something that cargo has built or found fresh.
struct Artifact {
    name: String,
    executable: Option<PathBuf>,
}

impl Artifact {
    /// From a line of `cargo build --message-format=json`; `None` if the line is about something else.
    fn parse(line: &str) -> Option<Artifact> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message.get("reason")?.as_str()? != "compiler-artifact" {
            return None;
        }
        let name = message.get("target")?.get("name")?.as_str()?.to_owned();
        let executable = message.get("executable").and_then(Value::as_str).map(PathBuf::from);
        Some(Artifact { name, executable })
    }
}

/// The cargo that runs us, so that a toolchain chosen with `cargo +NAME` stays chosen.
fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_cargo_tells_the_program() {
        let line =
            r#"{"reason":"compiler-artifact","target":{"name":"ch01"},"executable":"/x/ch01"}"#;
        let artifact = Artifact::parse(line).unwrap();
        assert_eq!((artifact.name.as_str(), artifact.executable), ("ch01", Some("/x/ch01".into())));
        let library = r#"{"reason":"compiler-artifact","target":{"name":"nix"},"executable":null}"#;
        assert_eq!(Artifact::parse(library).unwrap().executable, None);
        assert!(Artifact::parse(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(Artifact::parse("not JSON").is_none());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = take(Path::new("/nowhere"), &contract::verdicts::CHAPTERS).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/ch01: no such program"), "{error}");
    }
}
