//! io_uring: we wait for nobody to be ready, we ask for the calls themselves, many at a time, and are told
//! when they are done. One system call hands in the answers of a turn and brings the requests of the next.
//!
//! One accept brings all clients, and one receive each brings all that a client says, into buffers that
//! all of them share. A ring for each core, as in chapter 06. The loop is in this file; what is unsafe
//! about a ring, and whose ring it is, is in `uring.rs`.
//!
//! Simplified: a kernel before Linux 6.8 is refused with a sentence, where ways round what it lacks exist.
//! Each ring has its share of `--max-connections`, so that one may be full while another is not.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use http::{Connection, Core, OddEven, Wants};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{self, Shutdown};

use crate::clock::{self, Clock};
use crate::group::Elders;
use crate::model::{Config, Model};
use crate::net::{self, Sharing};
use crate::slots::{self, Slots};
use crate::stop::Stop;
use crate::timers::Timers;
use crate::uring::{Completion, FILES_MAX, Ring, Wait, What};
use crate::{cores, options, orphan};

/// How many completions `--batch-wait-us` waits for, beside those of the sends that are handed in: they
/// are no company, most complete at once.
const COMPANY: usize = 32;

/// How many accepts of one client each are under way at most.
const ACCEPTS_MAX: usize = 32;

/// How long nobody is accepted for want of a file or of memory, and after how many other errors in a row.
const PAUSE_MS: u64 = 250;
const FAILURES_MAX: u32 = 16;

/// How much of a client is kept while its answers are not taken. Then nothing is received from it.
const KEPT_MAX: usize = 16 * 1024;

/// How long a stop looks at most for requests that have arrived already.
const LOOK_MS: u64 = 100;

/// A ring for each core, and in it everything that is done.
pub struct IoUring;

impl Model for IoUring {
    fn name(&self) -> &'static str {
        "io-uring"
    }

    fn about(&self) -> &'static str {
        "a ring for each core: calls are handed in, and completions come back"
    }

    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let stop = Stop::new()?;
        let told = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("eventfd")?;
        let workers = config.workers.min(config.connections_max); // Each has one place at least.
        let sharing = if workers > 1 { Sharing::Shared } else { Sharing::Alone };
        match Elders::on(address).sentence() {
            Some(sentence) if sharing == Sharing::Shared => options::say(sentence),
            Some(_) => {}                      // The bind says what is wrong with that.
            None => orphan::wait_for(address), // Of a ring whose process was killed just now.
        }
        let listener = net::listen(address, config, sharing)?;
        let address = net::bound(&listener)?; // After port 0, the others need to know.
        let others = (1..workers).map(|_| net::listen(address, config, sharing));
        let others = others.collect::<anyhow::Result<Vec<_>>>()?;
        let cores = cores::allowed()?;
        if workers > 1 {
            cores::pin(cores[0]);
        }
        let bell = Bell::Signals(&stop, &told);
        let places = config.connections_max / workers;
        let mut house = House::new(listener, places, config, app)?;
        let ready = &Barrier::new(2);
        thread::scope(|scope| {
            for (listener, &core) in others.into_iter().zip(cores.iter().cycle().skip(1)) {
                let bell = Bell::Told(&told);
                let work = move || {
                    cores::pin(core);
                    // Made by the thread that uses it: a ring has one owner.
                    let house = House::new(listener, places, config, app);
                    let served = house.and_then(|mut house| {
                        ready.wait();
                        house.serve(&bell, config)
                    });
                    if let Err(error) = served {
                        // The others must not go on without it: its clients would wait for ever.
                        options::say(format_args!("ch07: io-uring: {error:#}"));
                        std::process::exit(1);
                    }
                };
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
                    told.write(1).context("write(eventfd)")?;
                    return Err(error).context("clone: raise `ulimit -u`, or take fewer --workers");
                }
                ready.wait(); // One after the other, so that what is wanting is said once.
            }
            let served = house.announce().and_then(|()| house.serve(&bell, config));
            told.write(1).context("write(eventfd)")?; // Also when it has failed.
            served
        })
    }
}

/// How a ring hears that it has to stop: the first from the signals, the others from the first.
enum Bell<'a> {
    Signals(&'a Stop, &'a EventFd),
    Told(&'a EventFd),
}

