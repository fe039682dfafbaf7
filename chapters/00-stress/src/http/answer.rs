//! Reading answers: bytes in, ends of answers out, no I/O.
//!
//! A server that is asked the same thing again and again says the same head again and again, but for the
//! date. So the last whole head is kept, with a hole where the date is: as long as the next one is equal
//! to it outside of the hole, nothing is parsed. Whatever differs goes to `httparse`.

use super::chunks::Chunks;

/// A head longer than this is refused: nobody's answer needs it.
const HEAD_MAX: usize = 65_536;
const FIELDS_MAX: usize = 100;

/// The length of a date: `Sun, 06 Nov 1994 08:49:37 GMT`.
const DATE_LENGTH: usize = 29;

/// The bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// An answer that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: u16,
    /// The server will close after it.
    pub close: bool,
    /// Bytes, head included.
    pub bytes: u64,
}

/// A head that is expected again.
#[derive(Debug, Default)]
pub(crate) struct Template {
    head: Vec<u8>,
    /// From here on, [`DATE_LENGTH`] bytes may differ; 0 if the head has no date.
    date: usize,
    body: u64,
}

impl Template {
    /// Whether `bytes` begin with the expected head.
    fn fits(&self, bytes: &[u8]) -> bool {
        let (length, date) = (self.head.len(), self.date);
        if length == 0 || bytes.len() < length {
            return false;
        }
        let after = if date == 0 { 0 } else { date + DATE_LENGTH };
        bytes[..date] == self.head[..date] && bytes[after..length] == self.head[after..]
    }

    fn learn(&mut self, head: &[u8], date: Option<usize>, body: u64) {
        self.head.clear();
        self.head.extend_from_slice(head);
        self.date = date.unwrap_or(0);
        self.body = body;
    }
}

/// A place within the answers of one connection.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    place: Place,
    /// The beginning of a head whose end has not come.
    begun: Vec<u8>,
    status: u16,
    close: bool,
    bytes: u64,
}

#[derive(Debug, Default)]
enum Place {
    #[default]
    Head,
    Body(u64),
    Chunks(Chunks),
    UntilClose,
}

/// What a head says.
struct Head {
    length: usize,
    status: u16,
    close: bool,
    body: Place,
    date: Option<usize>,
}

impl Reader {
    /// Reads on, at most to the end of an answer. Returns how many of the bytes were read, and the answer
    /// that ends with them.
    pub fn feed(
        &mut self,
        template: &mut Template,
        bytes: &[u8],
    ) -> Result<(usize, Option<Answer>), Malformed> {
        let (used, ended) = match &mut self.place {
            Place::Head if self.begun.is_empty() && template.fits(bytes) => {
                let head = template.head.len();
                (self.status, self.close) = (200, false);
                let here = ((bytes.len() - head) as u64).min(template.body);
                self.place = Place::Body(template.body - here);
                (head + here as usize, here == template.body)
            }
            Place::Head => self.head(template, bytes)?,
            Place::Body(left) => {
                let here = (bytes.len() as u64).min(*left);
                *left -= here;
                (here as usize, *left == 0)
            }
            Place::Chunks(chunks) => chunks.feed(bytes).map_err(|_| Malformed)?,
            Place::UntilClose => (bytes.len(), false),
        };
        self.bytes += used as u64;
        Ok((used, ended.then(|| self.ended())))
    }

    /// The stream has ended. An answer may end with it.
    pub fn end(&mut self) -> Option<Answer> {
        matches!(self.place, Place::UntilClose).then(|| self.ended())
    }

    /// Whether a part of an answer has come, and not the end of it.
    pub fn is_within(&self) -> bool {
        self.bytes > 0
    }

    fn ended(&mut self) -> Answer {
        let answer = Answer { status: self.status, close: self.close, bytes: self.bytes };
        self.place = Place::Head;
        self.bytes = 0;
        answer
    }

    /// Reads a head with the parser, together with the part of it that came before.
    fn head(&mut self, template: &mut Template, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let before = self.begun.len();
        let parsed = if before == 0 {
            parse(bytes)?
        } else {
            self.begun.extend_from_slice(bytes);
            parse(&self.begun)?
        };
        let Some(head) = parsed else {
            if before == 0 {
                self.begun.extend_from_slice(bytes);
            }
            return if self.begun.len() > HEAD_MAX {
                Err(Malformed)
            } else {
                Ok((bytes.len(), false))
            };
        };
        if let (200, false, Place::Body(body)) = (head.status, head.close, &head.body) {
            let whole = if before == 0 { bytes } else { &self.begun };
            template.learn(&whole[..head.length], head.date, *body);
        }
        self.begun.clear();
        let used = head.length - before;
        if (100..200).contains(&head.status) {
            return Ok((used, false)); // Not the answer: that follows.
        }
        (self.status, self.close) = (head.status, head.close);
        let ended = matches!(head.body, Place::Body(0));
        self.place = head.body;
        Ok((used, ended))
    }
}

