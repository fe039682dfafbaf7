//! Where a request's body ends: after so many bytes, or after a last chunk and its trailers.
//!
//! A machine that takes one byte after the other has no place in which a packet could end unluckily.

use crate::request::hexadecimal;
use crate::status::{Refusal, Status};
use crate::{BODY_BYTES_MAX, FIELDS_MAX, HEAD_BYTES_MAX};

/// How long the body is, as the head says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes; 0 where the head says nothing. At most [`BODY_BYTES_MAX`].
    Length(usize),
    /// Chunks, each with its own length.
    Chunked,
}

/// A size line of a chunk, its extensions included, is at most so long in bytes.
const CHUNK_LINE_BYTES_MAX: usize = 1024;
/// One digit more would not fit into 64 bits.
const CHUNK_SIZE_DIGITS_MAX: usize = 16;

// ANCHOR: body
/// A body that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    state: State,
    /// Bytes that are still missing from the body or from the chunk.
    left: u64,
    /// Length of the line of a chunk so far, or of all trailers.
    line_length: usize,
    /// Trailer fields so far.
    trailers: usize,
    /// The beginning of the name of the trailer, in small letters.
    name: [u8; NAME_BYTES],
    name_length: usize,
}

/// As long as the longest name in [`FORBIDDEN`].
const NAME_BYTES: usize = 17;
/// Fields which say how long a request is or whom it is for come before the body or not at all.
const FORBIDDEN: [&[u8]; 3] = [b"content-length", b"host", b"transfer-encoding"];

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A body with Content-Length: `left` more bytes.
    Counted,
    /// The first digit of a chunk's size.
    SizeFirst,
    /// More digits, or what follows them.
    Size,
    /// The extension of a chunk: skipped.
    Extension,
    /// The LF of a size line.
    SizeEnd,
    /// `left` more bytes of a chunk.
    Data,
    /// The CR after a chunk.
    DataCr,
    /// The LF after a chunk.
    DataEnd,
    /// The first byte of a trailer, or the CR of the empty line.
    TrailerFirst,
    /// The name of a trailer.
    TrailerName,
    /// Its value: skipped.
    TrailerValue,
    /// The LF after it.
    TrailerEnd,
    /// The LF of the empty line.
    LastEnd,
    /// The body is whole.
    Done,
}
// ANCHOR_END: body

