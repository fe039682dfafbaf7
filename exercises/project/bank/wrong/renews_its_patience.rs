//! Misconception: a client that has just said something is alive, and has its whole time again.
//!
//! A byte now and then holds the server for as long as the client likes.

mod common;
mod frame;
mod mine;

use std::process::ExitCode;

use frame::Session;

fn main() -> ExitCode {
    common::run(|client| {
        let mut session = Session::default();
        let mut bytes = [0; 4096];
        while !session.is_over() {
            let length = common::read_before(common::deadline(), client, &mut bytes)?;
            session.feed(&bytes[..length]);
            common::send(client, &mut session)?;
        }
        common::hang_up(client)
    })
}
