//! Results as text and as JSON.
use std::{fmt::Write as _, time::Duration};

use measure::{Quantiles, machine};
use serde_json::{Value, json};

/// Counters over a period.
pub struct Window {
    /// Unit that is counted: statements or transactions.
    pub unit: &'static str,
    pub statements_a_minute: f64,
    /// Processor time of the server as a share of one core.
    pub processor: f64,
    /// Resident memory of the server in bytes.
    pub resident: u64,
}

/// Result of queueing one job per runner.
pub struct Storm {
    pub jobs: usize,
    pub all_queued: Duration,
    pub all_claimed: Duration,
    /// Number of responses that asked for a later retry.
    pub asked_to_wait: u64,
    /// Time of each job from its acknowledged queue request to the response of its claim.
    pub waits: Vec<Duration>,
}

/// Times from SIGKILL.
pub struct Restart {
    /// Time until the server was ready.
    pub ready: Duration,
    /// Time until each runner had an open long poll at the restarted server.
    pub parked: Duration,
}

pub struct Report {
    pub runners: usize,
    pub settings: Vec<(String, String)>,
    pub enrolled: Duration,
    pub alone: Window,
    pub crowded: Window,
    pub storm: Storm,
    pub restart: Restart,
}

impl Report {
    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", machine());
        let settings: Vec<_> = self.settings.iter().map(|(n, v)| format!("{n} {v}")).collect();
        let _ = writeln!(text, "Postgres: {}.\n", settings.join(", "));
        let _ = writeln!(
            text,
            "| runners with an open long poll | {} a minute | resident memory | of one core |\n|---|---|---|---|",
            self.alone.unit
        );
        for (runners, window) in [(0, &self.alone), (self.runners, &self.crowded)] {
            let Window { statements_a_minute, processor, resident, .. } = window;
            let mib = *resident as f64 / f64::from(1 << 20);
            let percent = processor * 100.0;
            let _ = writeln!(
                text,
                "| {runners} | {statements_a_minute:.0} | {mib:.1} MiB | {percent:.1} % |"
            );
        }
        let _ = writeln!(
            text,
            "\nResident memory per runner with an open long poll: {:.1} KiB.\n",
            self.each() / 1024.0
        );
        let seconds = |time: Duration| time.as_secs_f64();
        let _ = writeln!(text, "| what | s |\n|---|---|");
        let Storm { jobs, all_queued, all_claimed, asked_to_wait, waits } = &self.storm;
        let waits = Quantiles::of(waits.clone());
        for (what, time) in [
            (format!("{} runners enrolled, sessions open", self.runners), seconds(self.enrolled)),
            (format!("{jobs} jobs queued at another server"), seconds(*all_queued)),
            ("all jobs claimed, each once".into(), seconds(*all_claimed)),
            ("  p50 of a job's wait".into(), waits.p50 / 1e3),
            ("  p99".into(), waits.p99 / 1e3),
            ("kill -9 → the server is ready again".into(), seconds(self.restart.ready)),
            (
                "kill -9 → all runners have an open long poll again".into(),
                seconds(self.restart.parked),
            ),
        ] {
            let _ = writeln!(text, "| {what} | {time:.2} |");
        }
        let _ = writeln!(
            text,
            "\nResponses during the storm that asked for a later retry (503, 429): {asked_to_wait}."
        );
        text
    }

    pub fn json(&self) -> Value {
        let window = |window: &Window| {
            json!({
                "a_minute": window.statements_a_minute, "unit": window.unit,
                "of_one_core": window.processor, "resident_bytes": window.resident,
            })
        };
        json!({
            "machine": machine(),
            "postgres": self.settings.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "runners": self.runners,
            "enrolled_s": self.enrolled.as_secs_f64(),
            "alone": window(&self.alone),
            "crowded": window(&self.crowded),
            "bytes_per_runner": self.each(),
            "storm": {
                "jobs": self.storm.jobs,
                "all_queued_s": self.storm.all_queued.as_secs_f64(),
                "all_claimed_s": self.storm.all_claimed.as_secs_f64(),
                "asked_to_wait": self.storm.asked_to_wait,
                "wait": Quantiles::of(self.storm.waits.clone()).json(),
            },
            "restart": {
                "ready_s": self.restart.ready.as_secs_f64(),
                "parked_s": self.restart.parked.as_secs_f64(),
            },
        })
    }

    /// Resident bytes per runner with an open long poll.
    fn each(&self) -> f64 {
        self.crowded.resident.saturating_sub(self.alone.resident) as f64 / self.runners as f64
    }
}
