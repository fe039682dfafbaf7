//! Misconception: a child that has ended is gone.
//!
//! Until its parent has asked how it ended, the kernel keeps a place for it, and some day has none left.
//!
//! Killed by: nothing_leaks (something is not given back)

mod common;

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};

use common::Config;

fn main() -> ExitCode {
    // The child finds its client where others find their keyboard.
    if std::env::args().any(|it| it == "--child") {
        let client = std::io::stdin().as_fd().try_clone_to_owned().map(TcpStream::from);
        let _ = client.map(|it| common::converse(it, &Config::new()));
        return ExitCode::SUCCESS;
    }
    common::run(|listener, _| serve(&listener))
}

fn serve(listener: &TcpListener) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    loop {
        let Ok((client, _)) = listener.accept() else { continue };
        let client = Stdio::from(OwnedFd::from(client));
        drop(Command::new(&program).arg("--child").stdin(client).spawn());
    }
}
