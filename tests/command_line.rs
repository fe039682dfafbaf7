//! How the chapters' programs behave as commands: what they say, where they listen, how they end.
//!
//! `tests/cmd/*.trycmd` are transcripts of what ends at once (`TRYCMD=overwrite` writes them again).
//! What runs on, or needs an address, a signal or a machine that is set up otherwise, is below. What
//! this machine lacks is told with the reason, and counts as ignored.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use contract::build::program;
use contract::server::{Client, Server};
use contract::sys;
use contract::verdicts;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::sys::signal::Signal;

/// How long what happens "at once" may take on a machine that is busy.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How long a program may take to start, or to come to where we want it.
const START: Duration = Duration::from_secs(10);

/// After this time a connect has been dropped: on loopback the kernel answers it within the call, or
/// not before the client's kernel asks again, which is after a second.
const DROPPED: Duration = Duration::from_millis(500);

/// Set, it says that this is the same program in a network of its own, and what it has to check.
const INSIDE: &str = "COMMAND_LINE_INSIDE";

/// The kernel's limit of every listen queue, of the network that the reader is in.
const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";

/// A check goes through all servers and says what is wrong with each.
type Check = fn(&[Program]) -> anyhow::Result<Checked>;

enum Checked {
    Done,
    /// This machine lacks something: why it could not be checked.
    Not(String),
}

/// A server to check.
struct Program {
    name: &'static str,
    path: PathBuf,
}

const CHECKS: [(&str, Check); 14] = [
    ("transcripts_are_as_written", transcripts),
    ("an_address_in_use_is_refused", address_in_use),
    ("a_second_instance_is_refused", second_instance),
    ("an_address_of_another_machine_is_refused", absent_address),
    ("a_port_of_root_is_refused", privileged_port),
    ("ipv6_is_served", ipv6),
    ("both_families_are_served_at_the_wildcard", wildcard),
    ("sigint_and_sigterm_end_it_at_once", signals),
    ("it_serves_when_nobody_reads_what_it_says", nobody_reads),
    ("it_serves_when_nobody_reads_its_errors", nobody_reads_errors),
    ("it_says_what_somaxconn_allows", somaxconn_said),
    ("the_queue_is_as_long_as_asked_for", queue_length),
    ("a_short_somaxconn_is_told_and_holds", short_somaxconn),
    ("settings_of_ipv6_change_nothing", ipv6_settings),
];

/// The checks that are run once more in a network of its own, by the name that [`INSIDE`] has.
const INSIDE_CHECKS: [(&str, Check); 2] =
    [("short_somaxconn", inside_short_somaxconn), ("ipv6_settings", inside_ipv6_settings)];