/// Everything that a loop knows between two waits.
struct House {
    // Dropped first: the kernel then begins to cancel what is under way.
    ring: Ring,
    door: Door,
    /// Never dropped: what is under way when the loop ends may still be sent from there. The process ends
    /// with its loops.
    clients: ManuallyDrop<Slots<Guest>>,
    timers: Timers,
    core: Core<OddEven>,
    /// How many sends the next wait hands in.
    sends: usize,
    /// The server stops, and looks first for what has come already, at most until then.
    looks_until_ms: Option<u64>,
}

/// A client: its place in the ring's table, and what is under way for it.
struct Guest {
    connection: Connection,
    file: u32,
    /// Bytes that came while its answers were not taken.
    kept: u32,
    is_receiving: bool,
    is_sending: bool,
    is_installing: bool,
    /// Its receive has been asked to end.
    is_cancelled: bool,
    /// It will say nothing more.
    is_ended: bool,
    /// It has been told that we say nothing more.
    is_shut: bool,
    /// Whatever its connection wants, it is over.
    is_over: bool,
    /// All that is under way has been asked to end.
    is_leaving: bool,
    /// Its patience is over, and it is seen whether it has taken anything meanwhile.
    is_asked: bool,
}

/// The listener, until the server stops, and the accepts that are under way.
struct Door {
    listener: Option<OwnedFd>,
    places: usize,
    /// How many come in before one that is left could be theirs: the queue, twice.
    crowd: usize,
    accepts: usize,
    is_multishot: bool,
    is_cancelled: bool,
    /// After an accept that failed for want of a file: until when, and with how many inside.
    pause: Option<(u64, usize)>,
    failures: u32,
    /// After the last call: how many may still come in.
    last: Option<usize>,
    /// The accepts that are under way are of the last call.
    is_last_call: bool,
}

impl House {
    // ANCHOR: serve
    fn serve(&mut self, bell: &Bell<'_>, config: &Config) -> anyhow::Result<()> {
        self.listen_to(bell);
        self.watch_door(0);
        let clock = Clock::new();
        let (mut now_ms, mut ends_at_ms, mut is_told) = (0, None, false);
        while ends_at_ms.is_none_or(|it| now_ms < it) && !self.is_left() {
            let wake_at = [self.timers.next_ms(), self.door.wake_at_ms(), ends_at_ms];
            let completions = self.company(config);
            let timeout = match self.looks_until_ms {
                None => wake_at.into_iter().flatten().min().map(|it| clock.until(it)),
                Some(_) => Some(Duration::ZERO),
            };
            self.ring.enter(Wait { completions, company_us: config.batch_wait_us, timeout })?;
            now_ms = clock.now_ms();
            self.core.clock(clock::unix_seconds());
            let mut is_quiet = true;
            while let Some(done) = self.ring.completed() {
                is_quiet = false;
                match done.what {
                    What::Accepted => self.take_in(&done, now_ms)?,
                    What::Received => self.received(&done, now_ms),
                    What::Sent => self.sent(&done, now_ms),
                    What::Installed => self.shut(done),
                    What::Readable if bell.has_rung()? => {
                        ends_at_ms = Some(now_ms + config.drain_ms);
                        self.close(config.backlog, now_ms);
                    }
                    What::Readable => self.listen_to(bell),
                    What::Cancelled => self.not_cancelled(done.token),
                    What::Silent => {}
                }
            }
            self.expire(now_ms);
            self.look(is_quiet, now_ms);
            self.watch_door(now_ms);
            if self.ring.overflows > 0 && !is_told {
                is_told = true;
                options::say(
                    "ch07: io-uring: the completion queue ran over; nothing is lost by it",
                );
            }
        }
        // The last closes are still to be handed in: the other rings may go on for a while.
        self.ring.enter(Wait { completions: 1, company_us: 0, timeout: Some(Duration::ZERO) })
    }
    // ANCHOR_END: serve

    fn new(
        listener: OwnedFd,
        places: usize,
        config: &Config,
        app: OddEven,
    ) -> anyhow::Result<House> {
        let places = places.min(FILES_MAX);
        let ring = Ring::new(places, config.batch_wait_us > 0)?;
        Ok(House {
            ring,
            door: Door::new(listener, places, config.backlog)?,
            clients: ManuallyDrop::new(Slots::new()),
            timers: Timers::new(),
            core: Core::new(config.limits, app),
            sends: 0,
            looks_until_ms: None,
        })
    }

