//! Which jobs a part has: who, under which load, how often.

use super::{
    Part,
    contender::Contender,
    drive::{Cores, Job, Pace},
    rounds,
};
use crate::experiment::Form;
use std::{thread, time::Duration};

/// All models, in the order of the chapter.
pub const MODELS: [&str; 11] = [
    "iterative",
    "fork",
    "prefork",
    "thread-per-connection",
    "thread-pool",
    "poll",
    "epoll-level",
    "epoll-edge",
    "reactor",
    "multireactor",
    "io-uring",
];

/// The model that is measured at both ends of a round.
pub const BASELINE: &str = "epoll-level";
/// What it is called at the end.
pub const BASELINE_AGAIN: &str = "epoll-level-again";

/// Those with a number of workers, of which an answer's cost is measured with one: two on one core would
/// only be in each other's way. Pools keep theirs: a pool of one is the iterative model.
const REACTORS: [&str; 2] = ["multireactor", "io-uring"];

/// Connections that ask at once.
const CONNECTIONS: [usize; 5] = [1, 10, 50, 64, 1_000];

/// Idle connections: as many as a limit of 20,000 descriptors lets both ends hold.
const MANY: usize = 10_000;

/// Longer than any run: an idle connection is not let go.
const FOR_LONG: [&str; 4] = ["--idle-ms", "3600000", "--patience-ms", "3600000"];

/// The jobs of a part, in the order in which they are done.
pub fn jobs(part: Part, form: Form) -> Vec<Job> {
    let rounds = 1..=rounds(part, form);
    let of_round = |round| {
        match part {
            Part::Quick => quick(form),
            Part::Capacity => capacity(form),
            Part::Latency => latency(form),
            Part::C10k => c10k(form),
            Part::Syscalls => syscalls(form),
            Part::Scaling => scaling(form),
            Part::Peers => peers(form),
            Part::Client | Part::Profile => Vec::new(), // They have their own.
        }
        .into_iter()
        .map(move |job| Job { round, ..job })
    };
    rounds.flat_map(of_round).collect()
}

/// A model as it is compared on one core.
fn contender(name: &'static str) -> Contender {
    if REACTORS.contains(&name) { Contender::alone(name) } else { Contender::model(name) }
}

fn length(form: Form) -> Duration {
    match form {
        Form::Smoke => Duration::from_millis(300),
        Form::Short => Duration::from_millis(1_000),
        Form::Full => Duration::from_millis(1_500),
    }
}

/// Everybody under a load, and the baseline once more.
fn everybody(job: impl Fn(&'static str) -> Job) -> Vec<Job> {
    let mut jobs: Vec<Job> = MODELS.iter().map(|name| job(name)).collect();
    jobs.push(Job { name: BASELINE_AGAIN, ..job(BASELINE) });
    jobs
}

/// What an answer costs with 64 connections, what they see when one in a hundred drips, and what 1,000 idle
/// ones take.
fn quick(form: Form) -> Vec<Job> {
    let mut jobs = everybody(|name| Job::new(contender(name), 64, length(form)));
    jobs.extend(MODELS.iter().map(|name| Job {
        load: "64 connections, 1 drip".into(),
        step: 2,
        drips: 1,
        ..Job::new(contender(name), 64, length(form))
    }));
    jobs
}

fn capacity(form: Form) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut step = 0;
    for connections in CONNECTIONS {
        step += 1;
        jobs.extend(everybody(|name| Job {
            step,
            ..Job::new(contender(name), connections, length(form))
        }));
    }
    for connections in [64, 1_000] {
        step += 1;
        let drips = usize::max(1, connections / 100);
        jobs.extend(MODELS.iter().map(|name| Job {
            load: format!("{connections} connections, {drips} drip"),
            step,
            drips,
            ..Job::new(contender(name), connections, length(form))
        }));
    }
    jobs
}

