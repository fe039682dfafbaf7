//! What is to be done in a run: the rate, the arrivals, the patience, the stalled clients.

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use std::{fmt, net::SocketAddr, str::FromStr, time::Duration};

/// Everything that a run needs to know. Build one with [`Plan::steady`], [`Plan::staircase`] or
/// [`Plan::steps`], and change it with the `with_…` functions.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The server, already resolved: a name asked for again and again fails under load.
    pub target: SocketAddr,
    /// How many requests per second, and for how long.
    pub load: Load,
    /// How requests are spread within a step.
    pub arrivals: Arrivals,
    /// The dice of [`Arrivals::Poisson`].
    pub seed: u64,
    /// How long a client waits, counted from the moment for which its request was scheduled.
    #[serde(rename = "timeout_s", serialize_with = "seconds")]
    pub timeout: Duration,
    /// Which number each request asks about.
    pub query: Query,
    /// Clients that stall, beside those that ask.
    pub stalls: Vec<Stall>,
    /// How long a stalled client holds on, unless the server lets it go. The run releases those that
    /// are left once the last request has ended.
    #[serde(rename = "stall_hold_s", serialize_with = "seconds")]
    pub stall_hold: Duration,
    /// The pause between the end of connect and the first byte of the request.
    #[serde(rename = "think_s", serialize_with = "seconds")]
    pub think: Duration,
    /// The most requests under way at once, per run; `None` is an open loop without a limit.
    pub connections: Option<usize>,
    /// Threads of the engine: one per core that is to make load.
    pub threads: usize,
    /// Whether more source addresses of 127.0.0.0/8 may be used once the ports of one grow scarce.
    pub spread_sources: bool,
    /// The process whose CPU time is to be read before and after.
    pub server_pid: Option<i32>,
}

/// Requests per second over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Load {
    /// One rate, after a ramp from nothing to that rate.
    Steady {
        /// Requests per second.
        qps: f64,
        /// Length of the ramp.
        #[serde(rename = "warmup_s", serialize_with = "seconds")]
        warmup: Duration,
        /// Length of the time at the full rate.
        #[serde(rename = "steady_s", serialize_with = "seconds")]
        steady: Duration,
    },
    /// Several rates, one after the other.
    Staircase {
        /// Requests per second of each step.
        rates: Vec<f64>,
        /// Length of a step.
        #[serde(rename = "hold_s", serialize_with = "seconds")]
        hold: Duration,
        /// Length of a ramp from nothing to the first rate, before the first step. Zero for none.
        #[serde(rename = "warmup_s", serialize_with = "seconds")]
        warmup: Duration,
    },
}

/// How requests are spread within a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// All gaps are equal.
    #[default]
    Uniform,
    /// Gaps are exponential, as between people who do not know of each other: they come in clumps.
    Poisson,
}

/// Which number each request asks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Query {
    /// Request `id` (from 1) asks about 1 + (id − 1) mod 1000.
    #[default]
    Varying,
    /// Every request asks about this number.
    Fixed(u64),
}

/// A share of clients that stall, on top of the requests: of 1,000 requests scheduled, a share of 0.005
/// adds five stalled clients. They come evenly: each 200th request brings one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stall {
    /// Between 0 and 1.
    pub share: f64,
    /// What they do.
    pub kind: StallKind,
}

/// What a stalled client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StallKind {
    /// Connects and says nothing.
    Silent,
    /// Connects, sends a number without the end of the line, and stops.
    HalfLine,
    /// Connects and sends one digit each 500 ms, never the end of the line.
    Drip,
    /// Connects, sends a whole request, and never reads the answer.
    Deaf,
}

impl Plan {
    /// `steady` at `qps` requests per second, after a ramp of `warmup`.
    pub fn steady(target: SocketAddr, qps: f64, warmup: Duration, steady: Duration) -> Plan {
        Plan::new(target, Load::Steady { qps, warmup, steady })
    }

    /// `from`, `from + step`, … up to and including `to` requests per second, each for `hold`.
    pub fn staircase(target: SocketAddr, from: f64, to: f64, step: f64, hold: Duration) -> Plan {
        Plan::steps(target, stairs(from, to, step), hold)
    }

    /// Each of `rates` requests per second for `hold`.
    pub fn steps(target: SocketAddr, rates: Vec<f64>, hold: Duration) -> Plan {
        Plan::new(target, Load::Staircase { rates, hold, warmup: Duration::ZERO })
    }

    fn new(target: SocketAddr, load: Load) -> Plan {
        let timeout = Duration::from_secs(15);
        Plan {
            target,
            load,
            arrivals: Arrivals::Uniform,
            seed: 1,
            timeout,
            query: Query::Varying,
            stalls: Vec::new(),
            stall_hold: timeout * 4,
            think: Duration::ZERO,
            connections: None,
            threads: 1,
            spread_sources: true,
            server_pid: None,
        }
    }

