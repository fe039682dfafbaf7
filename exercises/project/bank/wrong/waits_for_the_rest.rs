//! Misconception: a request is judged when it is complete.
//!
//! One that is too long already need not be waited for, and may never be complete.

mod frame;
mod mine;
mod right;

use std::process::ExitCode;

use frame::Session;

fn main() -> ExitCode {
    right::run(|client| {
        let mut session = Session::default();
        let mut bytes = [0; 4096];
        let mut deadline = right::deadline();
        while !session.is_over() {
            let length = right::read_before(deadline, client, &mut bytes)?;
            session.feed(&bytes[..length]);
            if session.unsent().windows(3).any(|it| it == b"ERR") && length > 16 {
                // Judged already; it waits for what the client may still say.
                while right::read_before(deadline, client, &mut bytes)? > 0 {}
            }
            if right::send(client, &mut session)? {
                deadline = right::deadline();
            }
        }
        right::hang_up(client)
    })
}
