//! Misconception: an answer is a buffer, and the socket takes it when it can.
//!
//! Whoever asks for much and does not read has the server keep all of it.
//!
//! Killed by: a_slow_reader_costs_only_itself (its memory grows)

mod common;

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Mutex;

use common::{Client, Core, Ways, now_ms};
use http::Wants;
use nix::sys::epoll::EpollFlags;

/// What is still to be sent to each client, by its descriptor.
static KEPT: Mutex<Option<HashMap<i32, Vec<u8>>>> = Mutex::new(None);

fn main() -> ExitCode {
    let interest = |client: &Client| match is_kept(client) {
        true => EpollFlags::EPOLLOUT,
        false => common::interest(client),
    };
    common::run(|listener, config| {
        common::serve(listener, config, Ways { turn, interest, ..Ways::RIGHT })
    })
}

fn is_kept(client: &Client) -> bool {
    let kept = KEPT.lock().ok();
    kept.is_some_and(|it| it.as_ref().is_some_and(|it| it.contains_key(&client.socket.as_raw_fd())))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    if client.connection.wants() == Wants::Read && !is_kept(client) {
        let _ = common::read(client, core);
    }
    let mut answer = Vec::new();
    while client.connection.wants() == Wants::Write {
        let unsent = client.connection.unsent();
        answer.extend_from_slice(unsent.first);
        answer.extend_from_slice(unsent.second);
        let length = unsent.len();
        client.connection.sent(core, length, now_ms());
    }
    let Ok(mut kept) = KEPT.lock() else { return false };
    let kept = kept.get_or_insert_default();
    let number = client.socket.as_raw_fd();
    let mut unsent = kept.remove(&number).unwrap_or_default();
    unsent.append(&mut answer);
    while !unsent.is_empty() {
        match client.socket.write(&unsent) {
            Ok(length) => drop(unsent.drain(..length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                kept.insert(number, unsent);
                return true;
            }
            Err(_) => return false,
        }
    }
    common::turn(client, core)
}
