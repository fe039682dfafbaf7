//! Misconception: a timeout for each read is a timeout for the request.
//!
//! Each byte renews it. Who sends one now and then holds its place for as long as it likes.
//!
//! Killed by: a_dripping_head_is_let_go (each byte renews the patience)

mod common;

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Client, Core, Ways, now_ms};
use http::Wants;

/// When each client was heard last, by its descriptor.
static HEARD_MS: Mutex<Option<HashMap<i32, u64>>> = Mutex::new(None);
static PATIENCE_MS: AtomicU32 = AtomicU32::new(0);

fn main() -> ExitCode {
    common::run(|listener, config| {
        PATIENCE_MS.store(config.limits.head_patience_ms, Ordering::Relaxed);
        // The core is not to have a deadline of its own.
        let mut patient = config;
        patient.limits.head_patience_ms = u32::MAX;
        common::serve(listener, patient, Ways { turn, deadline_ms, expire, ..Ways::RIGHT })
    })
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    let is_reading = client.connection.wants() == Wants::Read;
    if let (true, Ok(mut heard)) = (is_reading, HEARD_MS.lock()) {
        heard.get_or_insert_default().insert(client.socket.as_raw_fd(), now_ms());
    }
    common::turn(client, core)
}

fn deadline_ms(client: &Client) -> u64 {
    let heard =
        HEARD_MS.lock().ok().and_then(|it| it.as_ref()?.get(&client.socket.as_raw_fd()).copied());
    let patience = u64::from(PATIENCE_MS.load(Ordering::Relaxed));
    let of_core = client.connection.deadline_ms();
    heard.map_or(of_core, |it| of_core.min(it + patience))
}

fn expire(client: &mut Client, core: &mut Core) -> bool {
    client.connection.expire(core, now_ms());
    // Whatever the core thinks, nothing has come for so long.
    client.connection.wants() == Wants::Write
}
