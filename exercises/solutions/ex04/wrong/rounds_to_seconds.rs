//! Misconception: patience is a matter of seconds, so that whole seconds will do for what is left.
//!
//! What is left is soon less than a second, and that is zero whole ones. A receive timeout of zero
//! means that there is none: the client is now waited for without any end.
//!
//! Killed by: a_dripping_client_is_let_go (held for ever)
//! Hint: A client that drips is held for ever, not only for longer. Which value do you give to SO_RCVTIMEO when less than a second is left, and what does it mean there?

mod common;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use oddeven::{LINE_BYTES_MAX, Session};

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let accepted_at = Instant::now();
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() && !session.is_done() {
        let left = common::PATIENCE.saturating_sub(accepted_at.elapsed());
        let left = TimeVal::new(left.as_secs() as i64, 0);
        setsockopt(&client, sockopt::ReceiveTimeout, &left)?;
        let length = client.read(&mut bytes)?;
        session.feed(&bytes[..length]);
    }
    common::answer(client, session.unsent())
}