fn main() -> ExitCode {
    if let Some(check) = env::var_os(INSIDE) {
        return inside(&check);
    }
    let trials = CHECKS.map(|(name, check)| {
        Trial::ignorable_test(name, move || match check(&programs()?) {
            Ok(Checked::Done) => Ok(Completion::Completed),
            Ok(Checked::Not(why)) => {
                eprintln!("{name} was NOT checked here: {why}");
                Ok(Completion::ignored_with(why))
            }
            Err(error) => Err(Failed::from(format!("{error:#}"))),
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

/// All columns of the table.
fn programs() -> Result<Vec<Program>, Failed> {
    let names = verdicts::columns().map(|it| it.name);
    let found = names.map(|name| Ok(Program { name, path: program(name)? }));
    found.collect::<anyhow::Result<_>>().map_err(|it| Failed::from(format!("{it:#}")))
}

/// Checks each of `programs`, and fails with what is wrong with all of them.
fn each(
    programs: &[Program],
    check: impl Fn(&Program) -> anyhow::Result<()>,
) -> anyhow::Result<Checked> {
    let mut problems = String::new();
    for program in programs {
        if let Err(error) = check(program) {
            let _ = writeln!(problems, "{}: {error:#}", program.name);
        }
    }
    if !problems.is_empty() {
        bail!("{problems}");
    }
    Ok(Checked::Done)
}

// ---------------------------------------------------------------------------------------------------
// What ends at once.

/// Every transcript is right, and no program is missing from any of them.
fn transcripts(programs: &[Program]) -> anyhow::Result<Checked> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cmd");
    let cases = trycmd::TestCases::new();
    for program in programs {
        cases.register_bin(program.name, program.path.as_path());
    }
    let mut transcripts = 0;
    for entry in fs::read_dir(&folder).context("tests/cmd")? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let lacks = |it: &&Program| !text.contains(&format!("\n$ {} ", it.name));
        let missing: Vec<_> = programs.iter().filter(lacks).map(|it| it.name).collect();
        ensure!(missing.is_empty(), "{}: show {} too", path.display(), missing.join(", "));
        cases.case(&path);
        transcripts += 1;
    }
    ensure!(transcripts > 0, "no transcript in {}", folder.display());
    cases.run(); // Panics with the difference.
    Ok(Checked::Done)
}

fn address_in_use(programs: &[Program]) -> anyhow::Result<Checked> {
    let other = TcpListener::bind("127.0.0.1:0").context("bind")?;
    let address = other.local_addr()?.to_string();
    each(programs, |program| {
        if !shares(program) {
            return assert_refused(program, &address, IN_USE);
        }
        // It shares its address with its own kind, says who is there, and is refused all the same: the
        // other has not asked to share.
        let mut output = ended(Command::new(&program.path).arg(&address))?;
        let said = String::from_utf8(output.stderr)?;
        let (neighbour, sentence) = said.split_once('\n').context("two lines")?;
        assert_names_us(neighbour, std::process::id())?;
        output.stderr = sentence.into();
        assert_sentence(program.name, &address, IN_USE, &output)
    })
}

/// Whether a program shares its address with others of its kind: those of chapters 05 and 06.
fn shares(program: &Program) -> bool {
    ["ch05", "ch06"].iter().any(|chapter| program.name.starts_with(chapter))
}

fn assert_names_us(said: &str, process: u32) -> anyhow::Result<()> {
    let named = said.starts_with("this address is shared with ");
    ensure!(named && said.contains(&format!("(process {process})")), "said {said:?}");
    Ok(())
}

/// With SO_REUSEPORT, where SO_REUSEADDR was meant, a second instance would start and take half of the
/// clients. A listener without that option would hide it: only the program itself shows it.
fn second_instance(programs: &[Program]) -> anyhow::Result<Checked> {
    each(programs, |program| {
        let first = Server::start(&program.path)?;
        let address = first.address().to_string();
        if shares(program) {
            // Here it is meant: the second one starts, names the first, and both serve.
            let second = Server::start_at(&program.path, &address)?;
            until("it names the first one", || second.stderr_lines() > 0)?;
            assert_names_us(&second.stderr(), first.pid())?;
            return assert_serves(first.address());
        }
        assert_refused(program, &address, IN_USE)?;
        assert_serves(first.address()).context("the first instance, after that")
    })
}

fn absent_address(programs: &[Program]) -> anyhow::Result<Checked> {
    // For documentation: nobody has it, and nothing is sent to it. (RFC 5737)
    let address = "192.0.2.1:0";
    if TcpListener::bind(address).is_ok() {
        return Ok(Checked::Not(format!(
            "anybody may bind {address} on this machine: see net.ipv4.ip_nonlocal_bind"
        )));
    }
    each(programs, |program| assert_refused(program, address, ABSENT))
}

fn privileged_port(programs: &[Program]) -> anyhow::Result<Checked> {
    let setting = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    let first: u16 = fs::read_to_string(setting).context(setting)?.trim().parse()?;
    if first < 2 {
        return Ok(Checked::Not(
            "port 1 is everybody's: net.ipv4.ip_unprivileged_port_start".into(),
        ));
    }
    let folder = tempfile::tempdir().context("a temporary folder")?;
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o755))?;
    each(programs, |program| {
        // As root nothing is forbidden, and nobody else may look into root's folders.
        let copy = folder.path().join(program.name);
        // By a child: were it open for writing here, another thread's child could inherit that, and a
        // file that somebody writes cannot be run (ETXTBSY).
        let copied = Command::new("cp").arg(&program.path).arg(&copy).status().context("cp")?;
        ensure!(copied.success(), "cp: {copied}");
        let mut command = Command::new(&copy);
        command.arg("127.0.0.1:1").current_dir("/");
        if is_root()? {
            command.uid(65534).gid(65534);
        }
        let output = ended(&mut command)?;
        let sentence = (
            "EACCES: Permission denied",
            "ports below net.ipv4.ip_unprivileged_port_start are root's: take another",
        );
        assert_sentence(program.name, "127.0.0.1:1", sentence, &output)
    })
}

fn is_root() -> io::Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}

