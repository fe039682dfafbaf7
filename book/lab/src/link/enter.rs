//! The hidden command `enter`, by which a program gets to a side of a link; and the user namespace, by
//! which somebody who is not root may make one.
//!
//! `enter` exists so that nothing of ours has to run between fork and exec: what is started is this very
//! program again, which sets things up for itself and then becomes, or starts, the program asked for.

use super::{
    Link, Unavailable, Way,
    pair::{Way::Tun, Way::Veth},
    profile::Profile,
};
use anyhow::{Context, Result, bail, ensure};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    sys::{
        prctl,
        signal::{SigSet, Signal},
        wait::{WaitStatus, wait},
    },
    unistd::{Pid, getgid, getppid, getuid},
};
use std::{
    convert::Infallible,
    env,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

/// This very program, also when its file has been replaced meanwhile.
pub const THIS: &str = "/proc/self/exe";

const COMMAND: &str = "enter";

/// As `env` and the shells have it.
const CANNOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;

const NOTHING: Option<&str> = None;

/// Why there is no link, once [`prepare`] has found that out.
static REFUSED: OnceLock<Unavailable> = OnceLock::new();

/// Has to be the first thing in `main` of every program that uses [`Link::command`] or [`prepare`]: if
/// it was started as `enter`, it does that, and does not come back.
pub fn first_thing() {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().is_none_or(|it| it != COMMAND) {
        return;
    }
    let Err(error) = Entry::parse(arguments).and_then(Entry::enter);
    eprintln!("cargo lab: enter: {error:#}");
    let is_missing = |it: &std::io::Error| it.kind() == ErrorKind::NotFound;
    let status = if error.downcast_ref().is_some_and(is_missing) { NOT_FOUND } else { CANNOT_RUN };
    process::exit(status);
}

/// Finds out how a link can be made here, and goes to a user namespace if it takes that. Has to be called
/// while the process has one thread, as `unshare(2)` demands.
///
/// The probe is a link, made by a child: some distributions let everybody have a user namespace, and give
/// no right in it.
///
/// # Errors
/// If there is no way: then [`Link::open`] says the same.
pub fn prepare() -> Result<(), Unavailable> {
    let Err(as_we_are) = probe(&[]) else { return Ok(()) };
    let in_a_namespace = match probe(&["--user-namespace"]) {
        Ok(()) => match enter_user_namespace() {
            Ok(()) => return Ok(()),
            Err(error) => format!("{error:#}"),
        },
        Err(reasons) => reasons,
    };
    let is_root = getuid().is_root();
    let reasons = if is_root { as_we_are } else { in_a_namespace };
    Err(REFUSED.get_or_init(|| unavailable(&reasons)).clone())
}

/// Why [`prepare`] has found no way.
pub(super) fn refused() -> Option<&'static Unavailable> {
    REFUSED.get()
}

/// Whether root here is somebody else outside. The first user namespace has all users: one line.
pub(super) fn is_in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The sentence for `reasons`.
pub(super) fn unavailable(reasons: &str) -> Unavailable {
    let read = |name: &str| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let remedy = remedy(getuid().is_root() && !is_in_user_namespace(), read);
    Unavailable(format!("no emulated link on this machine ({reasons}): {remedy}"))
}

/// The arguments by which this program is started to enter the namespace at `path`.
pub(super) fn arguments(path: &str) -> [String; 5] {
    let parent = process::id().to_string();
    [COMMAND.into(), "--parent".into(), parent, "--net".into(), path.into()]
}

