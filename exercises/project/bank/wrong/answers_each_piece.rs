//! Misconception: what one read returns is one request.
//!
//! A stream has no pieces: half a request may come, and the rest later.

mod frame;
mod mine;
mod right;

use std::process::ExitCode;

use frame::Session;

fn main() -> ExitCode {
    right::run(|client| {
        let mut bytes = [0; 4096];
        let deadline = right::deadline();
        loop {
            // Nothing is kept from one piece to the next.
            let mut session = Session::default();
            let length = right::read_before(deadline, client, &mut bytes)?;
            session.feed(&bytes[..length]);
            right::send(client, &mut session)?;
            if session.is_over() {
                return right::hang_up(client);
            }
        }
    })
}
