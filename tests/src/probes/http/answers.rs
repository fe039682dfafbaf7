//! The promises about the answers themselves.

use std::thread;
use std::time::{Duration, Instant};

use super::super::{ANSWER, holds, poll};
use super::{
    MOMENT, ODD, Observation, Outcome, PATIENT, QUESTION, Subject, Trouble, expect, fails,
    is_taken_in, meanwhile, symptom,
};
use crate::http::{Answer, Caller, NoAnswer, get, get_and_close};
use crate::microscope;
use crate::server::{End, Server};
use crate::verdicts::Symptom;

/// Requests without a body, and the status and body of their answers. Parity is the last digit's.
const REQUESTS: [(&str, &str, u16, Option<&[u8]>); 12] = [
    ("GET", "/", 200, None),
    ("GET", "/parity/7", 200, Some(b"Odd\n")),
    ("GET", "/parity/100", 200, Some(b"Even\n")),
    ("GET", "/parity/1234567890123456789012345678901234567890", 200, Some(b"Even\n")),
    ("GET", "/parity/0", 400, Some(b"Invalid\n")),
    ("GET", "/parity/7abc", 400, Some(b"Invalid\n")),
    ("GET", "/nothing", 404, None),
    ("HEAD", "/parity/7", 200, Some(b"")),
    ("GET", "/bytes/0", 200, Some(b"")),
    ("DELETE", "/parity/7", 405, None),
    ("BREW", "/parity/7", 501, None),
    ("GET", "/slow/20", 200, None),
];

pub(super) fn parity_and_404(subject: &Subject) -> Outcome {
    let server = subject.start()?;
    // An unknown method may end the connection; all others share one.
    let mut caller = Caller::connect(&server, "a client")?;
    for (method, path, status, body) in REQUESTS {
        let _ = caller.say(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let answer = match method {
            "HEAD" => caller.answer_to_head(ANSWER),
            _ => caller.answer(ANSWER),
        };
        let story = format!("A client asked {method} {path}");
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) => match expect(&server, answer, b"", &story)? {
                Some(finding) => return Ok(finding),
                None => continue,
            },
        };
        let wrong = answer.status != status
            || body.is_some_and(|body| answer.body != body)
            || answer.field("Date").is_none()
            || (status == 405 && answer.field("Allow").is_none());
        if wrong {
            let seen = format!("{story} and heard {answer}, with {:?}.", answer.fields);
            return fails(Symptom::WrongAnswer, seen);
        }
        if answer.closes() {
            caller = Caller::connect(&server, "a client")?;
        }
    }
    // A server that has one client at a time has room for the next one only now.
    drop(caller);
    for last in [echo(b"hello", true), b"GET /parity/7 HTTP/1.0\r\n\r\n".to_vec()] {
        let mut caller = Caller::connect(&server, "a client")?;
        let body = if last.starts_with(b"POST") { b"hello".as_slice() } else { ODD };
        let answer = caller.ask(&last, ANSWER);
        if let Some(finding) = expect(&server, answer, body, "A client asked a last time")? {
            return Ok(finding);
        }
        let rest = caller.rest(ANSWER);
        if !rest.is(b"") {
            let seen = format!("After its last answer a client heard {rest}.");
            return fails(Symptom::Unanswered, seen);
        }
    }
    holds(format!("{} kinds of request were answered.", REQUESTS.len() + 2))
}

