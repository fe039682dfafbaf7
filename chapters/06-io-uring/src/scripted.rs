//! The reactor, tried with completions that no client can provoke.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::reactor::{
    CLOSED, FAILURES_MAX, FAILURES_PAUSE, FAILURES_PROMPT, LISTENER, NOBODY, PATIENCE, PAUSE,
    QUEUE, Reactor,
};
use crate::ring::{Completion, Operation};

/// No descriptor of this process has such a number, so that no call of a test hits one.
const SOCKET: RawFd = 1_000_000;
const LISTENING: RawFd = 999_999;

fn done(token: u64, result: nix::Result<usize>) -> Completion<'static> {
    Completion { token, result, more: false, has_unread: false, bytes: &[] }
}

fn received(token: u64, bytes: &[u8]) -> Completion<'_> {
    Completion { bytes, ..done(token, Ok(bytes.len())) }
}

/// What was asked for since the last look.
fn asked(reactor: &mut Reactor) -> Vec<Operation> {
    std::mem::take(&mut reactor.asked)
}

fn accept() -> Operation {
    Operation::accept(LISTENING, LISTENER)
}

/// The end of every conversation.
fn closing(socket: RawFd, token: u64) -> [Operation; 2] {
    let discard = Operation::discard(socket, NOBODY).silent().in_any_case_then();
    [discard, Operation::close(socket, token | CLOSED)]
}

/// A reactor with a client at `SOCKET` that was accepted now, and its token.
fn with_client() -> (Reactor, Instant, u64) {
    let (mut reactor, now) = (Reactor::new(LISTENING), Instant::now());
    assert_eq!(asked(&mut reactor), [accept()]);
    let came = Completion { more: true, ..done(LISTENER, Ok(SOCKET as usize)) };
    reactor.accept(&came, now).unwrap();
    let token = 0;
    assert_eq!(asked(&mut reactor), [Operation::receive(SOCKET, token)]);
    (reactor, now, token)
}

#[test]
fn an_accept_that_ends_is_asked_for_again_once() {
    let ends = [
        Ok(SOCKET as usize),
        Err(Errno::ECANCELED),
        Err(Errno::ECONNABORTED),
        Err(Errno::EMFILE),
        Err(Errno::ENOBUFS),
    ];
    for end in ends {
        let (mut reactor, now) = (Reactor::new(LISTENING), Instant::now());
        assert_eq!(asked(&mut reactor), [accept()]);
        reactor.accept(&done(LISTENER, end), now).unwrap();
        reactor.let_go(now);
        let at_once = asked(&mut reactor).iter().filter(|it| **it == accept()).count();
        let has_to_pause = matches!(end, Err(Errno::EMFILE | Errno::ENOBUFS));
        assert_eq!(at_once, usize::from(!has_to_pause), "{end:?}");
        assert_eq!(reactor.timeout(now).is_some(), has_to_pause || end.is_ok(), "{end:?}");
        reactor.let_go(now + PAUSE);
        reactor.let_go(now + PAUSE);
        let later = asked(&mut reactor).iter().filter(|it| **it == accept()).count();
        assert_eq!(at_once + later, 1, "{end:?}");
    }
}

#[test]
fn an_accept_that_goes_on_is_not_asked_for_again() {
    let (mut reactor, now, _) = with_client();
    let came = Completion { more: true, ..done(LISTENER, Ok(SOCKET as usize + 1)) };
    reactor.accept(&came, now).unwrap();
    assert_eq!(asked(&mut reactor), [Operation::receive(SOCKET + 1, 1)]);
}

#[test]
fn who_leaves_ends_the_pause_for_want_of_a_descriptor() {
    let (mut reactor, now, token) = with_client();
    reactor.accept(&done(LISTENER, Err(Errno::EMFILE)), now).unwrap();
    reactor.let_go(now);
    assert_eq!(asked(&mut reactor), []);
    reactor.converse(&done(token | CLOSED, Ok(0)));
    reactor.let_go(now);
    assert_eq!(asked(&mut reactor), [accept()]);
}

