//! Conditions of a measurement, printed with the figures.
use std::{fs, time::Duration};

use serde_json::{Value, json};
use sqlx::PgPool;

/// Settings of Postgres that determine the cost of a commit.
const SETTINGS: [&str; 7] = [
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
];

/// Machine, settings and command of a measurement.
pub struct Conditions {
    machine: String,
    settings: Vec<(String, String)>,
    rounds: u64,
    period: Duration,
}

impl Conditions {
    /// Reads the conditions at the end of a measurement. With a period of zero, rounds have no
    /// fixed duration.
    pub async fn of(pool: &PgPool, rounds: u64, period: Duration) -> Conditions {
        Conditions { machine: machine(), settings: settings(pool).await, rounds, period }
    }

    pub fn markdown(&self) -> String {
        let settings: Vec<_> = self.settings.iter().map(|(n, v)| format!("{n} {v}")).collect();
        let turn = match self.period.as_secs() {
            0 => String::new(),
            seconds => format!(" of {seconds} s each"),
        };
        format!(
            "{}\n\nPostgres: {}.\n\n`{}`: {} rounds{turn}, alternating; median [min … max].\n",
            self.machine,
            settings.join(", "),
            command(),
            self.rounds,
        )
    }

    pub fn json(&self) -> Value {
        json!({
            "machine": self.machine,
            "postgres": self.settings.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "command": command(),
            "rounds": self.rounds,
            "seconds": self.period.as_secs(),
        })
    }
}

/// The program name and its arguments, without the directory.
fn command() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_string();
    [name].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// Current values of the settings that determine the cost of a commit.
pub async fn settings(pool: &PgPool) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for name in SETTINGS {
        let value = sqlx::query_scalar(&format!("show {name}")).fetch_one(pool).await.unwrap();
        settings.push((name.to_string(), value));
    }
    settings
}

/// Processor, memory and load of the machine.
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_string()).unwrap_or_default()
    };
    let cpu = field(&read("/proc/cpuinfo"), "model name");
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let memory =
        memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_string();
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let memory = memory >> 20;
    format!("{cores} × {cpu}, {memory} GiB, {profile} build, load average at the end {load}.")
}
