//! Misconception: a thread that does nothing but accept makes the kernel's queue long enough.
//!
//! It empties the queue as often as it runs. While it does not (the machine is busy, the process is
//! stopped, a page comes from the disk) there is the kernel's queue alone, as short as before.
//!
//! Killed by: a_burst_of_connects_is_queued (only backlog + 1 get in at once)
//! Hint: You accept early and keep the clients yourself. Who keeps those who come while your program does not run, and in how many places?

mod common;

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

fn main() -> ExitCode {
    common::run_on(|address| common::listen(address, 5, true), serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    let (queue, clients) = mpsc::channel();
    thread::spawn(move || {
        for client in clients {
            let _ = common::converse(&client);
        }
    });
    loop {
        match listener.accept() {
            Ok((client, _)) => queue.send(client)?,
            Err(error) => common::survive(error)?,
        }
    }
}
