//! The emulated link, held to its profile: delay, loss, budget, order, dice, and nothing left behind.
//!
//! Everything is tried in both ways: TUN as root, veth as an ordinary user in a user namespace. Root
//! becomes that user by running a copy of this test as `nobody`. A link that this machine was too busy
//! for is opened again, and in the end says what it needs: no number is judged that was measured over it.

use lab::link::{self, Link, Profile, Side, Unavailable, Way};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::{
    cmsg_space,
    sys::{
        signal::{Signal, kill, killpg},
        socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt},
        time::TimeSpec,
    },
    time::{ClockId, clock_gettime},
    unistd::{Pid, getuid},
};
use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader, IoSliceMut, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::AsRawFd,
        unix::{fs::PermissionsExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_lab");

/// Links that are opened, at most, until one was not spoiled.
const TRIES: u32 = 3;

/// No link is opened once more after this, so that a busy machine does not hold up everybody.
const PATIENCE: Duration = Duration::from_secs(60);

/// The user and the group that own nothing.
const NOBODY: u32 = 65_534;

/// How this test tells itself to be somebody else, and what it says then.
const AS_NOBODY: &str = "as-nobody";
const FORBIDDEN: &str = "forbidden";
const NEEDS: &str = "NEEDS ";

/// What a test finds out about one way.
type Test = fn(Way) -> Result<(), Trouble>;

/// The same of the command.
type CommandTest = fn(Who) -> Result<(), Trouble>;

const TESTS: [(&str, Test); 6] = [
    ("a_ping_takes_what_the_profile_says", ping),
    ("as_many_are_lost_as_are_to_be_and_the_same_with_one_seed", loss),
    ("twice_the_budget_carries_the_budget", budget),
    ("order_is_kept_or_not_as_asked_for", order),
    ("a_program_ends_with_the_thread_that_started_it", program),
    ("a_large_transfer_arrives_whole", transfer),
];

enum Trouble {
    /// The machine cannot show it.
    Needs(String),
    /// It is wrong.
    Wrong(String),
}

fn main() -> ExitCode {
    link::first_thing();
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [AS_NOBODY, name] => return be_nobody(name),
        [FORBIDDEN] => return be_forbidden(),
        _ => {}
    }
    let is_root = getuid().is_root();
    // Before there is a second thread.
    let able = if is_root { Ok(()) } else { link::prepare() };
    let mut trials = Vec::new();
    for (name, test) in TESTS {
        let (able, again) = (able.clone(), able.clone());
        trials
            .push(Trial::ignorable_test(format!("tun_{name}"), move || here(able, Way::Tun, test)));
        trials.push(Trial::ignorable_test(format!("veth_{name}"), move || match is_root {
            true => as_nobody(name),
            false => here(again, Way::Veth, test),
        }));
    }
    let commands: [(&str, CommandTest); 3] = [
        ("the_command_gives_names_and_a_status", names),
        ("a_killed_lab_leaves_nothing", killed),
        ("ctrl_c_leaves_a_summary_and_nothing_else", interrupted),
    ];
    for (name, test) in commands {
        for (who, is_wanted) in [(Who::Us, true), (Who::Nobody, is_root)] {
            if is_wanted {
                let able = able.clone();
                let run = move || judge(able.map_err(needs).and_then(|()| test(who)));
                trials.push(Trial::ignorable_test(format!("{}_{name}", who.name()), run));
            }
        }
    }
    trials.push(Trial::ignorable_test("without_namespaces_there_is_a_sentence", move || {
        judge(able.map_err(needs).and_then(|()| forbidden()))
    }));
    let mut arguments = Arguments::from_args();
    // Each measures time, and would be in the way of the others.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}

// What a link is held to.

fn ping(way: Way) -> Result<(), Trouble> {
    let profile = profile("wifi-2.4");
    let pings = measured(way, &profile, 1, |link| Ok(pings(link, 200)))?;
    let expected = 2.0 * profile.mean_delay_ms();
    let mean = pings.iter().sum::<f64>() / pings.len() as f64;
    let least = pings.iter().copied().fold(f64::MAX, f64::min);
    let seen = format!("{} came back, mean {mean:.1} ms, least {least:.1} ms", pings.len());
    demand((180..=200).contains(&pings.len()), || format!("1 % each way is lost: {seen}"))?;
    demand((mean / expected - 1.0).abs() < 0.1, || {
        format!("the mean is {expected:.1} ms: {seen}")
    })?;
    demand(least >= 2.0 * profile.delay_base_ms, || format!("none is below twice 8 ms: {seen}"))
}

fn loss(way: Way) -> Result<(), Trouble> {
    let profile = Profile { loss_percent: 10.0, ..profile("ethernet") };
    let lost = |seed| measured(way, &profile, seed, |link| Ok(lost(link, 2_000)));
    let (first, again, other) = (lost(1)?, lost(1)?, lost(2)?);
    for lost in first.iter().chain(&other) {
        // 10 % of 2,000, and five standard deviations of the binomial distribution.
        let bound = 5.0 * (2_000.0 * 0.1 * 0.9f64).sqrt();
        let off = (lost.len() as f64 - 200.0).abs();
        demand(off <= bound, || format!("{} of 2,000 are lost, not 200 ± {bound:.0}", lost.len()))?;
    }
    demand(first == again, || "two runs with one seed have lost different packets".into())?;
    demand(first != other, || "two seeds have lost the same packets".into())?;
    demand(first[0] != first[1], || "both directions have lost the same packets".into())
}

fn budget(way: Way) -> Result<(), Trouble> {
    let profile = Profile {
        packets_per_second: Some(1_000.0),
        loss_percent: 0.0,
        jitter_mean_ms: 0.0,
        ..profile("wifi-2.4")
    };
    let (times, counts) = measured(way, &profile, 1, |link| {
        let times = flood(link, 2_000.0, Duration::from_secs(2))?;
        Ok((times, link.counts()))
    })?;
    let seconds = (times[times.len() - 1] - times[0]) as f64 / 1e9;
    let rate = (times.len() - 1) as f64 / seconds;
    demand((rate / 1_000.0 - 1.0).abs() < 0.03, || {
        format!("{rate:.0} packets/s, not 1,000 ± 3 %")
    })?;
    let packets = counts.to_server;
    let all = packets.delivered + packets.queue_full;
    demand(packets.arrived == 4_000 && all == 4_000, || format!("4,000 were sent: {counts:?}"))?;
    let queue = counts.queue_max();
    // One is on the air, and counts as the part of it that is left.
    demand((50..=51).contains(&queue), || format!("50 may wait and one be sent: {queue} did"))
}

fn order(way: Way) -> Result<(), Trouble> {
    let keep = |keep_order| {
        let jitter = Profile { packets_per_second: None, loss_percent: 0.0, ..profile("wifi-2.4") };
        let profile = Profile { keep_order, ..jitter };
        measured(way, &profile, 1, |link| Ok(numbers_in_order_of_arrival(link, 500)))
    };
    let (kept, free) = (keep(true)?, keep(false)?);
    demand(kept.len() == 500 && free.len() == 500, || "none of 500 is to be lost".into())?;
    let overtaken = kept.windows(2).find(|two| two[0] > two[1]);
    demand(overtaken.is_none(), || format!("one has overtaken another: {overtaken:?}"))?;
    demand(!free.is_sorted(), || "none of 500 has overtaken another".into())
}

/// A program on a side is there, has its namespace, and ends with the thread.
fn program(way: Way) -> Result<(), Trouble> {
    let link = open(way, &profile("ethernet"), 1)?;
    let show = link.command(Side::Server, Path::new("cat")).arg("/proc/net/dev").output();
    let devices = String::from_utf8_lossy(&show.expect("cat").stdout).into_owned();
    demand(devices.contains("link0:"), || format!("not the devices of a side: {devices}"))?;
    let start = || {
        let child = link.command(Side::Client, Path::new("sleep")).arg("1000").spawn();
        let pid = child.expect("sleep").id();
        // It is `enter` first.
        wait_for("it becomes the program", || command_line(pid).starts_with("sleep"));
        pid
    };
    let pid = thread::scope(|scope| scope.spawn(start).join().expect("no panic"));
    wait_for("the program ends", || command_line(pid).is_empty());
    let missing =
        link.command(Side::Client, Path::new("/nowhere/program")).output().expect("enter");
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    demand(missing.status.code() == Some(127) && said.contains("/nowhere/program: "), || said)
}

/// Checksums and lengths are right on the other side: TCP would stand still otherwise.
fn transfer(way: Way) -> Result<(), Trouble> {
    const BYTES: usize = 4 << 20;
    const STANDSTILL: Duration = Duration::from_secs(10);
    let link = open(way, &profile("ethernet"), 1)?;
    let listen = || TcpListener::bind((link.server_ip(), 0)).expect("a port");
    let listener = link.on(Side::Server, listen).expect("setns");
    let address = listener.local_addr().expect("its address");
    let sent: Vec<u8> = (0..BYTES).map(|at| (at * 7 / 3) as u8).collect();
    let connect = || TcpStream::connect_timeout(&address, STANDSTILL);
    let client = link.on(Side::Client, connect).expect("setns");
    let mut client = client.map_err(|error| Trouble::Wrong(format!("connect: {error}")))?;
    let (mut server, _) = listener.accept().expect("a client: it is connected");
    client.set_read_timeout(Some(STANDSTILL)).expect("a timeout");
    server.set_write_timeout(Some(STANDSTILL)).expect("a timeout");
    let mut received = vec![0; BYTES];
    thread::scope(|scope| {
        let writer = scope.spawn(|| server.write_all(&sent));
        let read = client.read_exact(&mut received);
        read.and(writer.join().expect("no panic"))
    })
    .map_err(|error| Trouble::Wrong(format!("the transfer stands still: {error}")))?;
    demand(received == sent, || "other bytes have arrived than were sent".into())
}

// The command, as root and as nobody.

#[derive(Clone, Copy)]
enum Who {
    Us,
    Nobody,
}

fn names(who: Who) -> Result<(), Trouble> {
    let (mut lab, _folder) = who.lab();
    let script = "getent hosts server; cat /proc/net/dev; exit 7";
    let output = lab.args(["link", "--profile", "ethernet", "--", "sh", "-c", script]).output();
    let output = output.expect("the lab");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    unless_unavailable(&said)?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    demand(output.status.code() == Some(7), || format!("{}: {said}", output.status))?;
    demand(told.starts_with("192.0.2.2") && told.contains("link0:"), || format!("{told}{said}"))?;
    demand(said.contains("to the server: 0 packets, 0 delivered; "), || said)
}

fn killed(who: Who) -> Result<(), Trouble> {
    let running = Running::start(who)?;
    kill(running.pid(), Signal::SIGKILL).expect("the lab runs");
    let (_, said) = running.assert_nothing_is_left()?;
    demand(!said.contains("to the server: "), || format!("it was killed: {said}"))
}

fn interrupted(who: Who) -> Result<(), Trouble> {
    let running = Running::start(who)?;
    // As a terminal does: to all of the group.
    killpg(running.pid(), Signal::SIGINT).expect("the lab runs");
    let (status, said) = running.assert_nothing_is_left()?;
    demand(status == Some(130) && said.contains("to the server: "), || {
        format!("{status:?}: {said}")
    })
}

/// The lab with a command on either side, one of which has started a third and forgotten it.
struct Running {
    lab: std::process::Child,
    _folder: Option<TempDir>,
    descendants: Vec<i32>,
    namespaces: BTreeSet<PathBuf>,
    devices: String,
}

impl Running {
    fn start(who: Who) -> Result<Running, Trouble> {
        let devices = devices();
        let (mut command, folder) = who.lab();
        command.args(["link", "--profile", "ethernet", "--on-server", "sleep 1001; true", "--"]);
        command.args(["sh", "-c", "sleep 1002 & echo ready; sleep 1003; true"]);
        command.process_group(0).stdin(Stdio::null());
        // A shell starts us in the background with SIGINT ignored; a reader's terminal does not.
        contract::sys::heed_signals(&mut command);
        let mut lab = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("lab");
        let mut line = String::new();
        let output = lab.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("its output");
        let mut running = Running {
            lab,
            _folder: folder,
            descendants: vec![],
            namespaces: BTreeSet::new(),
            devices,
        };
        if line != "ready\n" {
            let mut said = String::new();
            let mut errors = running.lab.stderr.take().expect("a pipe");
            errors.read_to_string(&mut said).expect("its errors");
            unless_unavailable(&said)?;
            return Err(Trouble::Wrong(format!("the command was not started: {said}")));
        }
        // A first process of each family, a shell in each, and three that sleep.
        wait_for("all are there", || {
            running.descendants = descendants(running.lab.id().cast_signed());
            let sleeps = |pid: &&i32| command_line(pid.cast_unsigned()).starts_with("sleep");
            running.descendants.iter().filter(sleeps).count() == 3
        });
        let namespace = |pid: &i32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        running.namespaces = running.descendants.iter().filter_map(namespace).collect();
        let ours = fs::read_link("/proc/self/ns/net").expect("/proc");
        assert_eq!(running.namespaces.len(), 2, "a namespace for each side");
        assert!(!running.namespaces.contains(&ours));
        Ok(running)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.lab.id().cast_signed())
    }

    /// How it ended, and what it said.
    fn assert_nothing_is_left(mut self) -> Result<(Option<i32>, String), Trouble> {
        let mut status = None;
        wait_for("the lab ends", || {
            status = self.lab.try_wait().expect("waitpid");
            status.is_some()
        });
        let code = status.and_then(|it| it.code());
        wait_for("all processes end", || {
            self.descendants.iter().all(|pid| command_line(pid.cast_unsigned()).is_empty())
        });
        // Not before: whoever is left would hold the pipe, and us with it.
        let mut said = String::new();
        let mut errors = self.lab.stderr.take().expect("a pipe");
        errors.read_to_string(&mut said).expect("its errors");
        let is_inside = |pid: &u32| {
            fs::read_link(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|it| self.namespaces.contains(&it))
        };
        let inside: Vec<u32> = processes().filter(is_inside).collect();
        demand(inside.is_empty(), || format!("still in the namespaces: {inside:?}"))?;
        let after = devices();
        demand(after == self.devices, || format!("devices: {after}, before: {}", self.devices))?;
        Ok((code, said))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.lab.kill().and_then(|()| self.lab.wait());
        // None of these is left, unless the test has failed.
        for pid in &self.descendants {
            if !command_line(pid.cast_unsigned()).is_empty() {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
        }
    }
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Us => "by_us",
            Who::Nobody => "by_nobody",
        }
    }

    /// The lab, and the folder of its copy.
    fn lab(self) -> (Command, Option<TempDir>) {
        match self {
            Who::Us => (Command::new(LAB), None),
            Who::Nobody => {
                let (command, folder) = copy_for_nobody(Path::new(LAB));
                (command, Some(folder))
            }
        }
    }
}

