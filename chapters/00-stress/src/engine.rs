//! The engine: one thread, one epoll, one timer, and every client of its share of the schedule.

use crate::{
    clients::{Client, Role, Slab},
    clock::{now_ns, sleep_until, thread_cpu_ns, to_timespec},
    connection::{Connection, Ready, Step, new_socket, outcome_of, shrink_window},
    plan::{Plan, StallKind},
    record::{NEVER, Outcome, Phase, Record, StallEnd, StallRecord},
    resources::Sources,
    schedule::{Slot, What},
};
use anyhow::{Context, Result};
use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use nix::{
    errno::Errno,
    sys::{
        prctl::set_timerslack,
        socket::SockaddrStorage,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
};
use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A request that is noticed later than this is left out: to send it now would be load that nobody
/// planned, and to call it sent in time would be a lie. Less is what a busy machine does to everybody.
const LATE_NS_MAX: u64 = 250_000_000;

/// After a request that was later than this, the next ones come at twice the planned pace at most, and not
/// all at once.
const LATE_NS: u64 = 5_000_000;

/// Such gaps are kept by the timer. Shorter ones cost more than they spread.
const GAP_NS_MIN: u64 = 200_000;

/// Between two looks at the kernel's events.
const ISSUES_PER_ROUND: usize = 16;

/// How often the engine looks at the world outside of its own queues.
const LOOK_UP_NS: u64 = 100_000_000;

/// A dripping client's pause between two bytes.
pub(crate) const DRIP_NS: u64 = 500_000_000;

/// Marks that are no steps: the last request was due, and the last one ended.
const SCHEDULE_ENDED: u16 = u16::MAX - 1;
const AFTER_THE_END: u16 = u16::MAX;

const TIMER: Token = Token(usize::MAX);

/// What the engines of one run share.
pub(crate) struct Shared<'a> {
    pub plan: &'a Plan,
    pub slots: &'a [Slot],
    /// Start of the run on the monotonic clock.
    pub origin_ns: u64,
    pub stop: &'a AtomicBool,
    /// Engines with requests left: the last one releases everybody's stalled clients.
    pub busy: AtomicUsize,
}

/// Counts an engine among the busy ones, until it says that it is done, or fails.
struct Busy<'a>(Option<&'a AtomicUsize>);

impl Busy<'_> {
    fn done(&mut self) {
        if let Some(count) = self.0.take() {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.done();
    }
}

/// What an engine tells while it runs.
#[derive(Default)]
pub(crate) struct Live {
    pub step: u16,
    pub due: u64,
    pub correct: u64,
    pub failed: u64,
    pub in_flight: usize,
    /// Scheduled to end, of those answered since the last look.
    pub latencies_ns: Vec<u64>,
}

/// What an engine has seen in the end.
#[derive(Default)]
pub(crate) struct Seen {
    pub records: Vec<Record>,
    pub stalled: Vec<StallRecord>,
    pub marks: Vec<Mark>,
}

/// The engine's CPU time at the moment when it came to a step, and when it came to the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub step: u16,
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

/// Runs share number `index` of the schedule.
pub(crate) fn run_engine(shared: &Shared<'_>, index: usize, live: &Mutex<Live>) -> Result<Seen> {
    let mut busy = Busy(Some(&shared.busy));
    // The default lets the kernel be 50 microseconds late, to wake several sleepers at once.
    set_timerslack(1).context("prctl(PR_SET_TIMERSLACK)")?;
    let mut engine = Engine::new(shared, index, live)?;
    sleep_until(shared.origin_ns);
    engine.run(&mut busy)?;
    Ok(engine.seen)
}

struct Engine<'a> {
    shared: &'a Shared<'a>,
    plan: &'a Plan,
    live: &'a Mutex<Live>,
    target: SockaddrStorage,
    poll: Poll,
    timer: TimerFd,
    armed_ns: u64,
    next: usize,
    /// No request leaves before this: the last one was late.
    not_before_ns: u64,
    /// Its share of the plan's limit.
    limit: Option<usize>,
    in_flight: usize,
    clients: Slab,
    /// Due, and without a connection because of the plan's limit.
    waiting: VecDeque<Record>,
    // Everybody in a queue has the same patience, so that it is sorted by itself.
    deadlines: VecDeque<(u64, Token)>,
    thinking: VecDeque<(u64, Token)>,
    dripping: VecDeque<(u64, Token)>,
    releases: VecDeque<(u64, Token)>,
    sources: Sources,
    look_up_ns: u64,
    tally: Live,
    seen: Seen,
}

