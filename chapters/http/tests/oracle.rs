//! Two opinions on the same bytes: the core's, and that of a naive reading of the rules. First on the
//! corpus, then on what becomes of the corpus when it is damaged, again and again, by a seed.
//!
//! `HTTP_MUTATIONS=1000000 cargo test --release -p http --test oracle` looks for longer.

mod common;

use common::oracle::{Expected, expected};
use common::{Talk, split, whole_corpus};
use http::Wants;

#[test]
fn both_read_the_corpus_alike() {
    for case in whole_corpus() {
        assert_agree(&case.bytes, 0, &case.name);
    }
}

#[test]
fn both_read_a_damaged_corpus_alike() {
    let mutations: u64 =
        std::env::var("HTTP_MUTATIONS").map_or(20_000, |text| text.parse().expect("a number"));
    let all = whole_corpus();
    let short: Vec<&[u8]> =
        all.iter().map(|case| &case.bytes[..]).filter(|bytes| bytes.len() < 1_500).collect();
    let mut statuses = std::collections::BTreeSet::new();
    for seed in 1..=mutations {
        let bytes = damaged(&short, seed);
        statuses.extend(assert_agree(&bytes, seed, &format!("seed {seed}")));
    }
    // That the damage is neither too little nor too much to be interesting.
    for status in [100, 200, 204, 400, 404, 405, 413, 417, 431, 501, 505] {
        assert!(statuses.contains(&status) || mutations < 20_000, "no {status} among {statuses:?}");
    }
}

/// Compares, and returns the statuses that came.
fn assert_agree(bytes: &[u8], seed: u64, name: &str) -> Vec<u16> {
    let expected = expected(bytes);
    let mut talk = Talk::new();
    feed_in_pieces(&mut talk, bytes, seed);
    let bodiless = expected.iter().filter_map(|expected| match expected {
        Expected::Continue => None,
        Expected::Answer { is_bodiless, .. } | Expected::Refusal { is_bodiless, .. } => {
            Some(*is_bodiless)
        }
    });
    let said = split(&talk.said, bodiless);
    let shown =
        || format!("{name}: {}\nexpected {expected:?}\nsaid {said:?}", bytes.escape_ascii());
    assert_eq!(said.len(), expected.len(), "{}", shown());
    for (said, expected) in said.iter().zip(&expected) {
        match expected {
            Expected::Continue => assert_eq!(said.status, 100, "{}", shown()),
            Expected::Answer { status, body, is_bodiless, closes } => {
                let has_body = !is_bodiless && *status != 204;
                assert_eq!((said.status, said.closes()), (*status, *closes), "{}", shown());
                assert_eq!(said.body, if has_body { &body[..] } else { b"" }, "{}", shown());
            }
            Expected::Refusal { statuses, .. } => {
                assert!(statuses.contains(&said.status) && said.closes(), "{}", shown());
            }
        }
    }
    assert!(matches!(talk.connection.wants(), Wants::Linger | Wants::Close), "{}", shown());
    said.iter().map(|said| said.status).collect()
}

/// In pieces and with pauses that the seed decides; with none in one piece.
fn feed_in_pieces(talk: &mut Talk, bytes: &[u8], seed: u64) {
    let mut random = Random(seed ^ 0x5eed);
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = if seed == 0 { rest.len() } else { 1 + random.below(rest.len()) };
        talk.feed(&rest[..length]);
        rest = &rest[length..];
        if random.below(2) == 0 {
            talk.send(1 + random.below(400));
        }
    }
    if random.below(2) == 0 {
        talk.send(usize::MAX);
    }
    talk.feed(b"");
    talk.send(usize::MAX);
}

/// One to four damages to one of `cases`.
fn damaged(cases: &[&[u8]], seed: u64) -> Vec<u8> {
    const SALT: [&str; 27] = [
        "\r\n",
        "\n",
        "\r",
        "\0",
        ":",
        " ",
        "\t",
        "%",
        ";",
        "+",
        "0",
        "\u{7f}",
        "\u{ff}",
        "0\r\n\r\n",
        "5\r\nhello\r\n",
        "ffffffffffffffff\r\n",
        "100001\r\n",
        "\r\n\r\n",
        "HTTP/1.0",
        "Host: y\r\n",
        "HEAD ",
        "Content-Length: 5\r\n",
        "Content-Length: 9999999\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
    ];
    let mut random = Random(seed);
    let mut bytes = cases[random.below(cases.len())].to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(20)).min(bytes.len());
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
            3 => bytes.truncate(at),
            4 => {
                let other = cases[random.below(cases.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len())..]);
            }
            5 => {
                // Where a line begins, a field is not damage but another request.
                let line =
                    bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
                drop(bytes.splice(line..line, SALT[random.below(SALT.len())].bytes()));
            }
            _ => drop(bytes.splice(at..at, SALT[random.below(SALT.len())].bytes())),
        }
    }
    bytes
}

/// xorshift: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = (self.0 ^ 0x9e37_79b9_7f4a_7c15).max(1);
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }
}