/// The error and the remedy that follow the call and its address.
type Sentence = (&'static str, &'static str);

const IN_USE: Sentence = (
    "EADDRINUSE: Address already in use",
    "another program listens there: stop it, or give another port (0 takes a free one)",
);

const ABSENT: Sentence = (
    "EADDRNOTAVAIL: Cannot assign requested address",
    "this machine has no such address: see `ip address`",
);

/// `program` ends with the status 1 and one sentence, which names bind, the error and the remedy.
fn assert_refused(program: &Program, address: &str, sentence: Sentence) -> anyhow::Result<()> {
    let output = ended(Command::new(&program.path).arg(address))?;
    assert_sentence(program.name, address, sentence, &output)
}

fn assert_sentence(
    name: &str,
    address: &str,
    (error, remedy): Sentence,
    output: &Output,
) -> anyhow::Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("{name}: bind({address}): {error}: {remedy}\n");
    ensure!(output.status.code() == Some(1), "{}, not the status 1: {said}", output.status);
    ensure!(said == expected, "said {said:?}, not {expected:?}");
    ensure!(output.stdout.is_empty(), "errors belong on stderr, and stdout has some text");
    Ok(())
}

/// The output of a command that has to end by itself.
fn ended(command: &mut Command) -> anyhow::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn().with_context(|| format!("{command:?}"))?);
    let deadline = Instant::now() + START;
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        ensure!(Instant::now() < deadline, "{command:?} runs on: it has not been refused");
        thread::sleep(Duration::from_millis(1));
    };
    // All that it may have written fits into the pipes.
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.0.stdout.take().context("stdout was piped")?.read_to_end(&mut stdout)?;
    child.0.stderr.take().context("stderr was piped")?.read_to_end(&mut stderr)?;
    Ok(Output { status, stdout, stderr })
}

/// A process that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// ---------------------------------------------------------------------------------------------------
// What listens.

/// A client at `address` gets its answer.
fn assert_serves(address: SocketAddr) -> anyhow::Result<()> {
    let mut client = Client::connect(address, "the client", START)
        .with_context(|| format!("connect({address})"))?;
    let heard = client.ask(b"100\n", START);
    ensure!(heard.is(b"Even\n"), "a client at {address} heard {heard}, not Even");
    Ok(())
}

/// Why IPv6 cannot be checked here, if it cannot.
fn lacks_ipv6() -> Option<String> {
    let error = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).err()?;
    Some(format!("this machine has no [::1]: {error}"))
}

fn ipv6(programs: &[Program]) -> anyhow::Result<Checked> {
    if let Some(why) = lacks_ipv6() {
        return Ok(Checked::Not(why));
    }
    each(programs, |program| {
        let server = Server::start_at(&program.path, "[::1]:0")?;
        let address = server.address();
        ensure!(address.ip() == Ipv6Addr::LOCALHOST, "asked for [::1], it listens on {address}");
        assert_serves(address)
    })
}

fn wildcard(programs: &[Program]) -> anyhow::Result<Checked> {
    if let Some(why) = lacks_ipv6() {
        return Ok(Checked::Not(why));
    }
    each(programs, assert_serves_both)
}

/// At `[::]` a program serves the clients of both families.
fn assert_serves_both(program: &Program) -> anyhow::Result<()> {
    let server = Server::start_at(&program.path, "[::]:0")?;
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        assert_serves(SocketAddr::new(ip, server.address().port()))?;
    }
    Ok(())
}

