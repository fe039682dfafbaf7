//! Misconception: the client closes when it has had enough.
//!
//! The protocol says when the server does.

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
        loop {
            let length = common::read_before(deadline, client, &mut bytes)?;
            session.feed(&bytes[..length]);
            let refused = session.unsent().windows(3).any(|it| it == b"ERR");
            if common::send(client, &mut session)? {
                deadline = common::deadline();
            }
            if length == 0 || refused {
                return common::hang_up(client);
            }
            if session.is_over() {
                session = Session::default();
            }
        }
    })
}
