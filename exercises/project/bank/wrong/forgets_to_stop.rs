//! Misconception: the client closes when it has had enough.
//!
//! The protocol says when the server does.

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
        loop {
            let length = right::read_before(deadline, client, &mut bytes)?;
            session.feed(&bytes[..length]);
            let refused = session.unsent().windows(3).any(|it| it == b"ERR");
            if right::send(client, &mut session)? {
                deadline = right::deadline();
            }
            if length == 0 || refused {
                return right::hang_up(client);
            }
            if session.is_over() {
                session = Session::default();
            }
        }
    })
}
