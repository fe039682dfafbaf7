//! The instructor's commands: `cargo course grade` and `cargo course new-term`.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::{CAP, LIMIT, Options, grade, prepare};
use crate::home::Home;
use crate::new_term;
use crate::say::line;

/// `cargo course grade`.
#[derive(Debug, clap::Args)]
pub struct Grade {
    /// The folder that was handed in: the one with `src`
    #[arg(required_unless_present = "prepare")]
    submission: Option<PathBuf>,
    /// Whose variant: TERM/STUDENT, as 2027S/alice
    #[arg(long, required_unless_present = "prepare")]
    seed: Option<String>,
    /// Where the results are written
    #[arg(long, value_name = "FILE", default_value = "results.json")]
    out: PathBuf,
    /// Only what is due by this milestone, 1 to 4
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=4))]
    milestone: u8,
    /// Only these scenarios; the student's own test is called `tests by the student`
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// How many seconds a scenario may take
    #[arg(long, value_name = "SECONDS", default_value_t = CAP.as_secs())]
    cap: u64,
    /// How many seconds all of it may take, builds included; then it says what it waited for
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT.as_secs())]
    limit: u64,
    /// Build what every submission needs, and grade nothing
    #[arg(long)]
    prepare: bool,
}

/// `cargo course new-term`.
#[derive(Debug, clap::Args)]
pub struct NewTerm {
    /// The term, as 2027S: what every student's seed begins with
    #[arg(long)]
    seed: String,
    /// A new folder for the template repository
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A new folder for what a Gradescope assignment is made of; it needs the network once
    #[arg(long, value_name = "DIR")]
    gradescope: Option<PathBuf>,
}

impl Grade {
    /// Does it.
    ///
    /// # Errors
    ///
    /// When the grader itself fails.
    pub fn run(self, home: &Home) -> anyhow::Result<()> {
        if self.prepare {
            return prepare(home);
        }
        let submission = self.submission.context("no submission")?;
        let here = env::current_dir().context("the current folder")?;
        let options = Options {
            submission: submission
                .canonicalize()
                .with_context(|| submission.display().to_string())?,
            seed: self.seed.context("no seed")?,
            out: here.join(self.out),
            only: self.only,
            cap: Duration::from_secs(self.cap.clamp(1, 60)),
            limit: Duration::from_secs(self.limit.max(1)),
            milestone: self.milestone,
        };
        ensure!(
            options.seed.split_once('/').is_some_and(|it| !it.0.is_empty() && !it.1.is_empty()),
            "{:?}: a seed is TERM/STUDENT, as 2027S/alice",
            options.seed
        );
        let (score, most) = grade(home, &options)?;
        line(format_args!("{score} of {most} points: {}", options.out.display()));
        Ok(())
    }
}

impl NewTerm {
    /// Does it.
    ///
    /// # Errors
    ///
    /// Those of [`new_term::export`] and [`new_term::export_gradescope`].
    pub fn run(&self, home: &Home) -> anyhow::Result<()> {
        new_term::export(home, &self.seed, &self.out)?;
        match &self.gradescope {
            Some(folder) => new_term::export_gradescope(home, &self.seed, folder),
            None => Ok(()),
        }
    }
}
