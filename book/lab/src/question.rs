//! The question before the race. A guess makes the result worth reading, right or wrong.

use crate::servers::short;
use contract::verdicts::Column;
use std::io::{self, BufRead, IsTerminal, Write};

/// Asks which server fails first, if somebody sits at a terminal. `None` if not, or after Enter alone.
pub fn ask(servers: &[Column]) -> Option<String> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    ask_of(servers, &mut io::stdin().lock(), &mut io::stderr())
}

fn ask_of(servers: &[Column], input: &mut impl BufRead, output: &mut impl Write) -> Option<String> {
    let mut text = String::from("Some clients connect, say nothing or half a line, and stop.\n");
    for server in servers {
        text += &format!("  {:<4} {}\n", short(server.name), server.about);
    }
    text += "Which server fails first, and why? (Enter skips)\n> ";
    // Without an answer the race goes on all the same.
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    let guess = line.trim();
    (!guess.is_empty()).then(|| guess.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::verdicts::CHAPTERS;

    #[test]
    fn enter_skips_and_a_guess_is_kept() {
        let guess = |typed: &str| {
            let mut shown = Vec::new();
            let guess = ask_of(&CHAPTERS, &mut typed.as_bytes(), &mut shown);
            assert!(
                String::from_utf8(shown).unwrap().contains("Which server fails first, and why?")
            );
            guess
        };
        assert_eq!(guess("\n"), None);
        assert_eq!(guess(""), None);
        assert_eq!(guess(" 02: its patience \n").as_deref(), Some("02: its patience"));
    }
}
