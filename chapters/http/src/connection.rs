//! One client: a state machine that takes bytes and time, and says what is to be sent and waited for.
//!
//! ```text
//!            first byte             head whole              body whole
//!   Idle ───────────────▶ Head ──────────────────▶ Body ───────────────▶ answer ─▶ Idle
//!    │                     │ └──────────── no body ───────────────────────▲  │
//!    │ 15 s, half-close    │ 6 s: 408; a refusal                /slow: Waiting │ Connection: close
//!    ▼                     ▼                                                  ▼
//!   Closed ◀─ FIN, 1 s ─ Lingering ◀──── answer sent ───── Finishing      Ending ─ sent ─▶ Closed
//! ```

use std::ops::ControlFlow;

use crate::answer::{Answer, Persistence, Reply, render, render_refusal};
use crate::body::{Framing, Reader};
use crate::busy::{Begun, Busy};
use crate::head::{self, Verb};
use crate::request::{Method, Request};
use crate::shared::{App, Core};
use crate::status::{Refusal, Status};
use crate::target::Target;
use crate::{ANSWERS_BYTES_MAX, KEPT_BYTES_MAX};

// ANCHOR: connection
/// One client.
#[derive(Debug)]
pub struct Connection {
    /// When [`Connection::expire`] has something to do.
    deadline_ms: u64,
    /// Nothing while the connection is idle: ten thousand idle clients cost ten thousand times 24 bytes.
    busy: Option<Box<Busy>>,
    phase: Phase,
    /// The client has said all that it will say.
    is_half_closed: bool,
    /// An empty line before this request has been skipped: once, old clients send one after a body.
    has_skipped: bool,
}

/// Which part of a request comes next, or how the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No byte of a request has come.
    Idle,
    /// Some of a head has come.
    Head,
    /// The head is whole, the body is not.
    Body,
    /// The request is whole; its answer is due at a time.
    Waiting,
    /// The last answer is on its way. Then `Lingering`.
    Finishing,
    /// The last answer is on its way, and nothing unread can be there. Then `Closed`.
    Ending,
    /// Everything is sent. What comes is not for us, but it has to be read: a close would reset the
    /// connection over it, and the client might lose the answer.
    Lingering,
    /// Over.
    Closed,
}

const _: () = assert!(
    size_of::<Connection>() <= 24,
    "an idle connection is a deadline, a pointer and two flags"
);
// ANCHOR_END: connection

/// What the server has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Read, and [`Connection::feed`].
    Read,
    /// Send [`Connection::unsent`]. Do not read meanwhile: a client that does not take its answers must
    /// not be able to fill our memory with questions.
    Write,
    /// Neither. Only the deadline goes on.
    Wait,
    /// Everything is sent: `shutdown(SHUT_WR)` once, then read and discard (do not feed) until the
    /// client's FIN or the deadline, then close.
    Linger,
    /// Close now.
    Close,
}

/// What is to be sent: `first`, then `second`.
#[derive(Clone, Copy, Debug)]
pub struct Unsent<'a> {
    /// Heads and small bodies. Stays where it is, unchanged, until [`Connection::sent`] has counted it,
    /// also when the connection is moved.
    pub first: &'a [u8],
    /// A piece of a large body. More may follow when it has gone.
    pub second: &'static [u8],
}

impl Unsent<'_> {
    /// Length of both in bytes.
    pub fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// ANCHOR: calls
impl Connection {
    /// A client that has just come. `now_ms` counts from any moment, but never backwards.
    pub fn new<A: App>(core: &Core<A>, now_ms: u64) -> Connection {
        let deadline_ms = now_ms + u64::from(core.limits.idle_patience_ms);
        Connection {
            deadline_ms,
            busy: None,
            phase: Phase::Idle,
            is_half_closed: false,
            has_skipped: false,
        }
    }

    /// Takes bytes that came; an empty slice is the client's half-close, as `recv` returns it.
    ///
    /// All requests that are whole are answered into one buffer (of about [`ANSWERS_BYTES_MAX`] bytes),
    /// so that one write sends the answers. While something is unsent, bytes are only kept.
    pub fn feed<A: App>(&mut self, core: &mut Core<A>, bytes: &[u8], now_ms: u64) {
        if self.is_last() {
            return;
        }
        self.is_half_closed |= bytes.is_empty();
        let mut busy = self.busy.take().unwrap_or_else(|| core.spare());
        if !busy.is_sent() || self.phase == Phase::Waiting {
            busy.keep(bytes);
            if busy.kept.len() > KEPT_BYTES_MAX {
                self.phase = Phase::Closed;
            }
            self.busy = Some(busy);
        } else if busy.kept.is_empty() {
            let used = self.advance(core, &mut busy, bytes, now_ms);
            busy.keep(&bytes[used..]);
            self.settle(core, busy, now_ms);
        } else {
            busy.keep(bytes);
            self.advance_kept(core, &mut busy, now_ms);
            self.settle(core, busy, now_ms);
        }
    }

