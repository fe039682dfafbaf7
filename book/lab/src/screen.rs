//! Progress: bars on a terminal, plain lines otherwise. All of it goes to stderr, results to stdout.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::{
    borrow::Cow,
    io::{self, IsTerminal},
    sync::Mutex,
    time::{Duration, Instant},
};

/// Without a terminal, something long says this often that it lives.
const LINE_EVERY: Duration = Duration::from_secs(10);

const PARTS: u64 = 1_000;

/// Where progress is shown.
pub struct Screen {
    bars: Option<MultiProgress>,
    is_quiet: bool,
}

/// One thing that goes on.
pub struct Bar {
    label: String,
    bar: Option<ProgressBar>,
    is_quiet: bool,
    said: Mutex<Instant>,
}

impl Screen {
    /// Bars if stderr is a terminal, plain lines if not.
    pub fn new() -> Screen {
        let bars = io::stderr().is_terminal().then(MultiProgress::new);
        Screen { bars, is_quiet: false }
    }

    /// Nothing at all.
    pub fn quiet() -> Screen {
        Screen { bars: None, is_quiet: true }
    }

    /// Whether there are bars.
    pub fn is_terminal(&self) -> bool {
        self.bars.is_some()
    }

    /// Says a line, above the bars if there are any.
    pub fn say(&self, line: &str) {
        match &self.bars {
            // A screen that cannot be written to is no reason to stop measuring.
            Some(bars) => drop(bars.println(line)),
            None if self.is_quiet => {}
            None => eprintln!("{line}"),
        }
    }

    /// Begins something whose share done is known.
    pub fn bar(&self, label: impl Into<String>) -> Bar {
        self.begin(label.into(), ProgressBar::new(PARTS), "  {prefix:<18} {bar:30} {wide_msg}")
    }

    /// Begins something of which only the next word is known.
    pub fn spinner(&self, label: impl Into<String>) -> Bar {
        let bar =
            self.begin(label.into(), ProgressBar::new_spinner(), "  {prefix} {spinner} {wide_msg}");
        if let Some(bar) = &bar.bar {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        bar
    }

    fn begin(&self, label: String, bar: ProgressBar, template: &str) -> Bar {
        let bar = self.bars.as_ref().map(|bars| {
            let style = ProgressStyle::with_template(template).expect("the template is a constant");
            let bar = bars.add(bar.with_prefix(Cow::Owned(label.clone())));
            bar.set_style(style.progress_chars("━╸─"));
            bar
        });
        Bar { label, bar, is_quiet: self.is_quiet, said: Mutex::new(Instant::now()) }
    }
}

impl Default for Screen {
    fn default() -> Screen {
        Screen::new()
    }
}

impl Bar {
    /// Shows how far it is, 0 to 1, and a few words.
    pub fn at(&self, fraction: f64, words: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position((fraction * PARTS as f64) as u64);
                bar.set_message(words.to_owned());
            }
            None if self.is_quiet => {}
            None => {
                let Ok(mut said) = self.said.lock() else { return };
                if said.elapsed() >= LINE_EVERY {
                    *said = Instant::now();
                    eprintln!("  {}: {words}", self.label);
                }
            }
        }
    }

    /// Ends it, without a trace on a terminal: what it found is said by [`Screen::say`].
    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