#[test]
fn a_descriptor_that_is_no_socket_ends_that_client_alone() {
    for errno in [Errno::EBADF, Errno::ENOTSOCK] {
        let (mut reactor, now, token) = with_client();
        let came = Completion { more: true, ..done(LISTENER, Ok(SOCKET as usize + 1)) };
        reactor.accept(&came, now).unwrap();
        asked(&mut reactor);
        reactor.converse(&done(token, Err(errno)));
        assert_eq!(asked(&mut reactor), closing(SOCKET, token));
        reactor.converse(&done(token | CLOSED, Err(errno)));
        assert_eq!(asked(&mut reactor), []);
        assert_eq!(reactor.clients(), 1);
    }
}

#[test]
fn accepts_that_fail_for_ever_slow_down_and_give_up() {
    let (mut reactor, mut now) = (Reactor::new(LISTENING), Instant::now());
    let start = now;
    for failures in 1..FAILURES_MAX {
        assert_eq!(asked(&mut reactor), [accept()], "after {failures} failures");
        reactor.accept(&done(LISTENER, Err(Errno::ECONNABORTED)), now).unwrap();
        now += reactor.timeout(now).unwrap_or_default();
        reactor.let_go(now);
    }
    assert_eq!(now - start, FAILURES_PAUSE * (FAILURES_MAX - 1 - FAILURES_PROMPT));
    let error = reactor.accept(&done(LISTENER, Err(Errno::ECONNABORTED)), now).unwrap_err();
    assert!(format!("{error:#}").contains("1000 times in a row: ECONNABORTED"), "{error:#}");
}

#[test]
fn one_success_forgives_all_failures() {
    let (mut reactor, mut now) = (Reactor::new(LISTENING), Instant::now());
    for round in 0..3 {
        for _ in 1..FAILURES_MAX {
            reactor.accept(&done(LISTENER, Err(Errno::ECONNABORTED)), now).unwrap();
            now += reactor.timeout(now).unwrap_or_default();
            reactor.let_go(now);
        }
        reactor.accept(&done(LISTENER, Ok(SOCKET as usize + round)), now).unwrap();
    }
}

#[test]
fn a_send_of_a_byte_at_a_time_is_finished() {
    let (mut reactor, _, token) = with_client();
    reactor.converse(&received(token, b"7\n"));
    let all = b"Odd\n";
    for sent in 0..all.len() {
        let [first, rest @ ..] = &asked(&mut reactor)[..] else { panic!("nothing was asked") };
        assert_eq!(first.bytes(), &all[sent..]);
        assert_eq!(*first, Operation::send(SOCKET, first.bytes(), token).silent().then());
        assert_eq!(rest, closing(SOCKET, token));
        // The chain was cut, and its close with it, whether that is told or not.
        reactor.converse(&done(token | CLOSED, Err(Errno::ECANCELED)));
        reactor.converse(&done(token, Ok(1)));
    }
    assert_eq!(asked(&mut reactor), closing(SOCKET, token));
    reactor.converse(&done(token | CLOSED, Ok(0)));
    assert_eq!(reactor.clients(), 0);
}

#[test]
fn want_of_a_buffer_is_no_fault_of_the_clients() {
    let (mut reactor, _, token) = with_client();
    for _ in 0..300 {
        reactor.converse(&done(token, Err(Errno::ENOBUFS)));
        assert_eq!(asked(&mut reactor), [Operation::receive(SOCKET, token)]);
    }
}

#[test]
fn who_is_late_is_cancelled_first_and_closed_then() {
    for last in [Err(Errno::ECANCELED), Ok(2), Err(Errno::ENOBUFS)] {
        let (mut reactor, now, token) = with_client();
        assert_eq!(reactor.timeout(now), Some(PATIENCE));
        reactor.let_go(now + PATIENCE - Duration::from_nanos(1));
        assert_eq!(asked(&mut reactor), []);
        reactor.let_go(now + PATIENCE);
        reactor.let_go(now + PATIENCE);
        assert_eq!(asked(&mut reactor), [Operation::cancel(token, NOBODY).silent()]);
        reactor.converse(&Completion { result: last, ..received(token, b"7\n") });
        assert_eq!(asked(&mut reactor), closing(SOCKET, token));
        assert_eq!(reactor.timeout(now), None);
    }
}