impl<'a> Engine<'a> {
    fn new(shared: &'a Shared<'a>, index: usize, live: &'a Mutex<Live>) -> Result<Engine<'a>> {
        let poll = Poll::new().context("epoll_create1")?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).context("timerfd_create")?;
        let raw = timer.as_fd().as_raw_fd();
        poll.registry()
            .register(&mut SourceFd(&raw), TIMER, Interest::READABLE)
            .context("epoll_ctl(ADD) of the timer")?;
        let plan = shared.plan;
        Ok(Engine {
            shared,
            plan,
            live,
            target: SockaddrStorage::from(plan.target),
            poll,
            timer,
            armed_ns: NEVER,
            next: index,
            not_before_ns: 0,
            limit: plan
                .connections
                .map(|most| most / plan.threads + usize::from(index < most % plan.threads)),
            in_flight: 0,
            clients: Slab::default(),
            waiting: VecDeque::new(),
            deadlines: VecDeque::new(),
            thinking: VecDeque::new(),
            dripping: VecDeque::new(),
            releases: VecDeque::new(),
            sources: Sources::new(plan),
            look_up_ns: 0,
            tally: Live::default(),
            seen: Seen::default(),
        })
    }

    /// Nanoseconds since the start of the run; 0 before it.
    fn now(&self) -> u64 {
        now_ns().saturating_sub(self.shared.origin_ns)
    }

