//! One good request, timed: the client in the other terminal.

use anyhow::{Context, Result, bail};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// An answer and how long it took. All times count from the beginning of `connect`.
#[derive(Clone, Debug)]
pub struct Answered {
    /// What the server said, without the end of the line.
    pub answer: String,
    /// Until the connection stood.
    pub connect: Duration,
    /// Until the first byte of the answer.
    pub first_byte: Duration,
    /// Until the server had closed.
    pub total: Duration,
    /// Whether the stream ended with a reset, after the answer.
    pub reset: bool,
}

/// Asks the server at `target` about `number` and waits for the whole answer, for at most `patience` in all.
///
/// # Errors
/// If the server refuses, resets, closes without a word, or if patience ends; the message says in which phase.
pub fn ask(number: &str, target: SocketAddr, patience: Duration) -> Result<Answered> {
    let start = Instant::now();
    let left = || match patience.checked_sub(start.elapsed()) {
        Some(left) if !left.is_zero() => left,
        _ => Duration::from_micros(1),
    };
    let seconds = patience.as_secs_f64();
    let mut stream = match TcpStream::connect_timeout(&target, patience) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::TimedOut => bail!(
            "connect: no connection to {target} within {seconds} s: is its accept queue full? (ss -lnt)"
        ),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            bail!("connect: {target} refuses: nobody listens there. Is the server running?")
        }
        Err(error) => return Err(error).context(format!("connect to {target}")),
    };
    let connect = start.elapsed();
    stream.write_all(format!("{number}\n").as_bytes()).context("send of the request")?;
    let mut answer = Vec::new();
    let mut first_byte = None;
    let reset = loop {
        let mut buffer = [0; 256];
        stream.set_read_timeout(Some(left())).context("setsockopt(SO_RCVTIMEO)")?;
        match stream.read(&mut buffer) {
            Ok(0) => break false,
            Ok(count) => {
                first_byte.get_or_insert(start.elapsed());
                answer.extend_from_slice(&buffer[..count]);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => {
                break true;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                bail!("recv: connected after {connect:.1?}, and {}", waited(&answer, seconds))
            }
            Err(error) => return Err(error).context("recv of the answer"),
        }
        if start.elapsed() > patience {
            bail!("recv: connected after {connect:.1?}, and {}", waited(&answer, seconds));
        }
    };
    let Some(first_byte) = first_byte else {
        bail!("recv: the server closed without an answer, after {:.1?}", start.elapsed())
    };
    let answer = String::from_utf8_lossy(&answer).trim_end().to_owned();
    Ok(Answered { answer, connect, first_byte, total: start.elapsed(), reset })
}

fn waited(answer: &[u8], seconds: f64) -> String {
    match answer {
        [] => {
            format!("no answer within {seconds} s: somebody else may be keeping the server waiting")
        }
        _ => format!("answered, but the server has not closed within {seconds} s"),
    }
}
