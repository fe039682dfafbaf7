//! A copy of the exercises that a test may spoil, and the program that looks at it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a part of tests, of which each takes what it needs"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;
use tempfile::TempDir;

/// A copy.
pub struct Copy {
    pub folder: TempDir,
}

impl Copy {
    /// With these exercises of the repository and no others.
    pub fn of(exercises: &[&str]) -> Copy {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let folder = TempDir::new().unwrap();
        for name in ["chapters", "tests"] {
            symlink(root.join(name), folder.path().join(name)).unwrap();
        }
        for name in ["Cargo.toml", "Cargo.lock", ".rustfmt.toml"] {
            fs::copy(root.join(name), folder.path().join(name)).unwrap();
        }
        for entry in fs::read_dir(root.join("exercises")).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(id) = exercises.iter().find(|it| name.starts_with(&format!("{it}-"))) {
                copy(&entry.path(), &folder.path().join("exercises").join(&name));
                let solutions = Path::new("exercises/solutions").join(id);
                copy(&root.join(&solutions), &folder.path().join(&solutions));
                // Somebody may be at work on it here: what is copied is what is handed out.
                let main = folder.path().join("exercises").join(&name).join("src/main.rs");
                fs::copy(folder.path().join(solutions).join("starter.rs"), main).unwrap();
            }
        }
        Copy { folder }
    }

    /// A path in it.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(inside)
    }

    /// Puts one of its files in the place of another.
    pub fn put(&self, from: &str, to: &str) {
        fs::copy(self.path(from), self.path(to)).unwrap();
    }

    /// What `cargo course` with these arguments says on stdout, then on stderr, and its exit status. It must
    /// end within `seconds`.
    pub fn course(&self, arguments: &[&str], seconds: u64) -> (String, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_course"));
        command.arg("--home").arg(self.folder.path()).args(arguments);
        let output = command.timeout(Duration::from_secs(seconds)).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let status = output.status.code();
        (said.clone(), status.unwrap_or_else(|| panic!("{arguments:?} did not end:\n{said}")))
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
