//! Descriptors, ports and names: what runs out under load, looked at before the load.

use crate::{
    plan::Plan,
    schedule::{Slot, What},
};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{
    collections::VecDeque,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    time::{Duration, Instant},
};

/// Descriptors for whatever else this process opens meanwhile: epoll, timers, files of results.
const SPARE_DESCRIPTORS: usize = 24;

/// How long a port stays with the side that closed first (TIME_WAIT).
const TIME_WAIT_NS: u64 = 60_000_000_000;

/// Resolves `HOST:PORT` once, and says how long it took: a name that is asked for with every request
/// fails under load, above all one of the local network (mDNS).
///
/// # Errors
/// If it is neither an address with a port nor a name that resolves.
pub fn resolve(address: &str) -> Result<(SocketAddr, Duration)> {
    let start = Instant::now();
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    ensure!(has_port, "'{address}' has no port: write HOST:PORT, for example 127.0.0.1:8080");
    let mut found = address.to_socket_addrs().with_context(|| {
        format!("getaddrinfo: '{address}' is not an address, nor a name known here")
    })?;
    let Some(first) = found.next() else { bail!("the name of '{address}' has no address") };
    ensure!(first.port() != 0, "nobody listens on port 0: give the port that the server printed");
    Ok((first, start.elapsed()))
}

/// Raises the limit of descriptors as far as it goes and says what of the plan cannot be.
/// Returns warnings about what may run out if the server does not answer.
pub(crate) fn check(plan: &Plan, slots: &[Slot]) -> Result<Vec<String>> {
    let needed = most_at_once(plan, slots);
    check_descriptors(plan, needed)?;
    check_ports(plan, slots, needed)
}

fn check_descriptors(plan: &Plan, needed: usize) -> Result<()> {
    let Err(Short { all, hard, left }) = raise_descriptors(needed)? else { return Ok(()) };
    bail!(
        "RLIMIT_NOFILE: this plan may hold {needed} connections at once if the server does not answer, \
         which takes {all} descriptors, and the limit is {hard}. \
         Allow more (ulimit -Hn {all}, as root), or hold fewer: a --timeout shorter than {:?}, \
         or --connections {left}",
        plan.timeout
    )
}

/// Says whether this process may hold `needed` connections, each for the whole run.
pub(crate) fn check_connections(target: SocketAddr, needed: usize) -> Result<()> {
    if let Err(Short { all, hard, left }) = raise_descriptors(needed)? {
        bail!(
            "RLIMIT_NOFILE: {needed} connections take {all} descriptors, and the limit is {hard}. \
             Allow more (ulimit -Hn {all}, as root), or take --connections {left}"
        );
    }
    let ports = ephemeral_ports();
    ensure!(
        needed <= ports as usize,
        "ports: {needed} connections to {target} take as many ports, and this machine has {ports} for one \
         address (net.ipv4.ip_local_port_range). Take --connections {ports}"
    );
    Ok(())
}

/// Descriptors that do not suffice: all that are needed, the limit, and the connections that it allows.
struct Short {
    all: usize,
    hard: u64,
    left: usize,
}

/// Raises the limit of descriptors as far as it goes.
fn raise_descriptors(needed: usize) -> Result<Result<(), Short>> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("getrlimit(RLIMIT_NOFILE)")?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("setrlimit(RLIMIT_NOFILE)")?;
    }
    let open = fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(SPARE_DESCRIPTORS);
    let all = needed + open + SPARE_DESCRIPTORS;
    if all as u64 <= hard {
        return Ok(Ok(()));
    }
    Ok(Err(Short { all, hard, left: (hard as usize).saturating_sub(open + SPARE_DESCRIPTORS) }))
}

fn check_ports(plan: &Plan, slots: &[Slot], needed: usize) -> Result<Vec<String>> {
    let ports = ephemeral_ports();
    if source_network(plan).is_some() {
        return Ok(Vec::new());
    }
    ensure!(
        needed <= ports as usize,
        "ports: this plan may hold {needed} connections to one address at once, and this machine has \
         {ports} ports for them (net.ipv4.ip_local_port_range). \
         Take a shorter --timeout, or --connections {ports}"
    );
    // Those who lose patience close first, and their ports are locked for a minute.
    let minute = slots.partition_point(|slot| slot.at_ns < TIME_WAIT_NS);
    let mut warnings = Vec::new();
    if minute > ports as usize {
        warnings.push(format!(
            "if the server does not answer in time, this side closes first, and of the {minute} ports \
             that the first minute takes, this machine has {ports}: watch the row 'out of ports'"
        ));
    }
    Ok(warnings)
}

/// The most connections at once if nobody is answered: everybody due within one timeout, and every
/// stalled client within its hold time.
fn most_at_once(plan: &Plan, slots: &[Slot]) -> usize {
    let window = |length: Duration, stalled: bool| {
        let length_ns = length.as_nanos() as u64;
        let mut open = VecDeque::new();
        let mut most = 0;
        for slot in slots {
            if matches!(slot.what, What::Stalled { .. }) != stalled {
                continue;
            }
            while open.front().is_some_and(|at_ns| at_ns + length_ns <= slot.at_ns) {
                open.pop_front();
            }
            open.push_back(slot.at_ns);
            most = most.max(open.len());
        }
        most
    };
    let requests = window(plan.timeout, false).min(plan.connections.unwrap_or(usize::MAX));
    requests + window(plan.stall_hold, true)
}

