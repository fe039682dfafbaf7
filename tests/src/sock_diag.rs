//! Asks the kernel for the TCP sockets of one port: `sock_diag(7)`, which is what `ss` asks.
//!
//! /proc/net/tcp has the same, but all of it: after a load test it has tens of thousands of lines of
//! sockets in TIME_WAIT, and to read them takes longer than what we want to see lasts. Here the kernel
//! is told which states and which port we mean. No root is needed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, bail};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::microscope::Socket;

// <linux/netlink.h> and <linux/sock_diag.h>.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER: usize = 16;

/// How long the kernel may take for a part of its answer.
const ANSWER_S: i64 = 5;

/// Every state but TIME_WAIT, SYN_RECV and CLOSE: bits of `include/net/tcp_states.h`.
const STATES: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11;

/// Both ends of the connections to `port` of this machine, and its listener.
///
/// # Errors
///
/// When the kernel does not answer the question, as some sandboxes do not.
pub(crate) fn sockets(port: u16) -> anyhow::Result<Vec<Socket>> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let diag = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag)
        .context("socket(AF_NETLINK, NETLINK_SOCK_DIAG)")?;
    // A sandbox may take the question and never answer.
    setsockopt(&diag, sockopt::ReceiveTimeout, &TimeVal::seconds(ANSWER_S))
        .context("setsockopt")?;
    let mut sockets = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        for (source, destination) in [(port, 0), (0, port)] {
            let request = request(family as u8, source, destination);
            send(diag.as_raw_fd(), &request, MsgFlags::empty())
                .context("send(NETLINK_SOCK_DIAG)")?;
            receive(&diag, &mut sockets)?;
        }
    }
    Ok(sockets)
}

/// A `struct nlmsghdr` and a `struct inet_diag_req_v2`.
fn request(family: u8, source: u16, destination: u16) -> Vec<u8> {
    let protocol = u8::try_from(libc::IPPROTO_TCP).unwrap_or(0);
    let mut body = vec![family, protocol, 0, 0];
    body.extend(STATES.to_ne_bytes());
    body.extend(source.to_be_bytes());
    body.extend(destination.to_be_bytes());
    body.resize(56, 0); // Any address, any interface.
    let mut message = u32::try_from(HEADER + body.len()).unwrap_or(0).to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    message.resize(HEADER, 0);
    message.extend(body);
    message
}

fn receive(diag: &OwnedFd, sockets: &mut Vec<Socket>) -> anyhow::Result<()> {
    let mut bytes = [0; 32 * 1024];
    loop {
        let length = recv(diag.as_raw_fd(), &mut bytes, MsgFlags::empty())
            .with_context(|| format!("recv(NETLINK_SOCK_DIAG), within {ANSWER_S} s"))?;
        let mut left = &bytes[..length];
        while left.len() >= HEADER {
            let length = usize::try_from(u32_at(left, 0).context("a length")?)?;
            let kind = u16::from_ne_bytes([left[4], left[5]]);
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => bail!("the kernel does not answer sock_diag"),
                _ => sockets.extend(left.get(HEADER..length).and_then(parse)),
            }
            // Messages begin at multiples of four bytes.
            left = left.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// A `struct inet_diag_msg`.
fn parse(message: &[u8]) -> Option<Socket> {
    let family = *message.first()?;
    let port = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| -> Option<IpAddr> {
        if i32::from(family) == libc::AF_INET {
            return Some(
                Ipv4Addr::from(<[u8; 4]>::try_from(message.get(at..at + 4)?).ok()?).into(),
            );
        }
        Some(Ipv6Addr::from(<[u8; 16]>::try_from(message.get(at..at + 16)?).ok()?).to_canonical())
    };
    Some(Socket {
        state: *message.get(1)?,
        local: SocketAddr::new(address(8)?, port(4)?),
        peer: SocketAddr::new(address(24)?, port(6)?),
        receive_queue: u32_at(message, 56)?.try_into().ok()?,
        transmit_queue: u32_at(message, 60)?.try_into().ok()?,
        inode: u32_at(message, 68)?.into(),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_and_the_listener_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(b"12").unwrap();
        let client = client.local_addr().unwrap();

        let found = sockets(at.port()).unwrap();
        let server = found.iter().find(|it| it.peer == client).unwrap();
        assert_eq!((server.local, server.inode), (at, 0), "nobody has accepted it");
        assert_eq!(server.receive_queue, 2);
        assert!(found.iter().any(|it| it.local == client && it.inode != 0));
        let queue = found.iter().find(|it| it.state == 10).unwrap();
        assert_eq!((queue.local, queue.receive_queue), (at, 1), "one waits to be accepted");
    }
}
