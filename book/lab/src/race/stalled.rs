//! One client stalls, the next one asks: how long it waited, and on whom the server slept.

use crate::{
    binaries::Binary,
    experiment::Bench,
    race::scoreboard::ms,
    records::{Record, round},
    servers::short,
};
use anyhow::{Context, Result, anyhow};
use contract::{
    microscope::{self, Does, Object},
    server::{Client, Server},
};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{
    net::SocketAddr,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use stress::StallKind;

/// The stalled client lets go this long after the other has asked. Longer than the patience of any
/// chapter, so that a server that waits for its own patience can be told from one that has none.
pub const LETS_GO: Duration = Duration::from_secs(4);

/// About the longest that a demonstration takes.
pub const LONGEST: Duration = Duration::from_millis(4_500);

/// The other client gives up after this.
const PATIENCE: Duration = Duration::from_secs(10);

/// The stalled client has this long to be taken in by the server before the other one asks.
const TAKEN_IN: Duration = Duration::from_millis(500);

/// The look comes this long after the question: by then a server that can answer has answered, and its
/// threads sleep again. Nothing is asserted of it.
const SETTLE: Duration = Duration::from_millis(300);

/// Who waits less than this has hardly been kept waiting.
const HARDLY: Duration = Duration::from_millis(250);

/// What was seen of one server and one stalled client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demonstration {
    /// The binary.
    pub server: String,
    /// What the stalled client did.
    #[serde(deserialize_with = "kind_by_name")]
    pub kind: StallKind,
    /// How long the next client waited for its answer; `None` if it got none.
    pub waited: Option<Duration>,
    /// How long after the question the stalled client let go, if the other still waited then.
    pub let_go: Option<Duration>,
    /// What the server did meanwhile.
    pub meanwhile: Meanwhile,
}

/// What a server did while the next client asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meanwhile {
    /// In a sentence, with all addresses.
    pub sentence: String,
    /// In which call its threads slept and on whom, in few words.
    pub asleep: String,
    /// Who had connected and was not accepted, as far as it could be seen.
    pub queue: Option<usize>,
}