/// How many ports the kernel gives out by itself.
fn ephemeral_ports() -> u32 {
    let read = || {
        let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
        let mut ends = text.split_whitespace().map(str::parse::<u32>);
        let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    read().unwrap_or(28_232)
}

/// The first address of the sources that may be used, if there is more than one.
fn source_network(plan: &Plan) -> Option<Ipv4Addr> {
    match plan.target.ip() {
        IpAddr::V4(address) if address.is_loopback() && plan.spread_sources => {
            Some(Ipv4Addr::LOCALHOST)
        }
        _ => None,
    }
}

/// Source addresses, more of them as the ports of each grow scarce. On loopback all of 127.0.0.0/8 is
/// this machine, and each address has ports of its own.
pub(crate) struct Sources {
    first: Option<Ipv4Addr>,
    ports_each: usize,
    locked_until_ns: VecDeque<u64>,
    widened: usize,
    turn: usize,
}

impl Sources {
    pub fn new(plan: &Plan) -> Sources {
        // The kernel searches long when many ports are taken: a quarter of them is little, and engines
        // that know nothing of each other share it.
        let ports_each = (ephemeral_ports() as usize / 4 / plan.threads).max(1);
        Sources {
            first: source_network(plan),
            ports_each,
            locked_until_ns: VecDeque::new(),
            widened: 0,
            turn: 0,
        }
    }

    /// The source of the next connection; `None` leaves it to the kernel.
    pub fn pick(&mut self, now_ns: u64, open: usize) -> Option<Ipv4Addr> {
        let first = self.first?;
        while self.locked_until_ns.front().is_some_and(|until| *until <= now_ns) {
            self.locked_until_ns.pop_front();
        }
        let taken = open + self.locked_until_ns.len();
        let addresses = 1 + taken / self.ports_each + self.widened;
        self.turn = (self.turn + 1) % addresses;
        match self.turn {
            0 => None,
            turn => Some(Ipv4Addr::from(u32::from(first) + turn as u32)),
        }
    }

    /// Says that this side closed first, which keeps a port for a minute.
    pub fn locked(&mut self, now_ns: u64) {
        if self.first.is_some() {
            self.locked_until_ns.push_back(now_ns + TIME_WAIT_NS);
        }
    }

    /// Takes one more address, if that is possible: the kernel has found no port.
    pub fn widen(&mut self) -> bool {
        self.widened += 1;
        self.first.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::slots;

    fn plan() -> Plan {
        let target = "127.0.0.1:1".parse().unwrap();
        Plan::steady(target, 1000.0, Duration::ZERO, Duration::from_secs(10))
    }

    #[test]
    fn the_most_at_once_is_the_rate_times_the_patience() {
        let plan = plan().with_timeout(Duration::from_secs(2));
        assert_eq!(most_at_once(&plan, &slots(&plan).unwrap()), 2000);
        let capped = plan.with_connections(50).with_stall("1%:silent".parse().unwrap());
        assert_eq!(most_at_once(&capped, &slots(&capped).unwrap()), 50 + 80);
    }

    #[test]
    fn sources_grow_with_the_ports_taken() {
        let mut sources = Sources::new(&plan());
        assert_eq!(sources.pick(0, 0), None);
        assert_eq!(sources.pick(0, 0), None);
        for _ in 0..sources.ports_each {
            sources.locked(0);
        }
        let both = [sources.pick(1, 0), sources.pick(1, 0)];
        assert!(both.contains(&None) && both.contains(&Some(Ipv4Addr::new(127, 0, 0, 2))));
        // A minute later the ports are free again.
        assert_eq!(sources.pick(TIME_WAIT_NS, 0), None);
        assert_eq!(sources.pick(TIME_WAIT_NS, 0), None);
    }

    #[test]
    fn a_far_address_has_the_ports_of_one_source() {
        let mut far = plan();
        far.target = "192.0.2.1:80".parse().unwrap();
        let ports = ephemeral_ports() as usize;
        let error = check_ports(&far, &[], ports + 1).unwrap_err().to_string();
        assert!(
            error.contains("ip_local_port_range") && error.contains("--connections"),
            "{error}"
        );
        // Enough at once, and too many in the minute for which a port is locked: that is a warning.
        far.load = crate::Load::Steady {
            qps: ports as f64 / 50.0,
            warmup: Duration::ZERO,
            steady: Duration::from_secs(60),
        };
        let warnings = check_ports(&far, &slots(&far).unwrap(), 100).unwrap();
        assert!(warnings[0].contains("out of ports"), "{warnings:?}");
        assert!(check_ports(&plan(), &[], ports + 1).unwrap().is_empty());
    }

    #[test]
    fn only_loopback_has_more_sources() {
        let mut far = plan();
        far.target = "192.0.2.1:80".parse().unwrap();
        let mut one = plan();
        one.spread_sources = false;
        assert!(!Sources::new(&one).widen());
        let mut sources = Sources::new(&far);
        assert!(!sources.widen());
        assert_eq!(sources.pick(0, 1_000_000), None);
    }

    #[test]
    fn an_address_without_a_port_is_refused_in_a_sentence() {
        for bad in ["127.0.0.1", "localhost", "", "[::1]", "127.0.0.1:0", "127.0.0.1:99999"] {
            assert!(resolve(bad).is_err(), "{bad}");
        }
        assert_eq!(resolve("[::1]:80").unwrap().0, "[::1]:80".parse().unwrap());
    }
}
