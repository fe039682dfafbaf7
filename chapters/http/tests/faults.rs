//! Faults that real servers met while they took requests apart. Each test is named after the kind and
//! says in whose tracker it was met.

mod common;

use common::{Said, Talk, split};
use http::Wants;

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

/// What is said to a request with these fields and this body, with another request behind it.
fn posted(fields: &str, body: &str) -> (Vec<Said>, Wants) {
    let request = format!("POST /echo HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n{body}{SMUGGLED}");
    let (said, wants) = Talk::about(&[request.as_bytes()]);
    (split(&said, []), wants)
}

fn assert_refused(fields: &str, body: &str) {
    let (said, wants) = posted(fields, body);
    let statuses: Vec<u16> = said.iter().map(|said| said.status).collect();
    assert_eq!(statuses, [400], "{fields} {body}");
    assert!(said[0].closes() && wants == Wants::Linger, "{fields} {body}");
}

/// E1: `+5` is 5 to most integer parsers, Rust's included (GHSA-f3pg-qwvg-p99c, hyper).
#[test]
fn e1_a_length_is_digits_and_nothing_else() {
    for length in ["+5", "-0", "5 5", "5,5", "0x5", "5_0", "", "99999999999999999999", "5.", "٥"] {
        assert_refused(&format!("Content-Length: {length}"), "hello");
    }
    for length in ["5", "005", "0000000000000000005"] {
        let (said, _) = posted(&format!("Content-Length: {length}"), "hello");
        assert_eq!((said.len(), &said[0].body[..]), (2, &b"hello"[..]), "{length}");
    }
}

/// E2: a length that wraps round to 5 (nodejs/http-parser#78).
#[test]
fn e2_a_length_does_not_wrap() {
    for length in ["18446744073709551621", "18446744073709551616", "4294967301000000000000000"] {
        assert_refused(&format!("Content-Length: {length}"), "hello");
    }
    for length in ["4294967301", "9223372036854775808", "1048577"] {
        let (said, _) = posted(&format!("Content-Length: {length}"), "hello");
        assert_eq!((said.len(), said[0].status), (1, 413), "{length}");
    }
    for size in ["10000000000000005", "FFFFFFFFFFFFFFFFF5"] {
        assert_refused("Transfer-Encoding: chunked", &format!("{size}\r\nhello\r\n0\r\n\r\n"));
    }
}

/// E4: bytes that are no text end the reader (romanz/electrs#16).
#[test]
fn e4_bytes_that_are_no_text_are_refused() {
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let mut noise = 1_u32;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (noise >> 24) as u8
    })
    .take(1_024)
    .collect();
    for bytes in [&b"\xff\xfe7\n"[..], b"7\0\n", b"\0", hello, b"SSH-2.0-OpenSSH_9.2\r\n", &random]
    {
        let (said, wants) = Talk::about(&[bytes]);
        let said = split(&said, []);
        assert_eq!((said.len(), said[0].status, wants), (1, 400, Wants::Linger), "{bytes:?}");
    }
}

/// E5: a bare LF ends a line for one parser and not for the next (golang/go#71988).
#[test]
fn e5_a_bare_lf_ends_no_line() {
    for body in [
        "5\nhello\n0\n\n",
        "5;a=\n\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0\r\n\n",
        "5\r\nhello\r\n0\r\nA: b\n\r\n",
    ] {
        assert_refused("Transfer-Encoding: chunked", body);
    }
    assert_refused("A: b\nC: d", ""); // The documented choice for heads: the same as for chunks.
    assert_refused("A: b\rC: d", "");
    assert_refused("A: b\r", "");
}

/// E7: framed twice, once for the proxy and once for the server (postrank-labs/goliath#351).
#[test]
fn e7_a_request_is_framed_once() {
    for fields in [
        "Content-Length: 46\r\nContent-Length: 0",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\r\n chunked",
        "X: y\r\n Transfer-Encoding: chunked",
    ] {
        assert_refused(fields, "5\r\nhello\r\n0\r\n\r\n");
    }
    let in_1_0 =
        format!("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}");
    assert_eq!(split(&Talk::about(&[in_1_0.as_bytes()]).0, [])[0].status, 400);
    for plain in ["Transfer-Encoding: chunked", "transfer-encoding:\tCHUNKED \t"] {
        let (said, _) = posted(plain, "5\r\nhello\r\n0\r\n\r\n");
        assert_eq!((said.len(), &said[0].body[..]), (2, &b"hello"[..]), "{plain}");
    }
}

/// E9: a packet that ends between CR and LF (oven-sh/bun#27669). The corpus is cut at every byte in
/// `splits.rs`; here is the one that was met.
#[test]
fn e9_a_packet_may_end_between_cr_and_lf() {
    let request = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let pieces: Vec<&[u8]> = request.split_inclusive(|&byte| byte == b'\r').collect();
    assert!(pieces.len() > 6);
    assert_eq!(split(&Talk::about(&pieces).0, [])[0].body, b"hello");
}

