//! A client that speaks HTTP/1.1: it sends what it is given, right or wrong, and reads answers.
//!
//! It shares nothing with the servers. Simplified: an answer has a Content-Length or no body, which is
//! what the servers of chapter 07 send.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt};

use crate::server::{Client, End, Heard, OVERTIME, Server, connect_soon, is_connected};

/// `GET PATH`.
pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// `GET PATH`, after which the server is to close.
pub fn get_and_close(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").into_bytes()
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number: 200.
    pub status: u16,
    /// The field lines, without blanks around the values.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of the field called `name`, in whatever case it was sent.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1.as_str())
    }

    /// Whether the server says that it will close.
    pub fn closes(&self) -> bool {
        self.field("Connection").is_some_and(|it| it.eq_ignore_ascii_case("close"))
    }

    /// Whether it is 200 with this body.
    pub fn is(&self, body: &[u8]) -> bool {
        self.status == 200 && self.body == body
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with ", self.status)?;
        match self.body.len() {
            0 => f.write_str("no body"),
            1..=40 => write!(f, "`{}`", self.body.escape_ascii()),
            length => write!(f, "{length} bytes"),
        }
    }
}

/// What begins `bytes`: an answer and its length, `None` when it is not complete. The answer to HEAD has
/// a length and no body.
///
/// # Errors
///
/// When it is no answer, in a few words.
pub fn parse(bytes: &[u8], to_head: bool) -> Result<Option<(Answer, usize)>, String> {
    let start = &bytes[..bytes.len().min(9)];
    if !b"HTTP/1.1 ".starts_with(start) {
        return Err("it does not begin with HTTP/1.1".into());
    }
    let Some(head) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head]).map_err(|_| "its head is no text")?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|it| it.get(9..12)?.parse().ok()).ok_or("no status")?;
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("a line of its head has no colon")?;
        fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
    let mut answer = Answer { status, fields, body: Vec::new() };
    let has_body = !to_head && status != 204 && status != 304 && status >= 200;
    let length = match answer.field("Content-Length") {
        Some(length) if has_body => {
            length.parse().map_err(|_| "its Content-Length is no number")?
        }
        None if has_body => return Err("it has no Content-Length".into()),
        _ => 0,
    };
    let (from, to) = (head + 4, head + 4 + length);
    if bytes.len() < to {
        return Ok(None);
    }
    answer.body = bytes[from..to].to_vec();
    Ok(Some((answer, to)))
}

/// A client that speaks HTTP.
#[derive(Debug)]
pub struct Caller {
    /// The connection.
    pub client: Client,
    /// What has come and belongs to no answer yet.
    kept: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub struct NoAnswer {
    /// What came instead, and how the stream stood.
    pub heard: Heard,
    /// What is wrong with it, where it is no part of an answer.
    pub wrong: Option<String>,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wrong {
            Some(wrong) => write!(f, "{} ({wrong})", self.heard),
            None => write!(f, "{}", self.heard),
        }
    }
}

impl Caller {
    /// A caller over this connection.
    pub fn new(client: Client) -> Caller {
        Caller { client, kept: Vec::new() }
    }

    /// A new one, named for what is told about it.
    ///
    /// # Errors
    ///
    /// As [`Server::connect`].
    pub fn connect(server: &Server, name: &'static str) -> anyhow::Result<Caller> {
        server.connect(name).map(Caller::new)
    }

