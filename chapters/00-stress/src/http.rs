//! HTTP/1.1 over connections that stay open: GETs of one path, on a schedule or as fast as the answers come.
//!
//! On a *schedule* each connection has its own share of the rate, and keeps what it could not send yet: a
//! connection that starves is seen, because no neighbour sends its requests. *Saturating* is a closed loop,
//! as that of wrk: the next request leaves when an answer has come. It finds the highest rate, and its
//! latency is no client's: it counts from the moment of sending.
//!
//! ```no_run
//! use std::{sync::atomic::AtomicBool, time::Duration};
//! use stress::http::{Plan, run};
//!
//! let plan = Plan::saturate("127.0.0.1:8080".parse()?, "/", 64, Duration::from_secs(3)).with_cpu(0);
//! let report = run(&plan, &mut |_progress| {}, &AtomicBool::new(false))?;
//! println!("{} answers per second", report.answers_per_s);
//! println!("{:?} CPU seconds per million answers", report.cost.own_cpu_s_per_million);
//! # Ok::<(), anyhow::Error>(())
//! ```

mod answer;
mod batch;
mod chunks;
mod cursor;
mod desk;
mod engine;
mod files;
pub mod known;
mod line;
mod plan;
mod report;
mod run;
mod table;

pub use batch::be_patient;
pub use files::{hdr, json, log};
pub use plan::{Pace, Plan};
pub use report::{Backlog, Cost, Fairness, Record, Report, Spread, Wrong};
pub use run::run;
pub use table::table;
