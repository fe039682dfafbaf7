//! The promises about the answers themselves.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{ANSWER, Outcome, PROMPT, fails, holds, still_serves};
use crate::microscope;
use crate::server::{Client, End, Heard, Server};
use crate::verdicts::Symptom;

/// Requests and their answers. Parity is the last digit's; what is not digits alone is invalid, and so
/// is zero. Some lines are what scanners send to any open port.
const REQUESTS: [(&[u8], &[u8]); 31] = [
    (b"7\n", b"Odd\n"),
    (b"100\n", b"Even\n"),
    (b"1\n", b"Odd\n"),
    (b"2\n", b"Even\n"),
    (b"100\r\n", b"Even\n"),
    (b"007\n", b"Odd\n"),
    (b"2147483648\n", b"Even\n"),
    (b"4294967296\n", b"Even\n"),
    (b"4294967297\n", b"Odd\n"),
    (b"9223372036854775808\n", b"Even\n"),
    (b"18446744073709551616\n", b"Even\n"),
    (b"1234567890123456789012345678901234567890\n", b"Even\n"),
    (b"1234567890123456789012345678901234567891\n", b"Odd\n"),
    (b"222222222222222222222222222222222222222222222222222222222222222\n", b"Even\n"),
    (b"0\n", b"Invalid\n"),
    (b"00\n", b"Invalid\n"),
    (b"-7\n", b"Invalid\n"),
    (b"+5\n", b"Invalid\n"),
    (b" 5\n", b"Invalid\n"),
    (b"5 \n", b"Invalid\n"),
    (b"5 5\n", b"Invalid\n"),
    (b"7abc\n", b"Invalid\n"),
    (b"0x5\n", b"Invalid\n"),
    (b"5_0\n", b"Invalid\n"),
    (b"7.0\n", b"Invalid\n"),
    (b"7\0\n", b"Invalid\n"),
    (b"\0\n", b"Invalid\n"),
    (b"\xff\xfe7\n", b"Invalid\n"),
    (b"\n", b"Invalid\n"),
    (b"\r\n", b"Invalid\n"),
    (b"SSH-2.0-OpenSSH_9.7\r\n", b"Invalid\n"),
];

/// How a wrong answer is wrong.
fn symptom(heard: &Heard, expected: &[u8]) -> Symptom {
    match heard.bytes.as_slice() {
        bytes if bytes == expected => Symptom::Reset,
        b"" => Symptom::Unanswered,
        _ => Symptom::WrongAnswer,
    }
}

/// How long a line without an end is sent to a server that goes on taking it.
const FLOOD: Duration = Duration::from_secs(30);

/// Where the server sleeps while `client` waits, to follow what was heard. Nothing when the stream has ended.
fn meanwhile(server: &Server, client: &Client, heard: &Heard) -> String {
    if heard.end != End::Open {
        return String::new();
    }
    let view = microscope::look(server.pid(), server.address().port());
    format!(" Meanwhile {}.", view.sentence(&[(client.name, client.address())]))
}

pub(super) fn odd_even_invalid(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    // Whoever has its answer may keep its own end open: the server does not wait for that.
    let mut answered = Vec::new();
    for (request, expected) in REQUESTS {
        let mut client = server.connect("a client")?;
        let heard = client.ask(request, ANSWER);
        if !heard.is(expected) {
            let asleep = meanwhile(&server, &client, &heard);
            let seen = format!("`{}` was answered with {heard}.{asleep}", request.escape_ascii());
            return fails(symptom(&heard, expected), seen);
        }
        answered.push(client);
    }
    // A server that speaks first, or that speaks before the line has ended, has answered nothing.
    let mut quiet = server.connect("a client")?;
    let heard = quiet.hear(Duration::from_millis(300));
    if !heard.bytes.is_empty() {
        return fails(
            Symptom::WrongAnswer,
            format!("Nothing was asked, and {heard} was answered."),
        );
    }
    drop(quiet);
    match still_serves(&server, "all these requests")? {
        Some(finding) => Ok(finding),
        None => holds(format!("{} kinds of line were answered.", REQUESTS.len())),
    }
}

