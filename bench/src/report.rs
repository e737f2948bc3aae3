//! What every report says.
use std::{fs, time::Duration};

use serde_json::{Value, json};

/// Milliseconds.
pub struct Quantiles {
    pub number: usize,
    pub p50: f64,
    pub p99: f64,
    pub most: f64,
}

impl Quantiles {
    pub fn of(mut times: Vec<Duration>) -> Quantiles {
        times.sort_unstable();
        let at = |part: f64| {
            let index = ((times.len() as f64 * part) as usize).min(times.len() - 1);
            times[index].as_secs_f64() * 1e3
        };
        Quantiles { number: times.len(), p50: at(0.5), p99: at(0.99), most: at(1.0) }
    }

    pub fn json(&self) -> Value {
        json!({"samples": self.number, "p50_ms": self.p50, "p99_ms": self.p99, "max_ms": self.most})
    }

    pub fn row(&self, name: &str) -> String {
        let Quantiles { number, p50, p99, most } = self;
        format!("| {name} | {number} | {p50:.2} | {p99:.2} | {most:.2} |\n")
    }
}

/// What it ran on, and what else ran there.
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
