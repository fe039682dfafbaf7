//! The listeners that share one address by SO_REUSEPORT: who else is among them, and how to leave them
//! without losing a client. The same file in every chapter that shares its address.
//!
//! The kernel gives each new connection to one listener of the group, chosen by a hash of its addresses,
//! and whoever closes a listener resets all who wait in its queue. So a server that leaves first makes
//! the kernel choose others, then empties its queues, and closes then.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
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
        if address.port() == 0 {
            return Elders::default();
        }
        let inodes: Vec<String> =
            ["tcp", "tcp6"].iter().flat_map(|table| listeners(table, address.port())).collect();
        if inodes.is_empty() {
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

/// The sockets that listen on `port`, as the links of /proc/PID/fd name them. The listeners come first in
/// the table: what follows, after a busy day tens of thousands of lines, is not read.
fn listeners(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A"; // include/net/tcp_states.h
    let Ok(file) = File::open(format!("/proc/self/net/{table}")) else { return Vec::new() };
    let mut inodes = Vec::new();
    for line in BufReader::new(file).lines().skip(1).map_while(Result::ok) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(local), Some(&LISTEN), Some(inode)) =
            (fields.get(1), fields.get(3), fields.get(9))
        else {
            break;
        };
        let its_port = local.rsplit_once(':').and_then(|it| u16::from_str_radix(it.1, 16).ok());
        if its_port == Some(port) {
            inodes.push(format!("socket:[{inode}]"));
        }
    }
    inodes
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
