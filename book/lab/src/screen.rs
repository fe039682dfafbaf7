//! Progress: bars on a terminal, plain lines otherwise. All of it goes to stderr, results to stdout.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::{
    io::{self, IsTerminal},
    sync::Mutex,
    time::{Duration, Instant},
};

/// Without a terminal, something long says this often that it lives.
const LINE_EVERY: Duration = Duration::from_secs(10);

const PARTS: u64 = 1_000;

/// Where progress is shown.
pub enum Screen {
    /// A terminal.
    Bars(MultiProgress),
    /// A file, or whatever else keeps what is written.
    Lines,
    /// Nowhere.
    Quiet,
}

/// One thing that goes on.
pub struct Bar {
    label: String,
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    /// When the last line was said.
    Lines(Mutex<Instant>),
    Nothing,
}

impl Screen {
    /// Bars if stderr is a terminal, plain lines if not.
    pub fn of_stderr() -> Screen {
        if io::stderr().is_terminal() { Screen::Bars(MultiProgress::new()) } else { Screen::Lines }
    }

    /// Says a line, above the bars if there are any.
    pub fn say(&self, line: &str) {
        match self {
            Screen::Bars(bars) => bars.suspend(|| eprintln!("{line}")),
            Screen::Lines => eprintln!("{line}"),
            Screen::Quiet => {}
        }
    }

    /// Begins something whose share done is known.
    pub fn bar(&self, label: &str) -> Bar {
        self.begin(label, ProgressBar::new(PARTS), "  {prefix:<18} {bar:30} {wide_msg}")
    }

    /// Begins something of which only the next word is known.
    pub fn spinner(&self, label: &str) -> Bar {
        let bar = self.begin(label, ProgressBar::new_spinner(), "  {prefix} {spinner} {wide_msg}");
        if let Shown::Bar(bar) = &bar.shown {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        bar
    }

    fn begin(&self, label: &str, bar: ProgressBar, template: &str) -> Bar {
        let shown = match self {
            Screen::Bars(bars) => {
                let style =
                    ProgressStyle::with_template(template).expect("the template is a constant");
                let bar = bars.add(bar.with_prefix(label.to_owned()));
                bar.set_style(style.progress_chars("━╸─"));
                Shown::Bar(bar)
            }
            Screen::Lines => Shown::Lines(Mutex::new(Instant::now())),
            Screen::Quiet => Shown::Nothing,
        };
        Bar { label: label.into(), shown }
    }
}

impl Bar {
    /// Shows how far it is, 0 to 1, and a few words.
    pub fn at(&self, fraction: f64, words: &str) {
        match &self.shown {
            Shown::Bar(bar) => {
                bar.set_position((fraction * PARTS as f64) as u64);
                bar.set_message(words.to_owned());
            }
            Shown::Lines(said) => {
                let Ok(mut said) = said.lock() else { return };
                if said.elapsed() >= LINE_EVERY {
                    *said = Instant::now();
                    eprintln!("  {}: {words}", self.label);
                }
            }
            Shown::Nothing => {}
        }
    }

    /// Ends it, without a trace on a terminal: what it found is said by [`Screen::say`].
    pub fn end(self) {
        if let Shown::Bar(bar) = self.shown {
            bar.finish_and_clear();
        }
    }
}
