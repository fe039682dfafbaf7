//! Misconception: a client that says nothing costs nothing, so it may stay.
//!
//! It has a descriptor, and descriptors run out.

mod frame;
mod mine;
mod right;

use std::io::Read;
use std::process::ExitCode;

use frame::Session;

fn main() -> ExitCode {
    right::run(|mut client| {
        let mut session = Session::default();
        let mut bytes = [0; 4096];
        while !session.is_over() {
            let length = client.read(&mut bytes)?;
            session.feed(&bytes[..length]);
            right::send(client, &mut session)?;
        }
        right::hang_up(client)
    })
}