/// `POST /echo`.
fn echo(body: &[u8], closes: bool) -> Vec<u8> {
    let close = if closes { "Connection: close\r\n" } else { "" };
    let head =
        format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{close}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub(super) fn any_split(subject: &Subject) -> Outcome {
    const REQUESTS: [(&[&str], &[u8]); 7] = [
        (&["GET /parity/1", "00 HTTP/1.1\r\nHost: a\r\n\r\n"], b"Even\n"),
        (&["GET /parity/7 HTTP/1.1\r\nHost: a\r\n", "\r\n"], b"Odd\n"),
        (&["GET /parity/7 HTTP/1.1\r\nHost: a\r\n\r", "\n"], b"Odd\n"),
        (&["G", "ET /parity/2 HTTP/1.1\r", "\nHo", "st: a\r\n\r\n"], b"Even\n"),
        (&["POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", "he", "llo"], b"hello"),
        (
            &[
                "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
                "llo\r",
                "\n0\r\n\r",
                "\n",
            ],
            b"hello",
        ),
        (
            &[
                "GET /parity/7 HTTP/1.1\r\nHost: a\r\n\r\nGET /pa",
                "rity/8 HTTP/1.1\r\nHost: a\r\n\r\n",
            ],
            ODD,
        ),
    ];
    let server = subject.start_with(&PATIENT)?;
    let mut caller = Caller::connect(&server, "a client")?;
    for (pieces, body) in REQUESTS {
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 {
                // What came before has been read by itself.
                is_taken_in(&server, &caller.client);
            }
            let _ = caller.say(piece.as_bytes());
        }
        let pieces: Vec<String> = pieces.iter().map(|it| it.escape_default().to_string()).collect();
        let story = format!("A client sent `{}`, one after the other,", pieces.join("` `"));
        let answer = caller.answer(ANSWER);
        if let Some(finding) = expect(&server, answer, body, &story)? {
            return Ok(finding);
        }
    }
    let answer = caller.answer(ANSWER);
    if let Some(finding) = expect(&server, answer, b"Even\n", "A client cut its second request")? {
        return Ok(finding);
    }
    // And each byte by itself.
    for byte in get(QUESTION) {
        let _ = caller.say(&[byte]);
        thread::sleep(Duration::from_millis(2));
    }
    let answer = caller.answer(ANSWER);
    match expect(&server, answer, ODD, "A client sent each byte by itself")? {
        Some(finding) => Ok(finding),
        None => holds("Cut into pieces, each request had the same answer."),
    }
}

pub(super) fn half_closed(subject: &Subject) -> Outcome {
    let server = subject.start()?;
    let moment = Duration::from_millis(100);
    let twice = get(QUESTION).repeat(2);
    let cases: [(&[u8], Duration, usize); 5] = [
        (&get(QUESTION), Duration::ZERO, 1),
        (&get(QUESTION), moment, 1),
        (&twice, Duration::ZERO, 2),
        (&echo(b"hello", false), Duration::ZERO, 1),
        (b"", Duration::ZERO, 0),
    ];
    for (request, pause, answers) in cases {
        let mut caller = Caller::connect(&server, "a client")?;
        // Both at once are there when it looks, or the one after the other.
        if pause.is_zero() {
            server.stop()?;
        }
        let _ = caller.say(request);
        thread::sleep(pause);
        let _ = caller.client.half_close();
        if pause.is_zero() {
            has_left(&server, &caller);
            server.resume()?;
        }
        let story = format!("A client sent `{}`, half-closed,", request.escape_ascii());
        let body = if request.starts_with(b"POST") { b"hello".as_slice() } else { ODD };
        for _ in 0..answers {
            let answer = caller.answer(ANSWER);
            if let Some(finding) = expect(&server, answer, body, &story)? {
                return Ok(finding);
            }
        }
        let rest = caller.rest(ANSWER);
        if !rest.is(b"") {
            let asleep = meanwhile(&server, rest.end);
            let seen = format!("{story} and heard, after {answers} answers, {rest}.{asleep}");
            let symptom = if rest.end == End::Reset { Symptom::Reset } else { Symptom::Unanswered };
            return fails(symptom, seen);
        }
    }
    // Half a request is no request. Whether it is refused or dropped, it ends.
    let mut caller = Caller::connect(&server, "a client")?;
    let _ = caller.say(b"GET /parity/7 HTTP/1.1\r\nHos");
    let _ = caller.client.half_close();
    let rest = caller.rest(ANSWER);
    if rest.end != End::Closed || rest.bytes.windows(4).any(|it| it == ODD) {
        let seen = format!("A client sent half a head, half-closed, and heard {rest}.");
        return fails(Symptom::WrongAnswer, seen);
    }
    holds("Clients that had said all they would say were answered.")
}

/// Waits until all that was sent has arrived, at most for a moment.
fn has_left(server: &Server, caller: &Caller) {
    let port = server.address().port();
    poll(MOMENT, || {
        microscope::has_arrived(server.pid(), port, caller.client.address()) != Some(false)
    });
}

