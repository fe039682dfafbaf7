//! Misconception: to be told of everything, one asks for everything.
//!
//! A socket can nearly always be written to, so a level-triggered wait for that never waits.
//!
//! Killed by: an_idle_server_burns_no_cpu (burns CPU time)

mod common;

use std::process::ExitCode;

use common::Ways;
use nix::sys::epoll::EpollFlags;

fn main() -> ExitCode {
    let interest = |_: &common::Client| EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
    common::run(|listener, config| {
        common::serve(listener, config, Ways { interest, ..Ways::RIGHT })
    })
}
