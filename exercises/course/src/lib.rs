//! The checker of the exercises, as a library: what `cargo course` is made of.
//!
//! Reading order: [`home`] finds the exercises, [`exercise`] is one of them; the overlay engine is
//! [`scratch`] (some sources built with a pristine manifest), [`confine`] (a child under limits) and
//! [`judge`] (what the rows find of a program); [`verdict`] says what that means, [`misconception`] which
//! wrong server it looks like; the rest are the commands.

/// One command for a Linux on any machine with Docker, as `.devcontainer/` has it.
pub const ELSEWHERE: &str = "docker run --rm -it --cap-add=SYS_PTRACE --security-opt seccomp=unconfined \
    -v \"$PWD\":/course -w /course -e CARGO_TARGET_DIR=/target rust:1-bookworm bash";

/// One command for a newer Linux on an older one: Lima's virtual machine.
pub const NEWER: &str = "limactl start && lima";

/// One command for a Linux on Windows.
pub const WINDOWS: &str = "wsl --install -d Ubuntu";

#[cfg(target_os = "linux")]
pub mod agree;
#[cfg(target_os = "linux")]
pub mod attempt;
#[cfg(target_os = "linux")]
pub mod check;
#[cfg(target_os = "linux")]
pub mod confine;
#[cfg(target_os = "linux")]
pub mod doctor;
#[cfg(target_os = "linux")]
pub mod exercise;
#[cfg(target_os = "linux")]
pub mod grade;
#[cfg(target_os = "linux")]
pub mod hint;
#[cfg(target_os = "linux")]
pub mod home;
#[cfg(target_os = "linux")]
pub mod judge;
#[cfg(target_os = "linux")]
pub mod misconception;
#[cfg(target_os = "linux")]
pub mod new_term;
#[cfg(target_os = "linux")]
pub mod progress;
#[cfg(target_os = "linux")]
pub mod say;
#[cfg(target_os = "linux")]
pub mod scratch;
#[cfg(target_os = "linux")]
pub mod state;
#[cfg(target_os = "linux")]
pub mod verdict;
#[cfg(target_os = "linux")]
pub mod verify;
#[cfg(target_os = "linux")]
pub mod watch;
