//! Misconception: the time of a request begins with its first byte.
//!
//! So it does, and who never sends one has all the time in the world.
//!
//! Killed by: a_silent_client_is_let_go (held for ever)

mod common;

use std::process::ExitCode;

use common::{Client, Ways};
use http::Wants;

fn main() -> ExitCode {
    let deadline_ms = |client: &Client| match client.connection.wants() {
        Wants::Read if client.connection.kept_bytes() == 0 => u64::MAX,
        _ => client.connection.deadline_ms(),
    };
    common::run(|listener, config| {
        common::serve(listener, config, Ways { deadline_ms, ..Ways::RIGHT })
    })
}
