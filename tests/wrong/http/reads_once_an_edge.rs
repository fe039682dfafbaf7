//! Misconception: an event of a client is one `recv`.
//!
//! Edge-triggered, it says that bytes came, once. What does not fit the buffer stays in the socket, and
//! there is no other event for it until the client sends again, which it has no reason to.
//!
//! Killed by: pipelined_requests_are_answered_in_order (does not answer)

mod common;

use std::process::ExitCode;

use common::{Client, Core, Ways};
use http::Wants;
use nix::sys::epoll::EpollFlags;

fn main() -> ExitCode {
    let interest = |_: &Client| {
        EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET
    };
    common::run(|listener, config| {
        common::serve(listener, config, Ways { turn, interest, ..Ways::RIGHT })
    })
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    let goes_on = common::step(client, core).is_ok_and(|it| it);
    if !goes_on || client.connection.wants() == Wants::Read {
        return client.connection.wants() != Wants::Close;
    }
    // There is an answer: it is sent.
    while client.connection.wants() == Wants::Write {
        if common::write(client, core).is_err() {
            return true;
        }
    }
    client.connection.wants() == Wants::Read || common::turn(client, core)
}
