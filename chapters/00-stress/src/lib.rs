//! An open-loop load generator for servers that answer one line and close, and for HTTP servers ([`http`]);
//! and the stalled client by hand.
//!
//! *Open loop* means that requests leave on a schedule, whatever the server does, as the requests of
//! people who do not know of each other would. Every latency counts from the moment for which its
//! request was scheduled, so that a server that stops for a second is seen to have stopped for everybody
//! who wanted something in that second.
//!
//! ```no_run
//! use std::{sync::atomic::AtomicBool, time::Duration};
//!
//! let plan = stress::Plan::staircase("127.0.0.1:8080".parse()?, 10.0, 460.0, 50.0, Duration::from_secs(10))
//!     .with_stall("0.5%:silent".parse()?);
//! let report = stress::run(&plan, &mut |_progress| {}, &AtomicBool::new(false))?;
//! println!("{}", stress::table(&report));
//! println!("sustained: {:?} requests per second", report.sustained_qps);
//! # Ok::<(), anyhow::Error>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!(
    "stress measures on Linux, with calls that are Linux's own. On macOS or Windows run it in the dev container \
     (.devcontainer/), in Lima's virtual machine or in WSL2."
);

mod ask;
pub mod calibrate;
mod chart;
mod clients;
mod clock;
mod connection;
mod engine;
pub mod files;
mod hold;
pub mod http;
pub mod known;
mod latency;
mod plan;
mod record;
mod report;
mod resources;
mod run;
mod schedule;
mod table;

pub use ask::{Answered, ask};
pub use chart::chart;
pub use hold::{Held, Release, hold};
pub use latency::{Latency, Summary};
pub use plan::{Arrivals, Load, Plan, Query, Stall, StallKind, parse_staircase};
pub use record::{Outcome, Phase, Record, StallEnd, StallRecord};
pub use report::{Cost, ErrorRow, Report, StallReport, StepReport, Totals};
pub use resources::resolve;
pub use run::{Progress, run};
pub use schedule::{StepPlan, steps};
pub use table::table;