/// What helps, by the settings that `setting` reads.
fn remedy(is_root: bool, setting: impl Fn(&str) -> Option<i64>) -> String {
    if is_root {
        return "this root has no right to network namespaces; a container has it with \
                --cap-add SYS_ADMIN --cap-add NET_ADMIN, or --privileged"
            .into();
    }
    let program = env::current_exe().unwrap_or_else(|_| "target/release/lab".into());
    let as_root = format!("run it as root: sudo {} …", program.display());
    let forbids = [
        ("kernel.apparmor_restrict_unprivileged_userns", 1, 0),
        ("kernel.unprivileged_userns_clone", 0, 1),
        ("user.max_user_namespaces", 0, 10_000),
    ];
    match forbids.iter().find(|(name, bad, _)| setting(name) == Some(*bad)) {
        Some((name, bad, good)) => format!(
            "{name} is {bad}, which keeps ordinary users from it: allow it with sudo sysctl \
             {name}={good}, or {as_root}"
        ),
        None => format!(
            "something keeps ordinary users from namespaces of their own; if it is none of the \
             settings {}, {} and {}, it is this container: {as_root}",
            forbids[0].0, forbids[1].0, forbids[2].0
        ),
    }
}

/// Lets a child make a link. What it says if it cannot.
fn probe(options: &[&str]) -> Result<(), String> {
    let output = Command::new(THIS).args([COMMAND, "--probe"]).args(options).output();
    let output = output.map_err(|error| format!("{THIS}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim_end().trim_start_matches("cargo lab: enter: ");
    Err(if said.is_empty() { output.status.to_string() } else { said.to_owned() })
}

/// The calling process, which has one thread, becomes root of a namespace of its own.
fn enter_user_namespace() -> Result<()> {
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER).context("unshare(CLONE_NEWUSER)")?;
    let maps = [
        // The kernel demands it before somebody without rights may say who his group is.
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ];
    for (path, text) in maps {
        fs::write(path, text).with_context(|| format!("write of {path}"))?;
    }
    Ok(())
}

/// What `enter` was asked for.
#[derive(Default)]
struct Entry {
    parent: i32,
    net: PathBuf,
    /// Be the first process of a PID namespace, with which everything in it ends.
    is_family: bool,
    /// Lines for a private /etc/hosts.
    names: Vec<String>,
    is_probe: bool,
    user_namespace: bool,
    program: OsString,
    arguments: Vec<OsString>,
}

impl Entry {
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Entry> {
        let mut entry = Entry::default();
        while let Some(option) = arguments.next() {
            let mut value = || arguments.next().context("a value is missing");
            match option.to_str() {
                Some("--parent") => entry.parent = value()?.to_string_lossy().parse()?,
                Some("--net") => entry.net = value()?.into(),
                Some("--name") => entry.names.push(value()?.to_string_lossy().into_owned()),
                Some("--family") => entry.is_family = true,
                Some("--probe") => entry.is_probe = true,
                Some("--user-namespace") => entry.user_namespace = true,
                Some("--") => {
                    entry.program = arguments.next().context("a program is missing")?;
                    entry.arguments = arguments.collect();
                    return Ok(entry);
                }
                _ => bail!("{} is no option: this command is for the lab alone", option.display()),
            }
        }
        ensure!(entry.is_probe, "a program is missing");
        Ok(entry)
    }

    fn enter(self) -> Result<Infallible> {
        if self.is_probe {
            try_a_link(self.user_namespace)?;
            process::exit(0);
        }
        // Whoever started us may have ended before this call: then nobody would end us.
        prctl::set_pdeathsig(Signal::SIGKILL).context("prctl(PR_SET_PDEATHSIG)")?;
        let namespace = File::open(&self.net).with_context(|| self.net.display().to_string())?;
        let is_orphan = !self.is_family && getppid() != Pid::from_raw(self.parent);
        ensure!(!is_orphan, "the lab has ended");
        setns(&namespace, CloneFlags::CLONE_NEWNET).context("setns(CLONE_NEWNET)")?;
        drop(namespace);
        if !self.names.is_empty() || self.is_family {
            self.have_own_files()?;
        }
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if self.is_family {
            process::exit(raise(&mut command).with_context(|| self.program.display().to_string())?);
        }
        Err(command.exec()).with_context(|| self.program.display().to_string())
    }

    /// Mounts that only this process and its children see.
    fn have_own_files(&self) -> Result<()> {
        unshare(CloneFlags::CLONE_NEWNS).context("unshare(CLONE_NEWNS)")?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(NOTHING, "/", NOTHING, private, NOTHING).context("mount: / private")?;
        if self.is_family {
            // Refused where a container hides parts of /proc: `ps` then shows the numbers of outside.
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            let _ = mount(Some("proc"), "/proc", Some("proc"), flags, NOTHING);
        }
        if let Err(error) = self.give_names() {
            eprintln!("cargo lab: no names here, use addresses ({error:#}): {:?}", self.names);
        }
        Ok(())
    }

    /// Binds a file of ours over /etc/hosts. The file needs no name once it is bound.
    fn give_names(&self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("lab-hosts-{}-{}", self.parent, now.as_nanos());
        let path = env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o644).open(&path)?;
        let bind = |file: &mut File| -> Result<()> {
            let known = fs::read_to_string("/etc/hosts").unwrap_or_default();
            write!(file, "{}\n{known}", self.names.join("\n"))?;
            mount(Some(&path), Path::new("/etc/hosts"), NOTHING, MsFlags::MS_BIND, NOTHING)
                .context("mount: /etc/hosts")
        };
        let bound = bind(&mut file);
        fs::remove_file(&path)?;
        bound
    }
}