    /// Sets the patience of a client, and the time that stalled clients hold on to four times that:
    /// stalled clients who leave when the others do make a slow server look good.
    pub fn with_timeout(self, timeout: Duration) -> Plan {
        Plan { timeout, stall_hold: timeout * 4, ..self }
    }

    /// Adds a share of stalled clients.
    pub fn with_stall(mut self, stall: Stall) -> Plan {
        self.stalls.push(stall);
        self
    }

    /// Sets how long stalled clients hold on. Call it after [`Plan::with_timeout`].
    pub fn with_stall_hold(self, stall_hold: Duration) -> Plan {
        Plan { stall_hold, ..self }
    }

    /// Sets the arrivals and the seed of their dice.
    pub fn with_arrivals(self, arrivals: Arrivals, seed: u64) -> Plan {
        Plan { arrivals, seed, ..self }
    }

    /// Sets which number each request asks about.
    pub fn with_query(self, query: Query) -> Plan {
        Plan { query, ..self }
    }

    /// Sets the pause between the end of connect and the first byte of the request.
    pub fn with_think(self, think: Duration) -> Plan {
        Plan { think, ..self }
    }

    /// Limits the requests that are under way at once: with 1 it is a closed loop.
    pub fn with_connections(self, connections: usize) -> Plan {
        Plan { connections: Some(connections), ..self }
    }

    /// Sets the number of engine threads.
    pub fn with_threads(self, threads: usize) -> Plan {
        Plan { threads, ..self }
    }

    /// Names the process whose CPU time is to be read.
    pub fn with_server_pid(self, pid: i32) -> Plan {
        Plan { server_pid: Some(pid), ..self }
    }

    /// Says in a sentence what cannot be done, before anything is done.
    ///
    /// # Errors
    /// If a rate, a time or a share is outside of what makes sense.
    pub fn check(&self) -> Result<()> {
        let (rates, lengths) = match &self.load {
            Load::Steady { qps, warmup, steady } => (vec![*qps], [*warmup, *steady]),
            Load::Staircase { rates, hold, warmup } => (rates.clone(), [*warmup, *hold]),
        };
        ensure!(!rates.is_empty(), "the staircase has no step: try 10..460:50");
        for qps in rates {
            ensure!(
                qps.is_finite() && qps > 0.0 && qps <= 1e6,
                "a rate of {qps} requests per second: it has to be above 0 and at most 1,000,000"
            );
        }
        ensure!(!lengths[1].is_zero(), "the run has no length: give it at least some milliseconds");
        let day = Duration::from_secs(86_400);
        ensure!(lengths.iter().all(|length| *length <= day), "a step lasts at most 24 hours");
        ensure!(!self.timeout.is_zero(), "a timeout of 0 would answer nobody: give at least 0.001");
        ensure!(self.timeout <= day, "a timeout lasts at most 24 hours");
        ensure!(self.connections != Some(0), "0 connections send nothing: give at least 1");
        ensure!((1..=256).contains(&self.threads), "threads: give 1 to 256");
        ensure!(
            self.connections.is_none_or(|most| most >= self.threads),
            "fewer --connections than --threads: some threads could send nothing"
        );
        for stall in &self.stalls {
            ensure!(
                (0.0..=1.0).contains(&stall.share),
                "a share of stalled clients is between 0% and 100%"
            );
        }
        Ok(())
    }
}

impl Query {
    /// The number that request `id` (from 1) asks about.
    pub fn number(self, id: u64) -> u64 {
        match self {
            Query::Varying => 1 + (id - 1) % 1000,
            Query::Fixed(number) => number,
        }
    }
}

/// The answer that the protocol demands for `number`.
pub(crate) fn answer_to(number: u64) -> &'static [u8] {
    match number {
        0 => b"Invalid\n",
        odd if odd % 2 == 1 => b"Odd\n",
        _ => b"Even\n",
    }
}

impl StallKind {
    /// All of them.
    pub const ALL: [StallKind; 4] =
        [StallKind::Silent, StallKind::HalfLine, StallKind::Drip, StallKind::Deaf];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            StallKind::Silent => "silent",
            StallKind::HalfLine => "half-line",
            StallKind::Drip => "drip",
            StallKind::Deaf => "deaf",
        }
    }
}

impl fmt::Display for StallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for StallKind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<StallKind> {
        match StallKind::ALL.into_iter().find(|kind| kind.name() == text) {
            Some(kind) => Ok(kind),
            None => bail!("no stalled client is called '{text}': silent, half-line, drip or deaf"),
        }
    }
}

impl FromStr for Stall {
    type Err = anyhow::Error;

