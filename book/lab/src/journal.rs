//! What is done so far, kept on disk as it is done, so that a second start goes on where the first one
//! stopped.
//!
//! The file stands beside the record and is gone when the record is whole. Its first line says what the
//! numbers depend on: what was measured under other conditions is not mixed in.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    fs::{self, OpenOptions},
    hash::Hasher,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// What is done, by a name for each part.
#[derive(Debug)]
pub struct Journal {
    /// Where it is kept; `None` keeps nothing.
    path: Option<PathBuf>,
    parameters: Value,
    done: Mutex<BTreeMap<String, Value>>,
    found: Found,
}

/// What was there when the journal was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing, or it was not wanted.
    Nothing,
    /// So many parts of the same.
    Parts(usize),
    /// Parts of something else, which are let go.
    Other,
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    parameters: Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    part: String,
    done: Value,
}

impl Journal {
    /// One that keeps nothing.
    pub fn nowhere() -> Journal {
        Journal {
            path: None,
            parameters: Value::Null,
            done: Mutex::default(),
            found: Found::Nothing,
        }
    }

    /// The journal called `name` in `folder`; with `fresh`, an empty one.
    ///
    /// # Errors
    /// If the folder cannot be made or the file, if there is one, cannot be read or written.
    pub fn open(folder: &Path, name: &str, parameters: Value, fresh: bool) -> Result<Journal> {
        fs::create_dir_all(folder).with_context(|| format!("mkdir({})", folder.display()))?;
        let path = folder.join(format!("{name}.partial.jsonl"));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("read({})", path.display())),
        };
        let (found, done) =
            if fresh { (Found::Nothing, BTreeMap::new()) } else { parse(&text, &parameters) };
        let journal = Journal { path: Some(path), parameters, done: Mutex::new(done), found };
        // Without the line that a crash has cut short, and without what is not wanted.
        if !text.is_empty() {
            journal.write_all()?;
        }
        Ok(journal)
    }

    /// What was there.
    pub fn found(&self) -> Found {
        self.found
    }

    /// What was kept of `part`, if it is a `T`.
    pub fn get<T: DeserializeOwned>(&self, part: &str) -> Option<T> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::from_value(done.get(part)?.clone()).ok()
    }

    /// Keeps `done` as what came of `part`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep<T: Serialize>(&self, part: &str, done: &T) -> Result<()> {
        let value = serde_json::to_value(done).context("what is done as JSON")?;
        let mut all = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = all.is_empty();
        all.insert(part.into(), value.clone());
        let Some(path) = &self.path else { return Ok(()) };
        let mut text = String::new();
        if is_first {
            text += &line(&Head { parameters: self.parameters.clone() })?;
        }
        text += &line(&Line { part: part.into(), done: value })?;
        let open = OpenOptions::new()
            .create(true)
            .append(!is_first)
            .write(true)
            .truncate(is_first)
            .open(path);
        let written = open.and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("write({})", path.display()))
    }

    /// That something is kept, and how to go on, in a sentence; `None` if nothing is.
    pub fn sentence(&self) -> Option<String> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path.as_ref().filter(|_| !done.is_empty())?;
        let runs = match done.len() {
            1 => "one of its runs is".into(),
            some => format!("{some} of its runs are"),
        };
        let path = path.display();
        Some(format!("{runs} kept in {path}: the same command goes on from there"))
    }

    /// Forgets everything: the record is whole.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn remove(&self) -> Result<()> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.write_all()
    }

    fn write_all(&self) -> Result<()> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = &self.path else { return Ok(()) };
        if done.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("unlink({})", path.display()))
                }
                _ => Ok(()),
            };
        }
        let mut text = line(&Head { parameters: self.parameters.clone() })?;
        for (part, done) in done.iter() {
            text += &line(&Line { part: part.clone(), done: done.clone() })?;
        }
        fs::write(path, text).with_context(|| format!("write({})", path.display()))
    }
}

/// What the journal `text` holds, if it is one of the same `parameters`.
fn parse(text: &str, parameters: &Value) -> (Found, BTreeMap<String, Value>) {
    let mut lines = text.lines();
    let Some(first) = lines.next() else { return (Found::Nothing, BTreeMap::new()) };
    let head = serde_json::from_str::<Head>(first);
    if !head.is_ok_and(|head| head.parameters == *parameters) {
        return (Found::Other, BTreeMap::new());
    }
    let lines = lines.filter_map(|it| serde_json::from_str::<Line>(it).ok());
    let done: BTreeMap<String, Value> = lines.map(|it| (it.part, it.done)).collect();
    let found = if done.is_empty() { Found::Nothing } else { Found::Parts(done.len()) };
    (found, done)
}

fn line(of: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(of).context("the journal as JSON")? + "\n")
}

/// A number for the content of `files`, so that a program that was built anew is told from the old one.
/// The same content has the same number for as long as this program is built by the same compiler.
///
/// # Errors
/// If one cannot be read.
pub fn fingerprint<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    for path in files {
        hasher.write(&fs::read(path).with_context(|| format!("read({})", path.display()))?);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_done_is_there_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let open = |rates: [u32; 2], fresh| {
            Journal::open(folder.path(), "staircase", json!({ "rates": rates }), fresh).unwrap()
        };
        let first = open([10, 60], false);
        assert_eq!((first.found(), first.get::<u32>("ch01")), (Found::Nothing, None));
        first.keep("ch01", &155).unwrap();
        first.keep("ch02", &5_675).unwrap();
        let second = open([10, 60], false);
        assert_eq!((second.found(), second.get("ch02")), (Found::Parts(2), Some(5_675)));
        assert_eq!(second.get::<String>("ch02"), None, "of another kind is not there");
        second.keep("ch03", &6_601).unwrap();
        assert_eq!(open([10, 60], false).found(), Found::Parts(3));
        // Other conditions, or the wish to begin anew: what is there is let go.
        assert_eq!(open([10, 110], false).found(), Found::Other);
        assert_eq!(open([10, 60], false).found(), Found::Nothing);
        let third = open([10, 60], false);
        third.keep("ch01", &1).unwrap();
        assert_eq!(open([10, 60], true).found(), Found::Nothing);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the file is gone");
    }

    #[test]
    fn a_line_that_a_crash_has_cut_short_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Journal::open(folder.path(), "x", Value::Null, false).unwrap();
        open().keep("one", &1).unwrap();
        let path = folder.path().join("x.partial.jsonl");
        let cut = fs::read_to_string(&path).unwrap() + "{\"part\":\"two\",\"do";
        fs::write(&path, cut).unwrap();
        let journal = open();
        assert_eq!((journal.found(), journal.get("one")), (Found::Parts(1), Some(1)));
        journal.keep("two", &2).unwrap();
        assert_eq!(open().found(), Found::Parts(2));
        journal.remove().unwrap();
        assert!(!path.exists());
        journal.remove().unwrap();
    }

    #[test]
    fn another_program_has_another_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let (one, same, other) = (file("a", "1"), file("b", "1"), file("c", "2"));
        let of = |path: &PathBuf| fingerprint([path.as_path()]).unwrap();
        assert_eq!(of(&one), of(&same));
        assert_ne!(of(&one), of(&other));
        assert!(fingerprint([Path::new("/nowhere")]).is_err());
    }
}