/// Where there can be no namespaces, by a limit of the one that we are in.
fn forbidden() -> Result<(), Trouble> {
    let this = env::current_exe().expect("/proc");
    let output = Command::new(this).arg(FORBIDDEN).output().expect("this test");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if let Some(needs) = said.strip_prefix(NEEDS) {
        return Err(Trouble::Needs(needs.trim_end().into()));
    }
    let sentence = said.trim_end();
    let is_right = sentence.starts_with("cargo lab: no emulated link on this machine (")
        && sentence.contains("user.max_user_namespaces is 0")
        && sentence
            .contains("sudo sysctl user.max_user_namespaces=10000, or run it as root: sudo /")
        && sentence.lines().count() == 1;
    demand(is_right && output.status.code() == Some(1), || format!("{}: {said}", output.status))
}

fn be_forbidden() -> ExitCode {
    use nix::sched::{CloneFlags, unshare};
    let user = getuid();
    if let Err(error) = unshare(CloneFlags::CLONE_NEWUSER) {
        eprintln!("{NEEDS}a user namespace: unshare: {error}");
        return ExitCode::FAILURE;
    }
    let limits = [
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/sys/user/max_user_namespaces", "0".into()),
        ("/proc/sys/user/max_net_namespaces", "0".into()),
    ];
    for (path, text) in limits {
        if let Err(error) = fs::write(path, text) {
            eprintln!("{NEEDS}{path}, to write to it: {error}");
            return ExitCode::FAILURE;
        }
    }
    let error = Command::new(LAB).args(["link", "--", "true"]).exec();
    eprintln!("{LAB}: {error}");
    ExitCode::FAILURE
}

