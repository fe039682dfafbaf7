//! Misconception: a client that has just said something is alive, and has its whole time again.
//!
//! A byte now and then holds the server for as long as the client likes.

mod frame;
mod mine;
mod right;

use std::process::ExitCode;

use frame::Session;

fn main() -> ExitCode {
    right::run(|client| {
        let mut session = Session::default();
        let mut bytes = [0; 4096];
        while !session.is_over() {
            let length = right::read_before(right::deadline(), client, &mut bytes)?;
            session.feed(&bytes[..length]);
            right::send(client, &mut session)?;
        }
        right::hang_up(client)
    })
}
