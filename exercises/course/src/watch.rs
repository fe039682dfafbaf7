//! `cargo course watch`: a check whenever the learner saves, and a few keys.
//!
//! Where the kernel tells of changes (inotify), it is asked; where it does not, as on many shared and
//! network folders, the file is looked at twice a second. Without a terminal there are no keys, and the
//! end of stdin is no reason to stop.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::termios::{self, LocalFlags, SetArg, SpecialCharacterIndices, Termios};
use notify::{Config, Event, PollWatcher, RecommendedWatcher, RecursiveMode, Watcher};

use crate::check;
use crate::exercise::Exercise;
use crate::hint;
use crate::home::Home;
use crate::progress;
use crate::say::line;
use crate::state::State;
use crate::verdict::Verdict;

/// An editor writes a file in several steps: this long after the last of them, it is checked.
const SETTLES: Duration = Duration::from_millis(200);

/// How often a folder is looked at that does not tell of changes.
const POLL: Duration = Duration::from_millis(500);

/// What Ctrl-C and Ctrl-D send.
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;

/// What happens.
enum Happens {
    /// A key was pressed.
    Key(u8),
    /// Something was saved, perhaps.
    Saved,
}

/// How to watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The file is looked at, whether or not the kernel would tell.
    pub poll: bool,
    /// After so many checks it ends.
    pub checks: Option<u32>,
}

/// Checks an exercise whenever it is saved, until the learner has had enough.
///
/// # Errors
///
/// When the folder cannot be watched, or a check cannot be made.
pub fn watch(home: &Home, exercise: Exercise, options: Options) -> anyhow::Result<()> {
    let (say, happens) = mpsc::channel();
    let terminal = Terminal::without_lines(&say)?;
    let mut session = Session {
        home,
        exercise,
        last: Vec::new(),
        say,
        poll: options.poll,
        has_keys: terminal.is_some(),
        checks_left: options.checks,
    };
    let mut watcher = session.watcher()?;
    session.check()?;
    while session.checks_left != Some(0) {
        // The one wait without a bound: for the learner.
        match happens.recv().context("the watcher has ended")? {
            Happens::Saved if session.has_settled(&happens)? => session.check()?,
            Happens::Saved => {}
            Happens::Key(b'n') => {
                session.next()?;
                watcher = session.watcher()?;
                session.check()?;
            }
            Happens::Key(b'q' | CTRL_D) => break,
            Happens::Key(key) => {
                if let Err(error) = session.key(key) {
                    line(format_args!("{error:#}"));
                }
            }
        }
    }
    drop(watcher);
    line("Next: cargo course progress");
    Ok(())
}

struct Session<'a> {
    home: &'a Home,
    exercise: Exercise,
    /// What the file was when it was checked last.
    last: Vec<u8>,
    say: Sender<Happens>,
    poll: bool,
    has_keys: bool,
    checks_left: Option<u32>,
}

