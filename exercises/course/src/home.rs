//! Where the repository is, and where in it things are.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::exercise::Exercise;

/// A copy of the repository.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// The repository at `root`, or, if none is given, the one that the current folder is in, or else the
    /// one that this program was built in.
    ///
    /// # Errors
    ///
    /// When there is no repository of ours.
    pub fn find(root: Option<&Path>) -> anyhow::Result<Home> {
        let is_ours = |it: &Path| it.join("exercises/solutions").is_dir();
        if let Some(root) = root {
            let root = root.canonicalize().with_context(|| root.display().to_string())?;
            if !is_ours(&root) {
                bail!(
                    "{} has no folder exercises/solutions: give the top of a clone",
                    root.display()
                );
            }
            return Ok(Home { root });
        }
        let here = env::current_dir().context("the current folder")?;
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let candidates = here.ancestors().map(Path::to_path_buf).chain([built]);
        let found = candidates.into_iter().find(|it| is_ours(it));
        let root =
            found.context("no exercises here: run `cargo course` in a clone of the repository")?;
        Ok(Home { root: root.canonicalize().context("the repository")? })
    }

    /// A path from the top of the repository.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        self.root.join(inside)
    }

    /// How `path` is shown: from the top of the repository, if it is inside.
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// All exercises, in their order.
    ///
    /// # Errors
    ///
    /// Those of [`Exercise::read`].
    pub fn exercises(&self) -> anyhow::Result<Vec<Exercise>> {
        let folder = self.path("exercises");
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        let mut folders: Vec<PathBuf> = entries
            .flatten()
            .map(|it| it.path())
            .filter(|it| it.join("exercise.toml").is_file())
            .collect();
        folders.sort();
        folders.iter().map(|it| Exercise::read(self, it)).collect()
    }

    /// The exercise with this id, as `ex03`, `3` or a part of the folder's name.
    ///
    /// # Errors
    ///
    /// When there is none, or several; the sentence names them.
    pub fn exercise(&self, name: &str) -> anyhow::Result<Exercise> {
        let all = self.exercises()?;
        let id = match name.parse::<u8>() {
            Ok(number) => format!("ex{number:02}"),
            Err(_) => name.to_owned(),
        };
        let found: Vec<&Exercise> = match all.iter().find(|it| it.id == id) {
            Some(exact) => vec![exact],
            None => all.iter().filter(|it| it.folder_name().contains(name)).collect(),
        };
        match found[..] {
            [one] => Ok(one.clone()),
            [] => {
                let ids: Vec<&str> = all.iter().map(|it| it.id.as_str()).collect();
                bail!("there is no exercise {name:?}; there are {}", ids.join(", "))
            }
            _ => {
                let ids: Vec<&str> = found.iter().map(|it| it.id.as_str()).collect();
                bail!("{name:?} may be {}: say which", ids.join(" or "))
            }
        }
    }

    /// `name`, and which repository it is of, unless it is the one that this program was built in: what is
    /// built of two of them must not meet.
    pub fn unique(&self, name: &str) -> String {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if built.canonicalize().is_ok_and(|it| it == self.root) {
            return name.to_owned();
        }
        let mut hasher = DefaultHasher::new();
        self.root.hash(&mut hasher);
        format!("{name}-{:016x}", hasher.finish())
    }

    /// The folder for what is built, beside what cargo has built of us.
    ///
    /// # Errors
    ///
    /// When this program does not stand where cargo puts programs.
    pub fn target(&self) -> anyhow::Result<PathBuf> {
        let program = env::current_exe().context("where this program is")?;
        // TARGET/debug/course, or TARGET/debug/deps/a_test-HASH.
        let folder = program
            .ancestors()
            .find(|it| it.file_name().is_some_and(|it| it == "debug" || it == "release"));
        let target = folder.and_then(Path::parent);
        Ok(target.map_or_else(|| self.path("target"), Path::to_path_buf))
    }
}
