//! The few system calls for network devices that neither std nor nix makes for us. Every `unsafe` of
//! this package is here.
#![expect(unsafe_code, reason = "nix has no safe form of these calls")]

use nix::libc;
use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
};

/// What the kernel calls [`libc::ETH_P_IP`]: packets of IPv4, and no others.
const IPV4: u16 = libc::ETH_P_IP as u16;

// Not in libc: <linux/ethtool.h>.
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;

mod ioctl {
    nix::ioctl_write_ptr_bad!(tun_set, nix::libc::TUNSETIFF, nix::libc::ifreq);
    nix::ioctl_readwrite_bad!(ethtool, nix::libc::SIOCETHTOOL, nix::libc::ifreq);
}

#[repr(C)]
struct EthtoolValue {
    command: u32,
    value: u32,
}

/// Makes `tun`, an open /dev/net/tun, a device called `name` whose packets are bare IP packets.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN in the namespace in which it was opened.
pub fn become_tun(tun: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: `request` outlives the call, which reads one ifreq from it.
    unsafe { ioctl::tun_set(tun.as_raw_fd(), &raw const request) }?;
    Ok(())
}

/// Lets the device `name` send packets as they are to be on the wire: with their checksums, none longer
/// than its MTU. Nobody behind a packet socket would finish them.
///
/// # Errors
/// ENODEV without such a device in the namespace of `socket`, any socket.
pub fn no_offload(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    for command in [ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO] {
        let mut value = EthtoolValue { command, value: 0 };
        let mut request = request(name);
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: `request`, and `value` that it points to, outlive the call; both have the layout
        // that the command asks for.
        unsafe { ioctl::ethtool(socket.as_raw_fd(), &raw mut request) }?;
    }
    Ok(())
}

/// Lets a packet socket take and give the IPv4 packets of the device `index`.
///
/// # Errors
/// Those of `bind(2)`.
pub fn bind_to_device(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    // SAFETY: all zeroes is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = IPV4.to_be();
    address.sll_ifindex = index.cast_signed();
    let length = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: `address` is a whole sockaddr_ll and outlives the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    check(result)
}

/// Lets a packet socket hear what comes in only: otherwise it hears what it sends itself.
///
/// # Errors
/// ENOPROTOOPT before Linux 4.20.
pub fn ignore_outgoing(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (on, length) = (1i32, size_of::<i32>() as u32);
    // SAFETY: `on` outlives the call, which reads one int from it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            (&raw const on).cast(),
            length,
        )
    };
    check(result)
}

/// How many packets a packet socket has had no room for since this was last asked.
///
/// # Errors
/// ENOPROTOOPT of another kind of socket.
pub fn overruns(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut counts = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of::<libc::tpacket_stats>() as u32;
    // SAFETY: `counts` and `length` outlive the call, which writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut counts).cast(),
            &raw mut length,
        )
    };
    check(result)?;
    Ok(counts.tp_drops)
}

/// Lets the calling thread go before all that are not in a hurry: `sched_setscheduler(2)`, which for Linux
/// is about a thread. (A nice value would count within its own session alone, where sessions are groups.)
///
/// # Errors
/// EPERM where only root may.
pub fn go_first() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: `lowest` outlives the call, which reads one sched_param from it.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest) })
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0.
    let last = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..last].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// The convention of libc: -1 means look at `errno`.
fn check(result: i32) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
