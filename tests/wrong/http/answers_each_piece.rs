//! Misconception: a request arrives as it was sent.
//!
//! The network cuts where it likes. What came first is forgotten here when the rest comes.
//!
//! Killed by: any_split_is_the_same_request (answers wrongly)

mod common;

use std::process::ExitCode;

use common::{Client, Core, Ways, now_ms};
use http::{Connection, Wants};

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    if client.connection.wants() == Wants::Read {
        // Whatever was here was another request.
        client.connection = Connection::new(core, now_ms());
    }
    common::turn(client, core)
}
