//! Misconception: a client asks again only when it has had its answer.
//!
//! It may send the next request before that, and one read returns both.

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
            // Byte by byte to the first answer; the rest of the piece is lost.
            let answered = session.answered();
            for byte in &bytes[..length] {
                session.feed(std::slice::from_ref(byte));
                if session.answered() > answered || session.is_over() {
                    break;
                }
            }
            if length == 0 {
                session.feed(b"");
            }
            if right::send(client, &mut session)? {
                deadline = right::deadline();
            }
        }
        right::hang_up(client)
    })
}