/// Makes a link and takes it down.
fn try_a_link(user_namespace: bool) -> Result<()> {
    if user_namespace {
        enter_user_namespace()?;
    }
    let profile = Profile::named("ethernet").context("it has a name")?;
    let make = |way: Way| Link::open_by(way, &profile, 0).map(drop);
    let Err(tun) = make(Tun) else { return Ok(()) };
    let Err(veth) = make(Veth) else { return Ok(()) };
    bail!("{tun}; {veth}")
}

/// Runs `command` as the first process of a PID namespace: waits for all, ends with the one, and the
/// kernel ends the others. The status is that of a shell.
fn raise(command: &mut Command) -> Result<i32> {
    // Ctrl-C is for the program; the first process of a namespace is immune to it.
    SigSet::empty().thread_set_mask().context("pthread_sigmask")?;
    let child = command.spawn()?.id().cast_signed();
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, status)) if pid.as_raw() == child => return Ok(status),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == child => {
                return Ok(128 + signal as i32);
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => bail!("waitpid: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_it_is_named() {
        let set = |name: &'static str, value| move |asked: &str| (asked == name).then_some(value);
        let sentence = remedy(false, set("kernel.apparmor_restrict_unprivileged_userns", 1));
        assert!(
            sentence.contains("sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or run"),
            "{sentence}"
        );
        let sentence = remedy(false, set("kernel.unprivileged_userns_clone", 0));
        assert!(sentence.contains("kernel.unprivileged_userns_clone=1"), "{sentence}");
        let sentence = remedy(false, set("user.max_user_namespaces", 0));
        assert!(sentence.contains("user.max_user_namespaces=10000"), "{sentence}");
        let sentence = remedy(false, set("user.max_user_namespaces", 90_000));
        assert!(sentence.contains("none of the settings kernel.apparmor_restrict"), "{sentence}");
        assert!(remedy(true, |_| None).contains("--cap-add SYS_ADMIN"));
    }

    #[test]
    fn nonsense_is_refused() {
        let parse = |words: &[&str]| Entry::parse(words.iter().map(OsString::from)).map(|_| ());
        assert!(parse(&["--probe"]).is_ok());
        assert!(parse(&["--parent", "1", "--net", "/x", "--", "true"]).is_ok());
        assert!(parse(&["--net"]).unwrap_err().to_string().contains("a value is missing"));
        assert!(parse(&["--net", "/x"]).unwrap_err().to_string().contains("a program is missing"));
        assert!(parse(&["--parent", "x", "--"]).is_err());
        assert!(parse(&["--what"]).unwrap_err().to_string().contains("for the lab alone"));
    }
}
