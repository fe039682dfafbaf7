//! Misconception: whoever wants the longest queue asks for the largest number.
//!
//! The kernel would take what it allows of it. `Backlog::new` of nix does not get that far: it refuses
//! what is beyond the SOMAXCONN of the C library's header, and the server ends.
//!
//! Killed by: a_burst_of_connects_is_queued (the server ends)
//! Breaks too: answers_odd_even_invalid (the server ends)
//! Breaks too: a_silent_client_is_let_go (the server ends)
//! Breaks too: it_restarts_at_once (the server ends)
//! Hint: Your server does not start. Run it by hand and read its sentence: who refuses the number, the kernel or the library?

mod common;

use std::process::ExitCode;

fn main() -> ExitCode {
    common::run_on(
        |address| common::listen(address, i32::MAX, true),
        |listener| common::one_by_one(&listener, common::converse),
    )
}
