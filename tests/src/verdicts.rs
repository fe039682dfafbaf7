//! The tables. A row is a promise, a column is a server, a cell is what happens.
//!
//! There are two: [`LINES`] for the chapters that speak the odd/even protocol, and [`models::HTTP`] for
//! the eleven models of chapter 07. What a row means is in [`crate::probes`].
//!
//! Every cell is held by a test in both directions: a promise that is broken where the table says that
//! it holds is red, and so is one that is kept where the table says how it fails.

pub mod models;

use std::fmt;
use std::path::Path;

use Symptom::*;
use Verdict::{Fails, Holds};

use crate::server::Program;

/// What a probe of a running server found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise is kept.
    Holds,
    /// It is broken, in exactly this way.
    Fails(Symptom),
}

/// How a promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symptom {
    /// Another client was served only when the one that stalls let go.
    StalledForEver,
    /// Another client was served when the server's patience with the one that stalls ran out.
    StalledForItsPatience,
    /// Another client was served late, though the one that stalls was still held.
    Late,
    /// A client that does nothing was still connected after four seconds.
    HeldForEver,
    /// A client that drips was still connected after four seconds: each byte renewed the patience.
    PatienceRenewed,
    /// Only so many clients of a burst got in as the short queue holds.
    QueueOverflowed,
    /// The process burned CPU time while it had nothing to do.
    Spun,
    /// A client got an answer, but not its own.
    WrongAnswer,
    /// A client got its answer, or a part of it, and then a reset instead of the end.
    Reset,
    /// A client got no answer, whoever let go.
    Unanswered,
    /// The process ended.
    Died,
    /// Descriptors, threads or memory did not come back.
    Leaked,
    /// The address was still taken when the server was started again.
    AddressTaken,
    /// Asked to stop, it was still there when whoever it served had been answered or had had its time.
    WentOn,
    /// One thread did all the work, and one core at a time.
    OneCore,
    /// It made more system calls for each answer than it may, though many requests waited at once.
    ManyCalls,
    /// A client was refused, politely, since others had taken all places.
    TurnedAway,
    /// Its memory grew with what one client does, and with no bound.
    MemoryGrew,
    /// An answer that was ready was sent only when the client had acknowledged the one before.
    HeldBack,
    /// An answer took more CPU time, the more clients were connected.
    CostGrew,
}

/// All of them, so that one can be found by its words.
const SYMPTOMS: [Symptom; 20] = [
    StalledForEver,
    StalledForItsPatience,
    Late,
    HeldForEver,
    PatienceRenewed,
    QueueOverflowed,
    Spun,
    WrongAnswer,
    Reset,
    Unanswered,
    Died,
    Leaked,
    AddressTaken,
    WentOn,
    OneCore,
    ManyCalls,
    TurnedAway,
    MemoryGrew,
    HeldBack,
    CostGrew,
];

/// A table: its columns and its rows.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The servers, in the order of the cells.
    pub columns: &'static [Column],
    /// The promises.
    pub rows: &'static [Row],
}

/// A server that a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The binary: `ch03`, or `ch03-one-recv` for one beside it. Of chapter 07 the model: `epoll-edge`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
}

/// A promise, named as its test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The test.
    pub name: &'static str,
    /// The promise as a sentence, to follow "a good server …".
    pub promise: &'static str,
    /// The columns of its table.
    pub columns: &'static [Column],
    /// The cells, in the order of the columns.
    pub cells: &'static [Verdict],
}

/// The chapters that speak the odd/even protocol, and the servers beside them.
pub const LINES: Table = Table { columns: &COLUMNS, rows: &TABLE };

// ANCHOR: columns
/// The chapters, in reading order. Each mends something that the one before it breaks.
pub const CHAPTERS: [Column; 6] = [
    Column { name: "ch01", about: "one client at a time" },
    Column { name: "ch02", about: "a long queue, a receive timeout" },
    Column { name: "ch03", about: "epoll around a blocking read" },
    Column { name: "ch04", about: "epoll, nobody waits for anybody" },
    Column { name: "ch05", about: "one reactor per core" },
    Column { name: "ch06", about: "one ring per core" },
];

/// The servers that stand beside a chapter to show one thing; they need not mend anything.
pub const BESIDE: [Column; 7] = [
    Column { name: "ch02-backlog-only", about: "the long queue alone" },
    Column { name: "ch02-patience-only", about: "the receive timeout alone" },
    Column { name: "ch03-one-recv", about: "one recv an event, as the blog printed it" },
    Column { name: "ch04-bare", about: "the first step of 04" },
    Column { name: "ch04-mio", about: "04 on mio" },
    Column { name: "ch04-polling", about: "04 on polling" },
    Column { name: "ch06-crate", about: "06 on the io-uring crate" },
];
// ANCHOR_END: columns

