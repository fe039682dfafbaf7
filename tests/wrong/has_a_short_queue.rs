//! Misconception: a server that accepts at once needs no queue to speak of.
//!
//! It accepts at once when it runs. For every moment in which it does not, the clients of that
//! moment need a place each; the kernel drops the first packet of those who find none, and they
//! try again after a second. Textbooks write 5 here; 64 makes it seem well thought of.
//!
//! Killed by: a_burst_of_connects_is_queued (only backlog + 1 get in at once)

mod common;

use std::process::ExitCode;

const BACKLOG: i32 = 64;

fn main() -> ExitCode {
    common::run_on(
        |address| common::listen(address, BACKLOG, true),
        |listener| common::thread_each(&listener, common::converse),
    )
}
