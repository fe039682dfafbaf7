//! Wi-Fi in a box: two network namespaces of this machine, and a router between them that delays, loses
//! and queues packets as a [`Profile`] says.
//!
//! Reading order: [`profile`] has the parameters, [`air`] decides what becomes of a packet and [`dice`]
//! what chance has to do with it; [`pair`] makes the namespaces, by [`netlink`] and [`sys`]; [`router`]
//! moves the packets and [`counts`] is what it writes down; [`enter`] is how programs get in, and how
//! somebody who is not root may do all this; [`command`] is `cargo lab link`.
//!
//! What it is not: a radio. Frames have no length (a full one takes no longer than a short one), there
//! are no retries below IP, and both directions are equally good.

pub mod air;
pub mod command;
pub mod counts;
pub mod dice;
pub mod enter;
pub mod netlink;
pub mod pair;
pub mod profile;
pub mod router;
pub mod sys;

pub use counts::{Counts, Packets};
pub use enter::{first_thing, prepare};
pub use pair::Way;
pub use profile::{Outage, Profile};

use air::Air;
use counts::Tally;
use nix::sys::eventfd::{EfdFlags, EventFd};
use router::{Router, lock};
use std::{
    fmt, io,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    process::{self, Command},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Instant,
};

/// One of the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Where servers run.
    Server = 0,
    /// Where clients run.
    Client = 1,
}

impl Side {
    /// Either.
    pub const BOTH: [Side; 2] = [Side::Server, Side::Client];

    /// The other one.
    pub fn other(self) -> Side {
        match self {
            Side::Server => Side::Client,
            Side::Client => Side::Server,
        }
    }
}

/// Two network namespaces and what is between them. Dropping it takes everything down: a namespace lives
/// on only as long as a process is in it.
pub struct Link {
    kind: &'static str,
    client: OwnedFd,
    server: OwnedFd,
    tally: Arc<Mutex<Tally>>,
    /// The router's sockets, by which the kernel tells what it had no room for.
    sockets: Vec<(Side, OwnedFd)>,
    end: EventFd,
    router: Option<JoinHandle<()>>,
}

/// There is no link on this machine, and why: one sentence, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub(crate) String);

impl std::error::Error for Unavailable {}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Link {
    /// Opens a link that is like `profile`, whose dice begin with `seed`, in the way that works here.
    ///
    /// # Errors
    /// If none does, or if the profile makes no sense. Without root, [`prepare`] has to be called first.
    pub fn open(profile: &Profile, seed: u64) -> Result<Link, Unavailable> {
        if let Some(refused) = enter::refused() {
            return Err(refused.clone());
        }
        // An ordinary user may have /dev/net/tun as well, but does not need it.
        let ways = match enter::is_in_user_namespace() {
            true => [Way::Veth, Way::Tun],
            false => [Way::Tun, Way::Veth],
        };
        let mut reasons = Vec::new();
        for way in ways {
            match Link::open_by(way, profile, seed) {
                Ok(link) => return Ok(link),
                Err(reason) => reasons.push(format!("{way}: {reason}")),
            }
        }
        Err(enter::unavailable(&reasons.join("; ")))
    }

    /// Opens a link in one way.
    ///
    /// # Errors
    /// A sentence that names the call.
    pub fn open_by(way: Way, profile: &Profile, seed: u64) -> Result<Link, String> {
        profile.check()?;
        let (client, server) = pair::make(way)?;
        let end = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let end = end.map_err(|error| format!("eventfd: {error}"))?;
        let copy =
            |it: BorrowedFd<'_>| it.try_clone_to_owned().map_err(|error| format!("dup: {error}"));
        let sockets = match way {
            Way::Tun => vec![],
            Way::Veth => vec![
                (Side::Client, copy(client.packets.as_fd())?),
                (Side::Server, copy(server.packets.as_fd())?),
            ],
        };
        let told = copy(end.as_fd())?;
        let tally = Arc::new(Mutex::new(Tally::default()));
        let router = Router {
            client: client.packets,
            server: server.packets,
            end: told,
            air: Air::new(profile, seed),
            tally: Arc::clone(&tally),
            start: Instant::now(),
        };
        let thread = thread::Builder::new().name("link router".into());
        let router =
            thread.spawn(move || router.run()).map_err(|error| format!("clone: {error}"))?;
        let kind = match (way, enter::is_in_user_namespace()) {
            (Way::Tun, false) => "tun, root",
            (Way::Veth, false) => "veth, root",
            (Way::Tun, true) => "tun, user namespace",
            (Way::Veth, true) => "veth, user namespace",
        };
        let (client, server) = (client.namespace, server.namespace);
        Ok(Link { kind, client, server, tally, sockets, end, router: Some(router) })
    }

    /// How it was made: "tun, root" or "veth, user namespace", say.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The address of the client's side.
    pub fn client_ip(&self) -> IpAddr {
        pair::address(Side::Client).into()
    }

    /// The address of the server's side.
    pub fn server_ip(&self) -> IpAddr {
        pair::address(Side::Server).into()
    }

    /// A command that will run `program` on that side. It is killed when the thread that starts it
    /// ends, however it ends: that thread has to stay for as long as the program is wanted.
    ///
    /// It starts this very program with the hidden command `enter`, so that `main` has to begin with
    /// [`first_thing`].
    pub fn command(&self, side: Side, program: &Path) -> Command {
        let mut command = Command::new(enter::THIS);
        command.args(enter::arguments(&self.path(side))).arg("--").arg(program);
        command
    }

    /// Runs `work` in a thread that is on that side. Threads and processes that it starts are, too.
    /// (A server of `contract` is killed when the thread that started it ends: use it inside `work`.)
    ///
    /// # Errors
    /// Those of `setns(2)`, and without a thread.
    pub fn on<T: Send>(&self, side: Side, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        pair::inside(self.namespace(side), work)
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        let mut tally = lock(&self.tally);
        for (from, socket) in &self.sockets {
            // The kernel forgets them once it has told.
            tally.to(from.other()).overrun += sys::overruns(socket.as_fd()).map_or(0, u64::from);
        }
        let mut counts = tally.counts();
        drop(tally);
        // Where a device had no room, it has counted that itself.
        let device = |from| self.on(from, pair::dropped_on_the_way_out).ok().flatten().unwrap_or(0);
        counts.to_server.overrun += device(Side::Client);
        counts.to_client.overrun += device(Side::Server);
        counts
    }

    fn namespace(&self, side: Side) -> &OwnedFd {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// Where others find the namespace, as long as we live.
    fn path(&self, side: Side) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.namespace(side).as_raw_fd())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It cannot fail: the counter is at 0 and the descriptor is ours.
        let _ = self.end.write(1);
        if let Some(router) = self.router.take() {
            let _ = router.join();
        }
    }
}
