//! The engine: one thread, one epoll, one timer, and its share of the connections.

use super::{
    batch::{be_patient, own_cpus, shares_core},
    cursor::{Cursor, Due, LATE_NS_MAX, share},
    desk::{Desk, Tally},
    line::{End, Line},
    plan::Plan,
};
use crate::{
    clock::{now_ns, sleep_until, to_timespec},
    record::{Outcome, Phase},
    report::LATE_NS,
};
use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    sched::{CpuSet, sched_setaffinity},
    sys::{
        epoll::{EpollEvent, EpollFlags, EpollTimeout},
        prctl::set_timerslack,
        resource::{UsageWho, getrusage},
        time::TimeValLike,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
    unistd::Pid,
};
use std::{
    os::fd::AsFd,
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Connections of one thread that are being opened at once, at the start: fewer than any accept queue holds.
const OPENING_MAX: usize = 256;

/// Events of the kernel's in one go.
const EVENTS_MAX: usize = 512;

/// Between two looks at the kernel's events.
const ISSUES_PER_ROUND: usize = 64;

/// Room for many answers in one `recv`.
const BUFFER_LENGTH: usize = 65_536;

/// How often the engine looks at the world outside of its own queues, and at patience that has ended.
const LOOK_NS: u64 = 100_000_000;

/// From the moment at which all connections stand to the first request.
const LEAD_NS: u64 = 10_000_000;

const TIMER: u64 = u64::MAX;

/// What the engines of one run share.
pub(crate) struct Shared<'a> {
    pub plan: &'a Plan,
    pub stop: &'a AtomicBool,
    /// The first request, on the monotonic clock; 0 while connections are opened.
    pub origin_ns: AtomicU64,
    pub ready: Barrier,
}

/// What an engine tells while it runs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Live {
    pub due: u64,
    pub correct: u64,
    pub failed: u64,
    pub in_flight: usize,
}

/// What an engine has seen in the end.
pub(crate) struct Seen {
    pub tally: Tally,
    /// Of each connection: answers until the end of the schedule.
    pub answers: Vec<u64>,
    /// Of each connection: the longest wait.
    pub longest_ns: Vec<u64>,
    /// Of each connection: requests due and not sent at the end of the schedule.
    pub backlog: Vec<u64>,
    pub backlog_at_half: u64,
    pub never_sent: u64,
    /// It saturates on the server's core, and the kernel would not make it a batch thread.
    pub hurries: bool,
    pub begin: Used,
    pub end: Used,
}

/// A moment, and the CPU time of the thread until then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub wall_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
}

impl Used {
    fn now() -> Result<Used> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).context("getrusage(RUSAGE_THREAD)")?;
        let ns = |time: nix::sys::time::TimeVal| time.num_microseconds() as u64 * 1000;
        let (user_ns, system_ns) = (ns(usage.user_time()), ns(usage.system_time()));
        Ok(Used { wall_ns: now_ns(), user_ns, system_ns })
    }
}

pub(crate) struct Engine<'a> {
    shared: &'a Shared<'a>,
    live: &'a Mutex<Live>,
    thread: usize,
    desk: Desk,
    lines: Vec<Line>,
    buffer: Vec<u8>,
    timer: TimerFd,
    armed_ns: u64,
    cursor: Option<Cursor>,
    look_ns: u64,
    half_ns: u64,
    shares_core: bool,
    hurries: bool,
    begin: Option<Used>,
    backlog: Option<Vec<u64>>,
    backlog_at_half: Option<u64>,
}

