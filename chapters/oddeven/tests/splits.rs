//! Whatever pieces a request comes in, it is the same request. Exhaustive where that is possible,
//! drawn by proptest where it is not.

use oddeven::{Answer, LINE_BYTES_MAX, Session, parity};
use proptest::prelude::*;

/// Feeds `pieces`, then takes the answer, one byte a `sent`.
fn answer(pieces: &[&[u8]]) -> Vec<u8> {
    let mut session = Session::new();
    for piece in pieces {
        session.feed(piece);
    }
    let mut bytes = Vec::new();
    while let Some(&byte) = session.unsent().first() {
        bytes.push(byte);
        session.sent(1);
    }
    bytes
}

const REQUESTS: [(&[u8], &[u8]); 24] = [
    (b"7\n", b"Odd\n"),
    (b"100\n", b"Even\n"),
    (b"100\r\n", b"Even\n"),
    (b"007\n", b"Odd\n"),
    (b"2147483648\n", b"Even\n"),
    (b"4294967296\n", b"Even\n"),
    (b"9223372036854775808\n", b"Even\n"),
    (b"18446744073709551616\n", b"Even\n"),
    (b"1234567890123456789012345678901234567890\n", b"Even\n"),
    (b"1234567890123456789012345678901234567891\n", b"Odd\n"),
    (b"0\n", b"Invalid\n"),
    (b"000\n", b"Invalid\n"),
    (b"-1\n", b"Invalid\n"),
    (b"+5\n", b"Invalid\n"),
    (b" 5\n", b"Invalid\n"),
    (b"5 \n", b"Invalid\n"),
    (b"7abc\n", b"Invalid\n"),
    (b"7\0\n", b"Invalid\n"),
    (b"\xff\xfe7\n", b"Invalid\n"),
    (b"7\r\r\n", b"Invalid\n"),
    (b"\r7\n", b"Invalid\n"),
    (b"\n", b"Invalid\n"),
    (b"\r\n", b"Invalid\n"),
    (b"\xd9\xa7\n", b"Invalid\n"), // ARABIC-INDIC DIGIT SEVEN
];

#[test]
fn every_cut_and_every_pair_of_cuts_gives_the_same_answer() {
    for (request, expected) in REQUESTS {
        for first in 0..=request.len() {
            for second in first..=request.len() {
                let cut = [&request[..first], &request[first..second], &request[second..]];
                let pieces: Vec<&[u8]> = cut.into_iter().filter(|it| !it.is_empty()).collect();
                assert_eq!(answer(&pieces), expected, "{:?}", request.escape_ascii().to_string());
            }
        }
    }
}

#[test]
fn a_half_close_ends_a_request_and_alone_asks_nothing() {
    assert_eq!(answer(&[b"7", b""]), b"Odd\n");
    assert_eq!(answer(&[b"7\r", b""]), b"Odd\n");
    assert_eq!(answer(&[b"7\n", b""]), b"Odd\n");
    assert_eq!(answer(&[b""]), b"");
    let mut session = Session::new();
    session.feed(b"");
    assert!(session.is_done());
    session.feed(b"7\n"); // Nothing can follow a half-close, and nothing comes of it.
    assert!(session.is_done() && session.unsent().is_empty());
}

#[test]
fn a_line_is_64_bytes_with_its_end() {
    let mut longest = [b'8'; LINE_BYTES_MAX];
    longest[LINE_BYTES_MAX - 1] = b'\n';
    assert_eq!(answer(&[&longest]), b"Even\n");

    let without_an_end = [b'8'; LINE_BYTES_MAX + 1];
    assert_eq!(answer(&[&without_an_end]), b"Invalid\n");
    let full = &without_an_end[..LINE_BYTES_MAX];
    assert_eq!(answer(&[full]), b"", "a half-close may still end it within 64 bytes");
    assert_eq!(answer(&[full, b""]), b"Even\n");
    assert_eq!(answer(&[full, b"\n"]), b"Invalid\n", "its end is byte 65");

    let mut too_long = [b'8'; LINE_BYTES_MAX + 1];
    too_long[LINE_BYTES_MAX] = b'\n';
    assert_eq!(answer(&[&too_long]), b"Invalid\n");
}

#[test]
fn one_client_gets_one_answer() {
    assert_eq!(answer(&[b"7\n8\n"]), b"Odd\n");
    assert_eq!(answer(&[b"7\n", b"8\n", b""]), b"Odd\n");
}

proptest! {
    #[test]
    fn any_split_is_the_same_request(
        request in prop::collection::vec(any::<u8>(), 1..200),
        cuts in prop::collection::vec(0usize..200, 0..20),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut < request.len()).collect();
        cuts.extend([0, request.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|it| &request[it[0]..it[1]]).collect();
        prop_assert_eq!(answer(&pieces), answer(&[&request]));
    }

    #[test]
    fn a_big_number_is_as_odd_as_its_last_digit(head in "[1-9][0-9]{0,61}", last in 0u8..10) {
        let line = format!("{head}{last}");
        let expected = if last % 2 == 1 { Answer::Odd } else { Answer::Even };
        prop_assert_eq!(parity(line.as_bytes()), expected);
    }

    #[test]
    fn small_numbers_agree_with_arithmetic(number in 1u128..) {
        let expected = if number % 2 == 1 { Answer::Odd } else { Answer::Even };
        prop_assert_eq!(parity(number.to_string().as_bytes()), expected);
    }

    #[test]
    fn sixty_five_bytes_without_an_end_are_invalid_at_once(
        bytes in prop::collection::vec(any::<u8>().prop_filter("no end", |it| *it != b'\n'), 65..400),
    ) {
        prop_assert_eq!(answer(&[&bytes]), b"Invalid\n");
    }

    #[test]
    fn no_bytes_make_it_panic_or_answer_twice(pieces in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..80), 0..10,
    )) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let answered = answer(&pieces);
        prop_assert!(["", "Odd\n", "Even\n", "Invalid\n"].iter().any(|it| it.as_bytes() == answered));
    }
}