// Measuring over a link.

/// What `measure` finds over a link that was as it should be. `Err` of `measure` is noise as well.
fn measured<T>(
    way: Way,
    profile: &Profile,
    seed: u64,
    measure: impl Fn(&Link) -> Result<T, String>,
) -> Result<T, Trouble> {
    let start = Instant::now();
    let mut spoiled = String::new();
    for _ in 0..TRIES {
        let link = open(way, profile, seed)?;
        let found = measure(&link);
        match (link.counts().spoiled(), found) {
            (None, Ok(found)) => return Ok(found),
            (Some(why), _) | (None, Err(why)) => spoiled = why,
        }
        if start.elapsed() > PATIENCE {
            break;
        }
    }
    Err(Trouble::Needs(format!("a quieter machine: {spoiled}")))
}

fn open(way: Way, profile: &Profile, seed: u64) -> Result<Link, Trouble> {
    Link::open_by(way, profile, seed).map_err(|reason| Trouble::Needs(format!("{way}: {reason}")))
}

fn profile(name: &str) -> Profile {
    Profile::named(name).expect("it has a name")
}

/// The times of echoes that came back, in ms, one after the other.
///
/// Both ends put the time into what they send, and the kernel says when it came: how long this test
/// takes to wake up is no matter of the link.
fn pings(link: &Link, times: u32) -> Vec<f64> {
    let (client, server) = sockets(link);
    let to_server = server.local_addr().expect("its address");
    let to_client = client.local_addr().expect("its address");
    let mut pings = Vec::new();
    for number in 0..times {
        let sent = realtime_ns();
        client.send_to(&number.to_ne_bytes(), to_server).expect("sendto");
        let Some(there) = hear(&server, number) else { continue };
        let answered = realtime_ns();
        server.send_to(&number.to_ne_bytes(), to_client).expect("sendto");
        let Some(back) = hear(&client, number) else { continue };
        let ns = there.saturating_sub(sent) + back.saturating_sub(answered);
        pings.push(ns as f64 / 1e6);
    }
    pings
}

