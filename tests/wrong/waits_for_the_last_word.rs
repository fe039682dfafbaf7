//! Misconception: a connection is closed when both sides have said so, and that is waited for.
//!
//! The client has its answer and the end of the stream, and may keep its own end open for as long as
//! it likes: one more way to be held up, after everything has been said.
//!
//! Killed by: answers_odd_even_invalid (does not answer)

mod common;

use std::io::Read;
use std::net::TcpListener;
use std::process::ExitCode;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        match listener.accept() {
            Ok((mut client, _)) => {
                if common::converse(&client).is_ok() {
                    client.set_nonblocking(false)?;
                    client.set_read_timeout(None)?;
                    while let Ok(1..) = client.read(&mut [0; 4096]) {} // Until the client's FIN.
                }
            }
            Err(error) => common::survive(error)?,
        }
    }
}
