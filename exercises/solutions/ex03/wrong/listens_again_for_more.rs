//! Misconception: each call of `listen` adds its places to the queue.
//!
//! A second `listen` on the same socket is allowed, and sets the length anew: the last one counts.
//!
//! Killed by: a_burst_of_connects_is_queued (only backlog + 1 get in at once)
//! Hint: You call listen more than once. Look at the Send-Q in `ss -ltn` after each of the calls: does it grow?

mod common;

use std::process::ExitCode;

use nix::sys::socket::{Backlog, listen};

fn main() -> ExitCode {
    common::run_on(
        |address| {
            let listener = common::listen(address, 5, true)?;
            for _ in 0..100 {
                listen(&listener, Backlog::new(5)?)?;
            }
            Ok(listener)
        },
        |listener| common::one_by_one(&listener, common::converse),
    )
}