/// When packet `number` came, unless it is lost.
fn hear(socket: &UdpSocket, number: u32) -> Option<u64> {
    // Several times what the profile takes at most. What comes later than that is passed over.
    socket.set_read_timeout(Some(Duration::from_millis(250))).expect("a timeout");
    while let Some((heard, at)) = receive(socket) {
        if heard == number {
            return Some(at);
        }
    }
    None
}

/// The numbers of the packets that did not come, of `packets` to the server and of as many back.
fn lost(link: &Link, packets: u32) -> [BTreeSet<u32>; 2] {
    let (client, server) = sockets(link);
    let to_server = server.local_addr().expect("its address");
    let to_client = client.local_addr().expect("its address");
    let mut missing: [BTreeSet<u32>; 2] = [(0..packets).collect(), (0..packets).collect()];
    let drain = |missing: &mut [BTreeSet<u32>; 2]| {
        for (socket, missing) in [&server, &client].into_iter().zip(missing) {
            while let Some((number, _)) = receive(socket) {
                missing.remove(&number);
            }
        }
    };
    for socket in [&client, &server] {
        socket.set_nonblocking(true).expect("O_NONBLOCK");
    }
    for number in 0..packets {
        client.send_to(&number.to_ne_bytes(), to_server).expect("sendto");
        server.send_to(&number.to_ne_bytes(), to_client).expect("sendto");
        // Few at a time, so that no buffer on the way is ever full.
        if number % 10 == 9 {
            thread::sleep(Duration::from_millis(1));
            drain(&mut missing);
        }
    }
    for socket in [&client, &server] {
        socket.set_nonblocking(false).expect("O_NONBLOCK");
        socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    }
    drain(&mut missing);
    missing
}

