//! How an answer becomes bytes.

use crate::status::{Refusal, Status};

// ANCHOR: answer
/// What an application says to one request.
#[derive(Clone, Copy, Debug)]
pub enum Reply<'a> {
    /// The answer is known.
    Now(Answer<'a>),
    /// The answer shall go out when so many milliseconds have passed. The requests behind it wait.
    Later {
        /// How long, in milliseconds.
        delay_ms: u32,
        /// What is to be said then.
        answer: Answer<'static>,
    },
}

/// An answer without what the core adds: date, length, and whether the connection stays.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The status code.
    pub status: Status,
    /// The value of the field `Content-Type`.
    pub media: &'static str,
    /// The value of the field `Allow`, where the answer has one (405, and to OPTIONS).
    pub allow: Option<&'static str>,
    /// The body.
    pub content: Content<'a>,
}

/// The body of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// Is copied behind the head, so that both go out with one write.
    Small(&'a [u8]),
    /// Is never copied: the first `length_bytes` of `block`, said again and again.
    Repeated {
        /// Must not be empty.
        block: &'static [u8],
        /// How many bytes in all.
        length_bytes: u64,
    },
}
// ANCHOR_END: answer

/// The media type of everything that is text here.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// The media type of bytes that mean nothing in particular.
pub const BYTES: &str = "application/octet-stream";

impl<'a> Answer<'a> {
    /// A short text.
    pub const fn text(status: Status, text: &'a [u8]) -> Answer<'a> {
        Answer { status, media: TEXT, allow: None, content: Content::Small(text) }
    }
}

impl Content<'_> {
    fn length(&self) -> u64 {
        match self {
            Content::Small(bytes) => bytes.len() as u64,
            Content::Repeated { length_bytes, .. } => *length_bytes,
        }
    }
}

/// What the field `Connection` of an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// HTTP/1.1: the connection stays, which goes without saying.
    Stays,
    /// HTTP/1.0: the client asked for it and has to be told.
    KeptAlive,
    /// This answer is the last.
    Ends,
}

/// Up to this size a body of the kind that is never copied is copied after all: two slices for one
/// small answer would cost more.
const COPIED_BYTES_MAX: u64 = 4096;

/// Writes the answer to `output`, and notes in `large` (of which nothing is left) the body that is sent
/// from where it is.
pub(crate) fn render(
    output: &mut Vec<u8>,
    large: &mut Large,
    answer: &Answer<'_>,
    date_line: &[u8],
    persistence: Persistence,
    is_head: bool,
) {
    output.extend_from_slice(answer.status.line().as_bytes());
    output.extend_from_slice(date_line);
    if let Some(allow) = answer.allow {
        field(output, b"Allow: ", allow.as_bytes());
    }
    if !answer.status.is_bodiless() {
        field(output, b"Content-Type: ", answer.media.as_bytes());
        output.extend_from_slice(b"Content-Length: ");
        decimal(output, answer.content.length());
        output.extend_from_slice(b"\r\n");
    }
    output.extend_from_slice(match persistence {
        Persistence::Stays => b"\r\n",
        Persistence::KeptAlive => b"Connection: keep-alive\r\n\r\n",
        Persistence::Ends => b"Connection: close\r\n\r\n",
    });
    if is_head || answer.status.is_bodiless() {
        return;
    }
    match answer.content {
        Content::Small(bytes) => output.extend_from_slice(bytes),
        Content::Repeated { block, length_bytes } => {
            *large = Large { block, offset: 0, left: length_bytes };
            while large.left > 0 && length_bytes <= COPIED_BYTES_MAX {
                let slice = large.slice();
                output.extend_from_slice(slice);
                large.sent(slice.len());
            }
        }
    }
}

/// Writes the answer that refuses a request.
pub(crate) fn render_refusal(
    output: &mut Vec<u8>,
    refusal: Refusal,
    date_line: &[u8],
    is_head: bool,
) {
    let answer = Answer::text(refusal.status, refusal.why.as_bytes());
    render(output, &mut Large::default(), &answer, date_line, Persistence::Ends, is_head);
}

/// A large body on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Large {
    block: &'static [u8],
    /// Where in the block the next byte is.
    offset: usize,
    pub left: u64,
}

impl Large {
    /// As much as can be sent from one place. Empty when nothing is left.
    pub fn slice(&self) -> &'static [u8] {
        let rest = &self.block[self.offset..];
        &rest[..rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))]
    }

    pub fn sent(&mut self, length: usize) {
        self.left -= length as u64;
        self.offset += length;
        if self.offset == self.block.len() {
            self.offset = 0;
        }
    }
}

fn field(output: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    output.extend_from_slice(name);
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

/// Writes a number without allocating.
fn decimal(output: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return output.extend_from_slice(&digits[at..]);
        }
    }
}