impl<'a> Engine<'a> {
    pub fn new(shared: &'a Shared<'a>, thread: usize, live: &'a Mutex<Live>) -> Result<Engine<'a>> {
        let plan = shared.plan;
        let desk = Desk::new(plan)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).context("timerfd_create")?;
        // Edge-triggered: each expiry is an event, and nobody has to read the timer.
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TIMER);
        desk.epoll.add(timer.as_fd(), event).context("epoll_ctl(ADD) of the timer")?;
        let line = |index| Line::new(index, thread + index * plan.threads, plan.pipeline);
        Ok(Engine {
            shared,
            live,
            thread,
            desk,
            lines: (0..share(plan, thread)).map(line).collect(),
            buffer: vec![0; BUFFER_LENGTH],
            timer,
            armed_ns: u64::MAX,
            cursor: None,
            look_ns: 0,
            half_ns: u64::MAX,
            shares_core: shares_core(plan),
            hurries: false,
            begin: None,
            backlog: None,
            backlog_at_half: None,
        })
    }

    /// Opens the connections, waits for the other engines, and drives the load. To be called in a thread of
    /// its own.
    pub fn run(mut self) -> Result<Seen> {
        let opened = self.prepare().and_then(|()| self.open_all());
        // The others wait, also for one that has failed.
        if self.shared.ready.wait().is_leader() {
            self.shared.origin_ns.store(now_ns() + LEAD_NS, Ordering::Release);
        }
        self.shared.ready.wait();
        opened?;
        self.begin();
        while !self.turn()? {}
        self.finish()
    }

    fn prepare(&mut self) -> Result<()> {
        set_timerslack(1).context("prctl(PR_SET_TIMERSLACK)")?;
        self.hurries = self.shares_core && be_patient().is_err();
        if let Some(cpu) = self.shared.plan.cpu {
            let mut set = CpuSet::new();
            let pinned = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
            pinned.with_context(|| {
                format!(
                    "--cpu {cpu}: sched_setaffinity: this process may run on CPU {}",
                    own_cpus()
                )
            })?;
        }
        Ok(())
    }

    /// Opens all connections, a few at a time, so that no accept queue overflows. One that cannot be opened
    /// is counted, and tried again during the run.
    fn open_all(&mut self) -> Result<()> {
        let mut next = 0;
        let give_up_ns = now_ns().saturating_add(self.desk.timeout_ns);
        while next < self.lines.len() || self.desk.connecting > 0 {
            let now = now_ns();
            if now >= give_up_ns || self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            while next < self.lines.len() && self.desk.connecting < OPENING_MAX {
                self.lines[next].open(&mut self.desk, now);
                next += 1;
            }
            self.wait(now + LOOK_NS)?;
        }
        Ok(())
    }

    fn begin(&mut self) {
        let plan = self.shared.plan;
        let origin_ns = self.shared.origin_ns.load(Ordering::Acquire);
        let length_ns = plan.length.as_nanos() as u64;
        self.desk.window_ns = origin_ns + plan.warmup.as_nanos() as u64;
        self.half_ns = self.desk.window_ns + length_ns / 2;
        self.desk.end_ns = self.desk.window_ns + length_ns;
        self.cursor = Cursor::new(plan, self.thread, origin_ns, self.desk.end_ns);
        sleep_until(origin_ns);
        self.desk.running = true;
        let now = now_ns();
        for index in 0..self.lines.len() {
            let asked = self.lines[index].refill(&mut self.desk, now);
            self.settle(index, asked);
        }
    }

    /// One turn of the loop. True at the end.
    fn turn(&mut self) -> Result<bool> {
        let now = now_ns();
        if self.begin.is_none() && now >= self.desk.window_ns {
            self.begin = Some(Used::now()?);
        }
        if self.backlog_at_half.is_none() && now >= self.half_ns {
            self.backlog_at_half = Some(self.desk.due as u64);
        }
        if self.backlog.is_none() && now >= self.desk.end_ns {
            self.backlog = Some(self.lines.iter().map(|line| line.backlog() as u64).collect());
        }
        if now >= self.look_ns {
            self.look(now);
        }
        if self.is_over(now) {
            return Ok(true);
        }
        self.issue(now);
        self.wait(self.wake_ns())?;
        Ok(false)
    }

    fn is_over(&self, now: u64) -> bool {
        let desk = &self.desk;
        let all_sent = self.cursor.as_ref().is_none_or(|cursor| cursor.peek().is_none());
        let worked_off = desk.saturate || all_sent && desk.in_flight + desk.due == 0;
        self.shared.stop.load(Ordering::Relaxed)
            || now >= desk.end_ns
                && (worked_off || now >= desk.end_ns.saturating_add(desk.timeout_ns))
    }

    fn wake_ns(&self) -> u64 {
        let due_ns = self.cursor.as_ref().and_then(Cursor::wake_ns).unwrap_or(u64::MAX);
        let now = now_ns();
        let marks = [self.desk.window_ns, self.half_ns, self.desk.end_ns];
        let mark_ns = marks.into_iter().filter(|at_ns| *at_ns > now).min().unwrap_or(u64::MAX);
        self.look_ns.min(due_ns).min(mark_ns)
    }

    /// Sends what is due, or puts it into the backlog of its connection.
    fn issue(&mut self, now: u64) {
        for _ in 0..ISSUES_PER_ROUND {
            let Some(due) = self.cursor.as_mut().and_then(|cursor| cursor.take(now)) else {
                return;
            };
            let late_ns = now - due.at_ns;
            self.noticed(due, now);
            if late_ns <= LATE_NS_MAX {
                let asked = self.lines[due.line].due(&mut self.desk, due.at_ns, now_ns());
                self.settle(due.line, asked);
            }
        }
    }

    /// Counts a request that is due, and whether it is too late for it.
    fn noticed(&mut self, due: Due, now: u64) {
        if due.at_ns < self.desk.window_ns {
            return;
        }
        let (tally, late_ns) = (&mut self.desk.tally, now - due.at_ns);
        tally.scheduled += 1;
        tally.lateness.saturating_record(late_ns);
        tally.late += u64::from(late_ns > LATE_NS);
        if late_ns > LATE_NS_MAX {
            tally.not_sent += 1;
            tally.row((Outcome::NotSent, Phase::Open, Errno::UnknownErrno));
        }
    }

    /// Waits for events until `until_ns`, and lets each connection do what its event makes possible.
    fn wait(&mut self, until_ns: u64) -> Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let mut timeout = EpollTimeout::NONE;
        if until_ns <= now_ns() {
            timeout = EpollTimeout::ZERO;
        } else if until_ns != self.armed_ns {
            // To the nanosecond: epoll's own timeout is in milliseconds.
            let at = Expiration::OneShot(to_timespec(until_ns));
            let set = self.timer.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME);
            set.context("timerfd_settime")?;
            self.armed_ns = until_ns;
        }
        let count = match self.desk.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error).context("epoll_wait"),
        };
        for event in &events[..count] {
            let data = event.data();
            if data == TIMER {
                self.armed_ns = u64::MAX;
                continue;
            }
            let (generation, index) = ((data >> 32) as u32, data as u32 as usize);
            let line = &mut self.lines[index];
            if line.is(generation) {
                let done = line.on_event(&mut self.desk, &mut self.buffer, event.events());
                self.settle(index, done);
            }
        }
        Ok(())
    }

    /// Ends a connection that is over.
    fn settle(&mut self, index: usize, done: Result<(), End>) {
        if let Err(end) = done {
            self.lines[index].close(&mut self.desk, end, now_ns());
        }
    }

    fn look(&mut self, now: u64) {
        self.look_ns = now + LOOK_NS;
        for index in 0..self.lines.len() {
            let done = self.lines[index].look(&mut self.desk, now);
            self.settle(index, done);
        }
        let tally = &self.desk.tally;
        let answered_wrong = tally.answers - tally.correct;
        if let Ok(mut live) = self.live.lock() {
            *live = Live {
                due: tally.scheduled,
                correct: tally.correct,
                failed: tally.errors + answered_wrong + tally.wrong.malformed + tally.not_sent,
                in_flight: self.desk.in_flight,
            };
        }
    }

    fn finish(mut self) -> Result<Seen> {
        let end = Used::now()?;
        // What was due and not even noticed: the run was stopped, or its patience was very short.
        while let Some(due) = self.cursor.as_mut().and_then(|it| it.leave_out(end.wall_ns)) {
            self.noticed(due, end.wall_ns.max(due.at_ns + LATE_NS_MAX + 1));
        }
        let backlog = self.lines.iter().map(|line| line.backlog() as u64).collect();
        let (window_ns, stopped) = (self.desk.window_ns, self.shared.stop.load(Ordering::Relaxed));
        for line in &mut self.lines {
            let left = line.left(end.wall_ns);
            // What a closed loop has under way when its time is over is nobody's failure.
            if left > 0 && !self.desk.saturate {
                let why = if stopped { End::Interrupted } else { End::TimedOut };
                line.close(&mut self.desk, why, end.wall_ns);
            }
        }
        Ok(Seen {
            answers: self.lines.iter().map(|line| line.answers).collect(),
            longest_ns: self.lines.iter().map(|line| line.longest_ns).collect(),
            never_sent: self.lines.iter().map(|line| line.never_sent(window_ns)).sum(),
            backlog: self.backlog.unwrap_or(backlog),
            backlog_at_half: self.backlog_at_half.unwrap_or(self.desk.due as u64),
            begin: self.begin.unwrap_or(end),
            hurries: self.hurries,
            end,
            tally: self.desk.tally,
        })
    }
}
