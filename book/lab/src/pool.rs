//! Many runs, some at a time, without those that an earlier start has done.

use crate::experiment::Bench;
use anyhow::{Result, anyhow};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// A run, by the name under which the journal keeps it.
#[derive(Clone, Debug)]
pub struct Task<J> {
    /// Its name.
    pub part: String,
    /// What is to be done.
    pub job: J,
}

/// Does all `tasks`, at most `at_once` at a time, and keeps each that `is_done` in the journal. In the order
/// of the tasks: what came of each, or `None` if the reader had enough before it began.
pub fn all<J: Sync, R: Serialize + DeserializeOwned + Send>(
    bench: &Bench<'_>,
    tasks: &[Task<J>],
    at_once: usize,
    run: impl Fn(&J) -> Result<R> + Sync,
    is_done: impl Fn(&R) -> bool + Sync,
) -> Vec<Option<Result<R>>> {
    let results: Vec<Mutex<Option<Result<R>>>> =
        tasks.iter().map(|task| Mutex::new(bench.journal.get(&task.part).map(Ok))).collect();
    let is_open = |it: &Mutex<Option<_>>| lock(it).is_none();
    let open: Vec<usize> =
        results.iter().enumerate().filter(|(_, it)| is_open(it)).map(|(at, _)| at).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while !bench.stop.load(Ordering::Relaxed) {
            let Some(&at) = open.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            let mut result = run(&tasks[at].job);
            if let Ok(done) = &result
                && is_done(done)
                && let Err(error) = bench.journal.keep(&tasks[at].part, done)
            {
                result = Err(error);
            }
            *lock(&results[at]) = Some(result);
        }
    };
    thread::scope(|scope| {
        // A panic leaves its task without a result, and is told as one.
        let threads: Vec<_> =
            (0..at_once.clamp(1, open.len().max(1))).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            if thread.join().is_err()
                && let Some(empty) = results.iter().find(|it| is_open(it))
            {
                *lock(empty) = Some(Err(anyhow!("a thread of the experiment panicked")));
            }
        }
    });
    results.into_iter().map(|it| it.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

fn lock<T>(it: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{experiment::Scale, journal::Journal, machine::Machine, screen::Screen};
    use serde_json::Value;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_second_start_does_what_the_first_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let tasks: Vec<Task<u32>> =
            (0..20).map(|job| Task { part: format!("run {job}"), job }).collect();
        let machine = Machine::look().unwrap();
        let scale = Scale::smoke();
        let start = |enough: u32| {
            let journal = Journal::open(folder.path(), "pool", Value::Null, false).unwrap();
            let (stop, runs) = (AtomicBool::new(false), AtomicUsize::new(0));
            let bench = Bench {
                servers: &[],
                scale: &scale,
                machine: &machine,
                screen: &Screen::Quiet,
                stop: &stop,
                journal: &journal,
            };
            let run = |job: &u32| {
                runs.fetch_add(1, Ordering::Relaxed);
                stop.fetch_or(*job == enough, Ordering::Relaxed);
                anyhow::ensure!(*job != 3, "the third fails");
                Ok(job * 10)
            };
            let results = all(&bench, &tasks, 4, run, |done| *done != 50);
            (results, runs.into_inner())
        };
        let (first, begun) = start(8);
        assert!((9..=12).contains(&begun), "four at a time, and none after the eighth: {begun}");
        assert!(first[3].as_ref().unwrap().is_err());
        assert!(first[19].is_none());
        let (second, more) = start(99);
        // The one that failed and the one that is never done are tried again.
        let kept = begun - 2;
        assert_eq!(more, 20 - kept);
        let values: Vec<u32> = second.into_iter().flatten().filter_map(Result::ok).collect();
        assert_eq!(values.len(), 19);
        assert_eq!((values[0], values[18]), (0, 190));
    }
}
