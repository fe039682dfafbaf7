//! What stays of an experiment: a tidy CSV, and beside it where the numbers come from.

use crate::machine::Machine;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    env, fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

/// Rows of one kind, whatever they are made of: what the CSV of a record holds.
///
/// The first columns of every kind are `experiment,server,link,stall,stall_percent,seed,step`, as far as
/// an experiment has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    csv: Vec<u8>,
    rows: usize,
}

/// One row for each experiment, server, link, kind of stalled client, seed, and step: of everything that
/// drives a server with `stress`.
///
/// Percentages are of what was scheduled; latencies count from the moment for which a request was
/// scheduled, of the requests that were answered right; empty if there was none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was done: `race-staircase`, `scaling-one-core`, …
    pub experiment: String,
    /// The binary.
    pub server: String,
    /// What lies between client and server.
    pub link: String,
    /// What the stalled clients do: `silent`, `half-line`, or `none` if there are none.
    pub stall: String,
    /// How many stalled clients come with 100 requests.
    pub stall_percent: f64,
    /// Which of the equal runs, from 1, and with which dice of the link or of the arrivals where any are
    /// thrown; empty where rounds are steps, and where there is one run by its nature.
    pub seed: Option<u64>,
    /// From 1. A round, where nothing climbs.
    pub step: u32,
    /// Requests per second that were planned; 0 for a single request, and where there was no schedule.
    pub target_qps: f64,
    /// Requests per second that really left.
    pub achieved_qps: f64,
    /// Length of the step.
    pub hold_s: f64,
    /// Patience of a client.
    pub timeout_s: f64,
    /// Requests that were due.
    pub scheduled: u64,
    /// Of those, answered right.
    pub correct: u64,
    /// Answered wrong.
    pub wrong: u64,
    /// Not answered.
    pub errors: u64,
    /// Half of those answered took at most this.
    pub p50_ms: Option<f64>,
    /// 90 of 100.
    pub p90_ms: Option<f64>,
    /// 99 of 100.
    pub p99_ms: Option<f64>,
    /// All.
    pub max_ms: Option<f64>,
    /// Whether the load generator was late: latencies of some milliseconds and losses of a few percent
    /// are not the server's then.
    pub client_bound: bool,
    /// Cores that server and clients could use, if that was chosen. Empty, as all that follow, where an
    /// experiment does not look at it.
    pub cores: Option<usize>,
    /// Reactors of the server.
    pub reactors: Option<usize>,
    /// Clients at once, if another came only when one was answered, or in all, if they were counted.
    pub clients: Option<usize>,
    /// CPU seconds of the server for 100,000 answers.
    pub server_cpu_s_per_100k: Option<f64>,
    /// CPU seconds of the clients for 100,000 answers.
    pub client_cpu_s_per_100k: Option<f64>,
    /// The reactor that the row is about, from 1.
    pub reactor: Option<usize>,
    /// The clients that came to it.
    pub reactor_clients: Option<usize>,
    /// IP packets that came to the link in this step, both ways. Empty, as all that follow, on loopback.
    pub link_packets: Option<u64>,
    /// Of those, dropped because the link's queue was full.
    pub dropped_full: Option<u64>,
    /// Of those, lost by the link's dice.
    pub dropped_lost: Option<u64>,
    /// How late the link delivered, at the 99th percentile of the whole run.
    pub lateness_p99_ms: Option<f64>,
    /// Whether it was late by more than a run can bear: the machine was the limit, not the link.
    pub spoiled: Option<bool>,
    /// Requests that were due and not sent when the step was over, since their connection waited for an earlier
    /// answer. Empty where each has a connection of its own.
    pub waiting: Option<u64>,
}

/// Where the numbers of a record come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The experiment.
    pub experiment: String,
    /// What was typed.
    pub command: String,
    /// When it ended (UTC).
    pub date: String,
    /// The commit of the repository, with `+changes` if files differ from it.
    pub commit: String,
    /// What the numbers depend on: the scale, the servers, what is chosen. Null where nothing is.
    #[serde(default)]
    pub parameters: serde_json::Value,
    /// What it ran on.
    #[serde(flatten)]
    pub machine: Machine,
    /// What the same measurement differs by when it is repeated; `None` if that was not measured.
    pub noise: Option<Noise>,
    /// Whether it was ended before its end.
    pub interrupted: bool,
    /// What was seen, in sentences.
    pub findings: Vec<String>,
    /// What could not be measured, in sentences.
    pub failures: Vec<String>,
}

/// A baseline, repeated: well-behaved clients only, once, again, and beside other servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The server that was measured.
    pub server: String,
    /// Its rate.
    pub qps: f64,
    /// Percent answered of each run alone.
    pub alone_percent: Vec<f64>,
    /// Median latency of each run alone.
    pub alone_p50_ms: Vec<f64>,
    /// 99th percentile of each run alone.
    pub alone_p99_ms: Vec<f64>,
    /// Percent answered beside other servers; `None` if there was no other.
    pub beside_percent: Option<f64>,
    /// Median latency beside other servers.
    pub beside_p50_ms: Option<f64>,
    /// 99th percentile beside other servers.
    pub beside_p99_ms: Option<f64>,
    /// How many ran side by side in the experiment, after this.
    pub side_by_side: usize,
}

/// Where an experiment has written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// All files.
    pub files: Vec<PathBuf>,
}

