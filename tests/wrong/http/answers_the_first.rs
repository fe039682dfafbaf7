//! Misconception: what one `recv` returns is one request.
//!
//! A client that asks twice in one packet is answered once, and waits for ever: the second request has been
//! thrown away with the rest of the buffer.
//!
//! Killed by: pipelined_requests_are_answered_in_order (does not answer)

mod common;

use std::io::Read;
use std::process::ExitCode;

use common::{Client, Core, Ways};
use http::Wants;

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    if client.connection.wants() != Wants::Read {
        return common::turn(client, core);
    }
    let mut bytes = [0; 16384];
    let Ok(length) = client.socket.read(&mut bytes) else { return common::turn(client, core) };
    let read = &bytes[..length];
    let head = read.windows(4).position(|it| it == b"\r\n\r\n").map(|it| it + 4);
    // A head without a body ends the request.
    let is_get = read.starts_with(b"GET");
    let request = head.filter(|_| is_get).map_or(read, |end| &read[..end]);
    client.connection.feed(core, request, common::now_ms());
    common::turn(client, core)
}
