//! Misconception: a socket is read until it says EAGAIN.
//!
//! Edge-triggered it has to be. Level-triggered it is one call more for each answer, to be told what the next
//! wait would have said.
//!
//! Killed by: few_system_calls_per_answer (several system calls per answer)

mod common;

use std::io;
use std::process::ExitCode;

use common::{Client, Core, Ways};
use http::Wants;

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    for _ in 0..8 {
        match common::step(client, core) {
            Ok(_) if client.connection.wants() == Wants::Close => return false,
            Ok(true) => {}
            Ok(false) => return true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}
