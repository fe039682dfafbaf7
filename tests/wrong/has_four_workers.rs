//! Misconception: a few threads that each serve one client at a time are enough for everybody.
//!
//! They are as long as fewer clients stall than there are threads. It passes every test that
//! holds one client, and is the server in order of accept again when four do.
//!
//! Killed by: a_silent_client_stalls_nobody (others wait until it lets go)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;

use anyhow::anyhow;

const WORKERS: usize = 4;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    // Nobody is served before all are there.
    let complete = Barrier::new(WORKERS);
    let work = || {
        complete.wait();
        work(&listener)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|it| it.join().map_err(|_| anyhow!("it panicked"))?)
    })
}

fn work(listener: &TcpListener) -> anyhow::Result<()> {
    loop {
        match listener.accept() {
            Ok((client, _)) => drop(common::converse(&client)), // Whatever it is, it is over.
            Err(error) => common::survive(error)?,
        }
    }
}