impl Session<'_> {
    /// A watcher of the folder with the learner's file: an editor may put a new file in its place, so that
    /// the file itself is not enough.
    fn watcher(&self) -> anyhow::Result<Box<dyn Watcher>> {
        let folder = self.exercise.folder.join("src");
        if !self.poll {
            match self.started::<RecommendedWatcher>(&folder, Config::default()) {
                Ok(watcher) => return Ok(watcher),
                Err(error) => line(format_args!(
                    "The kernel does not tell of changes here ({error}): the file is looked at twice a second."
                )),
            }
        }
        let config = Config::default().with_poll_interval(POLL).with_compare_contents(true);
        let started = self.started::<PollWatcher>(&folder, config);
        started.with_context(|| format!("cannot watch {}", self.home.shown(&folder)))
    }

    fn started<W: Watcher + 'static>(
        &self,
        folder: &Path,
        config: Config,
    ) -> notify::Result<Box<dyn Watcher>> {
        let say = self.say.clone();
        let told = move |event: notify::Result<Event>| {
            // Who reads a file (we do, and cargo) has not saved it.
            if !event.is_ok_and(|it| it.kind.is_access()) {
                let _ = say.send(Happens::Saved);
            }
        };
        let mut watcher = W::new(told, config)?;
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(Box::new(watcher))
    }

    /// Waits until nothing has been saved for a moment: whether there is something else to check now.
    fn has_settled(&self, happens: &Receiver<Happens>) -> anyhow::Result<bool> {
        let start = Instant::now();
        loop {
            match happens.recv_timeout(SETTLES) {
                // Something that is written all the time is checked all the same.
                Ok(Happens::Saved) if start.elapsed() < 10 * SETTLES => {}
                Ok(Happens::Key(key)) => {
                    let _ = self.say.send(Happens::Key(key));
                    break;
                }
                Ok(Happens::Saved) | Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(self.now() != self.last)
    }

    fn now(&self) -> Vec<u8> {
        fs::read(self.exercise.main()).unwrap_or_default()
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.last = self.now();
        line("\n----------------------------------------");
        // What cannot be checked now (a file that was moved away) may be checked after the next save.
        match check::check(self.home, &self.exercise) {
            Ok(checked) if checked.verdict == Verdict::Pass && self.has_keys => {
                line("n goes on to the next one.");
            }
            Ok(_) => {}
            Err(error) => line(format_args!("{error:#}")),
        }
        if let Some(left) = &mut self.checks_left {
            *left = left.saturating_sub(1);
        }
        self.legend();
        Ok(())
    }

    fn legend(&self) {
        let what = self.home.shown(&self.exercise.main());
        if self.has_keys {
            line(format_args!(
                "\nWatching {what}. n next, h hint, l list, d diff, r run again, x reset, q quit"
            ));
        } else {
            line(format_args!("\nWatching {what}. stdin is no terminal: no keys, Ctrl-C ends it"));
        }
    }

    /// Goes on to the next exercise that has not passed, or stays where all have.
    fn next(&mut self) -> anyhow::Result<()> {
        let state = State::read(self.home)?;
        match check::after(self.home, &self.exercise.id, &state)? {
            Some(next) => {
                progress::start(self.home, &next)?;
                self.exercise = next;
                Ok(())
            }
            None => {
                line("All the others have passed.");
                Ok(())
            }
        }
    }

    fn key(&mut self, key: u8) -> anyhow::Result<()> {
        match key {
            b'h' => hint::hint(self.home, &self.exercise, false)?,
            b'l' => progress::progress(self.home)?,
            b'd' => crate::attempt::diff(self.home, &self.exercise)?,
            b'r' => return self.check(),
            b'x' => {
                crate::attempt::reset(self.home, &self.exercise)?;
                return self.check();
            }
            b'\n' | b'\r' => {}
            _ => line("There is no such key."),
        }
        self.legend();
        Ok(())
    }
}

/// A terminal that hands over each key as it is pressed; as it was before, when dropped.
struct Terminal {
    before: Termios,
}

impl Terminal {
    /// Hands each key of stdin to `say`. `None` where stdin is no terminal.
    fn without_lines(say: &Sender<Happens>) -> anyhow::Result<Option<Terminal>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let before = termios::tcgetattr(io::stdin()).context("tcgetattr")?;
        let mut raw = before.clone();
        // Ctrl-C is a key, too: a signal would end us before the terminal is as it was.
        raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
        raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        termios::tcsetattr(io::stdin(), SetArg::TCSANOW, &raw).context("tcsetattr")?;
        let (say, again) = (say.clone(), Terminal { before: before.clone() });
        thread::spawn(move || {
            let mut key = [0; 1];
            while let Ok(1..) = io::stdin().lock().read(&mut key) {
                if key[0] == CTRL_C {
                    // At once, also in the middle of a check: what it has started ends with us.
                    drop(again);
                    std::process::exit(130);
                }
                if say.send(Happens::Key(key[0])).is_err() {
                    return;
                }
            }
        });
        Ok(Some(Terminal { before }))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}