/// Shows `kind` to each of `servers`, all at once.
pub fn demonstrate_all(
    bench: &Bench<'_>,
    servers: &[Binary],
    kind: StallKind,
) -> Vec<Result<Demonstration>> {
    thread::scope(|scope| {
        let spawn = |server| scope.spawn(move || demonstrate(server, kind, bench.stop));
        let threads: Vec<_> = servers.iter().map(spawn).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the demonstration panicked")))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Holds, observes, releases.
fn demonstrate(binary: &Binary, kind: StallKind, stop: &AtomicBool) -> Result<Demonstration> {
    let name = binary.column.name;
    let mut server =
        Server::start(&binary.path).with_context(|| format!("{} cannot run", short(name)))?;
    let mut stalled = server.connect("the stalled client")?;
    if kind == StallKind::HalfLine {
        stalled.send(b"100").context("send of half a line")?;
    }
    wait_until_taken_in(&server, &stalled);
    let address = server.address();
    let asked = Instant::now();
    let (say, connected) = mpsc::channel();
    let asker = thread::spawn(move || ask(address, asked, &say));
    thread::sleep(SETTLE);
    let meanwhile = look(&server, &stalled, connected.try_recv().ok());
    while !asker.is_finished() && asked.elapsed() < LETS_GO && !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(1));
    }
    let let_go = (!asker.is_finished()).then(|| asked.elapsed());
    drop(stalled);
    let waited = asker.join().map_err(|_| anyhow!("the client panicked"))?;
    if let Some(status) = server.ended().context("waitpid")? {
        let words = server.stderr();
        return Err(anyhow!(
            "{} ended while a {kind} client was connected ({status}): {}",
            short(name),
            words.trim_end()
        ));
    }
    Ok(Demonstration { server: name.into(), kind, waited, let_go, meanwhile })
}

fn wait_until_taken_in(server: &Server, stalled: &Client) {
    let start = Instant::now();
    let (pid, port) = (server.pid(), server.address().port());
    // A server that is slow to take it in is seen so: nothing depends on it but the sentence.
    while microscope::has_taken_in(pid, port, stalled.address()) == Some(false)
        && start.elapsed() < TAKEN_IN
    {
        thread::sleep(Duration::from_millis(2));
    }
}

/// How long a whole request took from `asked` to its right answer, if it came. Says its own address
/// once it is connected.
fn ask(server: SocketAddr, asked: Instant, say: &mpsc::Sender<SocketAddr>) -> Option<Duration> {
    let mut client = Client::connect(server, "the next client", PATIENCE).ok()?;
    // Nobody needs to be listening: the one who asked for it may have left.
    let _ = say.send(client.address());
    client.send(b"7\n").ok()?;
    let heard = client.hear(PATIENCE.saturating_sub(asked.elapsed()));
    (heard.bytes == b"Odd\n").then(|| asked.elapsed())
}

/// What the server does now.
fn look(server: &Server, stalled: &Client, next: Option<SocketAddr>) -> Meanwhile {
    let mut names = vec![("the stalled client", stalled.address())];
    names.extend(next.map(|address| ("the next client", address)));
    let view = microscope::look(server.pid(), server.address().port());
    let mut sentence = view.sentence(&names);
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let threads: Vec<&Does> = view.threads.iter().map(|it| &it.does).collect();
    let asleep = briefly(&threads, &names);
    Meanwhile { sentence: sentence + ".", asleep, queue: view.queue_length }
}

/// In few words, equal ones once. A thread that waits for nobody's connection, such as one for signals,
/// is left out if others do.
fn briefly(threads: &[&Does], names: &[(&str, SocketAddr)]) -> String {
    let is_aside = |does: &Does| matches!(does, Does::Sleeps { on: Object::Other, .. });
    let all_aside = threads.iter().all(|it| is_aside(it));
    let mut found: Vec<(String, usize)> = Vec::new();
    for does in threads.iter().filter(|it| all_aside || !is_aside(it)) {
        let words = asleep(does, names);
        match found.iter_mut().find(|it| it.0 == words) {
            Some((_, threads)) => *threads += 1,
            None => found.push((words, 1)),
        }
    }
    let words = found.into_iter().map(|(words, threads)| match threads {
        1 => words,
        some => format!("{words} × {some}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn asleep(does: &Does, names: &[(&str, SocketAddr)]) -> String {
    let Does::Sleeps { call, on } = does else {
        return if *does == Does::Runs { "runs" } else { "cannot be seen" }.into();
    };
    match on {
        Object::Client(client) => match names.iter().find(|(_, address)| address == client) {
            Some((name, _)) => format!("{call} on {name}"),
            None => format!("{call} on a client"),
        },
        Object::Listener => format!("{call} on its listener"),
        Object::Everything => format!("{call} on all at once"),
        Object::Other => call.clone(),
    }
}

fn kind_by_name<'de, D: Deserializer<'de>>(from: D) -> Result<StallKind, D::Error> {
    String::deserialize(from)?.parse().map_err(de::Error::custom)
}

impl Demonstration {
    /// What was seen, for people.
    pub fn sentence(&self) -> String {
        let client = match self.kind {
            StallKind::Silent => "silent client",
            StallKind::HalfLine => "half a line",
            StallKind::Drip => "dripping client",
            StallKind::Deaf => "deaf client",
        };
        let mut sentence = format!("{}, {client}: {}.", short(&self.server), self.waited_words());
        if !self.meanwhile.sentence.is_empty() {
            sentence += &format!(" {}", self.meanwhile.sentence);
        }
        sentence
    }

    fn waited_words(&self) -> String {
        let Some(waited) = self.waited else {
            return "the next client got no answer".into();
        };
        let time = ms(waited.as_secs_f64() * 1e3);
        match self.let_go {
            Some(_) => format!("the next client waited {time}, until the stalled one let go"),
            None if waited < HARDLY => format!("the next client was answered after {time}"),
            None => format!("the next client waited {time}, until the server lost patience"),
        }
    }

    /// The same in few words.
    pub fn waited_briefly(&self) -> String {
        let Some(waited) = self.waited else { return "got no answer".into() };
        let time = ms(waited.as_secs_f64() * 1e3);
        match self.let_go {
            Some(_) => format!("{time}, until it let go"),
            None if waited < HARDLY => time,
            None => format!("{time}, the server's patience"),
        }
    }

    /// As a row of the record: one request, one step.
    pub fn record(&self) -> Record {
        let waited_ms = self.waited.map(|waited| round(waited.as_secs_f64() * 1e3));
        Record {
            experiment: "race-stalled-client".into(),
            server: self.server.clone(),
            link: "loopback".into(),
            stall: self.kind.name().into(),
            // One of one: each request of this row had a stalled client before it.
            stall_percent: 100.0,
            step: 1,
            hold_s: LETS_GO.as_secs_f64(),
            timeout_s: PATIENCE.as_secs_f64(),
            scheduled: 1,
            correct: u64::from(waited_ms.is_some()),
            errors: u64::from(waited_ms.is_none()),
            p50_ms: waited_ms,
            p90_ms: waited_ms,
            p99_ms: waited_ms,
            max_ms: waited_ms,
            ..Record::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_threads_are_told_once() {
        let sleeps = |call: &str, on| Does::Sleeps { call: call.into(), on };
        let signals = sleeps("rt_sigtimedwait", Object::Other);
        let all = sleeps("epoll_wait", Object::Everything);
        let words = "epoll_wait on all at once × 2";
        assert_eq!(briefly(&[&signals, &all, &all], &[]), words);
        assert_eq!(briefly(&[&all], &[]), "epoll_wait on all at once");
        assert_eq!(briefly(&[&signals], &[]), "rt_sigtimedwait");
        assert_eq!(briefly(&[&Does::Runs, &signals], &[]), "runs");
    }

    #[test]
    fn the_sentence_says_how_long_and_what_ended_it() {
        let seen = |waited: Option<u64>, let_go: Option<u64>, finding: &str| {
            Demonstration {
                server: "ch02".into(),
                kind: StallKind::HalfLine,
                waited: waited.map(Duration::from_millis),
                let_go: let_go.map(Duration::from_millis),
                meanwhile: Meanwhile { sentence: finding.into(), ..Meanwhile::default() },
            }
            .sentence()
        };
        assert_eq!(
            seen(Some(4_003), Some(4_000), "Thread 7 sleeps in recvfrom."),
            "02, half a line: the next client waited 4.0 s, until the stalled one let go. \
             Thread 7 sleeps in recvfrom."
        );
        assert_eq!(
            seen(Some(1_812), None, ""),
            "02, half a line: the next client waited 1.8 s, until the server lost patience."
        );
        assert_eq!(
            seen(Some(1), None, ""),
            "02, half a line: the next client was answered after 1.00 ms."
        );
        assert_eq!(seen(None, Some(4_000), ""), "02, half a line: the next client got no answer.");
    }
}
