//! Two namespaces, and the two descriptors by which the router takes their packets and gives them
//! others. A namespace has no name: it lives as long as somebody holds a descriptor of it, or is in it.

use super::{Side, netlink::Netlink, sys};
use nix::{
    ifaddrs::getifaddrs,
    libc,
    net::if_::{InterfaceFlags, if_nametoindex},
    sched::{CloneFlags, setns, unshare},
    sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt},
};
use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    net::Ipv4Addr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    thread,
    time::{Duration, Instant},
};

/// What the device is called, on either side.
pub const DEVICE: &str = "link0";

/// The hardware address of both ends of a veth link. Equal ones spare us address resolution: a device
/// without it (IFF_NOARP) sends to its own address, and the other end takes that for its own.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Packets that the kernel keeps for the router when it is late.
const KEPT: u32 = 2_000;

/// Bytes that the kernel keeps for the router when it is late, as far as it allows.
const KEPT_BYTES: usize = 4 << 20;

/// How long a device may take until it runs.
const STARTS_WITHIN: Duration = Duration::from_secs(5);

/// Addresses that are nobody's: TEST-NET-1 of RFC 5737.
pub const PREFIX: u8 = 24;

/// How a link can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A TUN device on each side: the router holds their other ends.
    Tun,
    /// A veth device on each side, whose other ends are in a third namespace, where the router has
    /// packet sockets.
    Veth,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Tun => "tun",
            Way::Veth => "veth",
        })
    }
}

/// One side: its namespace, and where the router finds its packets.
#[derive(Debug)]
pub struct End {
    /// The namespace.
    pub namespace: OwnedFd,
    /// Reading takes a packet that this side sends; writing gives it one.
    pub packets: OwnedFd,
}

/// Makes both sides.
///
/// # Errors
/// A sentence that names the call.
pub fn make(way: Way) -> Result<(End, End), String> {
    match way {
        Way::Tun => Ok((tun(Side::Client)?, tun(Side::Server)?)),
        Way::Veth => veth(),
    }
}

/// The address of a side.
pub fn address(side: Side) -> Ipv4Addr {
    match side {
        Side::Client => Ipv4Addr::new(192, 0, 2, 1),
        Side::Server => Ipv4Addr::new(192, 0, 2, 2),
    }
}

/// Runs `work` in a thread in `namespace`. Threads and processes that it starts are there, too.
///
/// # Errors
/// Those of `setns(2)`, and without a thread.
pub fn inside<T: Send>(namespace: &OwnedFd, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let enter_and_work = || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        Ok(work())
    };
    aside(enter_and_work)?
}

/// Runs `work` in a thread of its own, since a namespace is a thread's.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("link side".into()).spawn_scoped(scope, work)?;
        thread.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}

/// Takes the calling thread to a new namespace, and returns its descriptor.
fn new_namespace() -> Result<OwnedFd, String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("unshare(CLONE_NEWNET): {error}"))?;
    let path = "/proc/thread-self/ns/net";
    File::open(path).map(OwnedFd::from).map_err(|error| format!("{path}: {error}"))
}

fn tun(side: Side) -> Result<End, String> {
    let make = || {
        let namespace = new_namespace()?;
        let path = "/dev/net/tun";
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let tun = options.open(path).map_err(|error| format!("{path}: {error}"))?;
        sys::become_tun(tun.as_fd(), DEVICE).map_err(|error| format!("TUNSETIFF: {error}"))?;
        set_up(Way::Tun, side)?;
        Ok(End { namespace, packets: tun.into() })
    };
    aside(make).unwrap_or_else(|error| Err(format!("clone: {error}")))
}

fn veth() -> Result<(End, End), String> {
    let make = || {
        // The router's own namespace lives as long as its sockets do.
        new_namespace()?;
        Ok((veth_end(Side::Client, "client0")?, veth_end(Side::Server, "server0")?))
    };
    aside(make).unwrap_or_else(|error| Err(format!("clone: {error}")))
}

/// The calling thread is in the router's namespace.
fn veth_end(side: Side, name: &str) -> Result<End, String> {
    let namespace = aside(new_namespace).map_err(|error| format!("clone: {error}"))??;
    let netlink = Netlink::open().map_err(|error| format!("socket(NETLINK_ROUTE): {error}"))?;
    netlink
        .add_veth(name, DEVICE, MAC, namespace.as_fd())
        .map_err(|error| format!("netlink: a veth pair: {error}"))?;
    inside(&namespace, || set_up(Way::Veth, side)).map_err(|error| format!("setns: {error}"))??;
    netlink.switch_on(name, 0).map_err(|error| format!("netlink: {name} up: {error}"))?;
    wait_until_it_runs(name)?;
    inside(&namespace, || wait_until_it_runs(DEVICE))
        .map_err(|error| format!("setns: {error}"))??;
    // Not before it is up: the socket would find ENETDOWN.
    let packets = packet_socket(name).map_err(|error| format!("packet socket: {error}"))?;
    Ok(End { namespace, packets })
}

/// Waits until the kernel lets the device `name` send: a while after both ends of a pair are up.
fn wait_until_it_runs(name: &str) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let devices = getifaddrs().map_err(|error| format!("getifaddrs: {error}"))?;
        let runs = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        if devices.into_iter().any(|it| it.interface_name == name && it.flags.contains(runs)) {
            return Ok(());
        }
        if start.elapsed() > STARTS_WITHIN {
            return Err(format!("{name} is up and does not run"));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A socket for the IPv4 packets of the device `name`, Ethernet headers and all.
fn packet_socket(name: &str) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Without a protocol it hears nothing until it is bound.
    let packets = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
    sys::ignore_outgoing(packets.as_fd())?;
    // The kernel gives less if it allows less.
    setsockopt(&packets, sockopt::RcvBuf, &KEPT_BYTES)?;
    setsockopt(&packets, sockopt::SndBuf, &KEPT_BYTES)?;
    sys::bind_to_device(packets.as_fd(), if_nametoindex(name)?)?;
    Ok(packets)
}

/// Sets up the device of `side`, and loopback; the calling thread is in its namespace.
fn set_up(way: Way, side: Side) -> Result<(), String> {
    let netlink = Netlink::open().map_err(|error| format!("socket(NETLINK_ROUTE): {error}"))?;
    let no = |what: &str, error: io::Error| format!("netlink: {what}: {error}");
    netlink.switch_on("lo", 0).map_err(|error| no("lo up", error))?;
    if way == Way::Veth {
        no_offload().map_err(|error| format!("SIOCETHTOOL: {error}"))?;
    }
    let flags = if way == Way::Veth { libc::IFF_NOARP } else { 0 };
    netlink.switch_on(DEVICE, flags).map_err(|error| no("link0 up", error))?;
    // Refused in some user namespaces: then the kernel's own length has to do.
    let _ = netlink.set_queue(DEVICE, KEPT);
    netlink.add_address(DEVICE, address(side), PREFIX).map_err(|error| no("an address", error))
}

fn no_offload() -> io::Result<()> {
    // Any socket will do: it stands for its namespace.
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    sys::no_offload(any.as_fd(), DEVICE)
}

/// How many packets the kernel has thrown away because the router did not take them in time, on the way
/// out of this side; the calling thread is in its namespace. `None` if /proc does not say.
pub fn dropped_on_the_way_out() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("link0:"))?;
    // Eight counters of what came in; of what went out: bytes, packets, errors, dropped.
    line.split_whitespace().nth(11)?.parse().ok()
}