    /// `0.5%:silent` or `0.005:silent`.
    fn from_str(text: &str) -> Result<Stall> {
        let Some((share, kind)) = text.split_once(':') else {
            bail!("'{text}' is not SHARE:KIND: try 0.5%:silent");
        };
        let (number, unit) = match share.strip_suffix('%') {
            Some(number) => (number, 0.01),
            None => (share, 1.0),
        };
        match number.trim().parse::<f64>() {
            Ok(value) if (0.0..=1.0).contains(&(value * unit)) => {
                Ok(Stall { share: value * unit, kind: kind.parse()? })
            }
            _ => bail!("'{share}' is not a share between 0% and 100%: try 0.5%:silent"),
        }
    }
}

impl FromStr for Query {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Query> {
        match (text, text.parse()) {
            ("varying", _) => Ok(Query::Varying),
            (_, Ok(number)) => Ok(Query::Fixed(number)),
            _ => bail!("'{text}' is neither 'varying' nor a number of at most 20 digits"),
        }
    }
}

impl FromStr for Arrivals {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Arrivals> {
        match text {
            "uniform" => Ok(Arrivals::Uniform),
            "poisson" => Ok(Arrivals::Poisson),
            _ => bail!("'{text}' is neither 'uniform' nor 'poisson'"),
        }
    }
}

/// Reads `10..460:50` or `10,110,210` into the rate of each step.
pub fn parse_staircase(text: &str) -> Result<Vec<f64>> {
    let number = |part: &str| match part.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => bail!("'{part}' is not a rate above 0"),
    };
    let Some((from, rest)) = text.split_once("..") else {
        return text.split(',').map(number).collect();
    };
    let Some((to, step)) = rest.split_once(':') else {
        bail!("'{text}' is not FROM..TO:STEP: try 10..460:50");
    };
    let (from, to, step) = (number(from)?, number(to)?, number(step)?);
    ensure!(from <= to, "the staircase goes down: '{text}' should begin with the lower rate");
    ensure!((to - from) / step < 1000.0, "'{text}' has more than 1,000 steps");
    Ok(stairs(from, to, step))
}

fn stairs(from: f64, to: f64, step: f64) -> Vec<f64> {
    // A millionth of a step forgives what binary fractions do to 0.1 + 0.2.
    let count = ((to - from) / step + 1e-6).floor().max(0.0) as u32;
    (0..=count).map(|index| from + f64::from(index) * step).collect()
}

pub(crate) fn seconds<S: serde::Serializer>(
    value: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_without_sense_is_refused_in_a_sentence() {
        let second = Duration::from_secs(1);
        let steady =
            |qps| Plan::steady("127.0.0.1:1".parse().unwrap(), qps, Duration::ZERO, second);
        steady(10.0).check().unwrap();
        let bad = [
            steady(0.0),
            steady(f64::NAN),
            steady(2e6),
            steady(10.0).with_timeout(Duration::ZERO),
            steady(10.0).with_connections(0),
            steady(10.0).with_threads(0),
            steady(10.0).with_connections(1).with_threads(2),
            steady(10.0).with_stall(Stall { share: 1.5, kind: StallKind::Deaf }),
            Plan::steps(steady(1.0).target, vec![], second),
            Plan::steps(steady(1.0).target, vec![1.0], Duration::ZERO),
        ];
        for plan in bad {
            assert!(plan.check().is_err(), "{plan:?}");
        }
    }

    #[test]
    fn a_staircase_has_both_its_ends() {
        let rates = parse_staircase("10..460:50").unwrap();
        assert_eq!(rates.len(), 10);
        assert_eq!((rates[0], rates[9]), (10.0, 460.0));
        assert_eq!(parse_staircase("0.1..0.3:0.1").unwrap().len(), 3);
        assert_eq!(parse_staircase("10,110,210").unwrap(), [10.0, 110.0, 210.0]);
        for bad in ["", "10..", "10..460", "460..10:50", "10..460:0", "a..b:c", "1..1000000:0.1"] {
            assert!(parse_staircase(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        let stall: Stall = "0.5%:half-line".parse().unwrap();
        assert_eq!(stall, Stall { share: 0.005, kind: StallKind::HalfLine });
        assert_eq!("0.25:deaf".parse::<Stall>().unwrap().share, 0.25);
        for bad in ["silent", "5:silent", "-1%:silent", "1%:asleep", "x%:silent"] {
            assert!(bad.parse::<Stall>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_thousand_numbers_come_round_again() {
        assert_eq!(Query::Varying.number(1), 1);
        assert_eq!(Query::Varying.number(1000), 1000);
        assert_eq!(Query::Varying.number(1001), 1);
        assert_eq!(answer_to(0), b"Invalid\n");
        assert_eq!(answer_to(7), b"Odd\n");
        assert_eq!(answer_to(100), b"Even\n");
    }
}
