//! Misconception: a server that accepts at once needs no queue to speak of.
//!
//! While it does something else for a moment, the kernel drops whom the queue does not hold, and they come
//! again a second later.
//!
//! Killed by: a_burst_of_connects_is_queued (only backlog + 1 get in at once)

mod common;

use std::process::ExitCode;

use common::Ways;

fn main() -> ExitCode {
    common::run_on(
        |address| common::listen(address, 128, true),
        |listener, config| common::serve(listener, config, Ways::RIGHT),
    )
}