pub(super) fn pipelined(subject: &Subject) -> Outcome {
    let server = subject.start()?;
    let mut caller = Caller::connect(&server, "a client")?;
    // Two, then three kinds, then 16, each in one write.
    let mixed = [get("/parity/1"), echo(b"GET / HTTP/1.1\r\n", false), get("/parity/4")].concat();
    let sixteen: Vec<u8> = (1..=16).flat_map(|it| get(&format!("/parity/{it}"))).collect();
    let parities: Vec<&[u8]> = [ODD, b"Even\n"].into_iter().cycle().take(16).collect();
    let batches: [(Vec<u8>, Vec<&[u8]>); 3] = [
        ([get("/parity/1"), get("/parity/2")].concat(), vec![ODD, b"Even\n"]),
        (mixed, vec![ODD, b"GET / HTTP/1.1\r\n", b"Even\n"]),
        (sixteen, parities),
    ];
    for (requests, bodies) in batches {
        caller.say(&requests)?;
        let all = bodies.len();
        for (at, body) in bodies.into_iter().enumerate() {
            let answer = caller.answer(ANSWER);
            let story =
                format!("A client sent {all} requests in one write, waited for number {at},");
            if let Some(finding) = expect(&server, answer, body, &story)? {
                return Ok(finding);
            }
        }
    }
    // One and a half, and the rest later.
    let two = [get("/parity/1"), get("/parity/2")].concat();
    let (first, rest) = two.split_at(two.len() - 20);
    caller.say(first)?;
    let answer = caller.answer(ANSWER);
    if let Some(finding) = expect(&server, answer, ODD, "A client sent one request and a half")? {
        return Ok(finding);
    }
    thread::sleep(MOMENT);
    let answer = caller.ask(rest, ANSWER);
    if let Some(finding) = expect(&server, answer, b"Even\n", "It sent the rest of the second")? {
        return Ok(finding);
    }
    thousand_deep(&server, caller)
}

/// A thousand in one write, whose answers are more than a server wants to keep. Each says which it is by
/// its length.
fn thousand_deep(server: &Server, mut caller: Caller) -> Outcome {
    const DEPTH: usize = 1000;
    let requests: Vec<u8> = (1..=DEPTH).flat_map(|it| get(&format!("/bytes/{it}"))).collect();
    let socket = caller.client.stream().try_clone()?;
    // All of it is there when it looks: there is no second event for what it leaves unread.
    server.stop()?;
    let sender = thread::spawn(move || std::io::Write::write_all(&mut &socket, &requests));
    // Where a socket does not hold so much, the rest comes later.
    if poll(MOMENT, || sender.is_finished()) {
        has_left(server, &caller);
    }
    server.resume()?;
    for at in 1..=DEPTH {
        let answer = caller.answer(ANSWER);
        let told = match answer {
            Ok(answer) if answer.status == 200 && answer.body.len() == at => continue,
            Ok(answer) => (Symptom::WrongAnswer, answer.to_string()),
            Err(no) => {
                (symptom(&no), format!("{} bytes, {:?}", no.heard.bytes.len(), no.heard.end))
            }
        };
        let asleep = meanwhile(server, End::Open);
        return fails(
            told.0,
            format!("Of {DEPTH} requests in one write, number {at} heard {}.{asleep}", told.1),
        );
    }
    let _ = sender.join();
    holds(format!("2, 3, 16 and {DEPTH} requests in one write were answered in order."))
}

