//! Misconception: a server that stops may close a connection as soon as the answer on its way has gone.
//!
//! The answer has gone into the kernel's buffer. If the client has asked again meanwhile, that question is
//! unread, and a close over unread bytes is a reset: it takes with it what the client has not read yet.
//!
//! Killed by: a_stop_cuts_no_answer_short (resets the connection)

mod common;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Client, Core, Ways};
use http::Wants;

static IS_STOPPING: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let ways = Ways {
        turn,
        stop: |signals| {
            IS_STOPPING.store(true, Ordering::Relaxed);
            (Ways::RIGHT.stop)(signals)
        },
        ..Ways::RIGHT
    };
    common::run(|listener, config| common::serve(listener, config, ways))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    let was_sending = client.connection.wants() == Wants::Write;
    let stays = common::turn(client, core);
    let has_sent = was_sending && client.connection.wants() == Wants::Read;
    stays && !(has_sent && IS_STOPPING.load(Ordering::Relaxed))
}
