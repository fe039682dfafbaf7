//! How a process leaves the listeners that share its address: chapter 05's `group.rs`, as far as one listener
//! needs it.
//!
//! The kernel gives each new connection to one listener of the group, chosen by a hash of its addresses. A
//! program can choose in its place.

use std::os::fd::OwnedFd;

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt};

/// The newcomer's listener among those of the address, in the order in which they came: ours is number 0.
///
/// Simplified: nobody was here before us. Chapter 05 looks who was.
const NEWCOMER: u32 = 1;

/// Makes the kernel give new connections to the newcomer: SO_ATTACH_REUSEPORT_CBPF, see socket(7), with a
/// program of one instruction that returns its number. When nobody has come, the number is out of range, and
/// the hash decides as before.
pub fn give_new_clients_to_the_newcomer(listener: &OwnedFd) -> anyhow::Result<()> {
    let mut instruction = libc::sock_filter {
        code: u16::try_from(libc::BPF_RET | libc::BPF_K)?,
        jt: 0,
        jf: 0,
        k: NEWCOMER,
    };
    let program = libc::sock_fprog { len: 1, filter: &raw mut instruction };
    setsockopt(listener, sockopt::AttachReusePortCbpf, &program)
        .context("setsockopt(SO_ATTACH_REUSEPORT_CBPF)")
}
