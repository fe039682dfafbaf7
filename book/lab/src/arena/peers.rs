//! The peers' programs, built from a workspace of their own.

use crate::{binaries, screen::Screen};
use anyhow::{Context, Result, ensure};
use std::{env, ffi::OsString, path::PathBuf, process::Command};

/// Builds them in release, and says where they are.
///
/// # Errors
/// If cargo cannot build them: its own words are on stderr by then.
pub fn build(screen: &Screen) -> Result<PathBuf> {
    let folder = binaries::workspace()?.join("book/lab/peers");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder.join("target"), PathBuf::from);
    let target = target.join("peers");
    screen
        .say("building the peers (tokio, hyper, may_minihttp): the first time this takes a minute");
    let mut command = Command::new(cargo);
    command
        .current_dir(&folder)
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(&target);
    let status = command.status().context("cargo: cannot be started: is it in PATH?")?;
    ensure!(status.success(), "cargo build in {}: {status}", folder.display());
    Ok(target.join("release"))
}
