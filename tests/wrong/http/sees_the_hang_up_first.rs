//! Misconception: a hang-up says that the connection is over, so it is looked at first.
//!
//! It says that the client will send no more. What it has sent is unread still, and it waits for the answer.
//!
//! Killed by: a_half_closed_client_is_answered (resets the connection)

mod common;

use std::os::fd::AsFd;
use std::process::ExitCode;

use common::{Client, Core, Ways};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    // nix has no name for it.
    let hang_up = PollFlags::from_bits_retain(nix::libc::POLLRDHUP);
    let mut look = [PollFd::new(client.socket.as_fd(), hang_up)];
    let has_hung_up = poll(&mut look, PollTimeout::ZERO) == Ok(1);
    !has_hung_up && common::turn(client, core)
}