/// When the packets came that were sent at `rate` per second, in nanoseconds.
fn flood(link: &Link, rate: f64, length: Duration) -> Result<Vec<u64>, String> {
    let (client, server) = sockets(link);
    let address = server.local_addr().expect("its address");
    server.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    thread::scope(|scope| {
        let listen = || std::iter::from_fn(|| receive(&server)).map(|(_, at)| at).collect();
        let listener = scope.spawn(listen);
        let start = Instant::now();
        let (mut number, mut last) = (0u32, start);
        let mut longest = Duration::ZERO;
        while last - start < length {
            thread::sleep(Duration::from_millis(2));
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
            let due = (now - start).min(length).as_secs_f64() * rate;
            while f64::from(number) < due {
                client.send_to(&number.to_ne_bytes(), address).expect("sendto");
                number += 1;
            }
        }
        let times: Vec<u64> = listener.join().expect("no panic");
        // A queue of 50 packets is empty after 50 ms without more of them.
        match longest < Duration::from_millis(40) && times.len() > 1 {
            true => Ok(times),
            false => Err(format!("the sender stood still for {longest:?}")),
        }
    })
}

fn numbers_in_order_of_arrival(link: &Link, packets: u32) -> Vec<u32> {
    let (client, server) = sockets(link);
    let address = server.local_addr().expect("its address");
    for number in 0..packets {
        client.send_to(&number.to_ne_bytes(), address).expect("sendto");
        thread::sleep(Duration::from_millis(1));
    }
    server.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    std::iter::from_fn(|| receive(&server)).map(|(number, _)| number).collect()
}

