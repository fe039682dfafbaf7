//! Misconception: a connection that was shut down both ways is closed.
//!
//! The connection is over, the descriptor is not: that takes a close. Here the list of clients
//! still owns the socket of each that left without an answer.
//!
//! Killed by: nothing_leaks (something is not given back)

mod common;

use std::collections::HashMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    let clients: Arc<Mutex<HashMap<u64, Arc<TcpStream>>>> = Arc::default();
    for number in 0.. {
        match listener.accept() {
            Ok((client, _)) => {
                let (client, clients) = (Arc::new(client), clients.clone());
                let mut list = clients.lock().unwrap_or_else(PoisonError::into_inner);
                list.insert(number, client.clone());
                drop(list);
                thread::spawn(move || match common::converse(&client) {
                    Ok(()) => {
                        clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                    }
                    Err(_) => drop(client.shutdown(Shutdown::Both)), // Closed.
                });
            }
            Err(error) => common::survive(error)?,
        }
    }
    Ok(())
}