    fn announce(&self) -> anyhow::Result<()> {
        self.door.listener.as_ref().map_or(Ok(()), net::announce)
    }

    fn listen_to(&mut self, bell: &Bell<'_>) {
        match bell {
            Bell::Signals(stop, _) => self.ring.readable(stop.as_fd()),
            Bell::Told(told) => self.ring.readable(told.as_fd()),
        }
    }

    /// For how many completions the next wait waits.
    fn company(&mut self, config: &Config) -> usize {
        let sends = std::mem::take(&mut self.sends);
        match config.batch_wait_us {
            0 => 1,
            _ => sends + self.clients.len().clamp(1, COMPANY),
        }
    }

    // ANCHOR: turn
    /// Something came of a client, unless it has gone.
    fn received(&mut self, done: &Completion, now_ms: u64) {
        let Some(guest) = self.clients.get_mut(done.token) else { return };
        if !done.more {
            (guest.is_receiving, guest.is_cancelled) = (false, false);
        }
        match done.result {
            Ok(length) => {
                guest.is_ended = length == 0;
                if matches!(guest.connection.wants(), Wants::Write | Wants::Wait) {
                    guest.kept += length;
                }
                guest.connection.feed(&mut self.core, self.ring.bytes(), now_ms);
            }
            // No buffer was free: they have all been given back when the next wait asks again. Or it was
            // we who ended it. To drop the client would be to drop one of those who came all at once.
            Err(Errno::ENOBUFS | Errno::ECANCELED | Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => guest.is_over = true, // Reset, or worse: this client's error, and nobody else's.
        }
        self.attend(done.token);
    }

    /// So much of a client's answers has gone.
    fn sent(&mut self, done: &Completion, now_ms: u64) {
        let Some(guest) = self.clients.get_mut(done.token) else { return };
        guest.is_sending = false;
        match done.result {
            Ok(length) => guest.connection.sent(&mut self.core, length as usize, now_ms),
            Err(Errno::EAGAIN) if guest.is_asked => {
                guest.connection.expire(&mut self.core, now_ms); // It has taken nothing at all.
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(Errno::ECANCELED) if guest.is_asked => {}
            Err(_) => guest.is_over = true,
        }
        guest.is_asked = guest.is_asked && done.result == Err(Errno::ECANCELED);
        self.attend(done.token);
    }

    /// Asks for what `client` needs next, or lets it go.
    fn attend(&mut self, client: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        let wants = if guest.is_over { Wants::Close } else { guest.connection.wants() };
        match wants {
            Wants::Read => guest.kept = 0,
            Wants::Write if !guest.is_sending => self.send(client),
            Wants::Write | Wants::Wait => {}
            Wants::Linger if guest.is_ended => return self.leave(client),
            Wants::Linger => self.half_close(client),
            Wants::Close => return self.leave(client),
        }
        let Some(guest) = self.clients.get_mut(client) else { return };
        let is_welcome = !guest.is_ended && matches!(wants, Wants::Read | Wants::Linger);
        if is_welcome && !guest.is_receiving {
            guest.is_receiving = true;
            self.ring.receive(guest.file, client);
        } else if guest.kept as usize > KEPT_MAX && guest.is_receiving && !guest.is_cancelled {
            // It asks on and on and does not take its answers. What it sends now stays in its socket.
            guest.is_cancelled = true;
            self.ring.cancel(What::Received, client);
        }
        self.timers.set(slots::slot(client), guest.connection.deadline_ms());
    }

    /// Sends what is unsent from where it is.
    #[expect(unsafe_code, reason = "the kernel reads the answer while we do other things")]
    fn send(&mut self, client: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        guest.is_sending = true;
        self.sends += 1;
        // SAFETY: what is unsent stays where it is until `sent` has counted it, which is not called before
        // the completion; `leave` keeps the connection until then; and the house never drops it.
        unsafe { self.ring.send(guest.file, &guest.connection.unsent(), client, guest.is_asked) };
    }
    // ANCHOR_END: turn

    // ANCHOR: leave
    /// Lets a client go, as soon as nothing is under way for it. A receive that is under way keeps the
    /// socket open: without the cancel there would be no FIN. A send reads from the connection's memory.
    fn leave(&mut self, client: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        if guest.is_receiving || guest.is_sending || guest.is_installing {
            if guest.is_receiving && !guest.is_leaving {
                self.ring.cancel(What::Received, client);
            }
            if guest.is_sending && !guest.is_leaving {
                self.ring.cancel(What::Sent, client);
            }
            (guest.is_over, guest.is_leaving) = (true, true);
            return;
        }
        if let Some(guest) = self.clients.remove(client) {
            guest.connection.release(&mut self.core);
            self.ring.close(guest.file);
        }
    }

    /// A cancel has found nothing: what it was to end is over, and says so itself, or was just then being
    /// done and not under way. That would be a client who never leaves.
    fn not_cancelled(&mut self, client: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        (guest.is_cancelled, guest.is_leaving) = (false, false);
        self.attend(client);
    }

    /// Tells the client that we say nothing more. A ring has a shutdown too, and a thread of the kernel's
    /// own to do it in, which then stays. So the socket becomes a descriptor of ours for a moment.
    fn half_close(&mut self, client: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        if !guest.is_shut {
            (guest.is_shut, guest.is_installing) = (true, true);
            self.ring.install(guest.file, client);
        }
    }

    fn shut(&mut self, done: Completion) {
        let client = done.token;
        let Some(guest) = self.clients.get_mut(client) else { return };
        guest.is_installing = false;
        let descriptor = Ring::descriptor(done);
        let shut = descriptor.map(|it| socket::shutdown(it.as_raw_fd(), Shutdown::Write));
        guest.is_over |= shut != Some(Ok(())); // Gone, or no descriptor is left: closed at once then.
        self.attend(client);
    }
    // ANCHOR_END: leave

    // ANCHOR: accept
    /// Somebody came, or an accept is over.
    fn take_in(&mut self, done: &Completion, now_ms: u64) -> anyhow::Result<()> {
        let door = &mut self.door;
        if !done.more {
            door.accepts -= 1;
            (door.is_multishot, door.is_cancelled) = (false, false);
        }
        let file = match done.result {
            Ok(file) => file,
            Err(Errno::ECANCELED) => {
                if door.is_last_call {
                    door.last = Some(0); // It would have waited: the queue is empty.
                }
                return Ok(());
            }
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                door.pause = Some((now_ms + PAUSE_MS, self.clients.len()));
                return Ok(());
            }
            Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
                return Err(errno).context("accept");
            }
            Err(_) => {
                // This one went away. That all of them do is something else, and no reason to spin.
                door.failures += 1;
                if door.failures > FAILURES_MAX {
                    door.pause = Some((now_ms + PAUSE_MS, 0));
                }
                return Ok(());
            }
        };
        door.failures = 0;
        if let Some(last) = &mut door.last {
            *last = last.saturating_sub(1);
            self.looks_until_ms = Some(now_ms + LOOK_MS);
        }
        let connection = Connection::new(&self.core, now_ms);
        let client = self.clients.insert(Guest::new(connection, file));
        self.attend(client);
        Ok(())
    }