/// A program has no handler and holds nothing that has to be tidied up: a signal ends it as a shell
/// expects, whoever it waits for.
fn signals(programs: &[Program]) -> anyhow::Result<Checked> {
    // A shell without job control starts what it runs in the background so, and children inherit it.
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        if is_ignored(signal)? {
            return Ok(Checked::Not(format!("{signal} is ignored where this test was started")));
        }
    }
    each(programs, |program| {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let mut server = Server::start(&program.path)?;
            let listeners = sockets(server.pid());
            let _silent = server.connect("the silent client")?;
            until("it has accepted a client", || sockets(server.pid()) > listeners)?;
            server.signal(signal)?;
            if shares(program) {
                // The first one asks it to drain, and the silent client has its patience. The second
                // one ends it.
                thread::sleep(Duration::from_millis(300));
                ensure!(server.ended()?.is_none(), "{signal} did not let it drain");
                server.signal(signal)?;
            }
            let status = server.wait(AT_ONCE).context(signal)?;
            ensure!(status.signal() == Some(signal as i32), "{signal} ends it with {status}");
        }
        Ok(())
    })
}

/// Whether this process, and so what it starts, ignores `signal`.
fn is_ignored(signal: Signal) -> anyhow::Result<bool> {
    let status = fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:")).context("SigIgn")?;
    let mask = u64::from_str_radix(mask.trim(), 16).context("SigIgn")?;
    Ok(mask & (1 << (signal as i32 - 1)) != 0)
}

