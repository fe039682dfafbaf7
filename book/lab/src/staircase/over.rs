//! One run across a link of its own: the server on one side, the process of the clients on the other, and
//! the link's counters beside each step.

use crate::{
    drive::{self, Crowd, Job, Now, Run, kept},
    experiment::Bench,
    link::{Counts, Link, Packets, Profile, Side},
    records::round,
};
use anyhow::{Context, Result, anyhow};
use contract::server::Server;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    env,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// A run that was spoiled is made again, so often in all.
const TRIES: usize = 3;

/// Between two looks at whether a step is over.
const LOOK: Duration = Duration::from_millis(5);

/// A run, with the link's counters in its rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Crossing {
    /// The run.
    pub run: Run,
    /// How late the link was at the 99th percentile.
    pub lateness_p99_ms: f64,
    /// Why the link was not the one that was meant, if it was not: the machine was too busy.
    pub spoiled: Option<String>,
    /// How often it was made.
    pub tries: usize,
}

/// What a run shares with whoever looks at its link.
#[derive(Debug, Default)]
struct Watched {
    /// When the schedule began, as soon as that is known; where connections are kept, that of each step.
    origins: Mutex<BTreeMap<usize, Instant>>,
    is_over: AtomicBool,
}

/// Opens such a link and closes it again: says what kind it is.
///
/// # Errors
/// [`crate::link::Unavailable`] where it cannot be, with the remedy.
pub fn probe(profile: &Profile) -> Result<&'static str> {
    Ok(Link::open(profile, 1)?.kind())
}

/// Runs `job`; again if the link was late.
///
/// # Errors
/// If there is no link, the server does not start, or the clients cannot run.
pub fn cross(bench: &Bench<'_>, job: &Job<'_>, profile: &Profile) -> Result<Crossing> {
    let mut tries = 0;
    loop {
        tries += 1;
        let crossing = Crossing { tries, ..once(bench, job, profile)? };
        let had_enough = bench.stop.load(Ordering::Relaxed);
        match &crossing.spoiled {
            Some(why) if tries < TRIES && !had_enough => {
                bench.screen.say(&format!("  {}: spoiled ({why}): once more", job.label()));
            }
            _ => return Ok(crossing),
        }
    }
}

fn once(bench: &Bench<'_>, job: &Job<'_>, profile: &Profile) -> Result<Crossing> {
    let link = &Link::open(profile, job.seed.unwrap_or(1))?;
    let watched = &Watched::default();
    let (run, looks) = thread::scope(|scope| {
        // The server's side: its thread stays until the run is over, since the server ends with it.
        let (say, heard) = mpsc::channel();
        let (over, is_over) = mpsc::channel::<()>();
        let address = SocketAddr::new(link.server_ip(), 0).to_string();
        let (server, binary) = (say.clone(), job.server);
        scope.spawn(move || {
            let there = link.on(Side::Server, move || {
                let _ = server.send(drive::start(binary, &address));
                let _ = is_over.recv();
            });
            if let Err(error) = there {
                let _ = say.send(Err(error).context("setns: the server's side of the link"));
            }
        });
        let watcher = scope.spawn(move || watch(link, watched, &job.crowd));
        let ran = heard
            .recv()
            .unwrap_or_else(|_| Err(anyhow!("the thread of the server ended")))
            .and_then(|mut server| drive_there(bench, job, link, &mut server, watched));
        watched.is_over.store(true, Ordering::Relaxed);
        drop(over);
        let looks = watcher.join().unwrap_or_default();
        ran.map(|run| (run, looks))
    })?;
    Ok(crossing(run, job, &link.counts(), &looks))
}

