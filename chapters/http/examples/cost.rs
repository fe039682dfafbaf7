//! What a request costs, in nanoseconds of one core: `cargo run --release -p http --example cost`.
//!
//! No system calls, so that what is left is parsing, routing and answering. The figures are for people;
//! nothing is asserted. Words behind `--` choose among the requests, so that a profile shows one of them.

use std::hint::black_box;
use std::time::Instant;

use http::{Connection, Core, Limits, OddEven};

/// So few that most windows pass without an interruption, of so many that some do.
const REQUESTS: u32 = 20_000;
const WINDOWS: u32 = 200;

fn main() {
    let browser = "GET /parity/12345 HTTP/1.1\r\nHost: localhost:8080\r\n\
        User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
        Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
        Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate\r\n\
        Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nPriority: u=0, i\r\n\r\n";
    let short = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let chunked = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!("ns per request, best of {WINDOWS} windows:");
    for (name, pieces, requests) in [
        ("shortest GET", vec![short.as_bytes()], 1),
        ("a browser's GET", vec![browser.as_bytes()], 1),
        ("16 in one packet", vec![short.repeat(16).as_bytes()], 16),
        ("GET in two pieces", vec![&short.as_bytes()[..10], &short.as_bytes()[10..]], 1),
        ("POST, five bytes in a chunk", vec![chunked.as_bytes()], 1),
    ] {
        if !wanted.iter().all(|word| name.contains(word)) {
            continue;
        }
        let best = (0..WINDOWS).map(|_| measure(&pieces, requests)).fold(f64::INFINITY, f64::min);
        println!("{best:8.0}  {name}");
    }
}

fn measure(pieces: &[&[u8]], requests: u32) -> f64 {
    let mut core = Core::new(Limits::default(), OddEven);
    let mut connection = Connection::new(&core, 0);
    let rounds = REQUESTS / requests;
    let begin = Instant::now();
    for now_ms in 0..u64::from(rounds) {
        for piece in pieces {
            connection.feed(&mut core, black_box(piece), now_ms);
        }
        let length = black_box(connection.unsent()).len();
        connection.sent(&mut core, length, now_ms);
    }
    begin.elapsed().as_nanos() as f64 / f64::from(rounds * requests)
}
