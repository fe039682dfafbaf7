//! Misconception: the rest of a head is only a moment away.
//!
//! Epoll says that somebody has begun, and then this server reads until the head is whole. Whoever stops in
//! the middle stops everybody, for as long as the patience with it lasts.
//!
//! Killed by: half_a_head_stalls_nobody (others wait for its 2 s of patience)

mod common;

use std::os::fd::AsFd;
use std::process::ExitCode;

use common::{Client, Core, Ways, now_ms};
use http::Wants;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    while common::turn(client, core) {
        if client.connection.wants() != Wants::Read || client.connection.kept_bytes() == 0 {
            return true;
        }
        let left = client.connection.deadline_ms().saturating_sub(now_ms());
        let mut wait = [PollFd::new(client.socket.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut wait, PollTimeout::from(u16::try_from(left).unwrap_or(u16::MAX)));
        client.connection.expire(core, now_ms());
    }
    false
}
