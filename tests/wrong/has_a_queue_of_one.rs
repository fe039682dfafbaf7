//! Misconception: a server that accepts at once needs no queue.
//!
//! It accepts at once when it runs. For every moment in which it does not, the clients of that
//! moment have one place and one more; the kernel drops the others' first packet, and they try
//! again after a second.
//!
//! Killed by: a_burst_of_connects_is_queued (only backlog + 1 get in at once)

mod common;

use std::process::ExitCode;

fn main() -> ExitCode {
    common::run_on(
        |address| common::listen(address, 1, true),
        |listener| common::thread_each(&listener, common::converse),
    )
}
