//! The end of a grading that does not end: whatever it waits for, after its limit it says so, and exits.
//!
//! Everything that a grading waits for has a bound of its own. This one is for what nobody has thought of:
//! a folder on a network that does not answer, a fault of ours. What was earned until then is in the
//! file of results, and what was started ends with the grader.

use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use contract::microscope;
use nix::sys::prctl;

/// The exit status of a grading whose limit is over: that of `timeout(1)`.
const OVER: i32 = 124;

/// Lives as long as the grading.
pub struct Watchdog {
    say: Sender<String>,
}

impl Watchdog {
    /// From now on, `limit` is left.
    pub fn start(limit: Duration) -> Watchdog {
        let (say, heard) = mpsc::channel();
        thread::spawn(move || {
            let deadline = Instant::now() + limit;
            let mut at = String::from("its own beginning");
            loop {
                match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(what) => at = what,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => break,
                }
            }
            // Without root a process that may not be looked into may not look at itself either. What is graded
            // could now do so too, and gains nothing: the results are written, and nothing follows.
            let _ = prctl::set_dumpable(true);
            say_within(move || {
                let doing = microscope::doing_all(process::id());
                eprintln!(
                    "course: grading did not end in {limit:?} (--limit). It waited for {at}. The results \
                     are those of what it had come to. At this moment: {doing}"
                );
            });
            process::exit(OVER);
        });
        Watchdog { say }
    }

    /// What is waited for from now on.
    pub fn at(&self, what: &str) {
        let _ = self.say.send(what.to_owned());
    }
}

/// Lets a thread say something, which has a moment for it: whoever should read stderr may be what hangs.
fn say_within(say: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel::<()>();
    thread::spawn(move || {
        say();
        drop(done);
    });
    let _ = is_done.recv_timeout(Duration::from_secs(5));
}
