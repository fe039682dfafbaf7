//! The machine: what can be said of it before anything is measured on it.

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::{env, fs, thread};

/// What 02 to 06 ask `listen` for.
const BACKLOG_ASKED: u64 = 4_096;

/// What servers and clients run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The release of the kernel.
    pub kernel: String,
    /// What `/proc/cpuinfo` calls the processor.
    pub cpu: String,
    /// Such as `x86_64` or `aarch64`.
    pub architecture: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Descriptors that one process may hold (RLIMIT_NOFILE, after raising it as far as it goes).
    pub descriptors_max: u64,
    /// What `listen` clamps its backlog to.
    pub somaxconn: Option<u64>,
    /// Processes that wanted to run, as a mean over the last minute, before the start.
    pub load_before: Option<f64>,
}

impl Machine {
    /// Looks, and raises this process's limit of descriptors as far as it goes.
    ///
    /// # Errors
    /// If the limit can neither be read nor raised.
    pub fn look() -> Result<Machine> {
        let (soft, hard) =
            getrlimit(Resource::RLIMIT_NOFILE).context("getrlimit(RLIMIT_NOFILE)")?;
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("setrlimit(RLIMIT_NOFILE)")?;
        }
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Ok(Machine {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            cpu: cpu_name(&cpuinfo),
            architecture: env::consts::ARCH.into(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            descriptors_max: hard,
            somaxconn: read("/proc/sys/net/core/somaxconn").and_then(|text| text.parse().ok()),
            load_before: read("/proc/loadavg")
                .and_then(|text| text.split(' ').next()?.parse().ok()),
        })
    }

    /// In one line.
    pub fn line(&self) -> String {
        let somaxconn = self.somaxconn.map_or_else(|| "unknown".into(), |most| most.to_string());
        format!(
            "Linux {} on {} ({}, {} {}), {} descriptors, somaxconn {somaxconn}",
            self.kernel,
            self.cpu,
            self.architecture,
            self.cores,
            if self.cores == 1 { "core" } else { "cores" },
            self.descriptors_max,
        )
    }

    /// What will show in the results and is not the servers' doing, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        match self.somaxconn {
            Some(most) if most < BACKLOG_ASKED => warnings.push(format!(
                "net.core.somaxconn is {most}: listen() clamps to it the queue of {BACKLOG_ASKED} that \
                 02 to 06 ask for (sysctl -w net.core.somaxconn={BACKLOG_ASKED}, as root)"
            )),
            Some(_) => {}
            None => warnings.push(
                "/proc/sys/net/core/somaxconn cannot be read: how long the queues are is unknown".into(),
            ),
        }
        if self.cores == 1 {
            warnings.push("one core: clients and servers take it from each other".into());
        }
        if self.load_before.is_some_and(|load| load > 0.5 * self.cores as f64) {
            warnings.push(
                "other programs are at work here: latencies below some milliseconds are theirs too"
                    .into(),
            );
        }
        warnings
    }

    /// How many runs fit side by side, at most `wanted`, if each may hold `each` descriptors in this
    /// process. 0 if not even one fits.
    pub fn runs_at_once(&self, wanted: usize, each: usize) -> usize {
        let left = self.descriptors_max.saturating_sub(DESCRIPTORS_OWN);
        wanted.min(usize::try_from(left).unwrap_or(usize::MAX) / each.max(1))
    }
}

/// Descriptors for everything that is not a connection: files, pipes of children, epoll.
pub const DESCRIPTORS_OWN: u64 = 128;

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// x86 gives a name for each core; arm64 gives numbers, or the name of the board.
fn cpu_name(cpuinfo: &str) -> String {
    let field = |wanted: &str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let mut values =
            lines.filter(|(name, _)| name.trim() == wanted).map(|(_, value)| value.trim());
        values.find(|value| !value.is_empty()).map(str::to_owned)
    };
    let part = || {
        let (maker, part) = (field("CPU implementer")?, field("CPU part")?);
        Some(format!("CPU implementer {maker} part {part}"))
    };
    field("model name")
        .or_else(|| field("Model"))
        .or_else(part)
        .unwrap_or_else(|| "unknown CPU".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            kernel: "6.18".into(),
            cpu: "A CPU".into(),
            architecture: "x86_64".into(),
            cores: 2,
            descriptors_max: 20_128,
            somaxconn: Some(4_096),
            load_before: Some(0.2),
        }
    }

    #[test]
    fn a_quiet_machine_is_looked_at_without_a_warning() {
        assert_eq!(machine().warnings(), Vec::<String>::new());
        let line = "Linux 6.18 on A CPU (x86_64, 2 cores), 20128 descriptors, somaxconn 4096";
        assert_eq!(machine().line(), line);
    }

    #[test]
    fn each_lack_has_its_sentence() {
        let poor = Machine { somaxconn: Some(128), cores: 1, load_before: Some(3.0), ..machine() };
        let warnings = poor.warnings();
        assert!(warnings[0].starts_with("net.core.somaxconn is 128: "), "{warnings:?}");
        assert_eq!(warnings.len(), 3);
        assert_eq!(Machine { somaxconn: None, ..machine() }.warnings().len(), 1);
    }

    #[test]
    fn runs_at_once_are_as_many_as_descriptors_allow() {
        assert_eq!(machine().runs_at_once(3, 2_000), 3);
        assert_eq!(machine().runs_at_once(3, 7_000), 2);
        assert_eq!(machine().runs_at_once(3, 20_001), 0);
        assert_eq!(Machine { descriptors_max: 64, ..machine() }.runs_at_once(3, 1), 0);
    }

    #[test]
    fn the_cpu_has_a_name_on_x86_and_on_arm() {
        assert_eq!(
            cpu_name("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"),
            "Some CPU @ 2 GHz"
        );
        let pi = "CPU implementer\t: 0x41\nCPU part\t: 0xd08\n\nModel\t\t: A small board\n";
        assert_eq!(cpu_name(pi), "A small board");
        let bare = "CPU implementer\t: 0x41\nCPU part\t: 0xd08\n";
        assert_eq!(cpu_name(bare), "CPU implementer 0x41 part 0xd08");
        assert_eq!(cpu_name(""), "unknown CPU");
    }
}