pub(super) fn refusal(subject: &Subject) -> Outcome {
    let server = subject.start()?;
    let large = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2097152\r\n\r\n";
    let first = [&get(QUESTION)[..], b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"].concat();
    let cases: [(&[u8], &[u16]); 3] =
        [(large, &[413]), (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", &[400]), (&first, &[200, 400])];
    for (request, statuses) in cases {
        // On a machine so busy that the rest takes too long to come, it says nothing that the server closes
        // meanwhile: once more.
        let mut found = Some(Refused::TooLate);
        for _ in 0..TRIES {
            found = refused(&server, request, statuses)?;
            if !matches!(found, Some(Refused::TooLate)) {
                break;
            }
        }
        match found {
            None => {}
            Some(Refused::Wrong(finding)) => return Ok(finding),
            Some(Refused::TooLate) => {
                return Err(Trouble::Broken(anyhow::anyhow!(
                    "{TRIES} times it took {READS_ON:?} to send 64 KiB: is this machine very busy?"
                )));
            }
        }
    }
    holds("Requests that still arrived were refused, and the refusal was heard to its end.")
}

/// How long every server reads on at least after a refusal: who comes later than that may be reset. One that
/// serves one client at a time has somebody else waiting, and closes a little later than this.
const READS_ON: Duration = Duration::from_millis(200);
const TRIES: usize = 20;

/// What becomes of a refusal that is not heard to its end.
enum Refused {
    Wrong(Observation),
    TooLate,
}

/// Sends `request` and more, and hears `statuses` and the end.
fn refused(server: &Server, request: &[u8], statuses: &[u16]) -> Result<Option<Refused>, Trouble> {
    let wrong = |symptom, seen| fails(symptom, seen).map(|it| Some(Refused::Wrong(it)));
    let mut caller = Caller::connect(server, "a client")?;
    // Nothing is refused before this moment.
    let begin = Instant::now();
    let mut sent = caller.say(request);
    // The refusal is on its way, and the client goes on sending, as somebody does who has not looked yet.
    // Nothing of it is executed any more.
    poll(ANSWER, || !caller.client.is_held());
    let is_post = request.starts_with(b"POST");
    let more = if is_post { vec![b'x'; 16384] } else { get(QUESTION).repeat(400) };
    for _ in 0..4 {
        sent = sent.and_then(|()| caller.say(&more));
    }
    let is_late = begin.elapsed() > READS_ON;
    let request = String::from_utf8_lossy(request);
    let story = format!("A client sent `{}`, and more,", request.escape_default());
    for &status in statuses {
        match caller.answer(ANSWER) {
            Ok(answer) if answer.status == status && (status == 200 || answer.closes()) => {}
            Ok(answer) => {
                return wrong(Symptom::WrongAnswer, format!("{story} and heard {answer}."));
            }
            Err(_) if is_late => return Ok(Some(Refused::TooLate)),
            Err(no) => {
                server.must_run()?;
                return wrong(symptom(&no), format!("{story} and heard {no}."));
            }
        }
    }
    let rest = caller.rest(ANSWER);
    let broken = match (rest.end, &sent) {
        (End::Closed, Ok(())) if rest.bytes.is_empty() => return Ok(None),
        _ if is_late => return Ok(Some(Refused::TooLate)),
        (End::Reset, _) | (_, Err(_)) => Symptom::Reset,
        (End::Open, _) => Symptom::HeldForEver,
        (End::Closed, _) => Symptom::WrongAnswer,
    };
    let sent = sent.map_or_else(|it| format!(" (sending failed: {it})"), |()| String::new());
    wrong(
        broken,
        format!("{story} was refused with {statuses:?}, and heard after it {rest}{sent}."),
    )
}

/// What `/bytes` consists of.
const LINE: &[u8; 64] = b"All work and no play makes a server that only ever serves bytes\n";

pub(super) fn large_answer(subject: &Subject) -> Outcome {
    const LENGTH: usize = 8 * 1024 * 1024 + 1;
    let server = subject.start()?;
    let mut caller = Caller::connect_small(&server, "a client")?;
    caller.say(&get(&format!("/bytes/{LENGTH}")))?;
    // A little at a time, then not at all, and in the same instant the next request.
    let mut first = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(600) {
        read_a_little(&caller, &mut first)?;
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(500));
    caller.say(&get_and_close(QUESTION))?;
    caller.give_back(first);
    let answer = caller.answer(Duration::from_secs(20));
    let is_right = |answer: &Answer| {
        answer.body.len() == LENGTH && answer.body.chunks(64).all(|it| LINE.starts_with(it))
    };
    let story = format!("A client that read slowly asked for {LENGTH} bytes");
    match answer {
        Ok(answer) if is_right(&answer) => {}
        Ok(answer) => return fails(Symptom::WrongAnswer, format!("{story} and heard {answer}.")),
        Err(NoAnswer { heard, wrong }) => {
            let asleep = meanwhile(&server, heard.end);
            let seen = format!(
                "{story} and heard {} bytes and then {:?} {wrong:?}.{asleep}",
                heard.bytes.len(),
                heard.end
            );
            return fails(
                if heard.end == End::Reset { Symptom::Reset } else { Symptom::Unanswered },
                seen,
            );
        }
    }
    let answer = caller.answer(ANSWER);
    match expect(&server, answer, ODD, "It asked for more while that was on its way")? {
        Some(finding) => Ok(finding),
        None => holds(format!("{story}, and had them all, and the next answer.")),
    }
}

/// A KiB, if it is there.
fn read_a_little(caller: &Caller, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let mut chunk = [0; 1024];
    let mut stream = caller.client.stream();
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    if let Ok(length) = std::io::Read::read(&mut stream, &mut chunk) {
        bytes.extend_from_slice(&chunk[..length]);
    }
    Ok(())
}
