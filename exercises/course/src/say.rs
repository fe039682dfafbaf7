//! What is said, and how: paragraphs of one width, and a sentence while something takes long.

use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How wide a paragraph is.
const COLUMNS: usize = 98;

/// How long nothing is said of something that takes long.
const QUIET: Duration = Duration::from_secs(3);

/// How often it is said again.
const AGAIN: Duration = Duration::from_secs(10);

/// Prints a line on stdout. Nobody needs to be listening: a closed pipe is no reason to panic.
pub fn line(text: impl std::fmt::Display) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Breaks a paragraph into lines of one width, each after `indent`.
pub fn wrapped(paragraph: &str, indent: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if width == 0 {
            text += indent;
            width = indent.chars().count();
        } else if width + 1 + length > COLUMNS {
            text.push('\n');
            text += indent;
            width = indent.chars().count();
        } else {
            text.push(' ');
            width += 1;
        }
        text += word;
        width += length;
    }
    text
}

/// Does `work`, and says on stderr now and then what is waited for, and for how long at most.
pub fn while_waiting<T>(what: &str, at_most: Duration, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let start = Instant::now();
            let mut pause = QUIET;
            while is_done.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                let (so_far, at_most) = (start.elapsed().as_secs(), at_most.as_secs());
                let _ = writeln!(io::stderr(), "… {what}: {so_far} s so far, {at_most} s at most");
                pause = AGAIN;
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_have_one_width() {
        let text = wrapped(&"word ".repeat(60), "  ");
        assert!(text.lines().all(|it| it.starts_with("  word") && it.len() <= COLUMNS), "{text}");
        assert_eq!(text.split_whitespace().count(), 60);
    }
}
