//! Where a chunked body ends: RFC 9112, section 7.1, byte by byte but for the data.

/// A chunk is no longer than 16 hexadecimal digits can say, and in practice far shorter.
const DIGITS_MAX: u8 = 16;

/// Bytes of extensions and trailers that are skipped, of one answer.
const SKIPPED_MAX: u16 = 8192;

/// A place within a chunked body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    place: Place,
    size: u64,
    digits: u8,
    skipped: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Size,
    Extension,
    SizeEnd,
    Data,
    DataReturn,
    DataEnd,
    LineStart,
    Line,
    LineEnd,
    LastEnd,
}

/// The bytes are no chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotChunked;

impl Chunks {
    /// The beginning.
    pub fn new() -> Chunks {
        Chunks { place: Place::Size, size: 0, digits: 0, skipped: 0 }
    }

    /// Reads on. Returns how many of the bytes belong to the body, and whether it ends with them.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, bool), NotChunked> {
        let mut used = 0;
        while let Some(byte) = bytes.get(used) {
            if self.place == Place::Data {
                let here =
                    (bytes.len() - used).min(usize::try_from(self.size).unwrap_or(usize::MAX));
                used += here;
                self.size -= here as u64;
                if self.size == 0 {
                    self.place = Place::DataReturn;
                }
                continue;
            }
            used += 1;
            if self.step(*byte)? {
                return Ok((used, true));
            }
        }
        Ok((used, false))
    }

    /// One byte that is no data. True at the end of the body.
    fn step(&mut self, byte: u8) -> Result<bool, NotChunked> {
        self.place = match (self.place, byte) {
            (Place::Size, b'\r') if self.digits > 0 => Place::SizeEnd,
            (Place::Size, b';' | b' ' | b'\t') if self.digits > 0 => Place::Extension,
            (Place::Size, _) => {
                let digit = (byte as char).to_digit(16).ok_or(NotChunked)?;
                if self.digits == DIGITS_MAX {
                    return Err(NotChunked);
                }
                self.digits += 1;
                self.size = self.size << 4 | u64::from(digit);
                Place::Size
            }
            (Place::Extension, b'\r') => Place::SizeEnd,
            (Place::Extension, _) => self.skip(byte, Place::Extension)?,
            (Place::SizeEnd, b'\n') if self.size == 0 => Place::LineStart,
            (Place::SizeEnd, b'\n') => Place::Data,
            (Place::DataReturn, b'\r') => Place::DataEnd,
            (Place::DataEnd, b'\n') => {
                self.digits = 0;
                Place::Size
            }
            (Place::LineStart, b'\r') => Place::LastEnd,
            (Place::LineStart, _) => self.skip(byte, Place::Line)?,
            (Place::Line, b'\r') => Place::LineEnd,
            (Place::Line, _) => self.skip(byte, Place::Line)?,
            (Place::LineEnd, b'\n') => Place::LineStart,
            (Place::LastEnd, b'\n') => return Ok(true),
            _ => return Err(NotChunked),
        };
        Ok(false)
    }

    fn skip(&mut self, byte: u8, place: Place) -> Result<Place, NotChunked> {
        self.skipped += 1;
        if byte == b'\n' || self.skipped > SKIPPED_MAX { Err(NotChunked) } else { Ok(place) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_at_every_cut() {
        for body in [
            &b"0\r\n\r\n"[..],
            b"5\r\nhello\r\n0\r\n\r\n",
            b"000a;name=value\r\n\r\n0\r\n\r\nabc\r\n1 \r\nx\r\n0\r\nTrailer: 7\r\nB: 8\r\n\r\n",
        ] {
            let with_next = [body, b"HTTP/1.1 200"].concat();
            for cut in 0..body.len() {
                let mut chunks = Chunks::new();
                assert_eq!(chunks.feed(&body[..cut]), Ok((cut, false)));
                assert_eq!(chunks.feed(&with_next[cut..]), Ok((body.len() - cut, true)));
            }
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for body in [
            &b"\r\n"[..],
            b"x\r\n",
            b"+5\r\n",
            b"5\n",
            b"11111111111111111\r\n",
            b"1\r\nab\r\n",
            b"1;a\nb\r\n",
            b"0\r\nA: b\n\r\n",
        ] {
            assert_eq!(Chunks::new().feed(body), Err(NotChunked), "{body:?}");
        }
    }
}
