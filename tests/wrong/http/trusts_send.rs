//! Misconception: `send` sends what it is given.
//!
//! It sends what the socket has room for, and says how much that was.
//!
//! Killed by: a_large_answer_survives_a_slow_reader (does not answer)

mod common;

use std::io::Write;
use std::process::ExitCode;

use common::{Client, Core, Ways, now_ms};
use http::Wants;

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    if client.connection.wants() == Wants::Read && common::read(client, core).is_err() {
        return common::turn(client, core);
    }
    while client.connection.wants() == Wants::Write {
        let unsent = client.connection.unsent();
        let _ = client.socket.write(&[unsent.first, unsent.second].concat());
        let length = unsent.len();
        client.connection.sent(core, length, now_ms());
    }
    common::turn(client, core)
}