    /// A new one with a receive buffer as small as the kernel makes it, so that what it does not read
    /// stays with the server.
    ///
    /// # Errors
    ///
    /// As [`Server::connect`].
    pub fn connect_small(server: &Server, name: &'static str) -> anyhow::Result<Caller> {
        let socket = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Inet,
            nix::sys::socket::SockType::Stream,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
            None,
        )
        .context("socket")?;
        setsockopt(&socket, sockopt::RcvBuf, &4096).context("setsockopt(SO_RCVBUF)")?;
        let address = nix::sys::socket::SockaddrStorage::from(server.address());
        nix::sys::socket::connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &address)
            .context("connect")?;
        Ok(Caller::new(Client::adopt(socket.into(), name)?))
    }

    /// Sends `bytes`.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.client.send(bytes)
    }

    /// The next answer, for which it waits at most `within`.
    ///
    /// # Errors
    ///
    /// What was heard instead.
    pub fn answer(&mut self, within: Duration) -> Result<Answer, NoAnswer> {
        self.next(within, false)
    }

    /// The next answer, which is one to HEAD.
    ///
    /// # Errors
    ///
    /// As [`Caller::answer`].
    pub fn answer_to_head(&mut self, within: Duration) -> Result<Answer, NoAnswer> {
        self.next(within, true)
    }

    fn next(&mut self, within: Duration, to_head: bool) -> Result<Answer, NoAnswer> {
        let start = Instant::now();
        // Where it needs so many bytes, it is not looked at before they are there.
        loop {
            let told = |kept: &[u8], end, wrong| NoAnswer {
                heard: Heard { bytes: kept.to_vec(), end, after: start.elapsed() },
                wrong,
            };
            match parse(&self.kept, to_head) {
                Ok(Some((answer, length))) => {
                    self.kept.drain(..length);
                    return Ok(answer);
                }
                Err(wrong) => return Err(told(&self.kept, End::Open, Some(wrong))),
                Ok(None) => {}
            }
            let left = within.saturating_sub(start.elapsed());
            if let Some(end) = self.client.hear_some(left, &mut self.kept) {
                return Err(told(&self.kept, end, None));
            }
            // What is there is heard though the time is over; but an answer may go on for ever.
            if start.elapsed() > within + OVERTIME {
                return Err(told(&self.kept, End::Open, None));
            }
        }
    }

    /// Whether more than the answers that were read has come already.
    pub(crate) fn has_more(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Takes `bytes`, which were read from the socket itself, for the first that came.
    pub(crate) fn give_back(&mut self, bytes: Vec<u8>) {
        self.kept.splice(..0, bytes);
    }

    /// Asks and waits for the answer. If the question cannot be sent, the server has ended the stream,
    /// which is then what is heard.
    ///
    /// # Errors
    ///
    /// As [`Caller::answer`].
    pub fn ask(&mut self, request: &[u8], within: Duration) -> Result<Answer, NoAnswer> {
        let _ = self.say(request);
        self.answer(within)
    }

    /// What comes until the stream ends, after the answers that were read.
    pub fn rest(&mut self, within: Duration) -> Heard {
        let mut heard = self.client.hear(within);
        heard.bytes.splice(..0, std::mem::take(&mut self.kept));
        heard
    }
}

/// `count` clients that connect at once, and wait for that at most `within`. Those that got in.
///
/// # Errors
///
/// As [`connect_soon`].
pub fn crowd(
    server: SocketAddr,
    count: usize,
    within: Duration,
    name: &'static str,
) -> anyhow::Result<Vec<Caller>> {
    let sockets = (0..count).map(|_| connect_soon(server)).collect::<anyhow::Result<Vec<_>>>()?;
    let deadline = Instant::now() + within;
    while !sockets.iter().all(is_connected) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let inside = sockets.into_iter().filter(is_connected);
    inside.map(|it| Ok(Caller::new(Client::adopt(it.into(), name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_one_by_one() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length:  4\r\n\r\nOdd\nHTTP/1.1 404 Not Found\r\n";
        let (answer, length) = parse(bytes, false).unwrap().unwrap();
        assert!(answer.is(b"Odd\n"));
        assert_eq!(answer.field("content-length"), Some("4"));
        assert!(bytes[length..].starts_with(b"HTTP/1.1 404"));
        assert_eq!(parse(&bytes[length..], false), Ok(None));
        let (answer, length) = parse(bytes, true).unwrap().unwrap();
        assert!(answer.body.is_empty() && bytes[length..].starts_with(b"Odd\n"));
        for at in 0..40 {
            assert_eq!(parse(&bytes[..at], false), Ok(None), "{at}");
        }
        assert!(parse(b"Odd\n", false).is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n", false).is_err());
    }
}
