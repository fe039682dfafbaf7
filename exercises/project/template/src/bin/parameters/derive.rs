//! Which variant of the project somebody has: derived from a seed, the same for everybody who knows it.
//!
//! The seed is the term's and the student's name for the course system, as in `2027S/alice`. Nothing
//! here is secret: a student may know everybody's variant, and has to serve their own.

use std::fmt;
use std::str::FromStr;

/// How the bytes of a stream are cut into requests, and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Each ends with this byte, which occurs nowhere else.
    Delimiter(u8),
    /// Each begins with its length in so many decimal digits, filled up with zeroes.
    Digits(usize),
    /// Each begins with its length in two bytes, the high one first.
    BigEndian,
    /// Each begins with its length in two bytes, the low one first.
    LittleEndian,
}

/// What ends a conversation, besides the client's leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The request `BYE`, which is answered `BYE`.
    Word,
    /// That so many requests have been answered.
    Count(u32),
    /// A request without a byte, which is not answered.
    Empty,
}

/// A variant of the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// How requests and answers are framed.
    pub framing: Framing,
    /// How long a client may take for a request, and for taking its answers.
    pub patience_ms: u64,
    /// How many silent clients are there when another one asks.
    pub silent_clients: usize,
    /// What ends a conversation.
    pub stop: Stop,
}

impl Parameters {
    /// The variant that belongs to `seed`.
    pub fn of(seed: &str) -> Parameters {
        let mut dice = Dice::of(seed);
        let framing = match dice.roll(8) {
            0 => Framing::Delimiter(b'\n'),
            1 => Framing::Delimiter(b';'),
            2 => Framing::Delimiter(b'|'),
            3 => Framing::Delimiter(b'#'),
            // Two digits would end at 99, and the longest request is 120 bytes.
            4 => Framing::Digits(3),
            5 => Framing::Digits(4),
            6 => Framing::BigEndian,
            _ => Framing::LittleEndian,
        };
        let patience_ms = 1500 + 250 * dice.roll(5);
        let silent_clients = 24 + 8 * dice.roll(9) as usize;
        let stop = match dice.roll(3) {
            0 => Stop::Word,
            1 => Stop::Count(3 + dice.roll(6) as u32),
            _ => Stop::Empty,
        };
        Parameters { framing, patience_ms, silent_clients, stop }
    }

    /// The file `src/mine.rs` of this variant, from the text with places for it.
    pub fn mine(self, seed: &str, text: &str) -> String {
        const EACH: &str = "each request and each answer";
        let (framing, in_words) = match self.framing {
            Framing::Delimiter(byte) => (
                format!("Framing::Delimiter({byte})"),
                format!("{EACH} ends with the byte {:?}", char::from(byte)),
            ),
            Framing::Digits(digits) => (
                format!("Framing::Digits({digits})"),
                format!("{EACH} begins with its length in {digits} digits"),
            ),
            Framing::BigEndian => (
                "Framing::BigEndian".into(),
                format!("{EACH} begins with its length in two bytes, the high one first"),
            ),
            Framing::LittleEndian => (
                "Framing::LittleEndian".into(),
                format!("{EACH} begins with its length in two bytes, the low one first"),
            ),
        };
        let (stop, ends) = match self.stop {
            Stop::Word => {
                ("Stop::Word".into(), "the request `BYE`, which is answered `BYE`".into())
            }
            Stop::Count(count) => (format!("Stop::Count({count})"), format!("{count} answers")),
            Stop::Empty => {
                ("Stop::Empty".into(), "an empty request, which is not answered".to_owned())
            }
        };
        text.replace("@SEED", seed)
            .replace("@IN_WORDS", &in_words)
            .replace("@ENDS", &ends)
            .replace("@FRAMING", &framing)
            .replace("@PATIENCE_MS", &self.patience_ms.to_string())
            .replace("@SILENT_CLIENTS", &self.silent_clients.to_string())
            .replace("@STOP", &stop)
    }
}

/// Numbers that follow from a text: FNV-1a, then splitmix64. No secret hangs on them.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of `seed`.
    pub fn of(seed: &str) -> Dice {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Dice(seed.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

impl fmt::Display for Parameters {
    /// One line, which [`Parameters::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.framing {
            Framing::Delimiter(byte) => write!(f, "framing=delimiter:{byte}")?,
            Framing::Digits(digits) => write!(f, "framing=digits:{digits}")?,
            Framing::BigEndian => f.write_str("framing=big-endian:2")?,
            Framing::LittleEndian => f.write_str("framing=little-endian:2")?,
        }
        write!(f, " patience_ms={} silent_clients={}", self.patience_ms, self.silent_clients)?;
        match self.stop {
            Stop::Word => f.write_str(" stop=word:0"),
            Stop::Count(answers) => write!(f, " stop=count:{answers}"),
            Stop::Empty => f.write_str(" stop=empty:0"),
        }
    }
}

impl FromStr for Parameters {
    type Err = String;

    fn from_str(line: &str) -> Result<Parameters, String> {
        let value = |name: &str| -> Result<&str, String> {
            let found = line.split(' ').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
            found.ok_or_else(|| format!("no {name} in {line:?}"))
        };
        let number = |text: &str| -> Result<u64, String> {
            text.parse().map_err(|_| format!("{text:?} is no number"))
        };
        let pair = |name: &str| -> Result<(&str, u64), String> {
            let (kind, count) =
                value(name)?.split_once(':').ok_or_else(|| format!("{name} has no colon"))?;
            Ok((kind, number(count)?))
        };
        let framing = match pair("framing")? {
            ("delimiter", byte) => {
                Framing::Delimiter(u8::try_from(byte).map_err(|it| it.to_string())?)
            }
            ("digits", digits) => Framing::Digits(digits as usize),
            ("big-endian", _) => Framing::BigEndian,
            ("little-endian", _) => Framing::LittleEndian,
            (other, _) => return Err(format!("no framing is called {other:?}")),
        };
        let stop = match pair("stop")? {
            ("word", _) => Stop::Word,
            ("count", answers) => Stop::Count(u32::try_from(answers).map_err(|it| it.to_string())?),
            ("empty", _) => Stop::Empty,
            (other, _) => return Err(format!("no stop rule is called {other:?}")),
        };
        Ok(Parameters {
            framing,
            patience_ms: number(value("patience_ms")?)?,
            silent_clients: number(value("silent_clients")?)? as usize,
            stop,
        })
    }
}