/// `run` with the counters of the link in its rows; `looks` are those of [`watch`].
fn crossing(mut run: Run, job: &Job<'_>, counts: &Counts, looks: &[Counts]) -> Crossing {
    let spoiled = counts.spoiled().or_else(|| late_clients(&run));
    let nothing = Counts::default();
    for record in &mut run.records {
        let index = (record.step - job.first_step) as usize;
        record.lateness_p99_ms = Some(round(counts.lateness_p99_ms));
        record.spoiled = Some(spoiled.is_some());
        let before = index.checked_sub(1).map_or(Some(&nothing), |it| looks.get(it));
        let (first, last) = match job.crowd.kept {
            Some(_) => (looks.get(2 * index), looks.get(2 * index + 1)),
            None => (before, looks.get(index)),
        };
        let (Some(first), Some(last)) = (first, last) else { continue };
        let more = |count: fn(&Packets) -> u64| {
            let both = |it: &Counts| count(&it.to_server) + count(&it.to_client);
            Some(both(last).saturating_sub(both(first)))
        };
        record.link_packets = more(|it| it.arrived);
        record.dropped_full = more(|it| it.queue_full);
        record.dropped_lost = more(|it| it.lost);
    }
    Crossing { run, lateness_p99_ms: round(counts.lateness_p99_ms), spoiled, tries: 1 }
}

/// That the machine had no time for the clients either, if that was so in most steps.
fn late_clients(run: &Run) -> Option<String> {
    let late = run.records.iter().filter(|it| it.client_bound).count();
    (2 * late > run.records.len())
        .then(|| format!("the clients were late in {late} of {} steps", run.records.len()))
}

/// Drives the server from the client's side, and notes when the schedule began.
fn drive_there(
    bench: &Bench<'_>,
    job: &Job<'_>,
    link: &Link,
    server: &mut Server,
    watched: &Watched,
) -> Result<Run> {
    let target = server.address();
    let this = env::current_exe().context("readlink(/proc/self/exe)")?;
    drive::run(server, job, bench.screen, bench.stop, |progress, stop| {
        let mut command = link.command(Side::Client, &this);
        command.arg("drive");
        let mut noting = |now: &Now| {
            watched.note(now, job.crowd.kept.is_some());
            progress(now);
        };
        drive::clients_apart(command, &job.crowd, target, &mut noting, stop)
    })
}

/// The counters at the end of each step, until the run is over. Where connections are kept, those at the
/// beginning and at the end of what counts of each step: that they are opened and closed is no part of it.
fn watch(link: &Link, watched: &Watched, crowd: &Crowd) -> Vec<Counts> {
    let mut looks = Vec::new();
    let each = if crowd.kept.is_some() { 2 } else { 1 };
    while looks.len() < each * crowd.rates.len() && !watched.is_over.load(Ordering::Relaxed) {
        if watched.moment(looks.len(), crowd).is_some_and(|it| it <= Instant::now()) {
            looks.push(link.counts());
        }
        thread::sleep(LOOK);
    }
    looks
}

impl Watched {
    /// Notes when the schedule began, or that of a step.
    fn note(&self, now: &Now, is_kept: bool) {
        let began = Instant::now().checked_sub(Duration::from_secs_f64(now.elapsed_s));
        let Some(began) = began.filter(|_| !is_kept || now.elapsed_s > 0.0) else { return };
        if let Ok(mut origins) = self.origins.lock() {
            let origin = origins.entry(if is_kept { now.step } else { 0 }).or_insert(began);
            // What has waited least on its way to us is nearest to the truth.
            *origin = began.min(*origin);
        }
    }

    /// When the counters are to be looked at after so many looks, as soon as that is known.
    fn moment(&self, looks: usize, crowd: &Crowd) -> Option<Instant> {
        let origins = self.origins.lock().ok()?;
        let Some(connections) = crowd.kept else {
            return Some(*origins.get(&0)? + crowd.hold * (looks as u32 + 1));
        };
        let (step, rate) = (looks / 2, *crowd.rates.get(looks / 2)?);
        let begins = *origins.get(&step)? + kept::warm_up(connections, rate);
        Some(if looks.is_multiple_of(2) { begins } else { begins + crowd.hold })
    }
}

impl Crossing {
    /// Whether nothing of it is to be done again. One that was spoiled each time stays as it is, marked.
    pub fn is_whole(&self) -> bool {
        self.run.is_whole()
    }

    /// How it went, for people.
    pub fn sentence(&self, job: &Job<'_>) -> String {
        let seed = job.seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
        let spoiled = self.spoiled.as_ref();
        let spoiled = spoiled.map_or_else(String::new, |why| format!("; spoiled: {why}"));
        format!("{}{seed}{spoiled}", self.run.sentence())
    }
}