impl Reader {
    pub const fn new(framing: Framing) -> Reader {
        let (state, left) = match framing {
            Framing::Length(0) => (State::Done, 0),
            Framing::Length(length) => (State::Counted, length as u64),
            Framing::Chunked => (State::SizeFirst, 0),
        };
        Reader { state, left, line_length: 0, trailers: 0, name: [0; NAME_BYTES], name_length: 0 }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes what belongs to the body from the front of `bytes`, moves its content to `body`, and
    /// returns how many bytes it took.
    pub fn take(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<usize, Refusal> {
        let mut used = 0;
        while used < bytes.len() && self.state != State::Done {
            if matches!(self.state, State::Counted | State::Data) {
                let length =
                    (bytes.len() - used).min(usize::try_from(self.left).unwrap_or(usize::MAX));
                body.extend_from_slice(&bytes[used..used + length]);
                used += length;
                self.left -= length as u64;
                if self.left == 0 {
                    self.state =
                        if self.state == State::Data { State::DataCr } else { State::Done };
                }
            } else {
                self.state = self.step(bytes[used], body.len())?;
                used += 1;
            }
        }
        Ok(used)
    }

    /// One byte of a chunked body that is not its content.
    fn step(&mut self, byte: u8, body_length: usize) -> Result<State, Refusal> {
        match (self.state, byte) {
            (State::SizeFirst | State::Size, digit) if hexadecimal(digit).is_some() => {
                self.size(digit)
            }
            (State::Size, b'\r' | b';')
                if self.left.saturating_add(body_length as u64) > BODY_BYTES_MAX as u64 =>
            {
                Err(TOO_LARGE)
            }
            (State::Size | State::Extension, b'\r') => Ok(State::SizeEnd),
            (State::Size, b';') => self.longer(State::Extension),
            (State::Extension, byte) if is_text(byte) => self.longer(State::Extension),
            (State::SizeEnd, b'\n') => {
                self.line_length = 0;
                Ok(if self.left == 0 { State::TrailerFirst } else { State::Data })
            }
            (State::DataCr, b'\r') => Ok(State::DataEnd),
            (State::DataEnd, b'\n') => Ok(State::SizeFirst),
            (State::TrailerFirst, b'\r') => Ok(State::LastEnd),
            (State::TrailerFirst, byte) if is_token(byte) => self.trailer(byte),
            (State::TrailerName, b':') if self.is_forbidden() => {
                Err(Refusal::bad("This field cannot be a trailer.\n"))
            }
            (State::TrailerName, b':') => self.trailer_byte(State::TrailerValue),
            (State::TrailerName, byte) if is_token(byte) => self.named(byte),
            (State::TrailerValue, b'\r') => Ok(State::TrailerEnd),
            (State::TrailerValue, byte) if is_text(byte) => self.trailer_byte(State::TrailerValue),
            (State::TrailerEnd, b'\n') => Ok(State::TrailerFirst),
            (State::LastEnd, b'\n') => Ok(State::Done),
            (State::SizeFirst | State::Size | State::Extension | State::SizeEnd, _) => {
                Err(Refusal::bad(
                    "The line of a chunk is a hexadecimal size, perhaps an extension, and CR LF.\n",
                ))
            }
            (State::DataCr | State::DataEnd, _) => Err(Refusal::bad("A chunk ends with CR LF.\n")),
            _ => Err(Refusal::bad("A trailer is a name, a colon, a value and CR LF.\n")),
        }
    }

    fn size(&mut self, digit: u8) -> Result<State, Refusal> {
        if self.line_length == CHUNK_SIZE_DIGITS_MAX {
            return Err(Refusal::bad("The size of a chunk has too many digits.\n"));
        }
        self.line_length += 1;
        self.left = self.left * 16 + u64::from(hexadecimal(digit).unwrap_or(0));
        Ok(State::Size)
    }

    fn longer(&mut self, next: State) -> Result<State, Refusal> {
        self.line_length += 1;
        if self.line_length > CHUNK_LINE_BYTES_MAX {
            return Err(Refusal::bad("The line of a chunk is too long.\n"));
        }
        Ok(next)
    }

    fn trailer(&mut self, first: u8) -> Result<State, Refusal> {
        self.name_length = 0;
        self.trailers += 1;
        if self.trailers > FIELDS_MAX {
            return Err(TOO_MANY_FIELDS);
        }
        self.named(first)
    }

    fn named(&mut self, byte: u8) -> Result<State, Refusal> {
        if let Some(at) = self.name.get_mut(self.name_length) {
            *at = byte.to_ascii_lowercase();
        }
        self.name_length += 1;
        self.trailer_byte(State::TrailerName)
    }

    fn is_forbidden(&self) -> bool {
        self.name.get(..self.name_length).is_some_and(|name| FORBIDDEN.contains(&name))
    }

    fn trailer_byte(&mut self, next: State) -> Result<State, Refusal> {
        self.line_length += 1;
        if self.line_length > HEAD_BYTES_MAX {
            return Err(TOO_MANY_FIELDS);
        }
        Ok(next)
    }
}

pub(crate) const TOO_LARGE: Refusal =
    Refusal { status: Status::ContentTooLarge, why: "A body may have 1 MiB at most.\n" };
pub(crate) const TOO_MANY_FIELDS: Refusal = Refusal {
    status: Status::FieldsTooLarge,
    why: "A head may have 8 KiB and 64 fields at most.\n",
};

/// What may stand in the name of a field.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What may stand in the value of a field: no control characters but the tab.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
