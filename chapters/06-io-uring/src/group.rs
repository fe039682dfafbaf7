//! The listeners that share one address by SO_REUSEPORT: who else is among them, and how to leave them
//! without losing a client. The same file in every chapter that shares its address.
//!
//! The kernel gives each new connection to one listener of the group, chosen by a hash of its addresses,
//! and whoever closes a listener resets all who wait in its queue. So a server that leaves first makes
//! the kernel choose others, then empties its queues, and closes then.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt};

/// The processes that listened on the address when this one came: their listeners stand before ours.
#[derive(Debug, Default)]
pub struct Elders {
    /// Each with its name, as in `ch05 (process 4711)`.
    processes: Vec<(u32, String)>,
}

impl Elders {
    /// Looks for them, as far as /proc lets us look into other processes.
    pub fn on(address: SocketAddr) -> Elders {
        let read =
            |table| fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        let sockets = read("tcp") + &read("tcp6");
        let inodes = sockets.lines().filter_map(|it| listener(it, address.port()));
        let inodes: Vec<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
        if address.port() == 0 || inodes.is_empty() {
            return Elders::default();
        }
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let mut descriptors = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
            let holds = descriptors.any(|it| {
                let link = fs::read_link(it.path()).unwrap_or_default();
                inodes.iter().any(|inode| link.as_os_str() == inode.as_str())
            });
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            holds.then(|| (pid, format!("{} (process {pid})", name.trim_end())))
        });
        Elders { processes: processes.collect() }
    }

    /// A sentence about them, if there are any.
    pub fn sentence(&self) -> Option<String> {
        let names: Vec<&str> = self.processes.iter().map(|it| it.1.as_str()).collect();
        let names = (!names.is_empty()).then(|| names.join(", "))?;
        Some(format!("this address is shared with {names}: new clients go to either"))
    }

    fn are_still_there(&self) -> bool {
        self.processes.iter().any(|(pid, _)| fs::exists(format!("/proc/{pid}")).unwrap_or(false))
    }
}

/// The inode of a line of /proc/net/tcp, if it is that of a listener on `port`.
fn listener(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A"; // include/net/tcp_states.h
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, local) = fields.get(1)?.rsplit_once(':')?;
    let is_ours = fields.get(3) == Some(&LISTEN) && u16::from_str_radix(local, 16) == Ok(port);
    is_ours.then(|| fields.get(9).copied())?
}

// ANCHOR: leave
/// Makes the kernel give new connections to the others of the group: SO_ATTACH_REUSEPORT_CBPF, see
/// socket(7), with a program of one instruction. It returns the number of a listener in the order in
/// which they came. After our `own` listeners the next one is a newcomer's; before them stand the elders.
/// When nobody else is there, the number is out of range, and the hash decides as before.
///
/// Simplified: the program stays with the group when we have gone. A newcomer with more listeners than
/// we have would then get all its clients on one of them; ours have as many, one for each core.
pub fn leave(listener: &OwnedFd, own: usize, elders: &Elders) -> anyhow::Result<()> {
    let next = if elders.are_still_there() { 0 } else { own };
    let mut instruction = libc::sock_filter {
        code: u16::try_from(libc::BPF_RET | libc::BPF_K)?,
        jt: 0,
        jf: 0,
        k: u32::try_from(next)?,
    };
    let program = libc::sock_fprog { len: 1, filter: &raw mut instruction };
    setsockopt(listener, sockopt::AttachReusePortCbpf, &program)
        .context("setsockopt(SO_ATTACH_REUSEPORT_CBPF)")
}
// ANCHOR_END: leave
