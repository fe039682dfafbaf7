//! The book's preprocessor: draws, states and checks from the records what the pages ask for.
//!
//! A page asks by a directive, such as `{{#number …}}`; the README beside this crate describes them.
//! The work is done on the pages as they were written, before mdBook includes anything, so that an
//! error names the line that its author sees. Simplified: what a page includes is not looked at.

pub mod claim;
pub mod condition;
pub mod diff;
pub mod directive;
pub mod expression;
pub mod fault;
pub mod figure;
pub mod html;
pub mod number;
pub mod record;
pub mod verdicts;

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};

use directive::Directive;
use fault::{Fault, Result, fault, listed};
use mdbook_preprocessor::PreprocessorContext;
use mdbook_preprocessor::book::Book;
use record::Records;

/// What directives look into.
pub struct Sources {
    /// The committed records.
    pub ours: Records,
    /// The reader's own, which may be none.
    pub yours: Records,
    /// The folder of the chapters.
    pub chapters: PathBuf,
    /// What is left out because of a record of the reader's, in sentences.
    pub notes: RefCell<Vec<String>>,
}

/// What is wrong on a page, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The page's file.
    pub page: String,
    /// The line where the directive begins.
    pub line: usize,
    /// The directive.
    pub name: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// A page as it is to be rendered, with what is wrong on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// In Markdown.
    pub text: String,
    /// One for each directive that could not be done.
    pub problems: Vec<Problem>,
}

/// The directives that mdBook knows itself.
const OF_MDBOOK: [&str; 5] = ["include", "rustdoc_include", "playground", "playpen", "title"];

const OURS: &str = "number, claim, figure, diff, verdicts";

/// Expands the directives on all pages of `book`.
///
/// # Errors
/// If any of them cannot be done: all that cannot, one below the other.
pub fn preprocess(context: &PreprocessorContext, mut book: Book) -> anyhow::Result<Book> {
    let sources = Sources::of(context)?;
    let folder = context.root.file_name().unwrap_or_default();
    let folder = Path::new(folder).join(&context.config.book.src);
    let mut problems = Vec::new();
    book.for_each_chapter_mut(|chapter| {
        let Some(path) = &chapter.source_path else { return };
        let page = expand(&chapter.content, &folder.join(path).display().to_string(), &sources);
        chapter.content = page.text;
        problems.extend(page.problems);
    });
    let mut notes = sources.notes.take();
    notes.sort();
    notes.dedup();
    for note in notes {
        eprintln!("mdbook-figures: {note}");
    }
    if problems.is_empty() {
        return Ok(book);
    }
    let count = problems.len();
    anyhow::bail!(
        "{count} to mend before the book can be built:\n{}",
        together(&problems).join("\n")
    );
}

/// The problems in sentences, of which each stands once: a missing record is missed by many directives.
fn together(problems: &[Problem]) -> Vec<String> {
    let mut groups: Vec<(&Problem, Vec<String>)> = Vec::new();
    for problem in problems {
        let is_same = |it: &&mut (&Problem, Vec<String>)| it.0.fault == problem.fault;
        match groups.iter_mut().find(is_same) {
            Some((_, others)) => others.push(format!("{}:{}", problem.page, problem.line)),
            None => groups.push((problem, Vec::new())),
        }
    }
    let sentence = |(first, mut others): (&Problem, Vec<String>)| -> String {
        others.dedup();
        if others.is_empty() {
            return first.to_string();
        }
        format!("{first}\n    the same at {}", listed(others.iter().map(String::as_str)))
    };
    groups.into_iter().map(sentence).collect()
}

/// Expands the directives of one page, which errors call `name`.
pub fn expand(text: &str, name: &str, sources: &Sources) -> Page {
    let mut page = Page { text: String::new(), problems: Vec::new() };
    let mut figures = 0;
    let mut at = 0;
    for found in directive::find(text) {
        let mut tell = |line, directive: &str, fault| {
            let (page_name, name) = (name.to_owned(), directive.to_owned());
            page.problems.push(Problem { page: page_name, line, name, fault });
        };
        let directive = match found {
            Ok(directive) => directive,
            Err(line) => {
                let what = "it is not closed".to_owned();
                let remedy = "write `}}` at its end, and close its quotes before".to_owned();
                tell(line, "a directive", Fault { what, remedy });
                continue;
            }
        };
        let Directive { range, line, name: kind, body } = &directive;
        if OF_MDBOOK.contains(kind) {
            continue;
        }
        let made = match *kind {
            "number" => number::render(body, sources),
            "claim" => claim::render(body, sources),
            "figure" => {
                figures += 1;
                let id = format!("{}-figure-{figures}", slug(name));
                figure::render(body, &id, sources)
            }
            "diff" => diff::render(body, &sources.chapters),
            "verdicts" => verdicts::render(body),
            _ => fault("there is no such directive", format!("there are {OURS}")),
        };
        match made.and_then(|it| placed(it, text, &directive)) {
            Ok(made) => {
                page.text += &text[at..range.start];
                page.text += &made;
                at = range.end;
            }
            Err(fault) => tell(*line, kind, fault),
        }
    }
    page.text += &text[at..];
    page
}

/// A block in its place: it has to stand alone, since Markdown gives another meaning to what is
/// indented or has text beside it.
fn placed(made: String, page: &str, directive: &Directive) -> Result<String> {
    if matches!(directive.name, "number" | "claim") {
        return Ok(made);
    }
    let before = page[..directive.range.start].chars().next_back();
    let after = page[directive.range.end..].lines().next().unwrap_or_default();
    if before.is_some_and(|it| it != '\n') || !after.trim().is_empty() {
        return fault(
            "it does not stand alone on its lines",
            "begin it at the first column of a line, and write nothing after it",
        );
    }
    Ok(format!("\n{}\n", made.trim_end()))
}

/// What ids of this page begin with.
fn slug(page: &str) -> String {
    let stem = Path::new(page).with_extension("");
    // The folders of the book and of its sources say nothing.
    let parts = stem.components().skip(2).map(|it| it.as_os_str().to_string_lossy().into_owned());
    let whole = parts.collect::<Vec<_>>().join("-");
    // An id that begins with a digit cannot be written in CSS.
    format!("p-{}", whole.replace(|it: char| !(it.is_alphanumeric() || it == '-'), "-"))
}

impl Sources {
    /// Keeps for the terminal that a record of the reader's is left out, and why.
    pub fn note(&self, why: &Fault) {
        self.notes.borrow_mut().push(format!("your own record is left out: {why}"));
    }

    /// What a book says in `[preprocessor.figures]`: `data` and `chapters`, from its folder.
    fn of(context: &PreprocessorContext) -> anyhow::Result<Sources> {
        let folder = |key: &str, default: &str| -> anyhow::Result<String> {
            let chosen = context.config.get(&format!("preprocessor.figures.{key}"))?;
            Ok(chosen.unwrap_or_else(|| default.to_owned()))
        };
        let data = folder("data", "data")?;
        let book = context.root.file_name().unwrap_or_default().to_string_lossy();
        let shown = format!("{book}/{data}");
        let path = context.root.join(&data);
        Ok(Sources {
            yours: Records::new(path.join("local"), format!("{shown}/local")),
            ours: Records::new(path, shown),
            chapters: context.root.join(folder("chapters", "../chapters")?),
            notes: RefCell::default(),
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.page, self.line, self.name, self.fault)
    }
}