/// Waits until `condition` holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + START;
    while !condition() {
        ensure!(Instant::now() < deadline, "{START:?} later it is not yet so that {what}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Nobody at the other end of a pipe, a device that takes nothing, and no descriptor at all.
fn nobody_reads(programs: &[Program]) -> anyhow::Result<Checked> {
    each(programs, |program| {
        for (name, target) in [("a broken pipe", broken_pipe()?), ("/dev/full", full()?)] {
            let address = own_address();
            let mut command = quiet(&program.path);
            command.arg(address.to_string()).stdout(target);
            assert_serves_unheard(&mut command, address)
                .with_context(|| format!("stdout is {name}"))?;
        }
        let address = own_address();
        let mut command = quiet(Path::new("sh"));
        command.args(["-c", "exec \"$0\" \"$1\" >&- 2>&-"]).arg(&program.path);
        command.arg(address.to_string());
        assert_serves_unheard(&mut command, address).context("stdout and stderr are closed")
    })
}

/// The same of stderr, where a program that says more than an error has to bear it.
fn nobody_reads_errors(programs: &[Program]) -> anyhow::Result<Checked> {
    each(programs, |program| {
        for (name, target) in [("a broken pipe", broken_pipe()?), ("/dev/full", full()?)] {
            let address = own_address();
            let mut command = quiet(&program.path);
            command.arg(address.to_string()).stderr(target);
            assert_serves_unheard(&mut command, address)
                .with_context(|| format!("stderr is {name}"))?;
        }
        Ok(())
    })
}

/// A command whose streams are /dev/null, unless they are set to something else.
fn quiet(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn broken_pipe() -> io::Result<Stdio> {
    let (reader, writer) = io::pipe()?;
    drop(reader);
    Ok(writer.into())
}

fn full() -> io::Result<Stdio> {
    Ok(File::options().write(true).open("/dev/full")?.into())
}

/// A program that cannot say where it listens listens and serves all the same, at `address`.
fn assert_serves_unheard(command: &mut Command, address: SocketAddr) -> anyhow::Result<()> {
    sys::die_with_parent(command);
    let mut server = Killed(command.spawn().with_context(|| format!("{command:?}"))?);
    until("it listens or has ended", || {
        TcpStream::connect(address).is_ok() || server.0.try_wait().is_ok_and(|it| it.is_some())
    })?;
    if let Some(status) = server.0.try_wait()? {
        bail!("it ended with {status}");
    }
    assert_serves(address)
}

/// An address that nobody else binds, for a program that cannot say which port the kernel picked: the
/// host is ours by the number of our process (and its highest bit keeps it away from 127.0.0.1), and the
/// port is none that the kernel picks.
fn own_address() -> SocketAddr {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let [_, host @ ..] = (std::process::id() | 1 << 23).to_be_bytes();
    let port = 20000 + TAKEN.fetch_add(1, Ordering::Relaxed);
    SocketAddr::from(([127, host[0], host[1], host[2]], port))
}

/// How many sockets the process `pid` has open.
fn sockets(pid: u32) -> usize {
    let Ok(links) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let targets = links.flatten().filter_map(|it| fs::read_link(it.path()).ok());
    targets.filter(|it| it.to_string_lossy().starts_with("socket:")).count()
}

// ---------------------------------------------------------------------------------------------------
// The queue.

/// How long a queue each program asks for.
fn asked(program: &Program) -> usize {
    match program.name {
        "ch01" | "ch02-patience-only" => 1,
        _ => 4096,
    }
}

/// How long a queue the kernel allows.
fn allowed() -> anyhow::Result<usize> {
    fs::read_to_string(SOMAXCONN).context(SOMAXCONN)?.trim().parse().context(SOMAXCONN)
}

/// 02 is about the queue, so it says how long it is; whoever else says it, says it as it is.
fn somaxconn_said(programs: &[Program]) -> anyhow::Result<Checked> {
    let expected = format!("listen: asked for 4096, net.core.somaxconn allows {}\n", allowed()?);
    each(programs, |program| {
        let server = Server::start(&program.path)?;
        // It says so before it says where it listens, but by another pipe.
        let says = program.name == "ch02" || program.name == "ch02-backlog-only";
        until("it says what somaxconn allows", || !says || server.stderr_lines() > 0)?;
        let said = server.stderr();
        ensure!((said.is_empty() && !says) || said == expected, "said {said:?}, not {expected:?}");
        Ok(())
    })
}

/// Chapter 02 is about this number, so it is proved with as many clients as it takes. The others ask
/// for the same, or for one; [`inside_short_somaxconn`] has fewer clients and all of them.
fn queue_length(programs: &[Program]) -> anyhow::Result<Checked> {
    if let Some(why) = lacks_descriptors(1 + allowed()?.min(4096)) {
        return Ok(Checked::Not(why));
    }
    let short = |it: &&Program| asked(it) == 1 || it.name == "ch02";
    assert_queues(programs.iter().filter(short))
}

/// All at once, since each takes the time after which a client has been dropped.
fn assert_queues<'p>(programs: impl Iterator<Item = &'p Program>) -> anyhow::Result<Checked> {
    let allowed = allowed()?;
    let mut problems = String::new();
    thread::scope(|scope| {
        let look = |it: &'p Program| scope.spawn(move || (it.name, assert_queue(it, allowed)));
        let looking: Vec<_> = programs.map(look).collect();
        for one in looking {
            match one.join() {
                Ok((name, Err(error))) => drop(writeln!(problems, "{name}: {error:#}")),
                Ok((_, Ok(()))) => {}
                Err(_) => problems.push_str("a look at a queue panicked\n"),
            }
        }
    });
    ensure!(problems.is_empty(), "{problems}");
    Ok(Checked::Done)
}

/// The kernel takes one more than the program asked for, or than it allows, and drops the others. The
/// program is stopped, so that it accepts nobody meanwhile.
fn assert_queue(program: &Program, allowed: usize) -> anyhow::Result<()> {
    let expected = asked(program).min(allowed) + 1;
    // Each reactor has a queue of its own, and the kernel's hash chooses: one is enough to look at.
    let options: &[&str] = if shares(program) { &["--reactors", "1"] } else { &[] };
    let server = Server::start_with_options(&program.path, "127.0.0.1:0", options)?;
    server.stop()?; // All of its threads: one that still runs would accept.
    let mut connected = Vec::new();
    while connected.len() <= expected {
        match TcpStream::connect_timeout(&server.address(), DROPPED) {
            Ok(client) => connected.push(client),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
            Err(error) => return Err(error).context("connect: nobody may be refused"),
        }
    }
    let queued = queued(server.address())?;
    drop(server); // First, so that the kernel resets them all and none stays in TIME_WAIT.
    let connected = connected.len();
    ensure!(
        connected == expected && queued == expected,
        "{connected} clients got in and {queued} wait in the queue, not {expected} each"
    );
    Ok(())
}

/// How many clients wait to be accepted at the IPv4 address `listener`: the receive queue of its line
/// in the kernel's list, which begins with those that listen and may go on for very long.
fn queued(listener: SocketAddr) -> anyhow::Result<usize> {
    let SocketAddr::V4(address) = listener else { bail!("{listener} is not of IPv4") };
    // The address as a word of this machine, and the port as a number.
    let host = u32::from_ne_bytes(address.ip().octets());
    let local = format!("{host:08X}:{:04X}", address.port());
    for line in BufReader::new(File::open("/proc/net/tcp")?).lines() {
        let line = line?;
        let fields: Vec<_> = line.split_whitespace().collect();
        if let [_, here, _, "0A", queues, ..] = fields[..]
            && here == local
        {
            let (_, receive) = queues.split_once(':').context("two queues")?;
            return Ok(usize::from_str_radix(receive, 16)?);
        }
    }
    bail!("/proc/net/tcp does not show {listener}")
}

/// Raises our limit of descriptors so that we can be `clients` clients, or says why we cannot.
fn lacks_descriptors(clients: usize) -> Option<String> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|it| it.strip_prefix("Max open files"));
    let hard = line.and_then(|it| it.split_whitespace().nth(1)).unwrap_or("0");
    let wanted = clients as u64 + 200;
    let hard = hard.parse().unwrap_or(u64::MAX); // `unlimited`
    if hard < wanted {
        return Some(format!("it takes {wanted} descriptors, and `ulimit -Hn` is {hard}"));
    }
    let raised = sys::limit_descriptors(std::process::id(), hard);
    raised.err().map(|it| format!("the limit of descriptors cannot be raised: {it}"))
}

