//! The experiments: each starts servers of the chapters on this machine, drives them, and writes a record.
//!
//! Reading order: [`cli`] is the command, [`experiment`] says what an experiment is and lists them, and
//! [`measure`] is all that is done around one. [`race`] is the first of them; [`stalls`], [`patience`],
//! [`backlog`], [`memory`], [`syscalls`] and [`names`] need loopback alone; [`scaling`] and [`spread`] are
//! about 05 and 06; [`staircase`], [`knee`] and [`levers`] go across the emulated [`link`]; [`arena`] is about
//! 07. [`drive`] is what
//! a server and its clients are for all of them, [`pool`] does many such runs and [`journal`] keeps what is
//! done; [`trace`] counts instead of timing, and [`suites`] asks
//! what other people's tests say. [`binaries`] builds the servers and [`machine`] looks at what
//! they run on; [`records`] is what stays.

pub mod arena;
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
pub mod suites;
pub mod syscalls;
pub mod tour;
pub mod trace;