/// The same offered load for all, far below what any of them can: of one connection, of eight.
fn latency(form: Form) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (step, (connections, qps)) in (1..).zip([(1, 500.0), (8, 1_000.0), (64, 4_000.0)]) {
        jobs.extend(everybody(|name| Job {
            load: format!("{connections} connections, {qps:.0}/s"),
            step,
            pace: Pace::Schedule(qps),
            cores: Cores::All,
            ..Job::new(contender(name), connections, length(form) * 2)
        }));
    }
    jobs
}

fn c10k(form: Form) -> Vec<Job> {
    let many = if form == Form::Smoke { 500 } else { MANY };
    let mut jobs = Vec::new();
    for name in MODELS {
        let mut options = FOR_LONG.to_vec();
        if REACTORS.contains(&name) {
            options.extend(["--workers", "1"]);
        }
        let contender = Contender::with(name, &options);
        let job = |connections| Job::new(contender.clone(), connections, length(form));
        jobs.push(Job { load: "nobody".into(), step: 1, connections: 0, ..job(0) });
        jobs.push(Job { load: format!("{many} idle"), step: 2, idle: many, ..job(0) });
        jobs.push(Job { load: "64 ask".into(), step: 3, ..job(64) });
        jobs.push(Job { load: format!("64 ask, {many} idle"), step: 4, idle: many, ..job(64) });
        jobs.push(Job { load: format!("{many} ask"), step: 5, ..job(many) });
    }
    jobs
}

fn syscalls(form: Form) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (step, connections) in [(1, 1), (2, 64)] {
        jobs.extend(MODELS.iter().map(|name| Job {
            step,
            counts_calls: true,
            ..Job::new(contender(name), connections, length(form))
        }));
        jobs.push(Job {
            step,
            counts_calls: true,
            ..Job::new(Contender::Nginx, connections, length(form))
        });
    }
    let waits = ["--workers", "1", "--batch-wait-us", "200"];
    jobs.push(Job {
        name: "io-uring-waits",
        step: 2,
        counts_calls: true,
        ..Job::new(Contender::with("io-uring", &waits), 64, length(form))
    });
    jobs
}

/// 1, 2, 4, … workers, and one for each core.
fn scaling(form: Form) -> Vec<Job> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut steps: Vec<usize> =
        std::iter::successors(Some(1), |it| Some(it * 2)).take_while(|it| *it < cores).collect();
    steps.push(cores);
    let mut jobs = Vec::new();
    for (step, workers) in (1..).zip(steps) {
        for name in ["prefork", "thread-pool", "multireactor", "io-uring"] {
            // A process or thread that blocks serves one connection: one worker for each core would answer
            // two of 64. Those get 64 for each core.
            let told = if REACTORS.contains(&name) { workers } else { 64 * workers };
            let options = ["--workers".to_owned(), told.to_string()];
            jobs.push(Job {
                load: format!("{workers} × workers"),
                step,
                workers: Some(told),
                cores: Cores::All,
                ..Job::new(Contender::Model { name, options: options.to_vec() }, 64, length(form))
            });
        }
    }
    jobs
}

/// One server core, which the client shares; nginx at both ends.
fn peers(form: Form) -> Vec<Job> {
    let job = |contender| Job::new(contender, 64, length(form));
    let mut jobs = vec![
        job(Contender::Nginx),
        job(contender("io-uring")),
        job(contender("multireactor")),
        job(contender("epoll-edge")),
        job(Contender::Bare),
        job(Contender::Haproxy),
        job(Contender::Peer { name: "hyper", program: "hyper" }),
        job(Contender::Peer { name: "may_minihttp", program: "may" }),
        job(contender("thread-per-connection")),
        Job { name: "nginx-again", ..job(Contender::Nginx) },
    ];
    for name in ["io-uring", "multireactor", "epoll-edge"] {
        let contender = contender(name);
        jobs.push(Job {
            load: "64 connections, 16 deep".into(),
            step: 2,
            pipeline: 16,
            ..job(contender)
        });
    }
    jobs
}