#[test]
fn a_completion_for_who_has_gone_is_nobodys() {
    let (mut reactor, now, token) = with_client();
    reactor.converse(&done(token | CLOSED, Ok(0)));
    reactor.accept(&Completion { more: true, ..done(LISTENER, Ok(SOCKET as usize)) }, now).unwrap();
    let [receive] = asked(&mut reactor)[..] else { panic!("one receive") };
    assert_ne!(receive, Operation::receive(SOCKET, token), "the same place, another token");
    reactor.converse(&received(token, b"7\n"));
    reactor.converse(&done(token | CLOSED, Ok(0)));
    assert_eq!(asked(&mut reactor), []);
    assert_eq!(reactor.clients(), 1);
}

#[test]
fn a_stop_takes_in_who_waits_until_nobody_does_twice() {
    let (mut reactor, now, _) = with_client();
    let one = [Operation::accept_one(LISTENING, QUEUE).then(), Operation::at_once(NOBODY)];
    reactor.stop();
    assert_eq!(asked(&mut reactor), [Operation::cancel(LISTENER, NOBODY).silent()]);
    // Who was accepted before the cancellation came is served like everybody.
    reactor.accept(&done(LISTENER, Ok(SOCKET as usize + 1)), now).unwrap();
    assert_eq!(asked(&mut reactor)[1..], one);
    reactor.accept(&done(QUEUE, Err(Errno::ECANCELED)), now).unwrap();
    assert_eq!(asked(&mut reactor), one);
    reactor.accept(&done(QUEUE, Ok(SOCKET as usize + 2)), now).unwrap();
    assert_eq!(asked(&mut reactor)[1..], one);
    assert!(!reactor.is_closed());
    reactor.accept(&done(QUEUE, Err(Errno::ECANCELED)), now).unwrap();
    assert!(reactor.is_closed());
    assert_eq!(asked(&mut reactor), []);
    assert_eq!(reactor.clients(), 3);
}

#[test]
fn a_stop_without_descriptors_waits_for_its_own_clients_and_then_a_patience() {
    let (mut reactor, start, token) = with_client();
    let one = [Operation::accept_one(LISTENING, QUEUE).then(), Operation::at_once(NOBODY)];
    reactor.stop();
    reactor.accept(&done(LISTENER, Err(Errno::ECANCELED)), start).unwrap();
    assert_eq!(asked(&mut reactor)[1..], one);
    // As long as somebody is served here, there is hope for a descriptor, however often none is free.
    for _ in 0..100 {
        reactor.accept(&done(QUEUE, Err(Errno::EMFILE)), start).unwrap();
        reactor.let_go(start + PAUSE);
        assert_eq!(asked(&mut reactor), one);
        assert!(!reactor.is_closed());
    }
    reactor.accept(&done(QUEUE, Err(Errno::EMFILE)), start).unwrap();
    reactor.converse(&done(token | CLOSED, Ok(0)));
    reactor.let_go(start);
    assert_eq!(asked(&mut reactor), one);
    // From here on only others can have the descriptors: they have their patience too.
    for errno in [Errno::EMFILE, Errno::ENFILE] {
        let mut now = start;
        while now - start < PATIENCE {
            reactor.accept(&done(QUEUE, Err(errno)), now).unwrap();
            assert!(!reactor.is_closed(), "after {:?}", now - start);
            now += reactor.timeout(now).expect("a pause");
            reactor.let_go(now);
            assert_eq!(asked(&mut reactor), one);
        }
        // One who is taken in at last begins it anew.
        if errno == Errno::EMFILE {
            reactor.accept(&done(QUEUE, Ok(SOCKET as usize + 1)), now).unwrap();
            let [Operation { .. }, last @ ..] = &asked(&mut reactor)[..] else {
                panic!("a receive")
            };
            assert_eq!(last, one);
            reactor.converse(&done(1 << 32 | CLOSED, Ok(0)));
        }
    }
    reactor.accept(&done(QUEUE, Err(Errno::EMFILE)), start + PATIENCE).unwrap();
    assert!(reactor.is_closed());
    assert_eq!(reactor.clients(), 0);
    reactor.let_go(start + PATIENCE + PAUSE);
    assert_eq!(asked(&mut reactor), []);
}

#[test]
fn no_descriptor_before_a_stop_closes_nothing() {
    let (mut reactor, mut now) = (Reactor::new(LISTENING), Instant::now());
    for _ in 0..100 {
        assert_eq!(asked(&mut reactor), [accept()]);
        reactor.accept(&done(LISTENER, Err(Errno::EMFILE)), now).unwrap();
        now += PAUSE;
        reactor.let_go(now);
        assert!(!reactor.is_closed());
    }
}