/// Reads a head; `None` if its end has not come.
fn parse(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Malformed),
    };
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Err(Malformed);
    };
    let (mut close, mut body_length, mut chunked, mut date) = (version == 0, None, false, None);
    for field in response.headers.iter() {
        let value = field.value.trim_ascii();
        if field.name.eq_ignore_ascii_case("content-length") {
            let number = number(value).ok_or(Malformed)?;
            if body_length.replace(number).is_some_and(|other| other != number) {
                return Err(Malformed);
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed);
            }
            chunked = true;
        } else if field.name.eq_ignore_ascii_case("connection") {
            let mut tokens = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            let keep = tokens.clone().any(|token| token.eq_ignore_ascii_case(b"keep-alive"));
            close = tokens.any(|token| token.eq_ignore_ascii_case(b"close")) || close && !keep;
        } else if field.name.eq_ignore_ascii_case("date") && value.len() == DATE_LENGTH {
            // Where the value is within the head: the parser gives slices of it.
            date = Some(value.as_ptr() as usize - bytes.as_ptr() as usize);
        }
    }
    let body = match (status, chunked, body_length) {
        (100..=199 | 204 | 304, ..) => Place::Body(0),
        (_, true, Some(_)) => return Err(Malformed),
        (_, true, None) => Place::Chunks(Chunks::new()),
        (_, false, Some(length)) => Place::Body(length),
        (_, false, None) => Place::UntilClose,
    };
    Ok(Some(Head { length, status, close, body, date }))
}

/// A decimal number and nothing else: no sign, no blank.
fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                         Content-Length: 4\r\n\r\nOdd\n";
    const LATER: &str = "HTTP/1.1 200 OK\r\nDate: Mon, 07 Nov 1994 09:50:38 GMT\r\n\
                         Content-Length: 4\r\n\r\nEven";
    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding:\tchunked \r\n\r\n2\r\nab\r\n0\r\n\r\n";
    const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    const EARLY: &str = "HTTP/1.1 103 Early Hints\r\n\r\n";
    const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";

    /// All answers of a stream that comes in the given pieces.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<(u16, bool)>, Malformed> {
        let (mut reader, mut template) = (Reader::default(), Template::default());
        let mut all = Vec::new();
        for piece in pieces {
            let mut rest = piece;
            while !rest.is_empty() {
                let (used, answer) = reader.feed(&mut template, rest)?;
                all.extend(answer.map(|answer: Answer| (answer.status, answer.close)));
                rest = &rest[used..];
            }
        }
        all.extend(reader.end().map(|answer| (answer.status, answer.close)));
        Ok(all)
    }

    #[test]
    fn an_answer_cut_at_every_byte_is_the_same() {
        let parts = [PLAIN, PLAIN, LATER, CHUNKED, PLAIN, EARLY, MISSING, LATER, LAST];
        let stream = parts.concat().into_bytes();
        let expected: Vec<(u16, bool)> = vec![
            (200, false),
            (200, false),
            (200, false),
            (200, false),
            (200, false),
            (404, false),
            (200, false),
            (200, true),
        ];
        assert_eq!(read([&stream[..]]).unwrap(), expected);
        assert_eq!(read(stream.chunks(1)).unwrap(), expected);
        for cut in 0..stream.len() {
            assert_eq!(read([&stream[..cut], &stream[cut..]]).unwrap(), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_head_is_parsed_once_and_then_known_whatever_its_date() {
        let mut template = Template::default();
        assert!(!template.fits(PLAIN.as_bytes()));
        Reader::default().feed(&mut template, PLAIN.as_bytes()).unwrap();
        assert!(template.fits(PLAIN.as_bytes()) && template.fits(LATER.as_bytes()));
        for other in [MISSING, CHUNKED, LAST, &PLAIN.replace("200", "500"), &PLAIN[..40]] {
            assert!(!template.fits(other.as_bytes()), "{other}");
        }
        assert!(!template.fits(PLAIN.replace("th: 4", "th: 5").as_bytes()));
    }

    #[test]
    fn bytes_are_counted_and_a_part_of_an_answer_is_seen() {
        let (mut reader, mut template) = (Reader::default(), Template::default());
        // The second time, the head is known already.
        for _ in 0..2 {
            let (begin, end) = PLAIN.as_bytes().split_at(PLAIN.len() - 2);
            let mut answers = Vec::new();
            for piece in [begin, end] {
                assert!(answers.is_empty());
                let mut rest = piece;
                while !rest.is_empty() {
                    let (used, answer) = reader.feed(&mut template, rest).unwrap();
                    answers.extend(answer);
                    rest = &rest[used..];
                }
                assert_eq!(reader.is_within(), answers.is_empty());
            }
            let bytes = PLAIN.len() as u64;
            assert_eq!(answers, [Answer { status: 200, close: false, bytes }]);
        }
    }

    #[test]
    fn without_a_length_the_end_of_the_stream_is_the_end() {
        let old = b"HTTP/1.0 200 OK\r\n\r\nsome text";
        assert_eq!(read([&old[..]]).unwrap(), [(200, true)]);
        let kept = b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(read([&kept[..]]).unwrap(), [(200, false)]);
    }

    #[test]
    fn what_is_ambiguous_or_no_answer_is_malformed() {
        let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        for bad in [
            "Odd\n".to_owned(),
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            head("Content-Length: +5"),
            head("Content-Length: 5 5"),
            head("Content-Length:"),
            head("Content-Length: 99999999999999999999"),
            head("Content-Length: 5\r\nContent-Length: 6"),
            head("Content-Length: 5\r\nTransfer-Encoding: chunked"),
            head("Transfer-Encoding: gzip"),
        ] {
            assert_eq!(read(bad.as_bytes().chunks(1)), Err(Malformed), "{bad}");
            assert_eq!(read([bad.as_bytes()]), Err(Malformed), "{bad}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(HEAD_MAX));
        assert_eq!(read(endless.as_bytes().chunks(1000)), Err(Malformed));
    }
}