/// One on each side: of the client, of the server. They stay there, whoever uses them.
fn sockets(link: &Link) -> (UdpSocket, UdpSocket) {
    let bind = |side, ip| {
        let bind = || UdpSocket::bind((ip, 0)).expect("a port");
        let socket = link.on(side, bind).expect("setns");
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).expect("SO_TIMESTAMPNS");
        setsockopt(&socket, sockopt::RcvBuf, &(4 << 20)).expect("SO_RCVBUF");
        socket
    };
    (bind(Side::Client, link.client_ip()), bind(Side::Server, link.server_ip()))
}

/// The number in the next packet, and when it came; `None` after the read timeout of the socket.
fn receive(socket: &UdpSocket) -> Option<(u32, u64)> {
    let mut bytes = [0; 4];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut space = cmsg_space!(TimeSpec);
    let flags = MsgFlags::empty();
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags).ok()?;
    let at = message.cmsgs().expect("room for them").find_map(|it| match it {
        ControlMessageOwned::ScmTimestampns(at) => Some(nanoseconds(at)),
        _ => None,
    });
    Some((u32::from_ne_bytes(bytes), at?))
}

/// By the clock that the kernel stamps packets with.
fn realtime_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::CLOCK_REALTIME).expect("the clock"))
}

fn nanoseconds(time: TimeSpec) -> u64 {
    time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned()
}

// Being somebody else.

/// Runs a test in this process.
fn here(able: Result<(), Unavailable>, way: Way, test: Test) -> Result<Completion, Failed> {
    judge(able.map_err(needs).and_then(|()| test(way)))
}

/// Runs the test called `name` as an ordinary user, in a process of its own, by veth.
fn as_nobody(name: &str) -> Result<Completion, Failed> {
    let (mut command, _folder) = copy_for_nobody(&env::current_exe().expect("/proc"));
    let output = command.args([AS_NOBODY, name]).output().expect("this test");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    judge(match (output.status.success(), said.strip_prefix(NEEDS)) {
        (true, _) => Ok(()),
        (false, Some(needs)) => Err(Trouble::Needs(needs.trim_end().into())),
        (false, None) => Err(Trouble::Wrong(format!("{}: {said}", output.status))),
    })
}

/// The other end of [`as_nobody`].
fn be_nobody(name: &str) -> ExitCode {
    let able = link::prepare().map_err(needs);
    let (_, test) = TESTS.into_iter().find(|it| it.0 == name).expect("one of the tests");
    match able.and_then(|()| test(Way::Veth)) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Trouble::Needs(what)) => eprintln!("{NEEDS}{what}"),
        Err(Trouble::Wrong(what)) => eprintln!("{what}"),
    }
    ExitCode::FAILURE
}

/// A command that runs a copy of `program` as nobody, who may not look into a folder of ours.
fn copy_for_nobody(program: &Path) -> (Command, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let copy = folder.path().join("program");
    fs::copy(program, &copy).expect("a copy");
    let mut command = Command::new(copy);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    (command, folder)
}

fn judge(result: Result<(), Trouble>) -> Result<Completion, Failed> {
    match result {
        Ok(()) => Ok(Completion::Completed),
        Err(Trouble::Needs(what)) => Ok(Completion::ignored_with(format!("{NEEDS}{what}"))),
        Err(Trouble::Wrong(what)) => Err(what.into()),
    }
}

fn needs(unavailable: Unavailable) -> Trouble {
    Trouble::Needs(unavailable.to_string())
}

fn unless_unavailable(said: &str) -> Result<(), Trouble> {
    match said.strip_prefix("cargo lab: no emulated link on this machine ") {
        Some(why) => Err(Trouble::Needs(format!("an emulated link {}", why.trim_end()))),
        None => Ok(()),
    }
}

fn demand(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), Trouble> {
    if is_so { Ok(()) } else { Err(Trouble::Wrong(otherwise())) }
}

// Looking at processes.

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Of what `pid` runs; empty for a zombie, and for a process that is gone.
fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in text.split_whitespace().filter_map(|it| it.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|it| it.file_name().to_str()?.parse().ok())
}

/// The names of the devices of our own namespace.
fn devices() -> String {
    let text = fs::read_to_string("/proc/net/dev").expect("/proc");
    let names: Vec<&str> =
        text.lines().filter_map(|line| line.split_once(':')).map(|it| it.0.trim()).collect();
    names.join(" ")
}
