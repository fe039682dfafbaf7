//! The protocol: bytes in, bytes out, no I/O.

use crate::mine::{self, Framing, Stop};

/// The longest request, without its frame, in bytes.
pub const REQUEST_BYTES_MAX: usize = 120;

/// How many numbers a request has at most, and how many digits a number.
const NUMBERS_MAX: usize = 8;
const DIGITS_MAX: usize = 9;

/// One client's conversation.
#[derive(Debug, Default)]
pub struct Session {
    unread: Vec<u8>,
    unsent: Vec<u8>,
    answered: u32,
    is_over: bool,
}

/// What the beginning of a stream is.
enum Cut {
    /// A request: where it begins, where it ends, and where the next one begins.
    Request(usize, usize, usize),
    /// The beginning of one.
    Part,
    /// Nothing that could become one.
    Nonsense,
}

impl Session {
    /// Takes in what the client has sent. Nothing at all means that it has sent its last byte.
    pub fn feed(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            // What has begun and did not end is no request.
            self.is_over = true;
            return;
        }
        self.unread.extend_from_slice(bytes);
        let mut from = 0;
        while !self.is_over {
            match cut(&self.unread[from..]) {
                Cut::Request(start, end, next) => {
                    let request = self.unread[from + start..from + end].to_vec();
                    self.answer(&request);
                    from += next;
                }
                Cut::Part => break,
                Cut::Nonsense => self.refuse(),
            }
        }
        self.unread.drain(..from);
    }

    fn answer(&mut self, request: &[u8]) {
        match (mine::stop(), request) {
            (Stop::Empty, b"") => self.is_over = true,
            (Stop::Word, b"BYE") => {
                self.say(b"BYE");
                self.is_over = true;
            }
            (stop, request) => match sum(request) {
                Some(sum) => {
                    self.say(sum.to_string().as_bytes());
                    self.answered += 1;
                    self.is_over = stop == Stop::Count(self.answered);
                }
                None => self.refuse(),
            },
        }
    }

    fn refuse(&mut self) {
        self.say(b"ERR");
        self.is_over = true;
    }

    fn say(&mut self, answer: &[u8]) {
        self.unsent.extend_from_slice(&framed(answer));
    }

    /// What has to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// Notes that so many bytes of it were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.unsent.drain(..bytes);
    }

    /// Whether the conversation is over, once everything is sent.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// How many requests were answered: each is a new reason for patience.
    pub fn answered(&self) -> u32 {
        self.answered
    }
}

/// An answer in its frame.
pub fn framed(answer: &[u8]) -> Vec<u8> {
    let length = answer.len();
    let header = match mine::framing() {
        Framing::Delimiter(byte) => return [answer, &[byte]].concat(),
        Framing::Digits(digits) => format!("{length:0digits$}").into_bytes(),
        Framing::BigEndian => (length as u16).to_be_bytes().to_vec(),
        Framing::LittleEndian => (length as u16).to_le_bytes().to_vec(),
    };
    [header.as_slice(), answer].concat()
}

/// The first request of a stream.
fn cut(bytes: &[u8]) -> Cut {
    let header = match mine::framing() {
        Framing::Delimiter(delimiter) => return cut_at(bytes, delimiter),
        Framing::Digits(digits) => digits,
        Framing::BigEndian | Framing::LittleEndian => 2,
    };
    let given = &bytes[..header.min(bytes.len())];
    let length = match mine::framing() {
        Framing::Digits(_) if given.iter().any(|it| !it.is_ascii_digit()) => return Cut::Nonsense,
        _ if given.len() < header => return Cut::Part,
        Framing::BigEndian => usize::from(u16::from_be_bytes([given[0], given[1]])),
        Framing::LittleEndian => usize::from(u16::from_le_bytes([given[0], given[1]])),
        _ => given.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0')),
    };
    if length > REQUEST_BYTES_MAX {
        return Cut::Nonsense;
    }
    let end = header + length;
    if bytes.len() < end { Cut::Part } else { Cut::Request(header, end, end) }
}

fn cut_at(bytes: &[u8], delimiter: u8) -> Cut {
    let end = bytes.iter().position(|it| *it == delimiter);
    let request = &bytes[..end.unwrap_or(bytes.len())];
    let is_text = request.iter().all(|it| (b' '..=b'~').contains(it));
    match end {
        _ if !is_text || request.len() > REQUEST_BYTES_MAX => Cut::Nonsense,
        Some(end) => Cut::Request(0, end, end + 1),
        None => Cut::Part,
    }
}

/// The sum of the numbers in a request, if it is one.
fn sum(request: &[u8]) -> Option<u64> {
    let numbers: Vec<&[u8]> = request.split(|it| *it == b' ').collect();
    if numbers.len() > NUMBERS_MAX {
        return None;
    }
    let mut sum = 0;
    for number in numbers {
        let is_number = (1..=DIGITS_MAX).contains(&number.len());
        if !is_number || !number.iter().all(u8::is_ascii_digit) {
            return None;
        }
        sum += number.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    }
    Some(sum)
}