    /// Sees to it that somebody is accepted while there is a place.
    ///
    /// The kernel takes a client from the queue before it looks for a place in the table: whoever comes
    /// to a full one is lost. An accept that goes on knows no end but that, so that it is used while there
    /// are more places than the queue can hold clients, and then one accept for each place.
    fn watch_door(&mut self, now_ms: u64) {
        let door = &mut self.door;
        let inside = self.clients.len();
        let places = door.places.saturating_sub(inside);
        door.pause.take_if(|&mut (until_ms, of)| until_ms <= now_ms || inside < of);
        let Some(listener) = &door.listener else { return };
        if door.pause.is_some() {
            return;
        }
        if door.is_multishot {
            if places <= door.crowd && !door.is_cancelled {
                door.is_cancelled = true;
                self.ring.cancel_accepts(listener.as_fd());
            }
        } else if let Some(last) = door.last {
            if door.accepts == 0 && last == 0 {
                door.listener = None;
            } else if door.accepts == 0 && places > 0 {
                door.is_last_call = true;
                door.accepts = places.min(last).min(ACCEPTS_MAX);
                (0..door.accepts).for_each(|_| self.ring.accept_one(listener.as_fd()));
                self.ring.cancel_accepts(listener.as_fd()); // Those that found nobody.
            }
        } else if places <= door.crowd {
            for _ in door.accepts..places.min(ACCEPTS_MAX) {
                door.accepts += 1;
                self.ring.accept_one(listener.as_fd());
            }
        } else if door.accepts == 0 {
            (door.accepts, door.is_multishot) = (1, true);
            self.ring.accept(listener.as_fd());
        }
    }
    // ANCHOR_END: accept