    /// What is to be sent next.
    pub fn unsent(&self) -> Unsent<'_> {
        match &self.busy {
            Some(busy) => busy.unsent(),
            None => Unsent { first: b"", second: b"" },
        }
    }

    /// Notes that the first `length` bytes of [`Connection::unsent`] have gone. When everything has, the
    /// requests that were kept are answered.
    ///
    /// # Panics
    ///
    /// When more went than there was.
    pub fn sent<A: App>(&mut self, core: &mut Core<A>, length: usize, now_ms: u64) {
        let unsent = self.unsent().len();
        assert!(length <= unsent, "{length} bytes sent of {unsent}");
        if length == 0 || self.phase == Phase::Closed {
            return;
        }
        let Some(mut busy) = self.busy.take() else { return };
        busy.sent(length);
        if busy.is_sent() {
            // While we wrote we did not read: the patience with what comes next begins now.
            self.deadline_ms = now_ms
                + u64::from(match self.phase {
                    Phase::Idle => core.limits.idle_patience_ms,
                    _ => core.limits.head_patience_ms,
                });
            self.advance_kept(core, &mut busy, now_ms);
        }
        self.settle(core, busy, now_ms);
    }

    /// What the server has to do next. To be asked after each call that changes something.
    pub fn wants(&self) -> Wants {
        match self.phase {
            Phase::Closed => Wants::Close,
            Phase::Lingering => Wants::Linger,
            _ if self.busy.as_ref().is_some_and(|busy| !busy.is_sent()) => Wants::Write,
            Phase::Waiting => Wants::Wait,
            _ => Wants::Read,
        }
    }

    /// When [`Connection::expire`] has to be called.
    ///
    /// Most calls move it to later: let the timer ring and look again, instead of moving the timer with
    /// every request. A few move it to earlier (the first bytes of a request, a late answer, lingering),
    /// so that it has to be looked at after each call.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// The deadline has come; before it, nothing happens.
    pub fn expire<A: App>(&mut self, core: &mut Core<A>, now_ms: u64) {
        if now_ms < self.deadline_ms {
            return;
        }
        let Some(mut busy) = self.busy.take_if(|busy| busy.is_sent()) else {
            self.phase = Phase::Closed; // Idle, lingering, or a client that reads nothing.
            return;
        };
        match self.phase {
            Phase::Head | Phase::Body => {
                let is_head = match self.phase {
                    Phase::Body => busy.begun.is_head(),
                    _ => head::asks_for_head_only(&busy.kept[busy.kept_from..]),
                };
                let why = "The request took too long.\n";
                self.refuse(
                    core,
                    &mut busy,
                    Refusal { status: Status::RequestTimeout, why },
                    is_head,
                );
            }
            Phase::Waiting => {
                if let Some((_, answer)) = busy.later.take() {
                    let (persistence, is_head) = (busy.begun.persistence, busy.begun.is_head());
                    self.say(core, &mut busy, &answer, persistence, is_head);
                    self.advance_kept(core, &mut busy, now_ms);
                }
            }
            _ => self.phase = Phase::Closed,
        }
        self.settle(core, busy, now_ms);
    }

    /// The server stops. An idle connection wants to be closed; any other gets its answer, which says
    /// `Connection: close` (call [`Core::stop`] first). Where an answer that does not say so is on its way
    /// already, what the client asks meanwhile is answered too, and waited for as long as a client may linger.
    pub fn drain<A: App>(&mut self, core: &mut Core<A>, _now_ms: u64) {
        core.stop();
        if self.phase == Phase::Idle && self.busy.is_none() {
            self.phase = Phase::Closed;
        }
    }

    /// How many bytes have come that are not understood yet. A server that reads on while it has to write
    /// (a multishot receive) bounds them with this.
    pub fn kept_bytes(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.kept.len() - busy.kept_from)
    }

    /// Gives the buffers back. (A connection that is dropped frees them.)
    pub fn release<A: App>(mut self, core: &mut Core<A>) {
        if let Some(busy) = self.busy.take() {
            core.recycle(busy);
        }
    }
}
// ANCHOR_END: calls

