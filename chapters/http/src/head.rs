//! The head of a request: the request line and the fields, and everything that is wrong with them.
//!
//! `httparse` finds where a head ends and whether its bytes are allowed. What a head *means*, and when
//! it may mean two things, is decided here.

use std::mem::MaybeUninit;

use crate::answer::Persistence;
use crate::body::{Framing, TOO_LARGE, TOO_MANY_FIELDS};
use crate::status::{Refusal, Status};
use crate::target::{self, Target};
use crate::{BODY_BYTES_MAX, FIELDS_MAX, HEAD_BYTES_MAX, REQUEST_LINE_BYTES_MAX};

// ANCHOR: head
/// A whole head, understood.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    /// Its length in bytes, the empty line included.
    pub length: usize,
    pub verb: Verb,
    pub target: Target<'a>,
    pub framing: Framing,
    pub persistence: Persistence,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}
// ANCHOR_END: head

/// The first word of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Known(crate::Method),
    /// As GET, but the answer has no body.
    Head,
    /// CONNECT (this is no proxy), or one that nobody knows.
    Unknown,
}

/// Understands the head at the front of `bytes`. `None`: it has not ended yet.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Head<'_>>, Refusal> {
    if let [b'\n', ..] | [b'\r', b'\n', ..] = bytes {
        return Err(Refusal::bad("Before a request line there is one empty line at most.\n"));
    }
    let bounded = bounded(bytes);
    let mut fields = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bounded, &mut fields) {
        Ok(httparse::Status::Complete(length)) if has_bare_lf(&bytes[..length]) => {
            Err(Refusal::bad(LINE_END))
        }
        Ok(httparse::Status::Complete(length)) => understand(&request, length).map(Some),
        Ok(httparse::Status::Partial) => too_long(bytes).map_or(Ok(None), Err),
        Err(httparse::Error::TooManyHeaders) => Err(TOO_MANY_FIELDS),
        Err(httparse::Error::Version) => other_version(bytes),
        Err(error) => Err(Refusal::bad(sentence(error))),
    }
}

/// Whether the answer to these bytes, whatever else is wrong with them, must have no body.
pub(crate) fn asks_for_head_only(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HEAD ")
}

/// As much of `bytes` as may be a head: what is beyond a limit must not change the answer, since it may
/// come later, or not at all.
fn bounded(bytes: &[u8]) -> &[u8] {
    if is_line_too_long(bytes) {
        return &bytes[..REQUEST_LINE_BYTES_MAX];
    }
    &bytes[..bytes.len().min(HEAD_BYTES_MAX)]
}

fn is_line_too_long(bytes: &[u8]) -> bool {
    bytes.get(..REQUEST_LINE_BYTES_MAX).is_some_and(|line| !line.contains(&b'\n'))
}

/// The limits, for a head that has not ended within them.
fn too_long(bytes: &[u8]) -> Option<Refusal> {
    if is_line_too_long(bytes) {
        return Some(Refusal {
            status: Status::UriTooLong,
            why: "A request line may have 8,000 bytes at most.\n",
        });
    }
    (bytes.len() >= HEAD_BYTES_MAX).then_some(TOO_MANY_FIELDS)
}

/// A version that is neither HTTP/1.0 nor HTTP/1.1, or no version at all: the whole line decides.
fn other_version(bytes: &[u8]) -> Result<Option<Head<'_>>, Refusal> {
    let Some(end) = bounded(bytes).iter().position(|&byte| byte == b'\n') else {
        return too_long(bytes).map_or(Ok(None), Err);
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let mut words = line.split(|&byte| byte == b' ').skip(2);
    match (words.next().unwrap_or_default(), words.next()) {
        ([b'H', b'T', b'T', b'P', b'/', major, b'.', minor], None)
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Refusal {
                status: Status::VersionNotSupported,
                why: "This server speaks the versions 1.0 and 1.1.\n",
            })
        }
        _ => Err(Refusal::bad("A request line ends with the version, HTTP/1.x.\n")),
    }
}