pub(super) fn any_split(exe: &Path) -> Outcome {
    // Those of which the first piece alone has another answer come first.
    const REQUESTS: [(&[&[u8]], &[u8]); 10] = [
        (&[b"1", b"00\n"], b"Even\n"),
        (&[b"2", b"1\n"], b"Odd\n"),
        (&[b"7", b"abc\n"], b"Invalid\n"),
        (&[b"1", b"0", b"0", b"\r", b"\n"], b"Even\n"),
        (&[b"10", b"0\n"], b"Even\n"),
        (&[b"100", b"\n"], b"Even\n"),
        (&[b"7", b"\r\n"], b"Odd\n"),
        (&[b"7\r", b"\n"], b"Odd\n"),
        (&[b"12345678901234567890", b"1234567890123456789", b"\n"], b"Odd\n"),
        (&[b"\xd9", b"\xa7\n"], b"Invalid\n"),
    ];
    let server = Server::start(exe)?;
    for (pieces, expected) in REQUESTS {
        let mut client = server.connect("a client")?;
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 {
                // Long enough for the piece to be a packet of its own and to be read as one.
                thread::sleep(Duration::from_millis(40));
            }
            if client.send(piece).is_err() {
                break; // It was answered too early; what it says is heard below.
            }
        }
        let heard = client.hear(ANSWER);
        if !heard.is(expected) {
            let pieces: Vec<String> =
                pieces.iter().map(|it| format!("`{}`", it.escape_ascii())).collect();
            let asleep = meanwhile(&server, &client, &heard);
            let pieces = pieces.join(" ");
            let seen = format!("{pieces}, a moment apart, were answered with {heard}.{asleep}");
            return match symptom(&heard, expected) {
                // It closed on us while we were still speaking.
                Symptom::Unanswered if heard.end == End::Reset => fails(Symptom::Reset, seen),
                symptom => fails(symptom, seen),
            };
        }
    }
    holds("Cut into pieces, each request had the same answer.")
}

pub(super) fn half_closed(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    let moment = Duration::from_millis(200);
    let cases: [(&[u8], Duration, &[u8]); 6] = [
        (b"7\n", Duration::ZERO, b"Odd\n"),
        (b"100", Duration::ZERO, b"Even\n"),
        (b"7\r", Duration::ZERO, b"Odd\n"),
        (b"7", moment, b"Odd\n"),
        (b"7x", moment, b"Invalid\n"),
        (b"", Duration::ZERO, b""),
    ];
    for (request, pause, expected) in cases {
        let mut client = server.connect("a client")?;
        // A server that has closed already is heard to have done so.
        let _ = client.send(request);
        thread::sleep(pause);
        let _ = client.half_close();
        let heard = client.hear(ANSWER);
        if !heard.is(expected) {
            let asleep = meanwhile(&server, &client, &heard);
            let seen = format!(
                "A client sent `{}`, half-closed, and heard {heard}.{asleep}",
                request.escape_ascii()
            );
            return fails(symptom(&heard, expected), seen);
        }
    }
    holds("Clients that had said all they would say were answered.")
}

pub(super) fn overlong_line(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    for length in [65, 66, 100, 1000] {
        let mut ended = vec![b'8'; length];
        ended[length - 1] = b'\n';
        for line in [vec![b'8'; length], ended] {
            let mut client = server.connect("a client")?;
            let heard = client.ask(&line, ANSWER);
            if !heard.is(b"Invalid\n") {
                let asleep = meanwhile(&server, &client, &heard);
                let seen = format!(
                    "A line of {length} bytes, sent in one piece, was answered with {heard}.{asleep}"
                );
                return fails(symptom(&heard, b"Invalid\n"), seen);
            }
        }
    }
    // What is sent to the wrong port by mistake: the beginning of a TLS handshake, and noise.
    let hello = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[0x9c; 200]].concat();
    let noise: Vec<u8> =
        (0..1024u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for bytes in [hello, noise] {
        let heard = server.connect("a client")?.ask(&bytes, ANSWER);
        if !heard.is(b"Invalid\n") {
            let seen =
                format!("{} bytes that are no text were answered with {heard}.", bytes.len());
            return fails(symptom(&heard, b"Invalid\n"), seen);
        }
    }
    // A line without an end, as fast as the server takes it. It may be reset, but neither stored nor
    // listened to while others wait.
    let before = server.resident_bytes()?;
    let mut flood = server.connect("client A")?;
    let chunk = vec![b'1'; 64 * 1024];
    // Who listens for so long, however slowly, does not cut it off.
    let until = Instant::now() + FLOOD;
    let sends = move || (0..1024).all(|_| Instant::now() > until || flood.send(&chunk).is_ok());
    let flooder = thread::spawn(sends);
    let mut other = server.connect("client B")?;
    let heard = other.ask(b"7\n", PROMPT);
    // When the server stops taking it, the flood ends, at the latest after its send times out.
    let sent_all = flooder.join().unwrap_or(true);
    let grown = server.resident_bytes()?.saturating_sub(before);
    if !heard.is(b"Odd\n") {
        let seen = format!("While client A sent a line without end, client B heard {heard}.");
        return fails(symptom(&heard, b"Odd\n"), seen);
    }
    if sent_all || grown > 1024 * 1024 {
        let seen = format!(
            "A line of 64 MiB was taken, or as much of it as there was time for, and {} KiB of memory grew.",
            grown / 1024
        );
        return fails(Symptom::Leaked, seen);
    }
    match still_serves(&server, "a line without end")? {
        Some(finding) => Ok(finding),
        None => holds("Lines that were too long were refused, and a flood was cut off."),
    }
}
