//! The application of the chapter: the course's question over HTTP, and three routes for experiments.

use crate::answer::{Answer, BYTES, Content, Reply, TEXT};
use crate::request::{Method, Request, decoded};
use crate::shared::App;
use crate::status::Status;

/// Answers with numbers' parity, with as many bytes as asked for, with what it was sent, and late.
#[derive(Clone, Copy, Debug, Default)]
pub struct OddEven;

/// The most that `/bytes/{n}` answers with, in bytes.
pub const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The longest that `/slow/{ms}` takes, in milliseconds.
pub const SLOW_MS_MAX: u32 = 60_000;

// ANCHOR: app
impl App for OddEven {
    fn answer<'a>(&'a self, request: &Request<'a>) -> Reply<'a> {
        if request.path == "/" && request.method == Method::Get {
            return Reply::Now(Answer::text(Status::Ok, HELLO)); // What load generators ask for.
        }
        if request.path == "*" {
            return Reply::Now(options("GET, HEAD, POST, OPTIONS"));
        }
        let mut segments = request.segments();
        let (route, argument, more) =
            (segments.next().unwrap_or_default(), segments.next(), segments.next());
        let route = match (Route::named(route), argument, more) {
            (Some(route @ (Route::Root | Route::Echo)), None, None) => route,
            (Some(route @ (Route::Parity | Route::Bytes | Route::Slow)), Some(_), None) => route,
            _ => return Reply::Now(Answer::text(Status::NotFound, b"Nothing is here.\n")),
        };
        let argument = Argument::new(argument.unwrap_or_default());
        match (route, request.method) {
            (_, Method::Options) => Reply::Now(options(route.allow())),
            (Route::Root, Method::Get) => Reply::Now(Answer::text(Status::Ok, HELLO)),
            (Route::Parity, Method::Get) => Reply::Now(parity(&argument)),
            (Route::Bytes, Method::Get) => Reply::Now(bytes(&argument)),
            (Route::Slow, Method::Get) => slow(&argument),
            (Route::Echo, Method::Post) => Reply::Now(echo(request.body)),
            _ => Reply::Now(Answer {
                allow: Some(route.allow()),
                ..Answer::text(
                    Status::MethodNotAllowed,
                    b"This resource does not have that method.\n",
                )
            }),
        }
    }
}
// ANCHOR_END: app

const HELLO: &[u8] = b"Ask /parity/7\n";

/// `GET /parity/{n}`: the question of the course, with the rules of its line.
fn parity(argument: &Argument) -> Answer<'static> {
    let answer = match argument.bytes() {
        Some(line) => oddeven::parity(line),
        None => oddeven::Answer::Invalid,
    };
    let status = match answer {
        oddeven::Answer::Odd | oddeven::Answer::Even => Status::Ok,
        oddeven::Answer::Invalid => Status::BadRequest,
    };
    Answer::text(status, answer.bytes())
}

/// `GET /bytes/{n}`.
fn bytes(argument: &Argument) -> Answer<'static> {
    match argument.number() {
        Some(length_bytes) if length_bytes <= BYTES_MAX => Answer {
            status: Status::Ok,
            media: BYTES,
            allow: None,
            content: Content::Repeated { block: BLOCK.as_flattened(), length_bytes },
        },
        _ => Answer::text(Status::BadRequest, b"Ask for 0 to 16777216 bytes.\n"),
    }
}

/// `GET /slow/{ms}`: for experiments only. A server for strangers must not have it.
fn slow(argument: &Argument) -> Reply<'static> {
    match argument.number() {
        Some(delay_ms) if delay_ms <= u64::from(SLOW_MS_MAX) => Reply::Later {
            delay_ms: delay_ms as u32,
            answer: Answer::text(Status::Ok, b"At last.\n"),
        },
        _ => Reply::Now(Answer::text(Status::BadRequest, b"Ask for 0 to 60000 milliseconds.\n")),
    }
}

/// `POST /echo`.
fn echo(body: &[u8]) -> Answer<'_> {
    Answer { status: Status::Ok, media: BYTES, allow: None, content: Content::Small(body) }
}

fn options(allow: &'static str) -> Answer<'static> {
    Answer {
        status: Status::NoContent,
        media: TEXT,
        allow: Some(allow),
        content: Content::Small(b""),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Root,
    Parity,
    Bytes,
    Echo,
    Slow,
}

impl Route {
    fn named(segment: &str) -> Option<Route> {
        [Route::Root, Route::Parity, Route::Bytes, Route::Echo, Route::Slow]
            .into_iter()
            .find(|route| decoded(segment).eq(route.name().bytes()))
    }

    const fn name(self) -> &'static str {
        match self {
            Route::Root => "",
            Route::Parity => "parity",
            Route::Bytes => "bytes",
            Route::Echo => "echo",
            Route::Slow => "slow",
        }
    }

    const fn allow(self) -> &'static str {
        match self {
            Route::Root | Route::Parity | Route::Bytes | Route::Slow => "GET, HEAD, OPTIONS",
            Route::Echo => "POST, OPTIONS",
        }
    }
}

/// The last segment of a path, decoded. As long as a line of the course's protocol may be.
struct Argument {
    bytes: [u8; oddeven::LINE_BYTES_MAX],
    length: usize,
    is_too_long: bool,
}

impl Argument {
    fn new(segment: &str) -> Argument {
        let mut argument =
            Argument { bytes: [0; oddeven::LINE_BYTES_MAX], length: 0, is_too_long: false };
        for byte in decoded(segment) {
            if argument.length == oddeven::LINE_BYTES_MAX - 1 {
                argument.is_too_long = true; // The line's end, which is not here, would not fit.
                break;
            }
            argument.bytes[argument.length] = byte;
            argument.length += 1;
        }
        argument
    }

    fn bytes(&self) -> Option<&[u8]> {
        (!self.is_too_long).then(|| &self.bytes[..self.length])
    }

    /// A decimal number without a sign, if this is one and fits.
    fn number(&self) -> Option<u64> {
        let digits = self.bytes().filter(|digits| !digits.is_empty())?;
        digits.iter().try_fold(0_u64, |number, digit| {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        })
    }
}

/// What `/bytes` consists of: lines of 64 bytes.
static BLOCK: [[u8; 64]; 4096] =
    [*b"All work and no play makes a server that only ever serves bytes\n"; 4096];