    fn run(&mut self, busy: &mut Busy<'_>) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            let now = self.now();
            self.expire(now);
            self.issue_due();
            if self.shared.stop.load(Ordering::Relaxed) {
                self.interrupt();
                break;
            }
            if self.next >= self.shared.slots.len() {
                self.mark(SCHEDULE_ENDED);
                if self.in_flight == 0 && self.waiting.is_empty() {
                    busy.done();
                }
            }
            if self.shared.busy.load(Ordering::Relaxed) == 0 {
                break;
            }
            if now >= self.look_up_ns {
                self.tell(now);
            }
            self.wait(&mut events)?;
            for event in &events {
                if event.token() != TIMER {
                    let ready = Ready {
                        readable: event.is_readable(),
                        writable: event.is_writable(),
                        closed: event.is_read_closed(),
                        error: event.is_error(),
                    };
                    self.on_ready(event.token(), ready);
                }
            }
        }
        self.release_the_rest();
        self.mark(AFTER_THE_END);
        let now = self.now();
        self.tell(now);
        Ok(())
    }

    /// Sleeps until an event or the next thing that is due, to the nanosecond: epoll's own timeout, as mio
    /// gives it, is rounded to milliseconds.
    fn wait(&mut self, events: &mut Events) -> Result<()> {
        let wake = self.next_due();
        let timeout = if wake <= self.now() {
            Some(Duration::ZERO)
        } else {
            if wake != self.armed_ns {
                let at = Expiration::OneShot(to_timespec(self.shared.origin_ns + wake));
                self.timer
                    .set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
                    .context("timerfd_settime")?;
                self.armed_ns = wake;
            }
            None
        };
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            other => other.context("epoll_wait"),
        }
    }

    fn next_due(&self) -> u64 {
        let slot = self.shared.slots.get(self.next);
        let slot = slot.map(|slot| slot.at_ns.max(self.not_before_ns));
        let cap = self.waiting.front().map(|record| record.scheduled_ns + self.timeout_ns());
        let queues = [&self.deadlines, &self.thinking, &self.dripping, &self.releases];
        let fronts = queues.into_iter().filter_map(|queue| queue.front().map(|(at, _)| *at));
        fronts.chain(slot).chain(cap).fold(self.look_up_ns, u64::min)
    }

    fn timeout_ns(&self) -> u64 {
        self.plan.timeout.as_nanos() as u64
    }

    /// Opens whoever is due, a few at a time, so that events do not wait for long.
    fn issue_due(&mut self) {
        let mut budget = ISSUES_PER_ROUND;
        while budget > 0 && self.has_room() {
            let Some(record) = self.waiting.pop_front() else { break };
            self.open_request(record);
            budget -= 1;
        }
        while budget > 0 && self.next < self.shared.slots.len() {
            let slot = self.shared.slots[self.next];
            let now = self.now();
            if slot.at_ns.max(self.not_before_ns) > now {
                break;
            }
            if self.seen.marks.last().is_none_or(|mark| mark.step != slot.step) {
                self.mark(slot.step);
            }
            self.next += self.plan.threads;
            budget -= 1;
            self.spread_out(slot, now);
            match slot.what {
                What::Request { id } => self.request_due(id, slot, now),
                What::Stalled { stall } => self.open_stalled(usize::from(stall), slot, now),
            }
        }
    }

    /// Keeps those who are late from leaving all at once.
    fn spread_out(&mut self, slot: Slot, now: u64) {
        let late_ns = now - slot.at_ns;
        let Some(next) = self.shared.slots.get(self.next) else { return };
        let gap_ns = (next.at_ns - slot.at_ns) / 2;
        if (LATE_NS..=LATE_NS_MAX).contains(&late_ns) && gap_ns >= GAP_NS_MIN {
            self.not_before_ns = now + gap_ns;
        }
    }

    fn has_room(&self) -> bool {
        self.limit.is_none_or(|most| self.in_flight < most)
    }

    fn request_due(&mut self, id: u32, slot: Slot, now: u64) {
        self.tally.due += 1;
        self.tally.step = slot.step;
        let record = Record {
            id,
            step: slot.step,
            outcome: Outcome::NotSent,
            phase: Phase::Open,
            errno: 0,
            scheduled_ns: slot.at_ns,
            noticed_ns: now,
            started_ns: NEVER,
            connected_ns: NEVER,
            first_byte_ns: NEVER,
            closed_ns: NEVER,
            bytes: 0,
            closed_first: false,
        };
        if now - slot.at_ns > LATE_NS_MAX {
            self.keep(record);
        } else if self.has_room() {
            self.open_request(record);
        } else {
            self.waiting.push_back(record);
        }
    }

    fn open_request(&mut self, mut record: Record) {
        record.started_ns = self.now();
        let number = self.plan.query.number(u64::from(record.id));
        let mut connection = match self.open(number, None) {
            Ok(connection) => connection,
            Err(error) => return self.end_unopened(record, error),
        };
        let mut interest = Interest::READABLE;
        if self.plan.think.is_zero() {
            match connection.send_request(|| self.now()) {
                Step::Pending => {}
                Step::Ended(outcome, error) => {
                    let client = Client { connection, role: Role::Request(record) };
                    return self.end_request(client, outcome, error);
                }
            }
        }
        if connection.phase < Phase::FirstByte {
            interest |= Interest::WRITABLE;
        }
        let watched = self.watch(&connection, interest);
        let deadline = record.scheduled_ns + self.timeout_ns();
        let client = Client { connection, role: Role::Request(record) };
        if let Err(error) = watched {
            return self.end_request(client, outcome_of(error, Phase::Open), error);
        }
        self.in_flight += 1;
        self.deadlines.push_back((deadline, self.clients.insert(client)));
    }

    fn open_stalled(&mut self, stall: usize, slot: Slot, now: u64) {
        let kind = self.plan.stalls[stall].kind;
        let mut record = StallRecord {
            stall,
            step: slot.step,
            started_ns: now,
            connected_ns: NEVER,
            ended_ns: now,
            end: StallEnd::NotConnected,
            bytes: 0,
        };
        let opened = self.open(100, Some(kind)).and_then(|connection| {
            self.watch(&connection, Interest::READABLE | Interest::WRITABLE)?;
            Ok(connection)
        });
        let Ok(connection) = opened else {
            record.ended_ns = self.now();
            return self.seen.stalled.push(record);
        };
        let token = self.clients.insert(Client { connection, role: Role::Stalled(record, kind) });
        self.releases.push_back((now + self.plan.stall_hold.as_nanos() as u64, token));
    }

    /// A connection under way, from another source address if the ports of one are used up.
    fn open(&mut self, number: u64, stall: Option<StallKind>) -> Result<Connection, Errno> {
        let attempt = |source: Option<Ipv4Addr>| {
            let socket: OwnedFd = new_socket(self.plan.target, source)?;
            if stall == Some(StallKind::Deaf) {
                shrink_window(&socket)?;
            }
            Connection::open(socket, &self.target, number)
        };
        let now = now_ns();
        match attempt(self.sources.pick(now, self.clients.count())) {
            Err(Errno::EADDRNOTAVAIL) if self.sources.widen() => {
                attempt(self.sources.pick(now, self.clients.count()))
            }
            other => other,
        }
    }

    /// Has the kernel tell of `connection` under the token that the next client will get.
    fn watch(&self, connection: &Connection, interest: Interest) -> Result<(), Errno> {
        let raw = connection.raw();
        let registered =
            self.poll.registry().register(&mut SourceFd(&raw), self.clients.vacancy(), interest);
        registered.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    }

    fn on_ready(&mut self, token: Token, ready: Ready) {
        // A client that ended earlier in this batch has left its token behind: there is nobody there.
        let Some(client) = self.clients.get(token) else { return };
        match client.role {
            Role::Request(_) => self.on_request(token, ready),
            Role::Stalled(_, kind) => self.on_stalled(token, ready, kind),
        }
    }

    fn on_request(&mut self, token: Token, ready: Ready) {
        let origin_ns = self.shared.origin_ns;
        let clock = || now_ns().saturating_sub(origin_ns);
        let think = self.plan.think;
        let Some(client) = self.clients.get(token) else { return };
        let connection = &mut client.connection;
        let mut step = Step::Pending;
        if connection.phase == Phase::Connect && !think.is_zero() {
            step = connection.finish_connect(clock());
            if connection.phase == Phase::Send {
                let at = clock() + think.as_nanos() as u64;
                self.thinking.push_back((at, token));
            }
        } else if connection.phase <= Phase::Send
            && (ready.writable || ready.error)
            && think.is_zero()
        {
            step = connection.send_request(clock);
        }
        if step == Step::Pending
            && connection.phase > Phase::Connect
            && (ready.readable || ready.closed)
        {
            step = connection.receive(ready, clock);
        }
        if let Step::Ended(outcome, error) = step {
            self.finish(token, outcome, error);
        }
    }

    fn on_stalled(&mut self, token: Token, ready: Ready, kind: StallKind) {
        let now = self.now();
        let Some(client) = self.clients.get(token) else { return };
        let connection = &mut client.connection;
        if connection.phase == Phase::Connect {
            match connection.finish_connect(now) {
                Step::Ended(..) => return self.end_stalled(token, StallEnd::NotConnected),
                Step::Pending if connection.stall(kind).is_err() => {
                    return self.end_stalled(token, StallEnd::Reset);
                }
                Step::Pending if kind == StallKind::Drip => {
                    self.dripping.push_back((now + DRIP_NS, token));
                }
                Step::Pending => {}
            }
        }
        let Some(client) = self.clients.get(token) else { return };
        if ready.readable || ready.closed || ready.error {
            match client.connection.stall_ended(kind, ready) {
                Some(Errno::UnknownErrno) => self.end_stalled(token, StallEnd::Closed),
                Some(_) => self.end_stalled(token, StallEnd::Reset),
                None => {}
            }
        }
    }

    /// Does what time alone makes due.
    fn expire(&mut self, now: u64) {
        while let Some((at, token)) = self.deadlines.front().copied() {
            match self.clients.get(token) {
                // Most have ended long before: their place in the queue is simply passed over.
                None => drop(self.deadlines.pop_front()),
                Some(client) if at <= now => {
                    let outcome = match client.connection.phase {
                        Phase::Connect => Outcome::TimedOutConnecting,
                        _ => Outcome::TimedOutWaiting,
                    };
                    self.deadlines.pop_front();
                    self.finish(token, outcome, Errno::UnknownErrno);
                }
                Some(_) => break,
            }
        }
        let patience = self.timeout_ns();
        while self.waiting.front().is_some_and(|record| record.scheduled_ns + patience <= now) {
            if let Some(mut record) = self.waiting.pop_front() {
                record.outcome = Outcome::TimedOutConnecting;
                record.closed_ns = now;
                self.keep(record);
            }
        }
        while let Some(token) = pop_due(&mut self.thinking, now) {
            self.send_after_thought(token);
        }
        while let Some(token) = pop_due(&mut self.dripping, now) {
            let Some(client) = self.clients.get(token) else { continue };
            match client.connection.stall(StallKind::Drip) {
                Ok(()) | Err(Errno::EAGAIN | Errno::EINTR) => {
                    self.dripping.push_back((now + DRIP_NS, token));
                }
                Err(_) => self.end_stalled(token, StallEnd::Reset),
            }
        }
        while let Some(token) = pop_due(&mut self.releases, now) {
            let Some(client) = self.clients.get(token) else { continue };
            match client.connection.phase {
                Phase::Connect => self.end_stalled(token, StallEnd::NeverAccepted),
                _ => self.end_stalled(token, StallEnd::HungUp),
            }
        }
    }

    fn send_after_thought(&mut self, token: Token) {
        let origin_ns = self.shared.origin_ns;
        let Some(client) = self.clients.get(token) else { return };
        let step = client.connection.send_request(|| now_ns().saturating_sub(origin_ns));
        if let Step::Ended(outcome, error) = step {
            self.finish(token, outcome, error);
        }
    }

    fn finish(&mut self, token: Token, outcome: Outcome, error: Errno) {
        if let Some(client) = self.clients.remove(token) {
            self.in_flight -= 1;
            self.end_request(client, outcome, error);
        }
    }

    /// Closes the connection of a request and writes down how it went.
    fn end_request(&mut self, client: Client, outcome: Outcome, error: Errno) {
        let Role::Request(mut record) = client.role else { return };
        let connection = client.connection;
        record.outcome = outcome;
        record.errno = error as i32;
        record.connected_ns = connection.connected_ns;
        record.first_byte_ns = connection.first_byte_ns;
        record.bytes = connection.bytes;
        record.closed_ns = self.now();
        record.phase = match outcome {
            Outcome::Correct | Outcome::Wrong | Outcome::AnsweredThenReset => Phase::Done,
            _ => connection.phase,
        };
        record.closed_first = record.connected_ns != NEVER
            && matches!(outcome, Outcome::TimedOutWaiting | Outcome::Interrupted);
        if record.closed_first {
            self.sources.locked(now_ns());
        }
        drop(connection);
        self.keep(record);
    }

    fn end_unopened(&mut self, mut record: Record, error: Errno) {
        record.outcome = outcome_of(error, Phase::Open);
        record.phase = match record.outcome {
            Outcome::OutOfDescriptors => Phase::Open,
            _ => Phase::Connect,
        };
        record.errno = error as i32;
        record.closed_ns = self.now();
        self.keep(record);
    }

    fn end_stalled(&mut self, token: Token, end: StallEnd) {
        let now = self.now();
        let Some(client) = self.clients.remove(token) else { return };
        let Role::Stalled(mut record, _) = client.role else { return };
        record.connected_ns = client.connection.connected_ns;
        record.bytes = client.connection.bytes;
        record.ended_ns = now;
        record.end = end;
        self.seen.stalled.push(record);
    }

    fn keep(&mut self, record: Record) {
        match record.outcome {
            Outcome::Correct => {
                self.tally.correct += 1;
                self.tally.latencies_ns.push(record.closed_ns - record.scheduled_ns);
            }
            _ => self.tally.failed += 1,
        }
        self.seen.records.push(record);
    }

    fn mark(&mut self, step: u16) {
        if self.seen.marks.last().is_none_or(|mark| mark.step != step) {
            self.seen.marks.push(Mark { step, wall_ns: self.now(), cpu_ns: thread_cpu_ns() });
        }
    }

    /// Shows the state of things to whoever watches.
    fn tell(&mut self, now: u64) {
        self.look_up_ns = now + LOOK_UP_NS;
        let Ok(mut live) = self.live.lock() else { return };
        live.latencies_ns.append(&mut self.tally.latencies_ns);
        live.step = self.tally.step;
        live.due = self.tally.due;
        live.correct = self.tally.correct;
        live.failed = self.tally.failed;
        live.in_flight = self.in_flight;
    }

    fn interrupt(&mut self) {
        self.mark(SCHEDULE_ENDED);
        for token in self.clients.tokens() {
            let requests =
                self.clients.get(token).map(|client| matches!(client.role, Role::Request(_)));
            if requests == Some(true) {
                self.finish(token, Outcome::Interrupted, Errno::UnknownErrno);
            }
        }
        while let Some(mut record) = self.waiting.pop_front() {
            record.outcome = Outcome::Interrupted;
            record.closed_ns = self.now();
            self.keep(record);
        }
    }

    fn release_the_rest(&mut self) {
        for token in self.clients.tokens() {
            let connecting = self.clients.get(token).map(|client| client.connection.phase);
            match connecting {
                Some(Phase::Connect) => self.end_stalled(token, StallEnd::NeverAccepted),
                _ => self.end_stalled(token, StallEnd::Held),
            }
        }
    }
}

fn pop_due(queue: &mut VecDeque<(u64, Token)>, now: u64) -> Option<Token> {
    let (at, token) = *queue.front()?;
    if at > now {
        return None;
    }
    queue.pop_front();
    Some(token)
}
