//! Misconception: HEAD is GET, and the client takes what it wants.
//!
//! It takes the body for the next answer.
//!
//! Killed by: answers_get_parity_and_404 (answers wrongly)

mod common;

use std::io::Read;
use std::process::ExitCode;

use common::{Client, Core, Ways, now_ms};
use http::Wants;

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    let mut bytes = [0; 16384];
    if client.connection.wants() == Wants::Read
        && let Ok(length) = client.socket.read(&mut bytes)
    {
        let read = &bytes[..length];
        let get = read.strip_prefix(b"HEAD").map(|rest| [b"GET", rest].concat());
        client.connection.feed(core, get.as_deref().unwrap_or(read), now_ms());
    }
    common::turn(client, core)
}
