//! One conversation with a server: everything is sent, the sending side is closed, and whatever comes until
//! the end is looked through for statuses.
//!
//! # What counts as taken, and what as refused
//!
//! Hardly any path of the suites exists, and that must not count. A status tells whether the request was
//! understood:
//!
//! - *refused*: some status is one of [`REFUSALS`], or 501 to a request with a Transfer-Encoding (the
//!   coding is not known, so that nobody knows where the body ends), or the connection ends without an
//!   answer;
//! - *taken*: there are statuses, and none is such a one. 404 and 405 have understood the request, and so
//!   has 501 where it means the method;
//! - *neither*: nothing came, and no end within [`PATIENCE`].
//!
//! An interim status (100) is no answer. An answer without a status line, as HTTP/0.9 had it, counts by
//! the status that its page has in the title, as nginx writes it, and as 200 without one.
//!
//! Simplification: statuses are looked for anywhere in what came, since no body of these servers looks
//! like a status line; and how many answers there are is not compared with the number of requests.

use anyhow::{Context, Result};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// How long is waited for the end. Longer than any patience of ours with half a request (6 s).
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The statuses that say that a request is wrong or too large.
pub const REFUSALS: [u16; 8] = [400, 408, 411, 413, 414, 417, 431, 505];

/// The status of a request that is not implemented: its method, or its Transfer-Encoding.
const NOT_IMPLEMENTED: u16 = 501;

/// No answer of these servers is longer.
const BYTES_MAX: u64 = 1 << 20;

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Of each answer, in their order.
    pub statuses: Vec<u16>,
    /// Whether the server closed the connection.
    pub has_ended: bool,
}

/// What a server did with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was understood.
    Taken,
    /// It was not.
    Refused,
    /// Nobody knows.
    Neither,
}

/// Sends `bytes`, closes the sending side, and reads until the end.
///
/// # Errors
/// If there is no connection, or it cannot be read from.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Result<Heard> {
    let stream = TcpStream::connect(address).with_context(|| format!("connect({address})"))?;
    stream.set_read_timeout(Some(PATIENCE)).context("setsockopt(SO_RCVTIMEO)")?;
    stream.set_write_timeout(Some(PATIENCE)).context("setsockopt(SO_SNDTIMEO)")?;
    // A server may refuse and leave before it has everything: what it said until then counts.
    let _ = (&stream).write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut said = Vec::new();
    let has_ended = match (&stream).take(BYTES_MAX).read_to_end(&mut said) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
        Err(error) => return Err(error).context("recv"),
    };
    Ok(Heard { statuses: statuses(&said), has_ended })
}

impl Heard {
    /// What the answer to `request` means.
    pub fn verdict(&self, request: &[u8]) -> Verdict {
        let refuses = |status: &u16| {
            REFUSALS.contains(status)
                || *status == NOT_IMPLEMENTED && has_transfer_encoding(request)
        };
        match (self.statuses.is_empty(), self.has_ended) {
            (true, false) => Verdict::Neither,
            (true, true) => Verdict::Refused,
            _ if self.statuses.iter().any(refuses) => Verdict::Refused,
            _ => Verdict::Taken,
        }
    }

    /// In a few words: `200 400`, `closed`, `silent`.
    pub fn words(&self) -> String {
        match (self.statuses.is_empty(), self.has_ended) {
            (true, true) => "closed".into(),
            (true, false) => "silent".into(),
            _ => self.statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(" "),
        }
    }
}

/// The statuses in what a server said, without the interim ones.
pub fn statuses(said: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(said);
    let after = |mark: &'static str| text.match_indices(mark).map(move |(at, _)| at + mark.len());
    // `HTTP/1.1 200 `: what follows the first mark is the minor version, a blank, and the status.
    let lines = after("HTTP/1.").filter_map(|at| number(text.get(at + 2..at + 5)?));
    let lines: Vec<u16> = lines.filter(|it| *it >= 200).collect();
    if !lines.is_empty() || said.is_empty() || text.starts_with("HTTP/1.") {
        return lines;
    }
    let mut titles = after("<title>").filter_map(|at| number(text.get(at..at + 3)?));
    vec![titles.next().unwrap_or(200)]
}

fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|it| (100..600).contains(it))
}

/// Whether `request` says so anywhere. Where those of the suites do, it is the name of a field.
fn has_transfer_encoding(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    text.contains("transfer-encoding")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    fn heard(statuses: &[u16], has_ended: bool) -> Heard {
        Heard { statuses: statuses.to_vec(), has_ended }
    }

    #[test]
    fn statuses_are_found_and_interim_ones_are_no_answers() {
        let said =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\nno\nHTTP/1.0 400 Bad\r\n";
        assert_eq!(statuses(said), [404, 400]);
        assert_eq!(statuses(b"HTTP/1.1 100 Continue\r\n\r\n"), [0; 0]);
        assert_eq!(statuses(b""), [0; 0]);
    }

    #[test]
    fn an_answer_without_a_status_line_counts_by_its_title() {
        assert_eq!(statuses(b"<html>\r\n<head><title>400 Bad Request</title></head>"), [400]);
        assert_eq!(statuses(b"Ask /parity/7\n"), [200]);
    }

    #[test]
    fn one_refusal_among_the_answers_is_a_refusal() {
        let get = b"GET / HTTP/1.1\r\n\r\n";
        assert_eq!(heard(&[200, 404, 405], true).verdict(get), Verdict::Taken);
        assert_eq!(heard(&[200], false).verdict(get), Verdict::Taken);
        assert_eq!(heard(&[200, 400], true).verdict(get), Verdict::Refused);
        assert_eq!(heard(&[], true).verdict(get), Verdict::Refused);
        assert_eq!(heard(&[], false).verdict(get), Verdict::Neither);
    }

    #[test]
    fn not_implemented_is_a_refusal_of_a_coding_and_no_refusal_of_a_method() {
        let coded = b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n";
        assert_eq!(heard(&[501], true).verdict(coded), Verdict::Refused);
        assert_eq!(heard(&[501], true).verdict(b"BREW / HTTP/1.1\r\n\r\n"), Verdict::Taken);
    }

    #[test]
    fn everything_is_sent_and_what_comes_is_read_to_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            // It returns only if the sending side is closed.
            stream.read_to_end(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            request
        });
        let answer = exchange(address, b"GET").unwrap();
        assert_eq!((answer.words(), answer.has_ended), ("400".to_owned(), true));
        assert_eq!(server.join().unwrap(), b"GET");
    }
}
