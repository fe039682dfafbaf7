//! The contract that every chapter is held to, and where a chapter is known to break it.
//!
//! Reading order: [`verdicts`] is the table, [`probes`] says what each row means, [`server`] runs a
//! program and is its clients, [`microscope`] says where it sleeps and on whom, [`inject`] makes its
//! system calls fail, [`trace`] counts them, [`harness`] runs the rows and tells what was seen;
//! [`exercise`] is how a column comes from a file, for servers that the table does not name; [`bounded`]
//! is how all of them wait for other processes.

pub mod bounded;
pub mod build;
pub mod exercise;
pub mod harness;
pub mod http;
pub mod inject;
pub mod microscope;
pub mod probes;
pub mod processes;
pub mod server;
mod sock_diag;
#[expect(unsafe_code, reason = "system calls that neither std nor nix makes")]
pub mod sys;
pub mod trace;
pub mod verdicts;