/// The columns in the order of the cells.
const COLUMNS: [Column; CHAPTERS.len() + BESIDE.len()] = {
    let mut columns = [CHAPTERS[0]; CHAPTERS.len() + BESIDE.len()];
    let mut at = 0;
    while at < columns.len() {
        let is_chapter = at < CHAPTERS.len();
        columns[at] = if is_chapter { CHAPTERS[at] } else { BESIDE[at - CHAPTERS.len()] };
        at += 1;
    }
    columns
};

const H: Verdict = Holds;

// ANCHOR: table
/// The promises. Those that everybody keeps come first, then those that make the story.
#[rustfmt::skip]
pub const TABLE: [Row; 21] = [
    //                            01 02 03 04 05 06 | 02-backlog-only 02-patience-only 03-one-recv 04-bare 04-mio 04-polling 06-crate
    row("answers_odd_even_invalid", "answers every line with Odd, Even or Invalid, and then closes",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("any_split_is_the_same_request", "gives the same answer however the network cuts a request",
        &[H, H, H, H, H, H, H, H, Fails(WrongAnswer), H, H, H, H]),
    row("a_half_closed_client_is_answered", "answers a client that has said all it will say",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("an_overlong_line_is_refused", "refuses a line that is too long, and closes without a reset",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("resets_harm_nobody_else", "survives clients that reset, at whatever moment",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("an_accept_error_stops_nobody", "goes on after an accept that failed",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("a_signal_loses_nobody", "loses nobody when a signal interrupts its system calls",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("a_short_send_is_finished", "sends the rest of an answer of which the kernel took a part",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("a_reused_descriptor_is_a_new_client", "never takes a new client for the one whose number it got",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("nothing_leaks", "gives back descriptors, threads and memory when its clients have left",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("an_idle_server_burns_no_cpu", "sleeps while nobody asks anything",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("it_restarts_at_once", "can be started again on the same port at once",
        &[H, H, H, H, H, H, H, H, H, H, H, H, H]),
    row("a_burst_of_connects_is_queued", "lets in a burst of clients at once",
        &[Fails(QueueOverflowed), H, H, H, H, H, H, Fails(QueueOverflowed), H, H, H, H, H]),
    row("a_silent_client_is_let_go", "lets a client go that says nothing",
        &[Fails(HeldForEver), H, Fails(HeldForEver), H, H, H, Fails(HeldForEver), H, Fails(HeldForEver), Fails(HeldForEver), H, H, H]),
    row("a_silent_client_stalls_nobody", "serves others while a client says nothing",
        &[Fails(StalledForEver), Fails(StalledForItsPatience), H, H, H, H, Fails(StalledForEver), Fails(StalledForItsPatience), H, H, H, H, H]),
    row("half_a_line_stalls_nobody", "serves others while a client has said half a line",
        &[Fails(StalledForEver), Fails(StalledForItsPatience), Fails(StalledForItsPatience), H, H, H, Fails(StalledForEver), Fails(StalledForItsPatience), H, H, H, H, H]),
    row("a_dripping_client_is_let_go", "lets a client go that sends a byte now and then",
        &[Fails(HeldForEver), Fails(PatienceRenewed), Fails(PatienceRenewed), H, H, H, Fails(HeldForEver), Fails(PatienceRenewed), H, Fails(HeldForEver), H, H, H]),
    row("running_out_of_descriptors_does_not_spin", "waits for a descriptor without burning CPU time",
        &[H, H, Fails(Spun), H, H, H, H, H, Fails(Spun), Fails(Spun), H, H, H]),
    row("every_core_serves", "serves on every core that it may use",
        &[Fails(OneCore), Fails(OneCore), Fails(OneCore), Fails(OneCore), H, H, Fails(OneCore), Fails(OneCore), Fails(OneCore), Fails(OneCore), Fails(OneCore), Fails(OneCore), H]),
    row("a_restart_loses_nobody", "hands over to the next process without losing a client",
        &[Fails(AddressTaken), Fails(AddressTaken), Fails(AddressTaken), Fails(AddressTaken), H, H, Fails(AddressTaken), Fails(AddressTaken), Fails(AddressTaken), Fails(AddressTaken), Fails(AddressTaken), Fails(AddressTaken), H]),
    row("few_system_calls_per_answer", "answers many who wait at once with few system calls",
        &[Fails(ManyCalls), Fails(ManyCalls), Fails(ManyCalls), Fails(ManyCalls), Fails(ManyCalls), H, Fails(ManyCalls), Fails(ManyCalls), Fails(ManyCalls), Fails(ManyCalls), Fails(ManyCalls), Fails(ManyCalls), H]),
];
// ANCHOR_END: table

const fn row(name: &'static str, promise: &'static str, cells: &'static [Verdict]) -> Row {
    Row::of(&COLUMNS, name, promise, cells)
}

/// The failure by which a chapter is remembered, and which is told at length.
const HEADLINES: [(&str, &str); 5] = [
    ("ch01", "a_silent_client_stalls_nobody"),
    ("ch02", "a_silent_client_stalls_nobody"),
    ("ch03", "half_a_line_stalls_nobody"),
    ("ch04", "a_restart_loses_nobody"),
    ("ch05", "few_system_calls_per_answer"),
];

/// The row that a chapter's report begins with, if the chapter breaks one.
pub fn headline(column: &str) -> Option<&'static str> {
    HEADLINES.iter().find(|it| it.0 == column).map(|it| it.1)
}

/// The chapter after `column`, or after the chapter that it stands beside.
pub fn next(column: &str) -> Option<Column> {
    let chapter = column.get(..4).unwrap_or(column);
    let here = CHAPTERS.iter().position(|it| it.name == chapter)?;
    CHAPTERS.get(here + 1).copied()
}

/// The columns in the order of the cells.
pub fn columns() -> impl Iterator<Item = Column> {
    COLUMNS.into_iter()
}

impl Column {
    /// The program `exe` as the server of this column: chapter 07 has one program for all its models.
    pub fn program(&self, exe: &Path) -> Program {
        let is_model = models::MODELS.contains(self);
        let arguments: &[&str] = if is_model { &["--model", self.name] } else { &[] };
        Program::new(exe, arguments)
    }
}

impl Row {
    /// A row of a table with these columns.
    const fn of(
        columns: &'static [Column],
        name: &'static str,
        promise: &'static str,
        cells: &'static [Verdict],
    ) -> Row {
        assert!(cells.len() == columns.len(), "a row has a cell for each column");
        Row { name, promise, columns, cells }
    }

    /// The cell of the server called `column`, if its table has it.
    pub fn cell(&self, column: &str) -> Option<Verdict> {
        self.columns.iter().position(|it| it.name == column).map(|at| self.cells[at])
    }

    /// The first chapter after `column` (or after the chapter it stands beside) that keeps this promise.
    pub fn mended_by(&self, column: &str) -> Option<Column> {
        let chapter = column.get(..4).unwrap_or(column);
        let here = CHAPTERS.iter().position(|it| it.name == chapter)?;
        CHAPTERS.into_iter().skip(here + 1).find(|it| self.cell(it.name) == Some(Holds))
    }
}

/// The row called `name`, if the table has it.
pub fn find(name: &str) -> Option<&'static Row> {
    const ROWS: &[Row] = &TABLE;
    ROWS.iter().find(|it| it.name == name)
}

impl Symptom {
    /// The letter that stands for it in a matrix.
    pub fn letter(self) -> char {
        match self {
            StalledForEver => 'f',
            StalledForItsPatience => 'p',
            Late => 't',
            HeldForEver => 'h',
            PatienceRenewed => 'n',
            QueueOverflowed => 'q',
            Spun => 's',
            WrongAnswer => 'w',
            Reset => 'r',
            Unanswered => 'u',
            Died => 'd',
            Leaked => 'l',
            AddressTaken => 'a',
            OneCore => 'c',
            ManyCalls => 'm',
            TurnedAway => 'x',
            MemoryGrew => 'g',
            WentOn => 'o',
            HeldBack => 'k',
            CostGrew => 'e',
        }
    }
}

impl Verdict {
    /// The letter that stands for it in a matrix: a dot where the promise is kept.
    pub fn letter(self) -> char {
        match self {
            Holds => '.',
            Fails(symptom) => symptom.letter(),
        }
    }

    /// The verdict in these words: `holds`, or those of a [`Symptom`].
    pub fn in_words(words: &str) -> Option<Verdict> {
        if words == "holds" {
            return Some(Holds);
        }
        SYMPTOMS.into_iter().find(|it| it.to_string() == words).map(Fails)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holds => f.write_str("holds"),
            Fails(symptom) => write!(f, "fails: {symptom}"),
        }
    }
}

impl fmt::Display for Symptom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StalledForEver => "others wait until it lets go",
            StalledForItsPatience => "others wait for its 2 s of patience",
            Late => "others are served late",
            HeldForEver => "held for ever",
            PatienceRenewed => "each byte renews the patience",
            QueueOverflowed => "only backlog + 1 get in at once",
            Spun => "burns CPU time",
            WrongAnswer => "answers wrongly",
            Reset => "resets the connection",
            Unanswered => "does not answer",
            Died => "the server ends",
            Leaked => "something is not given back",
            AddressTaken => "the address is still taken",
            OneCore => "one core does all the work",
            WentOn => "goes on when asked to stop",
            ManyCalls => "several system calls per answer",
            TurnedAway => "others are turned away",
            MemoryGrew => "its memory grows",
            CostGrew => "each idle client makes answers dearer",
            HeldBack => "an answer waits for an acknowledgement",
        })
    }
}
