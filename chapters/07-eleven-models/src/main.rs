//! Chapter 07: eleven models, one HTTP core.
//!
//! `ch07 --model NAME` serves the same answers with each of them: which requests come is read by the
//! crate `http`, to the byte the same for all, and only the waiting is different. Each model is one file
//! of `models/`.

mod blocking;
mod children;
mod clock;
mod cores;
mod crowd;
mod door;
mod group;
mod interrupt;
mod model;
mod models;
mod net;
mod options;
mod orphan;
mod slots;
mod stop;
mod talk;
mod timers;
#[expect(unsafe_code, reason = "an io_uring is memory that is shared with the kernel")]
mod uring;

use std::process::ExitCode;

use options as command_line; // What `cores.rs`, the same file as in 05 and 06, says things with.

fn main() -> ExitCode {
    let command = match options::parse(std::env::args_os().skip(1)) {
        Ok(options::Command::Serve(command)) => command,
        Ok(options::Command::Help) => {
            options::print(format_args!("{}", options::help()));
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            options::say(format_args!("ch07: {problem}\n\n{}", options::usage()));
            return ExitCode::from(2);
        }
    };
    match command.model.serve(command.address, &command.config, http::OddEven) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            options::say(format_args!("ch07: {}: {error:#}", command.model.name()));
            ExitCode::FAILURE
        }
    }
}
