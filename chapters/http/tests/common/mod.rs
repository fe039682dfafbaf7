//! What the tests of the core share: the corpus, a server that does nothing but talk, and a client that
//! takes the answers apart.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of this, and may panic")]

pub mod oracle;

use std::path::Path;

use http::{Connection, Core, Limits, OddEven, Wants};

/// One file of the corpus: what is sent, and what it has to be answered with.
///
/// The first line says the statuses (`200-`: the head of an answer, without its body) and what the file
/// is for. In the rest a line's end means nothing; `\r`, `\n`, `\t`, `\0`, `\xff` stand for bytes, and
/// `{a*3}` for `aaa`.
pub struct Case {
    pub name: String,
    /// Status, and whether the answer has no body although it says a length.
    pub statuses: Vec<(u16, bool)>,
    /// The connection ends with these answers.
    pub closes: bool,
    pub bytes: Vec<u8>,
}

/// The files of one folder of the corpus, in order.
pub fn corpus(folder: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no files", path.display());
    files.iter().map(|file| case(file)).collect()
}

/// Both folders.
pub fn whole_corpus() -> Vec<Case> {
    let mut cases = corpus("valid");
    cases.extend(corpus("invalid"));
    cases
}

fn case(file: &Path) -> Case {
    let name = format!("{}", file.file_stem().unwrap().display());
    let text = std::fs::read_to_string(file).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let (expected, _why) =
        first.strip_prefix("# ").and_then(|line| line.split_once(": ")).unwrap_or_else(|| {
            panic!("{name}: the first line is not `# STATUSES: what for`");
        });
    let closes = expected.ends_with(" close") || file.parent().unwrap().ends_with("invalid");
    let statuses = expected.strip_suffix(" close").unwrap_or(expected).split(' ');
    let statuses = statuses
        .map(|status| (status.trim_end_matches('-').parse().unwrap(), status.ends_with('-')));
    Case { statuses: statuses.collect(), closes, bytes: bytes(rest), name }
}

fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let mut used = first.len_utf8();
        match first {
            '\n' => {}
            '\\' => {
                let escaped = rest.as_bytes()[1];
                used = if escaped == b'x' { 4 } else { 2 };
                bytes.push(match escaped {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'0' => 0,
                    b'x' => u8::from_str_radix(&rest[2..4], 16).unwrap(),
                    other => panic!("\\{} is no escape", char::from(other)),
                });
            }
            '{' => {
                let end = rest.find('}').unwrap();
                let (what, times) = rest[1..end].split_once('*').unwrap();
                bytes.extend_from_slice(what.repeat(times.parse().unwrap()).as_bytes());
                used = end + 1;
            }
            other => bytes.extend_from_slice(other.to_string().as_bytes()),
        }
        rest = &rest[used..];
    }
    bytes
}

/// A connection and its core, and everything that it has said.
pub struct Talk {
    pub core: Core<OddEven>,
    pub connection: Connection,
    pub said: Vec<u8>,
    pub now_ms: u64,
}

impl Talk {
    pub fn new() -> Talk {
        Talk::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Talk {
        let core = Core::new(limits, OddEven);
        let connection = Connection::new(&core, 0);
        Talk { core, connection, said: Vec::new(), now_ms: 0 }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.connection.feed(&mut self.core, bytes, self.now_ms);
    }

    /// Sends everything, `at_once` bytes with each call, and lets the time go by where the core waits.
    pub fn send(&mut self, at_once: usize) {
        loop {
            match self.connection.wants() {
                Wants::Write => {
                    let unsent = self.connection.unsent();
                    let first = unsent.first.len().min(at_once);
                    let second = unsent.second.len().min(at_once - first);
                    self.said.extend_from_slice(&unsent.first[..first]);
                    self.said.extend_from_slice(&unsent.second[..second]);
                    let length = first + second;
                    self.connection.sent(&mut self.core, length, self.now_ms);
                }
                Wants::Wait => {
                    self.now_ms = self.now_ms.max(self.connection.deadline_ms());
                    self.connection.expire(&mut self.core, self.now_ms);
                }
                Wants::Read | Wants::Linger | Wants::Close => return,
            }
        }
    }

    /// Everything that the connection says to these pieces and a half-close, and what it wants before that.
    pub fn about(pieces: &[&[u8]]) -> (Vec<u8>, Wants) {
        let mut talk = Talk::new();
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            talk.feed(piece);
            talk.send(usize::MAX);
        }
        let wants = talk.connection.wants();
        talk.feed(b"");
        talk.send(usize::MAX);
        (talk.said, wants)
    }
}

/// One answer, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Said {
    /// The value of a field, if the answer has it. Twice is a defect.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().filter_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        });
        let value = values.next();
        assert!(values.next().is_none(), "{name} twice in {}", self.head);
        value
    }

    pub fn closes(&self) -> bool {
        self.field("Connection") == Some("close")
    }
}

/// Takes a stream of answers apart. `bodiless` says of each whether its body is left out (HEAD).
///
/// Panics with the stream when it is not exactly such answers.
pub fn split(stream: &[u8], bodiless: impl IntoIterator<Item = bool>) -> Vec<Said> {
    let mut answers = Vec::new();
    let mut bodiless = bodiless.into_iter();
    let mut rest = stream;
    while !rest.is_empty() {
        let shown = || String::from_utf8_lossy(&rest[..rest.len().min(300)]).into_owned();
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("an answer without an end: {}", shown()));
        let head = String::from_utf8(rest[..end].to_vec()).unwrap();
        let status: u16 = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|head| head[..3].parse().ok())
            .unwrap_or_else(|| {
                panic!("not an answer: {}", shown());
            });
        rest = &rest[end + 4..];
        let mut said = Said { status, head, body: Vec::new() };
        let has_none = status < 200 || status == 204 || status == 304;
        if has_none {
            assert_eq!(said.field("Content-Length"), None, "{}", said.head);
        } else {
            let length: usize = said.field("Content-Length").expect("a length").parse().unwrap();
            assert_eq!(said.field("Date").map(str::len), Some(29), "{}", said.head);
            assert!(said.field("Content-Type").is_some(), "{}", said.head);
            let is_bodiless = bodiless.next().unwrap_or(false);
            if !is_bodiless {
                assert!(rest.len() >= length, "an answer is cut off: {}", said.head);
                said.body = rest[..length].to_vec();
                rest = &rest[length..];
            }
        }
        if status >= 200 && has_none {
            bodiless.next();
        }
        answers.push(said);
    }
    answers
}