/// What the fields say about this one request.
fn understand<'a>(request: &httparse::Request<'_, 'a>, length: usize) -> Result<Head<'a>, Refusal> {
    let is_1_1 = request.version == Some(1);
    let mut seen = Seen::default();
    for field in request.headers.iter() {
        seen.note(field, is_1_1)?;
    }
    if is_1_1 && seen.hosts == 0 {
        return Err(Refusal::bad("A request of version 1.1 says its Host.\n"));
    }
    let verb = verb(request.method.unwrap_or_default());
    let target = target::parse(verb, request.path.unwrap_or_default())?;
    let framing = match (seen.length, seen.is_chunked) {
        (Some(_), true) => {
            return Err(Refusal::bad(
                "Content-Length and Transfer-Encoding contradict each other.\n",
            ));
        }
        (Some(length), false) if length > BODY_BYTES_MAX as u64 => return Err(TOO_LARGE),
        (Some(length), false) => Framing::Length(length as usize),
        (None, true) => Framing::Chunked,
        (None, false) => Framing::Length(0),
    };
    let persistence = match (is_1_1, seen.close, seen.keep_alive) {
        (_, true, _) | (false, _, false) => Persistence::Ends,
        (true, false, _) => Persistence::Stays,
        (false, false, true) => Persistence::KeptAlive,
    };
    let expects_continue = seen.expects_continue && framing != Framing::Length(0);
    Ok(Head { length, verb, target, framing, persistence, expects_continue })
}

/// What has been seen among the fields so far.
#[derive(Default)]
struct Seen {
    hosts: u32,
    length: Option<u64>,
    is_chunked: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
}

impl Seen {
    /// Only five fields mean something here; most are told apart by their length.
    fn note(&mut self, field: &httparse::Header<'_>, is_1_1: bool) -> Result<(), Refusal> {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            4 if is("host") => self.host(field.value),
            6 if is("expect") && is_1_1 => self.expect(field.value),
            10 if is("connection") => self.connection(field.value),
            14 if is("content-length") => self.content_length(field.value),
            17 if is("transfer-encoding") => self.transfer_encoding(field.value, is_1_1),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.hosts += 1;
        if self.hosts > 1 || !target::is_authority(value) {
            return Err(Refusal::bad(
                "A request has one Host, a name or an address and perhaps a port.\n",
            ));
        }
        Ok(())
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Refusal {
                status: Status::ExpectationFailed,
                why: "The only thing that may be expected is 100-continue.\n",
            });
        }
        self.expects_continue = true;
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) -> Result<(), Refusal> {
        for option in value.split(|&byte| byte == b',') {
            let option = option.trim_ascii();
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
        Ok(())
    }

    /// Digits only (a parser of integers takes `+5`), so few that they fit, and only once: which of two
    /// would the proxy in front have believed?
    fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let is_number = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
        if !is_number || self.length.is_some() {
            return Err(Refusal::bad("A request has one Content-Length, a decimal number.\n"));
        }
        self.length =
            Some(value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')));
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8], is_1_1: bool) -> Result<(), Refusal> {
        if !is_1_1 || self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::bad(
                "The only Transfer-Encoding is chunked, said once, and since version 1.1.\n",
            ));
        }
        self.is_chunked = true;
        Ok(())
    }
}

fn verb(method: &str) -> Verb {
    use crate::Method;
    match method {
        "GET" => Verb::Known(Method::Get),
        "HEAD" => Verb::Head,
        "POST" => Verb::Known(Method::Post),
        "PUT" => Verb::Known(Method::Put),
        "PATCH" => Verb::Known(Method::Patch),
        "DELETE" => Verb::Known(Method::Delete),
        "OPTIONS" => Verb::Known(Method::Options),
        "TRACE" => Verb::Known(Method::Trace),
        _ => Verb::Unknown,
    }
}

/// Whether some line ends without a CR. `httparse` allows it, as RFC 9112 does; a proxy in front may not,
/// and would then see other lines than we do.
fn has_bare_lf(head: &[u8]) -> bool {
    // No way out of the loop, and bytes all along: so it compiles to a few instructions for 16 bytes.
    let pairs = head.iter().zip(&head[1..]);
    pairs.fold(0, |found, (&before, &byte)| {
        found | (u8::from(byte == b'\n') & u8::from(before != b'\r'))
    }) != 0
}

const LINE_END: &str =
    "A line ends with CR LF (nc sends that with -C), and neither stands elsewhere.\n";

fn sentence(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => {
            "The name of a field is letters, digits and a few signs, and a colon at once.\n"
        }
        httparse::Error::HeaderValue => {
            "The value of a field has no control characters, and is one line.\n"
        }
        httparse::Error::NewLine => LINE_END,
        _ => "A request line is a method, a target and a version, with one blank between them.\n",
    }
}