// ANCHOR: advance
impl Connection {
    /// Answers what is whole in `input`, one request after the other, and returns how many bytes that
    /// took. A request behind a refused one is not looked at.
    fn advance<A: App>(
        &mut self,
        core: &mut Core<A>,
        busy: &mut Busy,
        input: &[u8],
        now_ms: u64,
    ) -> usize {
        let mut used = 0;
        while busy.output.len() < ANSWERS_BYTES_MAX && busy.large.left == 0 {
            let step = match self.phase {
                Phase::Idle | Phase::Head => self.take_head(core, busy, &input[used..], now_ms),
                Phase::Body => self.take_body(core, busy, &input[used..], now_ms),
                _ => break,
            };
            match step {
                ControlFlow::Continue(length) => used += length,
                ControlFlow::Break(length) => {
                    used += length;
                    break;
                }
            }
        }
        if self.phase == Phase::Ending && used < input.len() {
            self.phase = Phase::Finishing; // More is there, and still more may be.
        }
        if self.is_last() { input.len() } else { used }
    }

    /// The next head. Break: nothing more can be done with what is here.
    fn take_head<A: App>(
        &mut self,
        core: &mut Core<A>,
        busy: &mut Busy,
        input: &[u8],
        now_ms: u64,
    ) -> ControlFlow<usize, usize> {
        if input.is_empty() {
            if self.is_half_closed {
                self.phase = Phase::Ending;
            }
            return ControlFlow::Break(0);
        }
        if !self.has_skipped && input.starts_with(b"\r\n") {
            (self.has_skipped, self.phase) = (true, Phase::Idle);
            return ControlFlow::Continue(2);
        }
        if self.phase == Phase::Idle {
            self.phase = Phase::Head;
            self.deadline_ms = now_ms + u64::from(core.limits.head_patience_ms);
        }
        // By reference, here and where the application answers: moving what has just been written costs
        // more than it looks.
        let parsed = head::parse(input);
        let head = match &parsed {
            Ok(Some(head)) => head,
            Ok(None) if !self.is_half_closed => return ControlFlow::Break(0),
            Ok(None) => return self.cut_off(core, busy, head::asks_for_head_only(input)),
            Err(refusal) => {
                self.refuse(core, busy, *refusal, head::asks_for_head_only(input));
                return ControlFlow::Break(0);
            }
        };
        if head.expects_continue {
            busy.output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        if let Framing::Length(length) = head.framing
            && let Some(body) = input[head.length..].get(..length)
        {
            self.answer(core, busy, (head.verb, &head.target, head.persistence), body, now_ms);
            return ControlFlow::Continue(head.length + length);
        }
        busy.begun.note(head);
        busy.reader = Reader::new(head.framing);
        busy.body.clear();
        self.phase = Phase::Body;
        ControlFlow::Continue(head.length)
    }

    /// More of the body, and the answer when it is whole.
    fn take_body<A: App>(
        &mut self,
        core: &mut Core<A>,
        busy: &mut Busy,
        input: &[u8],
        now_ms: u64,
    ) -> ControlFlow<usize, usize> {
        let length = match busy.reader.take(input, &mut busy.body) {
            Ok(length) => length,
            Err(refusal) => {
                let is_head = busy.begun.is_head();
                self.refuse(core, busy, refusal, is_head);
                return ControlFlow::Break(0);
            }
        };
        if !busy.reader.is_done() {
            if self.is_half_closed {
                let is_head = busy.begun.is_head();
                return self.cut_off(core, busy, is_head);
            }
            return ControlFlow::Break(length);
        }
        let begun = std::mem::take(&mut busy.begun);
        let body = std::mem::take(&mut busy.body);
        self.answer(core, busy, (begun.verb, &begun.target(), begun.persistence), &body, now_ms);
        busy.begun = Begun { verb: busy.begun.verb, persistence: busy.begun.persistence, ..begun };
        busy.body = body;
        busy.body.clear();
        ControlFlow::Continue(length)
    }

    /// Asks the application.
    fn answer<A: App>(
        &mut self,
        core: &Core<A>,
        busy: &mut Busy,
        (verb, target, persistence): (Verb, &Target<'_>, Persistence),
        body: &[u8],
        now_ms: u64,
    ) {
        let (method, is_head) = match verb {
            Verb::Known(method) => (method, false),
            Verb::Head => (Method::Get, true),
            Verb::Unknown => {
                let answer = Answer::text(
                    Status::NotImplemented,
                    b"This server does not know the method.\n",
                );
                return self.say(core, busy, &answer, persistence, false);
            }
        };
        let request = Request { method, path: target.path, query: target.query, body };
        match &core.app.answer(&request) {
            Reply::Now(answer) => self.say(core, busy, answer, persistence, is_head),
            Reply::Later { delay_ms, answer } => {
                busy.later = Some((now_ms + u64::from(*delay_ms), *answer));
                (busy.begun.verb, busy.begun.persistence) = (verb, persistence);
                self.phase = Phase::Waiting;
            }
        }
    }
}
// ANCHOR_END: advance

impl Connection {
    /// Answers what was kept.
    fn advance_kept<A: App>(&mut self, core: &mut Core<A>, busy: &mut Busy, now_ms: u64) {
        let kept = std::mem::take(&mut busy.kept);
        let used = busy.kept_from + self.advance(core, busy, &kept[busy.kept_from..], now_ms);
        busy.kept = kept;
        busy.kept_from = used;
        if used == busy.kept.len() {
            busy.kept.clear();
            busy.kept_from = 0;
        }
    }

    /// Writes an answer, and decides whether it is the last.
    fn say<A: App>(
        &mut self,
        core: &Core<A>,
        busy: &mut Busy,
        answer: &Answer<'_>,
        persistence: Persistence,
        is_head: bool,
    ) {
        self.phase = match (core.is_stopping, persistence) {
            (false, Persistence::Stays | Persistence::KeptAlive) => Phase::Idle,
            // The client may have sent more, not knowing that this would be the last.
            (true, Persistence::Stays | Persistence::KeptAlive) => Phase::Finishing,
            (_, Persistence::Ends) => Phase::Ending,
        };
        self.has_skipped = false;
        let persistence = if core.is_stopping { Persistence::Ends } else { persistence };
        render(&mut busy.output, &mut busy.large, answer, &core.date_line, persistence, is_head);
    }

    /// Writes the answer to something that cannot be trusted, and reads no further.
    fn refuse<A: App>(&mut self, core: &Core<A>, busy: &mut Busy, refusal: Refusal, is_head: bool) {
        render_refusal(&mut busy.output, refusal, &core.date_line, is_head);
        self.phase = Phase::Finishing;
    }

    /// The client stopped talking in the middle of a request.
    fn cut_off<A: App>(
        &mut self,
        core: &Core<A>,
        busy: &mut Busy,
        is_head: bool,
    ) -> ControlFlow<usize, usize> {
        self.refuse(core, busy, Refusal::bad("The request ends in the middle.\n"), is_head);
        ControlFlow::Break(0)
    }

    /// After each call: what follows when nothing is left to send, and until when.
    fn settle<A: App>(&mut self, core: &mut Core<A>, busy: Box<Busy>, now_ms: u64) {
        if !busy.is_sent() {
            self.deadline_ms = now_ms + u64::from(core.limits.idle_patience_ms);
            self.busy = Some(busy);
            return;
        }
        match self.phase {
            Phase::Head | Phase::Body => {}
            Phase::Waiting => {
                if let Some((due_ms, _)) = busy.later {
                    self.deadline_ms = due_ms;
                }
            }
            // The last answer did not say that it was the last: while it was on its way, the client may have
            // asked again. A close would reset the connection over that, and cut off the answer before it.
            Phase::Idle if core.is_stopping => {
                let last_ms = now_ms + u64::from(core.limits.linger_ms);
                self.deadline_ms = self.deadline_ms.min(last_ms);
            }
            Phase::Finishing if !self.is_half_closed => {
                self.phase = Phase::Lingering;
                self.deadline_ms = now_ms + u64::from(core.limits.linger_ms);
            }
            Phase::Finishing | Phase::Ending => self.phase = Phase::Closed,
            Phase::Idle | Phase::Lingering | Phase::Closed => {}
        }
        if matches!(self.phase, Phase::Head | Phase::Body | Phase::Waiting) {
            self.busy = Some(busy);
        } else {
            core.recycle(busy);
        }
    }

    /// Whether the last answer has been given: nothing more is read from this client.
    fn is_last(&self) -> bool {
        matches!(self.phase, Phase::Finishing | Phase::Ending | Phase::Lingering | Phase::Closed)
    }
}
