//! The grader's own idea of the protocol: what is sent, and what has to be answered.
//!
//! Written anew, and not shared with our solution: what a grader shares with a server it cannot judge.

use super::parameters::{Dice, Framing, Parameters, Stop};

/// What a request may have at most, in bytes and without its frame.
const REQUEST_BYTES_MAX: usize = 120;

/// A text in its frame.
pub fn framed(parameters: Parameters, text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (high, low) = ((text.len() / 256) as u8, (text.len() % 256) as u8);
    match parameters.framing {
        Framing::Delimiter(_) => {}
        Framing::Digits(width) => {
            let digits = text.len().to_string();
            bytes.resize(width - digits.len(), b'0');
            bytes.extend_from_slice(digits.as_bytes());
        }
        Framing::BigEndian => bytes.extend([high, low]),
        Framing::LittleEndian => bytes.extend([low, high]),
    }
    bytes.extend_from_slice(text.as_bytes());
    if let Framing::Delimiter(byte) = parameters.framing {
        bytes.push(byte);
    }
    bytes
}

/// Some numbers, and their sum.
pub fn request(dice: &mut Dice) -> (String, String) {
    let count = 1 + dice.roll(8);
    let numbers: Vec<u64> = (0..count).map(|_| dice.roll(1_000_000_000)).collect();
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    (texts.join(" "), numbers.iter().sum::<u64>().to_string())
}

/// How many requests a conversation may have before the stop rule ends it.
pub fn requests_max(parameters: Parameters) -> usize {
    match parameters.stop {
        Stop::Count(answers) => answers as usize,
        Stop::Word | Stop::Empty => usize::MAX,
    }
}

/// Complete requests that are none.
pub const REFUSED: [&str; 7] = ["x", "1  2", " 1", "1 ", "-1", "1234567890", "1 2 3 4 5 6 7 8 9"];

/// The beginning of a request which is too long already.
pub fn overlong(parameters: Parameters) -> Vec<u8> {
    let text = "1".repeat(REQUEST_BYTES_MAX + 1);
    match parameters.framing {
        Framing::Delimiter(_) => text.into_bytes(),
        // The header alone says it.
        Framing::Digits(width) => framed(parameters, &text)[..width].to_vec(),
        Framing::BigEndian | Framing::LittleEndian => framed(parameters, &text)[..2].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(framing: Framing) -> Parameters {
        Parameters { framing, ..Parameters::of("a/b") }
    }

    #[test]
    fn frames_are_what_the_brief_says() {
        assert_eq!(framed(with(Framing::Delimiter(b';')), "7"), b"7;");
        assert_eq!(framed(with(Framing::Digits(3)), "12 30"), b"00512 30");
        assert_eq!(framed(with(Framing::BigEndian), "ERR"), b"\0\x03ERR");
        assert_eq!(framed(with(Framing::LittleEndian), "ERR"), b"\x03\0ERR");
        assert_eq!(overlong(with(Framing::Digits(4))), b"0121");
        assert_eq!(overlong(with(Framing::Delimiter(b'|'))).len(), 121);
    }

    #[test]
    fn the_longest_request_fits() {
        let mut dice = Dice::of("any");
        assert!((0..1000).all(|_| request(&mut dice).0.len() <= REQUEST_BYTES_MAX));
    }
}