impl Record {
    /// Percent answered right of what was scheduled.
    pub fn success_percent(&self) -> f64 {
        if self.scheduled == 0 { 0.0 } else { 100.0 * self.correct as f64 / self.scheduled as f64 }
    }
}

/// To three decimals: a microsecond of a millisecond is the last digit that means something.
pub fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Writes `records` as CSV.
///
/// # Errors
/// If `writer` cannot be written to.
pub fn write_csv<T: Serialize>(records: &[T], writer: impl Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(writer);
    for record in records {
        csv.serialize(record).context("write: the record")?;
    }
    csv.flush().context("write: the record")
}

/// Reads what [`write_csv`] wrote.
///
/// # Errors
/// If a row is not a `T`.
pub fn read_csv<T: DeserializeOwned>(reader: impl Read) -> Result<Vec<T>> {
    let mut csv = csv::Reader::from_reader(reader);
    csv.deserialize().map(|row| row.context("read: the record")).collect()
}

impl Table {
    /// Of `rows`, which are of one kind.
    ///
    /// # Errors
    /// If a row cannot be a line of a CSV: it holds a list or a map.
    pub fn of<T: Serialize>(rows: &[T]) -> Result<Table> {
        let mut csv = Vec::new();
        write_csv(rows, &mut csv)?;
        Ok(Table { csv, rows: rows.len() })
    }

    /// The rows again.
    ///
    /// # Errors
    /// If they are not of this kind.
    pub fn rows<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        read_csv(&self.csv[..])
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }
}

/// Writes `NAME.csv`, `NAME.json`, and `NAME.ENDING` for each of `beside`, into `folder`.
///
/// # Errors
/// If the folder cannot be made or a file cannot be written.
pub fn save(
    folder: &Path,
    table: &Table,
    provenance: &Provenance,
    beside: &[(&str, String)],
) -> Result<Written> {
    fs::create_dir_all(folder).with_context(|| format!("mkdir({})", folder.display()))?;
    let mut written = Written::default();
    let mut save = |ending: &str, content: &[u8]| {
        let path = folder.join(format!("{}{ending}", provenance.experiment));
        fs::write(&path, content).with_context(|| format!("write({})", path.display()))?;
        written.files.push(path);
        anyhow::Ok(())
    };
    save(".csv", &table.csv)?;
    let mut json = serde_json::to_vec_pretty(provenance).context("the provenance as JSON")?;
    json.push(b'\n');
    save(".json", &json)?;
    for (ending, content) in beside {
        save(ending, content.as_bytes())?;
    }
    Ok(written)
}

/// What was typed, as far as it can be known.
pub fn command_line() -> String {
    let arguments = env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned());
    ["cargo".to_owned(), "lab".to_owned()]
        .into_iter()
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The commit of `workspace`, with `+changes` if files differ from it; `unknown` without git.
pub fn commit(workspace: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(workspace).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => head,
        _ => head + "+changes",
    }
}

/// Now, as `2025-01-31T12:00:00Z`.
pub fn now_utc() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    utc(since.as_secs())
}

/// The calendar's date of a second since 1970, counted in years that begin in March, so that the day
/// which is sometimes missing is the last one.
fn utc(second: u64) -> String {
    let days = second / 86_400 + 719_468; // Since 1 March of the year 0.
    let (cycle, day_of_cycle) = (days / 146_097, days % 146_097);
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524
        - day_of_cycle / 146_096)
        / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month = (5 * day_of_year + 2) / 153; // 0 is March.
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = cycle * 400 + year_of_cycle + u64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    let (hour, minute, second) = (second / 3_600 % 24, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_csv() {
        let one = Record {
            experiment: "race-staircase".into(),
            server: "ch02".into(),
            link: "loopback".into(),
            stall: "half-line".into(),
            stall_percent: 0.5,
            step: 3,
            target_qps: 210.0,
            achieved_qps: 209.5,
            scheduled: 630,
            correct: 629,
            errors: 1,
            p50_ms: Some(0.25),
            ..Record::default()
        };
        // Nobody answered: no latency, which is not a latency of 0.
        let other = Record { correct: 0, p50_ms: None, client_bound: true, ..one.clone() };
        let mut file = Vec::new();
        write_csv(&[one.clone(), other.clone()], &mut file).unwrap();
        assert_eq!(read_csv::<Record>(&file[..]).unwrap(), [one, other]);
        let text = String::from_utf8(file).unwrap();
        assert!(
            text.starts_with("experiment,server,link,stall,stall_percent,seed,step,target_qps,"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn a_record_with_a_missing_column_is_refused() {
        assert!(read_csv::<Record>(&b"experiment,server\nrace,ch01\n"[..]).is_err());
    }

    #[test]
    fn a_table_holds_rows_of_any_kind() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Burst {
            backlog: usize,
            in_at_once: Option<usize>,
        }
        let rows =
            [Burst { backlog: 16, in_at_once: Some(17) }, Burst { backlog: 1, in_at_once: None }];
        let table = Table::of(&rows).unwrap();
        assert_eq!(table.csv, b"backlog,in_at_once\n16,17\n1,\n");
        assert_eq!(table.rows::<Burst>().unwrap(), rows);
        assert!(table.rows::<Record>().is_err());
        assert!(!table.is_empty() && Table::default().is_empty());
    }

    #[test]
    fn dates_are_the_calendars() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
