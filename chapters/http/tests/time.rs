//! Patience: what happens when a client does nothing, or too little. Time is an argument, so that an hour
//! is a number.

mod common;

use common::{Talk, split};
use http::{Limits, Wants};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

impl Talk {
    fn expire(&mut self, now_ms: u64) -> Wants {
        self.now_ms = now_ms;
        self.connection.expire(&mut self.core, now_ms);
        self.connection.wants()
    }
}

#[test]
fn a_silent_client_is_let_go_without_an_answer() {
    let mut talk = Talk::new();
    assert_eq!(talk.connection.deadline_ms(), 15_000);
    assert_eq!(talk.expire(14_999), Wants::Read);
    assert_eq!(talk.expire(15_000), Wants::Close);
    assert!(talk.connection.unsent().is_empty());
}

#[test]
fn a_client_between_two_requests_has_the_same_patience() {
    let mut talk = Talk::new();
    talk.now_ms = 10_000;
    talk.feed(REQUEST);
    talk.now_ms = 10_001;
    talk.send(usize::MAX);
    assert_eq!(talk.connection.deadline_ms(), 25_001);
    assert_eq!(talk.expire(25_001), Wants::Close);
}

/// Each byte would renew the patience of a server that counts from the last one.
#[test]
fn a_dripping_head_is_let_go_after_its_first_byte_s_patience() {
    let mut talk = Talk::new();
    talk.now_ms = 3_000;
    for byte in REQUEST.iter().take(5) {
        talk.feed(&[*byte]);
        assert_eq!(talk.connection.deadline_ms(), 9_000);
        talk.now_ms += 1_000;
    }
    assert_eq!(talk.expire(8_999), Wants::Read);
    assert_eq!(talk.expire(9_000), Wants::Write);
    talk.send(usize::MAX);
    let said = &split(&talk.said, [])[0];
    assert!(said.status == 408 && said.closes());
    assert_eq!(talk.connection.wants(), Wants::Linger);
}

#[test]
fn a_dripping_body_is_let_go_too() {
    for head in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let mut talk = Talk::new();
        talk.feed(format!("POST /echo HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n").as_bytes());
        for now_ms in 1..5 {
            talk.now_ms = now_ms * 1_000;
            talk.feed(b"0");
            assert_eq!(talk.connection.deadline_ms(), 6_000);
        }
        assert_eq!(talk.expire(6_000), Wants::Write);
        talk.send(usize::MAX);
        assert_eq!(split(&talk.said, [])[0].status, 408);
    }
}

/// Who was told to go on has the patience anew, and once.
#[test]
fn the_patience_with_a_body_begins_when_the_client_is_told_to_go_on() {
    let mut talk = Talk::new();
    talk.feed(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r");
    talk.now_ms = 5_000;
    talk.feed(b"\n");
    talk.send(usize::MAX);
    assert_eq!(talk.connection.deadline_ms(), 11_000);
    for now_ms in 6..10 {
        talk.now_ms = now_ms * 1_000;
        talk.feed(b"0");
        assert_eq!(talk.connection.deadline_ms(), 11_000);
    }
    assert_eq!(talk.expire(11_000), Wants::Write);
    talk.send(usize::MAX);
    assert_eq!(split(&talk.said, [])[1].status, 408);
}

/// The patience with the second request does not run while the first is being answered: we did not read.
#[test]
fn half_a_request_behind_a_slow_answer_has_its_own_patience() {
    let mut talk = Talk::new();
    talk.feed(&[REQUEST, b"GET"].concat());
    assert_eq!(talk.connection.wants(), Wants::Write);
    talk.now_ms = 14_000;
    talk.send(usize::MAX);
    assert_eq!((talk.connection.wants(), talk.connection.deadline_ms()), (Wants::Read, 20_000));
    talk.feed(&REQUEST[3..]);
    talk.send(usize::MAX);
    assert_eq!(split(&talk.said, []).len(), 2);
}

#[test]
fn a_client_that_reads_nothing_is_let_go_and_one_that_reads_slowly_is_not() {
    let mut talk = Talk::new();
    talk.feed(b"GET /bytes/16777216 HTTP/1.1\r\nHost: x\r\n\r\n");
    for now_ms in [10_000, 20_000, 30_000] {
        assert_eq!(talk.expire(now_ms), Wants::Write);
        talk.connection.sent(&mut talk.core, 1, now_ms);
        talk.connection.sent(&mut talk.core, 0, now_ms + 5_000); // No progress is no progress.
    }
    assert_eq!(talk.connection.deadline_ms(), 45_000);
    assert_eq!(talk.expire(45_000), Wants::Close);
}

#[test]
fn a_slow_answer_is_due_at_its_time_and_those_behind_it_wait() {
    let mut talk = Talk::new();
    talk.feed(&[REQUEST, b"GET /slow/60000 HTTP/1.1\r\nHost: x\r\n\r\n", REQUEST].concat());
    let unsent = talk.connection.unsent().len();
    talk.connection.sent(&mut talk.core, unsent, 5);
    assert_eq!((talk.connection.wants(), talk.connection.deadline_ms()), (Wants::Wait, 60_000));
    talk.feed(REQUEST); // A server need not read while it waits. If it does, this is kept.
    assert_eq!(talk.expire(59_999), Wants::Wait);
    assert_eq!(talk.expire(60_000), Wants::Write);
    talk.send(usize::MAX);
    assert_eq!(
        split(&talk.said, []).iter().map(|said| said.status).collect::<Vec<_>>(),
        [200, 200, 200]
    );
    assert!(talk.said.windows(9).any(|bytes| bytes == b"At last.\n"));
    assert_eq!((talk.connection.wants(), talk.connection.deadline_ms()), (Wants::Read, 75_000));
}

#[test]
fn slow_is_bounded() {
    let (said, _) = Talk::about(&[b"GET /slow/60001 HTTP/1.1\r\nHost: x\r\n\r\n"]);
    assert_eq!(split(&said, [])[0].status, 400);
}

#[test]
fn the_limits_can_be_set() {
    let limits = Limits { head_patience_ms: 10, idle_patience_ms: 20, linger_ms: 30 };
    let mut talk = Talk::with(limits);
    assert_eq!(talk.connection.deadline_ms(), 20);
    talk.feed(b"G");
    assert_eq!(talk.connection.deadline_ms(), 10);
    assert_eq!(talk.expire(10), Wants::Write);
    assert_eq!(talk.connection.deadline_ms(), 30);
    talk.send(usize::MAX);
    assert_eq!((talk.connection.wants(), talk.connection.deadline_ms()), (Wants::Linger, 40));
}

/// A byte that comes in the same moment as the deadline is too late or not, but nothing breaks.
#[test]
fn an_early_or_repeated_expiry_does_nothing() {
    let mut talk = Talk::new();
    talk.feed(REQUEST);
    talk.send(usize::MAX);
    for now_ms in 0..100 {
        assert_eq!(talk.expire(now_ms), Wants::Read);
    }
    for _ in 0..3 {
        assert_eq!(talk.expire(1_000_000), Wants::Close);
    }
}

/// An empty line before a request is skipped, but it does not keep a connection alive, and earns no 408.
#[test]
fn an_empty_line_is_no_request() {
    let mut talk = Talk::new();
    talk.now_ms = 9_000;
    talk.feed(b"\r\n");
    assert!(talk.connection.deadline_ms() <= 15_000);
    assert_eq!(talk.expire(15_000), Wants::Close);
    let (said, _) = Talk::about(&[b"\r\n"]);
    assert!(said.is_empty());
}
