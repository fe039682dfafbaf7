//! Misconception: a request is judged when it is complete.
//!
//! One that is too long already need not be waited for, and may never be complete.

mod common;
mod frame;
mod mine;

use std::process::ExitCode;

use frame::Session;

fn main() -> ExitCode {
    common::run(|client| {
        let mut session = Session::default();
        let mut bytes = [0; 4096];
        let mut deadline = common::deadline();
        while !session.is_over() {
            let length = common::read_before(deadline, client, &mut bytes)?;
            session.feed(&bytes[..length]);
            if session.unsent().windows(3).any(|it| it == b"ERR") && length > 16 {
                // Judged already; it waits for what the client may still say.
                while common::read_before(deadline, client, &mut bytes)? > 0 {}
            }
            if common::send(client, &mut session)? {
                deadline = common::deadline();
            }
        }
        common::hang_up(client)
    })
}
