//! What holds whatever a client sends and whenever a server calls: found by proptest, which also makes a
//! failure small. `PROPTEST_CASES=100000 cargo test --release -p http --test properties` looks for longer.

mod common;

use common::{Talk, split};
use http::{ANSWERS_BYTES_MAX, BODY_BYTES_MAX, HEAD_BYTES_MAX, KEPT_BYTES_MAX, Wants};
use proptest::collection::vec;
use proptest::prelude::*;

/// One thing that a server may do to a connection, sensible or not.
#[derive(Clone, Debug)]
enum Call {
    Feed(Vec<u8>),
    HalfClose,
    /// That many bytes have gone, or all that there are.
    Sent(usize),
    /// Time goes by, in milliseconds, and the deadline is looked at.
    Expire(u64),
    Drain,
}

fn call() -> impl Strategy<Value = Call> {
    let bytes = prop_oneof![
        3 => piece(),
        1 => vec(any::<u8>(), 1..200),
        1 => vec(prop::sample::select(&b"GET /HTP1.0:\r\n chunked0123456789abcdef;"[..]), 1..100),
    ];
    prop_oneof![
        12 => bytes.prop_map(Call::Feed),
        1 => Just(Call::HalfClose),
        8 => prop_oneof![0_usize..300, Just(usize::MAX)].prop_map(Call::Sent),
        3 => prop_oneof![0_u64..100, 1_000_u64..20_000].prop_map(Call::Expire),
        1 => Just(Call::Drain),
    ]
}

/// Parts that make requests when they come in a good order, as they often do.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /bytes/70000 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /slow/50 HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
        "hello",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "GET / HTTP/1.1\r\n",
        "Host: x\r\n",
        "\r\n",
    ])
    .prop_map(|text| text.as_bytes().to_vec())
}

proptest! {
    /// Never a panic; what is unsent never changes but by being sent; limits hold; deadlines are not in
    /// the past for long; what is over stays over.
    #[test]
    fn any_calls_in_any_order_keep_the_promises(calls in vec(call(), 1..60)) {
        let mut talk = Talk::new();
        let mut fed = 0;
        for call in calls {
            let before = talk.connection.unsent().first.to_vec();
            let was = talk.connection.wants();
            let mut gone = 0;
            match call {
                Call::Feed(bytes) => {
                    fed += bytes.len();
                    talk.feed(&bytes);
                }
                Call::HalfClose => talk.feed(b""),
                Call::Sent(length) if was == Wants::Write => {
                    gone = length.min(talk.connection.unsent().len());
                    talk.connection.sent(&mut talk.core, gone, talk.now_ms);
                }
                Call::Sent(_) => {}
                Call::Expire(later_ms) => {
                    talk.now_ms += later_ms;
                    talk.connection.expire(&mut talk.core, talk.now_ms);
                    let is_due = talk.connection.deadline_ms() <= talk.now_ms;
                    prop_assert!(!is_due || talk.connection.wants() == Wants::Close, "a deadline that does not go by");
                }
                Call::Drain => talk.connection.drain(&mut talk.core, talk.now_ms),
            }
            let unsent = talk.connection.unsent();
            if !before.is_empty() && gone < before.len() {
                prop_assert!(unsent.first == &before[gone..], "what was unsent has changed");
            }
            prop_assert!(unsent.first.len() <= ANSWERS_BYTES_MAX + BODY_BYTES_MAX + HEAD_BYTES_MAX);
            prop_assert!(talk.connection.kept_bytes() <= fed.min(KEPT_BYTES_MAX + 300));
            let wants = talk.connection.wants();
            prop_assert!(wants == Wants::Close || (wants == Wants::Write) != unsent.is_empty());
            match was {
                Wants::Close => prop_assert_eq!(wants, Wants::Close),
                Wants::Linger => prop_assert!(matches!(wants, Wants::Linger | Wants::Close)),
                _ => {}
            }
        }
    }

    /// A pipeline is answered as its requests would be one by one, however it is cut and its answers go
    /// out; and the connection is idle again, with nothing held.
    #[test]
    fn a_pipeline_is_its_requests_one_after_the_other(
        requests in vec(request(), 1..12),
        cuts in vec(1_usize..400, 1..20),
        at_once in 1_usize..2_000,
    ) {
        let alone: Vec<u8> = requests.iter().flat_map(|request| {
            let mut talk = Talk::new();
            talk.feed(request);
            talk.send(usize::MAX);
            talk.said
        }).collect();
        let stream = requests.concat();
        let mut talk = Talk::new();
        let mut rest = &stream[..];
        for cut in cuts.iter().cycle() {
            let (piece, later) = rest.split_at((*cut).min(rest.len()));
            talk.feed(piece);
            if cut % 3 > 0 {
                talk.send(at_once);
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        talk.send(at_once);
        prop_assert_eq!(talk.said.escape_ascii().to_string(), alone.escape_ascii().to_string());
        prop_assert_eq!(talk.connection.wants(), Wants::Read);
        prop_assert_eq!(talk.connection.kept_bytes(), 0);
        prop_assert_eq!(talk.connection.deadline_ms(), talk.now_ms + 15_000);
    }

    /// A body comes back as it went in, with a length and in chunks of any sizes.
    #[test]
    fn any_body_comes_back(body in vec(any::<u8>(), 1..3_000), sizes in vec(1_usize..500, 1..9)) {
        let counted = [format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat();
        let mut chunked = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let mut rest = &body[..];
        for size in sizes.iter().cycle() {
            let (chunk, later) = rest.split_at((*size).min(rest.len()));
            chunked.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            chunked.extend_from_slice(chunk);
            chunked.extend_from_slice(b"\r\n");
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        chunked.extend_from_slice(b"0\r\n\r\n");
        for request in [counted, chunked] {
            let mut talk = Talk::new();
            for piece in request.chunks(sizes[0]) {
                talk.feed(piece);
            }
            talk.send(usize::MAX);
            prop_assert_eq!(&split(&talk.said, [])[0].body, &body);
        }
    }
}

/// A request after which the connection stays.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let target = prop::sample::select(vec![
        "/",
        "/parity/7",
        "/parity/x",
        "/bytes/10",
        "/bytes/9000",
        "/echo",
        "/no",
        "/slow/0",
    ]);
    let method = prop::sample::select(vec!["GET", "HEAD", "POST", "OPTIONS", "BREW"]);
    let field = prop::sample::select(vec![
        "",
        "A: b\r\n",
        "Connection: keep-alive\r\n",
        "X:\t y \r\nZ:\r\n",
    ]);
    (method, target, field, vec(any::<u8>(), 0..50), any::<bool>()).prop_map(
        |(method, target, field, body, is_chunked)| {
            let framing = match (body.is_empty(), is_chunked) {
                (true, false) => String::new(),
                (false, false) => format!("Content-Length: {}\r\n", body.len()),
                (_, true) => "Transfer-Encoding: chunked\r\n".to_string(),
            };
            let mut request =
                format!("{method} {target} HTTP/1.1\r\n{field}Host: x\r\n{framing}\r\n")
                    .into_bytes();
            if is_chunked && !body.is_empty() {
                request.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
                request.extend_from_slice(&body);
                request.extend_from_slice(b"\r\n");
            } else if !is_chunked {
                request.extend_from_slice(&body);
            }
            if is_chunked {
                request.extend_from_slice(b"0\r\n\r\n");
            }
            request
        },
    )
}
