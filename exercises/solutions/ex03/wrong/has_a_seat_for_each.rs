//! Misconception: one client is served at a time, so that places for more than one are no use.
//!
//! The queue is for those who are not served yet. With one place, two get in; of the others the kernel
//! drops the first packet, and they try again after a second, then later and later.
//!
//! Killed by: a_burst_of_connects_is_queued (only backlog + 1 get in at once)
//! Hint: Your queue is short. How many clients can come while one is served, and what does the kernel do with those who find no place?

mod common;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    common::run_on(
        |address| common::listen(address, 1, true),
        |listener| {
            common::one_by_one(&listener, |client| {
                common::converse_until(client, Instant::now() + common::PATIENCE)
            })
        },
    )
}
