//! The HTTP core of chapter 07 on: bytes in, bytes out, no I/O.
//!
//! Eleven models wait in eleven ways and share this to the byte, so that comparing them means something.
//! A [`Connection`] takes what has come and says what is to be sent and what to wait for. It never waits,
//! never reads, never writes and never looks at a clock: time is an argument.
//!
//! ```
//! use http::{Connection, Core, Limits, OddEven, Wants};
//!
//! let mut core = Core::new(Limits::default(), OddEven);
//! core.clock(784_111_777); // Once per turn of a loop.
//! let mut connection = Connection::new(&core, 0);
//! connection.feed(&mut core, b"GET /parity/7 HT", 1);
//! assert_eq!(connection.wants(), Wants::Read); // Half a head: the server has to wait, and so has this.
//! connection.feed(&mut core, b"TP/1.1\r\nHost: localhost\r\n\r\n", 2);
//! assert_eq!(connection.wants(), Wants::Write);
//! let unsent = connection.unsent();
//! assert!(unsent.first.starts_with(b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
//! assert!(unsent.first.ends_with(b"\r\n\r\nOdd\n"));
//! let length = unsent.len();
//! connection.sent(&mut core, length, 3);
//! assert_eq!(connection.wants(), Wants::Read); // The next request.
//! ```
//!
//! Where to read on: [`connection`](Connection) is the state machine and the heart of the chapter;
//! `head` says what a request means and when it may mean two things; `body` finds where it ends;
//! `answer` writes; `app` is the application.
#![forbid(unsafe_code)]

mod answer;
mod app;
mod body;
mod busy;
mod connection;
mod date;
mod head;
mod request;
mod shared;
mod status;
mod target;

pub use answer::{Answer, BYTES, Content, Reply, TEXT};
pub use app::{BYTES_MAX, OddEven, SLOW_MS_MAX};
pub use connection::{Connection, Unsent, Wants};
pub use date::{DATE_BYTES, format as format_date};
pub use request::{Method, Request, decoded};
pub use shared::{App, Core, Limits};
pub use status::Status;

/// The longest head in bytes: request line, fields and the empty line behind them. Above it: 431.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The longest request line in bytes, its end included. Above it: 414.
pub const REQUEST_LINE_BYTES_MAX: usize = 8_000;
/// The most fields in a head. Above it: 431.
pub const FIELDS_MAX: usize = 64;
/// The longest body of a request in bytes. Above it: 413.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Answers to pipelined requests are collected into one write until they have so many bytes.
pub const ANSWERS_BYTES_MAX: usize = 64 * 1024;
/// A connection that keeps more bytes than this unanswered, because its server reads on while it wants
/// to write, is given up.
pub const KEPT_BYTES_MAX: usize = 2 * 1024 * 1024;