    fn expire(&mut self, now_ms: u64) {
        while let Some(slot) = self.timers.rung(now_ms) {
            let Some((client, guest)) = self.clients.at_mut(slot) else { continue };
            let is_due = guest.connection.deadline_ms() <= now_ms && !guest.is_over;
            if is_due && guest.is_sending {
                // The send waits until a third of the socket's memory is free. Whoever reads slowly has
                // made some room: a send that does not wait tells.
                guest.is_asked = true;
                self.ring.cancel(What::Sent, client);
            } else if is_due {
                guest.connection.expire(&mut self.core, now_ms);
                self.attend(client);
            } else if !guest.is_over {
                self.timers.set(slot, guest.connection.deadline_ms());
            }
        }
    }

    // ANCHOR: stop
    /// The server stops: nobody is waited for any more, and who is in the queue is taken in, as soon as
    /// there is room, but not more than it holds: there may be no end of those who come after them.
    fn close(&mut self, backlog: i32, now_ms: u64) {
        self.core.stop();
        self.looks_until_ms = Some(now_ms + LOOK_MS);
        let Some(listener) = &self.door.listener else { return };
        self.door.last = Some(usize::try_from(backlog).unwrap_or(0).saturating_add(1));
        self.ring.cancel_accepts(listener.as_fd());
    }

    /// After a stop: who is idle goes. A request that has arrived is in flight, though it was not looked
    /// at yet, so that this is done after a wait that brought nothing, or when there is no end of them.
    fn look(&mut self, is_quiet: bool, now_ms: u64) {
        if self.looks_until_ms.take_if(|it| is_quiet || *it <= now_ms).is_none() {
            return;
        }
        for client in self.clients.tokens() {
            let Some(guest) = self.clients.get_mut(client) else { continue };
            guest.connection.drain(&mut self.core, now_ms);
            self.attend(client);
        }
    }

    /// Whether nobody is in, and nobody can come in any more.
    fn is_left(&self) -> bool {
        self.clients.is_empty() && self.door.listener.is_none()
    }
    // ANCHOR_END: stop
}

impl Guest {
    fn new(connection: Connection, file: u32) -> Guest {
        Guest {
            connection,
            file,
            kept: 0,
            is_receiving: false,
            is_sending: false,
            is_installing: false,
            is_cancelled: false,
            is_ended: false,
            is_shut: false,
            is_over: false,
            is_leaving: false,
            is_asked: false,
        }
    }
}

impl Door {
    fn new(listener: OwnedFd, places: usize, backlog: i32) -> anyhow::Result<Door> {
        // In a ring no call sleeps, and whoever says that it must not may be told EAGAIN.
        fcntl(&listener, FcntlArg::F_SETFL(OFlag::empty())).context("fcntl(F_SETFL)")?;
        Ok(Door {
            listener: Some(listener),
            places,
            crowd: usize::try_from(backlog).unwrap_or(usize::MAX).saturating_mul(2),
            accepts: 0,
            is_multishot: false,
            is_cancelled: false,
            pause: None,
            failures: 0,
            last: None,
            is_last_call: false,
        })
    }

    fn wake_at_ms(&self) -> Option<u64> {
        self.pause.map(|(until_ms, _)| until_ms)
    }
}

impl Bell<'_> {
    /// To be called when it is readable.
    fn has_rung(&self) -> anyhow::Result<bool> {
        match self {
            Bell::Signals(stop, told) => {
                let has_come = stop.heed()?;
                if has_come {
                    told.write(1).context("write(eventfd)")?;
                }
                Ok(has_come)
            }
            Bell::Told(_) => Ok(true), // Nobody reads it, so that it stays readable for all.
        }
    }
}
