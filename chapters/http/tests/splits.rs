//! The corpus: every request gets the answers that its file says, however the network cuts it.

mod common;

use common::{Case, Talk, split, whole_corpus};
use http::Wants;

/// Whole, and then the client stops talking.
#[test]
fn every_file_of_the_corpus_is_answered_as_it_says() {
    let mut wrong = Vec::new();
    for case in whole_corpus() {
        let (said, wants) = Talk::about(&[&case.bytes]);
        let bodiless = case
            .statuses
            .iter()
            .filter(|(status, _)| *status != 100)
            .map(|&(_, bodiless)| bodiless);
        let answers = split(&said, bodiless);
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        let expected: Vec<u16> = case.statuses.iter().map(|&(status, _)| status).collect();
        let closes = answers.last().is_some_and(|answer| answer.closes());
        let is_early =
            wants == Wants::Read && !case.name.contains("cut_") && !case.name.contains("half");
        if statuses != expected
            || closes != case.closes
            || (case.closes && is_early && !case.name.contains("unfinished"))
        {
            wrong.push(format!(
                "{}: {statuses:?} for {expected:?}, closes: {closes}, then {wants:?}",
                case.name
            ));
        }
        for (number, answer) in answers.iter().enumerate() {
            assert!(
                !answer.closes() || number + 1 == answers.len(),
                "{}: an answer after the last",
                case.name
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What stands behind a refused request is not looked at.
#[test]
fn nothing_behind_a_refusal_is_executed() {
    for case in common::corpus("invalid") {
        if case.name.starts_with("cut_") || case.name == "chunk_unfinished" {
            continue; // What is appended would be the missing part.
        }
        let (alone, _) = Talk::about(&[&case.bytes]);
        let mut bytes = case.bytes.clone();
        bytes.extend_from_slice(b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
        let (followed, wants) = Talk::about(&[&bytes]);
        assert_eq!(
            String::from_utf8_lossy(&alone),
            String::from_utf8_lossy(&followed),
            "{}",
            case.name
        );
        assert_eq!(wants, Wants::Linger, "{}", case.name);
    }
}

/// Cut at every byte, and byte by byte: the same bytes come back.
#[test]
fn every_split_of_the_corpus_gives_the_same_bytes() {
    for case in whole_corpus() {
        let (whole, _) = Talk::about(&[&case.bytes]);
        for cut in cuts(&case) {
            let (first, second) = case.bytes.split_at(cut);
            assert_same(&case, &whole, &Talk::about(&[first, second]).0, &format!("cut at {cut}"));
        }
        assert_same(&case, &whole, &Talk::about(&dripped(&case)).0, "byte by byte");
    }
}

/// Short requests are cut in three, at every pair of bytes.
#[test]
fn every_pair_of_cuts_of_short_requests_gives_the_same_bytes() {
    for case in whole_corpus().iter().filter(|case| case.bytes.len() <= 60) {
        let (whole, _) = Talk::about(&[&case.bytes]);
        for first in 1..case.bytes.len() {
            for second in first + 1..case.bytes.len() {
                let pieces =
                    [&case.bytes[..first], &case.bytes[first..second], &case.bytes[second..]];
                assert_same(
                    case,
                    &whole,
                    &Talk::about(&pieces).0,
                    &format!("cut at {first} and {second}"),
                );
            }
        }
    }
}

/// A client that takes its answers slowly, or only when it has asked everything, gets the same bytes.
#[test]
fn it_does_not_matter_when_the_answers_go_out() {
    for case in whole_corpus() {
        let (whole, _) = Talk::about(&[&case.bytes]);
        let whole_pieces = [&case.bytes[..]];
        let sixties: Vec<&[u8]> = case.bytes.chunks(60).collect();
        for (pieces, at_once) in [(&dripped(&case)[..], 3), (&sixties, 1), (&whole_pieces, 1000)] {
            let mut talk = Talk::new();
            for bytes in pieces {
                talk.feed(bytes); // Whatever it wants: only kept, where something is unsent.
            }
            talk.feed(b"");
            talk.send(at_once);
            assert_same(
                &case,
                &whole,
                &talk.said,
                &format!("{} pieces in, {at_once} bytes out", pieces.len()),
            );
        }
    }
}

/// Single bytes. The long ones of the corpus are long by one byte that is said again and again: those go
/// together.
fn dripped(case: &Case) -> Vec<&[u8]> {
    let is_long = case.bytes.len() > 1_500;
    case.bytes.chunk_by(|before, byte| is_long && before == byte).collect()
}

/// All positions of a short request; of a long one those near its ends and the limits, and some between.
fn cuts(case: &Case) -> Vec<usize> {
    let length = case.bytes.len();
    let is_telling = |cut: usize| {
        cut < 100
            || length - cut < 40
            || (7_995..8_005).contains(&cut)
            || (8_187..8_197).contains(&cut)
    };
    (1..length).filter(|&cut| length <= 1_500 || is_telling(cut) || cut % 97 == 0).collect()
}

fn assert_same(case: &Case, whole: &[u8], said: &[u8], how: &str) {
    let show = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(500)]).into_owned();
    assert!(whole == said, "{} {how}: {}\ninstead of {}", case.name, show(said), show(whole));
}
