//! The experiments: each starts servers of the chapters on this machine, drives them, and writes a record.
//!
//! Reading order: [`cli`] is the command, [`experiment`] says what an experiment is and lists them,
//! [`race`] is the first one, [`scaling`] and [`spread`] are about 05 and 06, [`trace`] counts instead
//! of timing. [`link`] is Wi-Fi in a box; [`staircase`], [`knee`] and [`levers`] go across it.
//! [`binaries`] builds the servers and [`machine`] looks at what they run on; [`records`] is what stays.

pub mod backlog;
pub mod binaries;
pub mod cli;
pub mod drive;
pub mod experiment;
pub mod interrupt;
pub mod journal;
pub mod knee;
pub mod levers;
pub mod link;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod names;
pub mod patience;
pub mod pool;
pub mod question;
pub mod race;
pub mod records;
pub mod scaling;
pub mod screen;
pub mod servers;
pub mod spread;
pub mod staircase;
pub mod stalls;
pub mod syscalls;
pub mod tour;
pub mod trace;
