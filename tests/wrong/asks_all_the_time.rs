//! Misconception: non-blocking means asking everybody again and again.
//!
//! Nobody waits for anybody here, and nothing is ever slow. It also takes a whole core to serve
//! nobody: what is missing is the one call in which the server sleeps until there is something to
//! do.
//!
//! Killed by: an_idle_server_burns_no_cpu (burns CPU time)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use common::Client;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let mut clients: Vec<Client> = Vec::new();
    loop {
        clients.extend(Client::accept(&listener)?);
        clients.retain_mut(|it| it.advance() && it.deadline > Instant::now());
    }
}
