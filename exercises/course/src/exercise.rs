//! One exercise: what its `exercise.toml` says, and where its files are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::home::Home;
use crate::verdict::Verdict;

/// What the learner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Mends a server that works and is wrong.
    Mend,
    /// Fills a hole in a server.
    Hole,
    /// Writes the test that tells a wrong server from a right one.
    Test,
}

/// A question that a program is asked, and what it has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// A promise of the table; for an exercise of kind test, the server that the test meets.
    pub name: String,
    /// What the starter says, in words.
    pub starter: String,
    /// What the solution says, in words.
    pub solution: String,
}

impl Ask {
    /// Whether it is what the learner has to change.
    pub fn is_target(&self) -> bool {
        self.starter != self.solution
    }
}

/// An exercise.
#[derive(Clone, Debug)]
pub struct Exercise {
    /// `ex03`: stable, the learner's progress is kept by it.
    pub id: String,
    /// As in its README.
    pub title: String,
    /// The chapter, as `ch02`.
    pub chapter: String,
    /// For a learner who has read the chapter.
    pub minutes: u32,
    /// What the learner does.
    pub kind: Kind,
    /// What the untouched starter gets.
    pub verdict: Verdict,
    /// What the machine must have: `io_uring`.
    pub needs: Vec<String>,
    /// What may be edited, from the folder.
    pub edit: Vec<String>,
    /// The questions, in the order of the file.
    pub asks: Vec<Ask>,
    /// Where it is.
    pub folder: PathBuf,
    /// Where its solution is.
    pub solutions: PathBuf,
}

/// A wrong server, or a wrong test, of an exercise.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The file's name without its ending.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// What its author believes.
    pub misconception: String,
    /// What is said to a learner whose program fails as it does.
    pub hint: String,
    /// What must fail, and how, in words.
    pub killed_by: (String, String),
    /// What fails besides.
    pub breaks_too: Vec<(String, String)>,
    /// Whether the machine decides what fails besides.
    pub timing_decides: bool,
}

/// The line by which a wrong server says that only the row that it names can be held.
const TIMING_DECIDES: &str = "//! In other rows, timing decides whether it is seen.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    id: String,
    title: String,
    chapter: String,
    minutes: u32,
    kind: Kind,
    verdict: String,
    needs: Vec<String>,
    edit: Vec<String>,
    #[serde(default)]
    rows: toml::Table,
    #[serde(default)]
    servers: toml::Table,
}

impl Exercise {
    /// The exercise in `folder`.
    ///
    /// # Errors
    ///
    /// A sentence that names the file, when its `exercise.toml` cannot be read or does not say what it has to.
    pub fn read(home: &Home, folder: &Path) -> anyhow::Result<Exercise> {
        let path = folder.join("exercise.toml");
        let text = fs::read_to_string(&path).with_context(|| home.shown(&path))?;
        Exercise::parse(home, folder, &text).with_context(|| home.shown(&path))
    }

    fn parse(home: &Home, folder: &Path, text: &str) -> anyhow::Result<Exercise> {
        let file: File = toml::from_str(text)?;
        let asks = match file.kind {
            Kind::Test => servers(text)?,
            Kind::Mend | Kind::Hole => {
                ensure!(file.servers.is_empty(), "[servers] is for exercises of kind \"test\"");
                let asked = contract::exercise::asked(text).map_err(anyhow::Error::msg)?;
                // The order is the file's, which the table of the library does not keep.
                ensure!(asked.len() == file.rows.len(), "[rows] has to be the last table");
                let words = |it: contract::verdicts::Verdict| {
                    it.to_string().trim_start_matches("fails: ").to_owned()
                };
                let ask = |it: contract::exercise::Asked| Ask {
                    name: it.row.name.to_owned(),
                    starter: words(it.starter),
                    solution: words(it.solution),
                };
                asked.into_iter().map(ask).collect()
            }
        };
        ensure!(asks.iter().any(Ask::is_target), "starter and solution say the same everywhere");
        let verdict = Verdict::in_words(&file.verdict)
            .with_context(|| format!("verdict: {:?} is none", file.verdict))?;
        let known = ["io_uring"];
        if let Some(need) = file.needs.iter().find(|it| !known.contains(&it.as_str())) {
            bail!("needs: {need:?} is not known; known are {known:?}");
        }
        ensure!(!file.edit.is_empty(), "edit: it names no file");
        Ok(Exercise {
            solutions: home.path("exercises/solutions").join(&file.id),
            id: file.id,
            title: file.title,
            chapter: file.chapter,
            minutes: file.minutes,
            kind: file.kind,
            verdict,
            needs: file.needs,
            edit: file.edit,
            asks,
            folder: folder.to_owned(),
        })
    }

