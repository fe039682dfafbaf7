//! The right bytes: milestone 1. One client at a time may do for all of these.

use std::thread;
use std::time::Duration;

use anyhow::Context;

use crate::grade::caller::{ANSWER, Caller, Ground};
use crate::grade::parameters::{Framing, Stop};
use crate::grade::protocol::{REFUSED, overlong, request, requests_max};

/// How long a piece is given to arrive alone.
const PIECE: Duration = Duration::from_millis(10);

pub(super) fn sums(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    let mut asked = 0;
    for _ in 0..20 {
        let mut caller = Caller::connect(server.address(), ANSWER)?;
        for _ in 0..requests_max(ground.parameters).min(3) {
            let (text, sum) = request(&mut ground.dice);
            caller.send(&ground.framed(&text))?;
            caller.must_hear(&ground.framed(&sum), ANSWER).with_context(|| text.clone())?;
            asked += 1;
        }
    }
    // What a narrow sum would lose, and a number with leading zeroes.
    let most = ["999999999"; 8].join(" ");
    for (text, sum) in [(most.as_str(), "7999999992"), ("000000007 0", "7"), ("0", "0")] {
        let mut caller = Caller::connect(server.address(), ANSWER)?;
        caller.send(&ground.framed(text))?;
        caller.must_hear(&ground.framed(sum), ANSWER).with_context(|| text.to_owned())?;
    }
    Ok(format!("{asked} requests of one to eight numbers had the right sums."))
}

pub(super) fn splits(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    let whole = ground.framed("12 30 8");
    for at in 1..whole.len() {
        let mut caller = Caller::connect(server.address(), ANSWER)?;
        caller.send(&whole[..at])?;
        thread::sleep(PIECE);
        caller.send(&whole[at..])?;
        let heard = caller.must_hear(&ground.framed("50"), ANSWER);
        heard.with_context(|| format!("split after byte {at} of {}", whole.len()))?;
    }
    let mut caller = Caller::connect(server.address(), ANSWER)?;
    for byte in &whole {
        caller.send(&[*byte])?;
        thread::sleep(PIECE);
    }
    caller.must_hear(&ground.framed("50"), ANSWER).context("byte by byte")?;
    // One request and a half, and then the other half.
    let mut caller = Caller::connect(server.address(), ANSWER)?;
    let (first, last) = whole.split_at(whole.len() / 2);
    caller.send(&[&whole, first].concat())?;
    caller.must_hear(&ground.framed("50"), ANSWER).context("a request and a half")?;
    caller.send(last)?;
    caller.must_hear(&ground.framed("50"), ANSWER).context("the other half")?;
    Ok(format!("A request of {} bytes was split everywhere, and is the same request.", whole.len()))
}

pub(super) fn pipelined(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    let count = requests_max(ground.parameters).min(40);
    for _ in 0..5 {
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (text, sum) = request(&mut ground.dice);
            sent.extend(ground.framed(&text));
            expected.extend(ground.framed(&sum));
        }
        let mut caller = Caller::connect(server.address(), ANSWER)?;
        caller.send(&sent)?;
        caller.must_hear(&expected, ANSWER)?;
    }
    Ok(format!("{count} requests in one piece were answered, in their order."))
}

pub(super) fn stops(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    // Sooner than its patience would have ended it.
    let soon = ground.patience() / 2;
    for asks_before in [0, 1, 2] {
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        let sums = match ground.parameters.stop {
            Stop::Count(answers) => answers as usize,
            Stop::Word | Stop::Empty => asks_before,
        };
        for _ in 0..sums {
            let (text, sum) = request(&mut ground.dice);
            sent.extend(ground.framed(&text));
            expected.extend(ground.framed(&sum));
        }
        match ground.parameters.stop {
            Stop::Count(_) => {}
            Stop::Word => {
                sent.extend(ground.framed("BYE"));
                expected.extend(ground.framed("BYE"));
            }
            Stop::Empty => sent.extend(ground.framed("")),
        }
        // Who comes after the end is not answered.
        sent.extend(ground.framed("1"));
        let mut caller = Caller::connect(server.address(), ANSWER)?;
        caller.send(&sent)?;
        caller.must_hear(&expected, ANSWER)?;
        caller.must_end(soon).context("after the stop rule was met")?;
    }
    // What is no stop in this variant is refused.
    let none = if ground.parameters.stop == Stop::Word { "" } else { "BYE" };
    let mut caller = Caller::connect(server.address(), ANSWER)?;
    caller.send(&ground.framed(none))?;
    caller.must_hear(&ground.framed("ERR"), ANSWER).with_context(|| format!("{none:?}"))?;
    Ok("The stop rule ended a conversation, and nothing after it was answered.".into())
}

pub(super) fn refuses(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    let soon = ground.patience() / 2;
    let address = server.address();
    let refused = |sent: &[u8], what: &str| -> anyhow::Result<()> {
        let mut caller = Caller::connect(address, ANSWER)?;
        caller.send(sent)?;
        caller.must_hear(&ground.framed("ERR"), soon).with_context(|| what.to_owned())?;
        caller.must_end(soon).with_context(|| format!("{what}, after ERR")).map(drop)
    };
    for text in REFUSED {
        refused(&ground.framed(text), &format!("{text:?}"))?;
    }
    let begun = overlong(ground.parameters);
    refused(&begun, "a request that is too long already")?;
    let nonsense: &[u8] = match ground.parameters.framing {
        Framing::Delimiter(_) => b"7\x01",
        Framing::Digits(_) => b"x",
        Framing::BigEndian | Framing::LittleEndian => b"\xff\xff",
    };
    refused(nonsense, "what cannot become a request")?;
    // Unread bytes make a reset of a close, and take the answer with them.
    let more = [begun.as_slice(), &[b'1'; 1000]].concat();
    refused(&more, "an overlong request with a thousand bytes after it")?;
    Ok("Each was answered ERR at once, and then came the end in good order.".into())
}

pub(super) fn half_closed(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    let mut caller = Caller::connect(server.address(), ANSWER)?;
    let half = &ground.framed("7 7 7")[..2];
    caller.send(&[&ground.framed("1 2"), &ground.framed("3"), half].concat())?;
    caller.half_close()?;
    caller.must_hear(&[ground.framed("3"), ground.framed("3")].concat(), ANSWER)?;
    caller.must_end(ground.patience() / 2).context("after its answers")?;
    let mut caller = Caller::connect(server.address(), ANSWER)?;
    caller.half_close()?;
    caller.must_end(ground.patience() / 2).context("a client that left without a word")?;
    Ok("Complete requests were answered, half a request was not, and then came the end.".into())
}

pub(super) fn restarts(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    let address = server.address();
    // The server hangs up first, so that its own end is the one that the kernel remembers.
    for _ in 0..3 {
        let mut caller = Caller::connect(address, ANSWER)?;
        caller.send(&ground.framed("x"))?;
        caller.must_hear(&ground.framed("ERR"), ANSWER)?;
        caller.must_end(ANSWER)?;
    }
    drop(server);
    let server = ground.start_at(&address.to_string()).context("a second start there")?;
    ground.must_serve(&server, ANSWER)?;
    Ok("Killed, and started again at the same address, it served.".into())
}