/// E10: the second request of a packet is never answered (yhirose/cpp-httplib#1271).
#[test]
fn e10_every_request_of_a_packet_is_answered_in_order() {
    for requests in [2, 3, 50, 1_000] {
        let packet: String = (0..requests)
            .map(|n| format!("GET /parity/{} HTTP/1.1\r\nHost: x\r\n\r\n", n + 1))
            .collect();
        let said = split(&Talk::about(&[packet.as_bytes()]).0, []);
        assert_eq!(said.len(), requests);
        for (n, said) in said.iter().enumerate() {
            assert_eq!(said.body, if n % 2 == 0 { &b"Odd\n"[..] } else { b"Even\n" });
        }
    }
    let get = "GET /parity/1 HTTP/1.1\r\nHost: x\r\n\r\n";
    let post = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
    let (said, _) = Talk::about(&[format!("{get}{post}{get}").as_bytes()]);
    let bodies: Vec<_> = split(&said, []).into_iter().map(|said| said.body).collect();
    assert_eq!(bodies, [&b"Odd\n"[..], b"hello", b"Odd\n"]);

    let mut talk = Talk::new(); // One and a half, and then the rest.
    talk.feed(format!("{get}{}", &get[..15]).as_bytes());
    talk.send(usize::MAX);
    assert_eq!(split(&talk.said, []).len(), 1, "the first does not wait for the second");
    talk.feed(&get.as_bytes()[15..]);
    talk.send(usize::MAX);
    assert_eq!(split(&talk.said, []).len(), 2);
}

/// E14: a body where none may be shifts every answer behind it (stephenberry/glaze#2917).
#[test]
fn e14_an_answer_to_head_has_the_head_of_get_and_no_body() {
    for path in [
        "/",
        "/parity/7",
        "/parity/x",
        "/bytes/100",
        "/bytes/100000",
        "/nowhere",
        "/echo",
        "/slow/0",
        "/%zz",
    ] {
        let of = |method: &str| {
            Talk::about(&[format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()]).0
        };
        let (head, get) = (of("HEAD"), of("GET"));
        let end = get.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(String::from_utf8_lossy(&head), String::from_utf8_lossy(&get[..end]), "{path}");
    }
    let (said, _) =
        Talk::about(&[
            format!("HEAD / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "b".repeat(9_000)).as_bytes()
        ]);
    assert!(said.starts_with(b"HTTP/1.1 431 ") && said.ends_with(b"\r\n\r\n"));
}

/// E15: one part of a program finds where a request ends, another what it says, and they disagree
/// (siphon-project/siphon-sip#237). Here a chunked body that was accepted, said again with a length, is
/// the same request; and where it ended there, it ends here.
#[test]
fn e15_what_is_accepted_means_the_same_when_it_is_said_again() {
    for case in common::corpus("valid").iter().filter(|case| case.name.starts_with("chunked")) {
        let said = split(&Talk::about(&[&case.bytes]).0, []);
        let body = &said[0].body;
        if !case.bytes.starts_with(b"POST /echo ") {
            continue;
        }
        let (again, _) =
            posted(&format!("Content-Length: {}", body.len()), &String::from_utf8_lossy(body));
        assert_eq!(&again[0], &said[0], "{}", case.name);
        assert_eq!(
            again[1].status, 404,
            "{}: what stands behind it is the next request",
            case.name
        );
    }
}

/// D3: one header line, one head, one line of a chunk without an end eat all memory (tokio-rs/tokio#186).
#[test]
fn d3_what_has_no_end_is_refused() {
    for (start, status) in [
        ("GET /", 414),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: ", 431),
        ("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;", 400),
        ("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ", 431),
    ] {
        let mut talk = Talk::new();
        talk.feed(start.as_bytes());
        let mut fed = 0;
        while talk.connection.wants() == Wants::Read {
            talk.feed(&[b'1'; 100]);
            fed += 100;
            assert!(fed < 10_000, "{start} goes on and on");
        }
        talk.send(usize::MAX);
        assert_eq!(split(&talk.said, [])[0].status, status, "{start}");
    }
}

/// C1: a half-close is taken for the end of everything (enghitalo/vanilla#103). And C3: the choice of this
/// server is to answer it.
#[test]
fn c1_a_half_close_is_no_hang_up() {
    let mut talk = Talk::new();
    talk.feed(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    talk.feed(b"");
    talk.send(3);
    assert_eq!(split(&talk.said, [])[0].body, b"hello");
    assert_eq!(talk.connection.wants(), Wants::Close);
}