    /// The name of its folder, as `ex03-slug`.
    pub fn folder_name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The file that the learner edits.
    pub fn main(&self) -> PathBuf {
        self.folder.join("src/main.rs")
    }

    /// The pristine copy of it.
    pub fn starter(&self) -> PathBuf {
        self.solutions.join("starter.rs")
    }

    /// The solution.
    pub fn solution(&self) -> PathBuf {
        self.solutions.join("main.rs")
    }

    /// Whether the learner has not changed anything.
    pub fn is_untouched(&self) -> bool {
        fs::read(self.main()).ok() == fs::read(self.starter()).ok()
    }

    /// Its wrong servers, by name.
    ///
    /// # Errors
    ///
    /// A sentence that names the file, when a header does not say what it has to.
    pub fn wrong(&self) -> anyhow::Result<Vec<Wrong>> {
        let folder = self.solutions.join("wrong");
        let Ok(entries) = fs::read_dir(&folder) else { return Ok(Vec::new()) };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|it| it.path()).collect();
        paths.retain(|it| it.extension().is_some_and(|it| it == "rs"));
        paths.sort();
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path)?;
            wrong(path, &text, self)
        };
        let named = |it: &PathBuf| format!("{}/wrong/{}", self.id, file_name(it));
        paths.iter().map(|it| read(it).with_context(|| named(it))).collect()
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn servers(text: &str) -> anyhow::Result<Vec<Ask>> {
    let met = contract::exercise::met(text).map_err(anyhow::Error::msg)?;
    for word in ["passes", "fails"] {
        let some = met.iter().any(|it| it.solution == word);
        ensure!(some, "[servers]: a right test {word} none of them: name one of each sort");
    }
    let ask = |it: contract::exercise::Met| Ask {
        name: it.server,
        starter: it.starter,
        solution: it.solution,
    };
    Ok(met.into_iter().map(ask).collect())
}

fn wrong(path: &Path, text: &str, exercise: &Exercise) -> anyhow::Result<Wrong> {
    let header: Vec<&str> = text.lines().take_while(|it| it.starts_with("//!")).collect();
    let lines = |start: &str| -> Vec<&str> {
        header.iter().filter_map(|it| it.strip_prefix(start)).map(str::trim).collect()
    };
    let misconception = header.first().and_then(|it| it.strip_prefix("//! Misconception: "));
    let cell = |line: &str| -> anyhow::Result<(String, String)> {
        let (name, words) = line
            .strip_suffix(')')
            .and_then(|it| it.split_once(" ("))
            .with_context(|| format!("`{line}` is not `ROW (SYMPTOM)`"))?;
        let ask = exercise.asks.iter().find(|it| it.name == name);
        let ask = ask.with_context(|| format!("{} does not ask about {name}", exercise.id))?;
        ensure!(ask.solution != words, "the solution, too, is \"{words}\" in {name}");
        let is_known = match exercise.kind {
            Kind::Test => ["passes", "fails", "hangs"].contains(&words),
            _ => contract::verdicts::Verdict::in_words(words).is_some(),
        };
        ensure!(is_known, "\"{words}\" is nothing that can be found of {name}");
        Ok((name.into(), words.into()))
    };
    let killed_by = lines("//! Killed by:");
    let [killed_by] = killed_by[..] else {
        bail!("there is not one line `//! Killed by: ROW (SYMPTOM)`");
    };
    // A hint may go on, on the lines below it.
    let hint: Vec<&str> = header
        .iter()
        .skip_while(|it| !it.starts_with("//! Hint:"))
        .map(|it| it.trim_start_matches("//! Hint:").trim_start_matches("//!").trim())
        .take_while(|it| !it.is_empty())
        .collect();
    ensure!(!hint.is_empty(), "there is no line `//! Hint: …`");
    let breaks_too: Vec<_> =
        lines("//! Breaks too:").into_iter().map(cell).collect::<anyhow::Result<_>>()?;
    Ok(Wrong {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        path: path.to_owned(),
        misconception: misconception.context("line 1 is not `//! Misconception: …`")?.into(),
        hint: hint.join(" "),
        killed_by: cell(killed_by)?,
        breaks_too,
        timing_decides: header.contains(&TIMING_DECIDES),
    })
}