// ---------------------------------------------------------------------------------------------------
// Machines that are set up otherwise: a network of our own has its own settings.

fn short_somaxconn(_: &[Program]) -> anyhow::Result<Checked> {
    outside("short_somaxconn", "echo 200 > /proc/sys/net/core/somaxconn")
}

fn inside_short_somaxconn(programs: &[Program]) -> anyhow::Result<Checked> {
    ensure!(allowed()? == 200, "somaxconn is not what was written to it");
    somaxconn_said(programs)?;
    assert_queues(programs.iter())
}

fn ipv6_settings(_: &[Program]) -> anyhow::Result<Checked> {
    if let Some(why) = lacks_ipv6() {
        return Ok(Checked::Not(why));
    }
    outside("ipv6_settings", "echo 1 > /proc/sys/net/ipv6/bindv6only")
}

/// With bindv6only, only a program that says otherwise serves both. Without IPv6, a program says so.
fn inside_ipv6_settings(programs: &[Program]) -> anyhow::Result<Checked> {
    each(programs, assert_serves_both)?;
    let setting = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";
    fs::write(setting, "1").context(setting)?;
    each(programs, |program| assert_refused(program, "[::1]:0", ABSENT))
}

/// Runs this program in a network of its own, after `setting` is set there, for one of
/// [`INSIDE_CHECKS`].
fn outside(check: &str, setting: &str) -> anyhow::Result<Checked> {
    let script = format!("ip link set lo up && {setting} && exec \"$0\"");
    let mut unshare = Command::new("unshare");
    unshare.arg("--net");
    if !is_root()? {
        unshare.args(["--user", "--map-root-user"]);
    }
    // Whether that can be done at all is one question, and what is found there is another.
    let tried = unshare.args(["sh", "-c", &script, "true"]).output();
    match tried {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Ok(Checked::Not(format!("no network of its own can be set up here: {said}")));
        }
        Err(error) => return Ok(Checked::Not(format!("unshare (util-linux): {error}"))),
    }
    let mut command = Command::new("unshare");
    command.args(unshare.get_args().take_while(|it| *it != "sh"));
    let output = command
        .args(["sh", "-c", &script])
        .arg(env::current_exe()?)
        .env(INSIDE, check)
        .output()
        .context("unshare")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "in a network where `{setting}`:\n{said}");
    Ok(Checked::Done)
}

/// Runs one check and says on stderr what is wrong.
fn inside(check: &OsString) -> ExitCode {
    let found = INSIDE_CHECKS.iter().find(|it| *check == *it.0);
    let result = match (found, programs()) {
        (Some((_, check)), Ok(programs)) => check(&programs),
        (None, _) => Err(anyhow::anyhow!("{INSIDE}: there is no check {check:?}")),
        (_, Err(failed)) => Err(anyhow::anyhow!("{}", failed.message().unwrap_or("no programs"))),
    };
    match result {
        Ok(Checked::Done) => ExitCode::SUCCESS,
        Ok(Checked::Not(why)) => {
            eprintln!("not checked: {why}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
