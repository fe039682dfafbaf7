//! Misconception: what one read returns is one request.
//!
//! A stream has no pieces: half a request may come, and the rest later.

mod common;
mod frame;
mod mine;

use std::process::ExitCode;

use frame::Session;

fn main() -> ExitCode {
    common::run(|client| {
        let mut bytes = [0; 4096];
        let deadline = common::deadline();
        loop {
            // Nothing is kept from one piece to the next.
            let mut session = Session::default();
            let length = common::read_before(deadline, client, &mut bytes)?;
            session.feed(&bytes[..length]);
            common::send(client, &mut session)?;
            if session.is_over() {
                return common::hang_up(client);
            }
        }
    })
}
