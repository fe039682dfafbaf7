//! The points on which every reader and tool agrees: what an answer looks like, limits, and who closes.

mod common;

use common::{Said, Talk, split};
use http::{
    Answer, App, BODY_BYTES_MAX, BYTES_MAX, Connection, Content, Core, Limits, Reply, Request,
    Status, Wants,
};

fn answers(bytes: &[u8]) -> Vec<Said> {
    split(&Talk::about(&[bytes]).0, [])
}

fn answer(bytes: &[u8]) -> Said {
    let answers = answers(bytes);
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0].clone()
}

#[test]
fn an_answer_to_the_byte() {
    let (said, wants) = Talk::about(&[b"GET /parity/7 HTTP/1.1\r\nHost: x\r\n\r\n"]);
    let expected = "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
                    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\n\r\nOdd\n";
    assert_eq!(String::from_utf8_lossy(&said), expected);
    assert_eq!(wants, Wants::Read);
}

#[test]
fn the_date_is_that_of_the_answer() {
    let mut talk = Talk::new();
    for (unix_seconds, date) in [
        (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (784_111_778, "Sun, 06 Nov 1994 08:49:38 GMT"),
    ] {
        talk.core.clock(unix_seconds);
        talk.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        talk.send(usize::MAX);
        assert_eq!(split(&std::mem::take(&mut talk.said), [])[0].field("date"), Some(date));
    }
}

#[test]
fn a_refusal_says_close_and_lingers_and_ends_by_the_deadline() {
    let mut talk = Talk::new();
    talk.now_ms = 500;
    talk.feed(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(talk.connection.wants(), Wants::Write);
    talk.send(10);
    assert!(split(&talk.said, [])[0].closes());
    assert_eq!(talk.connection.wants(), Wants::Linger);
    assert_eq!(talk.connection.deadline_ms(), 1_500);
    talk.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"); // A server that feeds it all the same harms nobody.
    assert_eq!(talk.connection.wants(), Wants::Linger);
    assert!(talk.connection.unsent().is_empty());
    talk.connection.expire(&mut talk.core, 1_499);
    assert_eq!(talk.connection.wants(), Wants::Linger);
    talk.connection.expire(&mut talk.core, 1_500);
    assert_eq!(talk.connection.wants(), Wants::Close);
}

/// Linger costs an iterative server time: it is left out where nothing unread can be there.
#[test]
fn it_lingers_only_where_unread_bytes_may_be() {
    let close = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for (first, then, expected) in [
        (&close[..], &b"x"[..0], Wants::Close), // The client said that it is done.
        (&[close, &b"GET"[..]].concat(), b"", Wants::Linger), // It said so, and went on.
        (b"GET / HTTP/1.0\r\n\r\n", b"", Wants::Close),
        (b"BAD\r\n", b"", Wants::Linger),
    ] {
        let mut talk = Talk::new();
        talk.feed(first);
        if !then.is_empty() {
            talk.feed(then);
        }
        talk.send(usize::MAX);
        assert_eq!(talk.connection.wants(), expected, "{}", String::from_utf8_lossy(first));
    }
    let mut talk = Talk::new();
    talk.feed(b"BAD\r\n");
    talk.feed(b""); // All has been read: a close resets nothing.
    talk.send(usize::MAX);
    assert_eq!(
        talk.connection.wants(),
        Wants::Linger,
        "fed after the refusal, a half-close is not seen"
    );
}

#[test]
fn a_half_close_is_answered_and_then_closed() {
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    for is_sent_before in [true, false] {
        let mut talk = Talk::new();
        talk.feed(request);
        if is_sent_before {
            talk.send(usize::MAX);
        }
        talk.feed(b"");
        talk.send(usize::MAX);
        assert_eq!(split(&talk.said, [])[0].status, 200);
        assert_eq!(talk.connection.wants(), Wants::Close);
    }
    let mut silent = Talk::new();
    silent.feed(b"");
    assert_eq!((silent.connection.wants(), silent.said.len()), (Wants::Close, 0));
}

#[test]
fn the_answer_to_1_0_says_whether_it_stays() {
    let kept = answer(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(kept.field("connection"), Some("keep-alive"));
    assert!(answer(b"GET / HTTP/1.0\r\n\r\n").closes());
    assert_eq!(answer(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").field("connection"), None);
}

#[test]
fn a_wrong_method_is_told_the_right_ones() {
    let wrong = answer(b"DELETE /parity/7 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((wrong.status, wrong.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    let wrong = answer(b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((wrong.status, wrong.field("allow")), (405, Some("POST, OPTIONS")));
    let options = answer(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((options.status, options.field("allow")), (204, Some("GET, HEAD, POST, OPTIONS")));
}

#[test]
fn the_application_answers_the_course_s_question() {
    for (number, status, body) in [
        ("7", 200, "Odd\n"),
        ("007", 200, "Odd\n"),
        ("%31%30%30", 200, "Even\n"),
        ("340282366920938463463374607431768211457", 200, "Odd\n"),
        ("0", 400, "Invalid\n"),
        ("", 400, "Invalid\n"),
        ("-7", 400, "Invalid\n"),
        ("+7", 400, "Invalid\n"),
        ("7.0", 400, "Invalid\n"),
        ("%207", 400, "Invalid\n"),
        ("%D9%A7", 400, "Invalid\n"),
        ("%007", 400, "Invalid\n"),
    ] {
        let said = answer(format!("GET /parity/{number} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        assert_eq!((said.status, &said.body[..]), (status, body.as_bytes()), "{number}");
        assert!(!said.closes());
    }
}

#[test]
fn large_answers_are_exact_and_never_copied() {
    for length in [0, 1, 63, 64, 4_096, 4_097, 262_143, 262_144, 262_145, 1_000_000, BYTES_MAX] {
        let mut talk = Talk::new();
        talk.feed(format!("GET /bytes/{length} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        assert!(
            talk.connection.unsent().first.len() < 5_000,
            "only the head of {length} bytes is in memory of ours"
        );
        talk.send(100_003);
        let said = split(&talk.said, []);
        assert_eq!((said[0].status, said[0].body.len() as u64), (200, length));
        let line = b"All work and no play makes a server that only ever serves bytes\n";
        assert!(
            said[0].body.iter().zip(line.iter().cycle()).all(|(byte, expected)| byte == expected)
        );
        assert_eq!(talk.connection.wants(), Wants::Read);
    }
}

#[test]
fn the_largest_body_comes_back() {
    let body: Vec<u8> = (0..BODY_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    for piece in [usize::MAX, 4_096, 999] {
        let mut talk = Talk::new();
        talk.feed(
            format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len())
                .as_bytes(),
        );
        for bytes in body.chunks(piece) {
            talk.feed(bytes);
        }
        talk.send(65_536);
        assert!(split(&talk.said, [])[0].body == body);
        assert_eq!(talk.connection.wants(), Wants::Read);
    }
    let mut chunked =
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(10_000) {
        chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert!(answer(&chunked).body == body);
}

/// 100 goes out at once, and is not followed by 413.
#[test]
fn a_client_that_asks_before_it_sends_is_told_to_go_on() {
    let mut talk = Talk::new();
    talk.feed(
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(talk.connection.wants(), Wants::Write);
    talk.send(usize::MAX);
    assert_eq!(talk.said, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(talk.connection.wants(), Wants::Read);
    talk.feed(b"hello");
    talk.send(usize::MAX);
    assert_eq!(split(&talk.said, [])[1].body, b"hello");

    let mut talk = Talk::new();
    talk.feed(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\nExpect: 100-continue\r\n\r\n");
    talk.send(usize::MAX);
    assert_eq!(split(&talk.said, [])[0].status, 413);
    assert_eq!(talk.connection.wants(), Wants::Linger);
}

/// Answers to a pipeline go out together, and a client that reads none of them cannot fill our memory.
#[test]
fn a_pipeline_is_answered_with_one_write_of_bounded_size() {
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut talk = Talk::new();
    talk.feed(&request.repeat(16));
    assert_eq!(split(talk.connection.unsent().first, []).len(), 16);

    let mut talk = Talk::new();
    talk.feed(&request.repeat(10_000));
    let unsent = talk.connection.unsent().len();
    assert!((64 * 1024..66 * 1024).contains(&unsent), "{unsent} bytes at once");
    talk.send(usize::MAX);
    assert_eq!(split(&talk.said, []).len(), 10_000);
    assert_eq!(talk.connection.wants(), Wants::Read);
}

#[test]
fn a_server_that_reads_on_while_it_should_write_is_bounded() {
    let mut talk = Talk::new();
    let requests = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1_000);
    talk.feed(&requests);
    for _ in 0..1_000 {
        talk.feed(&requests);
    }
    assert!(talk.connection.kept_bytes() <= http::KEPT_BYTES_MAX + requests.len());
    assert_eq!(talk.connection.wants(), Wants::Close);
}

/// An io_uring send in flight reads the buffer while more is fed and the connection is moved.
#[test]
fn what_is_unsent_stays_where_it_is() {
    let mut talk = Talk::new();
    talk.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let (address, bytes) =
        (talk.connection.unsent().first.as_ptr(), talk.connection.unsent().first.to_vec());
    let mut moved = vec![talk.connection];
    for _ in 0..100 {
        moved[0].feed(
            &mut talk.core,
            &b"GET /bytes/9999 HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20),
            1,
        );
        let other = Connection::new(&talk.core, 0);
        moved.push(other);
        assert_eq!(
            (moved[0].unsent().first.as_ptr(), moved[0].unsent().first),
            (address, &bytes[..])
        );
    }
    moved[0].expire(&mut talk.core, 1_000_000);
    assert_eq!(moved[0].wants(), Wants::Close);
    assert_eq!(
        moved[0].unsent().first.as_ptr(),
        address,
        "until the server lets go of the connection"
    );
    moved.swap_remove(0).release(&mut talk.core);
}

#[test]
fn a_stop_lets_idle_clients_go_and_answers_the_others() {
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut idle = Talk::new();
    idle.connection.drain(&mut idle.core, 1);
    assert_eq!(idle.connection.wants(), Wants::Close);

    let mut after = Talk::new();
    after.feed(request);
    after.send(usize::MAX);
    after.connection.drain(&mut after.core, 1);
    assert_eq!(after.connection.wants(), Wants::Close);

    let mut half = Talk::new();
    half.feed(&request[..10]);
    half.connection.drain(&mut half.core, 1);
    assert_eq!(half.connection.wants(), Wants::Read);
    half.feed(&request[10..]);
    half.send(usize::MAX);
    assert!(split(&half.said, [])[0].closes());
    assert_eq!(half.connection.wants(), Wants::Linger);

    let mut writing = Talk::new();
    writing.feed(request);
    writing.connection.drain(&mut writing.core, 1);
    writing.send(7);
    assert!(!split(&writing.said, [])[0].closes(), "it was written before the stop");
    assert_eq!(writing.connection.wants(), Wants::Read);
    assert_eq!(writing.connection.deadline_ms(), 1_000, "as long as a client may linger");
    writing.connection.expire(&mut writing.core, 1_000);
    assert_eq!(writing.connection.wants(), Wants::Close);

    // What it asked meanwhile is unread: to close would be to reset, and to cut off the first answer.
    let mut asking = Talk::new();
    asking.feed(request);
    asking.connection.drain(&mut asking.core, 1);
    asking.send(usize::MAX);
    asking.feed(request);
    asking.send(usize::MAX);
    let said = split(&asking.said, []);
    assert!(said.len() == 2 && said[1].closes());
    assert_eq!(asking.connection.wants(), Wants::Linger);

    let mut slow = Talk::new();
    slow.feed(b"GET /slow/500 HTTP/1.1\r\nHost: x\r\n\r\n");
    slow.connection.drain(&mut slow.core, 1);
    assert_eq!(slow.connection.wants(), Wants::Wait);
    slow.send(usize::MAX);
    assert!(split(&slow.said, [])[0].closes());
}

/// 204 and 304 have no body and no length, whatever the application says.
#[test]
fn answers_without_bodies_have_none() {
    struct Bodiless;
    impl App for Bodiless {
        fn answer<'a>(&'a self, request: &Request<'a>) -> Reply<'a> {
            let status =
                if request.path == "/204" { Status::NoContent } else { Status::NotModified };
            let content = Content::Repeated { block: b"wrong", length_bytes: 1 << 40 };
            Reply::Now(Answer { content, ..Answer::text(status, b"") })
        }
    }
    let mut core = Core::new(Limits::default(), Bodiless);
    let mut connection = Connection::new(&core, 0);
    connection.feed(
        &mut core,
        b"GET /204 HTTP/1.1\r\nHost: x\r\n\r\nGET /304 HTTP/1.1\r\nHost: x\r\n\r\n",
        0,
    );
    let unsent = connection.unsent();
    assert!(unsent.second.is_empty());
    let statuses: Vec<u16> = split(unsent.first, []).iter().map(|said| said.status).collect();
    assert_eq!(statuses, [204, 304]);
}
