//! One measurement, and statistics of several.
use std::time::Duration;

use serde_json::{Value, json};

use super::Used;

/// Result of one run of a case.
pub struct Run {
    /// Number of events, jobs, rows or kilobytes.
    pub events: usize,
    /// Duration of the run.
    pub whole: Duration,
    /// Duration of each call, if there are calls.
    pub calls: Vec<Duration>,
}

#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Events per second.
    pub per_second: f64,
    /// Duration of one call. Absent for a run without calls.
    pub call: Option<Quantiles>,
    /// CPU time per event, in µs.
    pub used: Used,
}

impl Figure {
    /// Computes the figures of a run and its CPU time.
    pub fn of(Run { events, whole, calls }: Run, used: Used) -> Figure {
        let call = (!calls.is_empty()).then(|| Quantiles::of(calls));
        let used = used.each(events);
        Figure { per_second: events as f64 / whole.as_secs_f64(), call, used }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "per_second": self.per_second,
            "p50_ms": self.call.map(|call| call.p50),
            "p99_ms": self.call.map(|call| call.p99),
            "client_us_each": self.used.client,
            "server_us_each": self.used.server,
            "database_us_each": self.used.database,
        })
    }
}

/// Quantiles in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Quantiles {
    /// Number of calls.
    pub number: usize,
    pub p50: f64,
    pub p99: f64,
    /// Maximum.
    pub most: f64,
}

impl Quantiles {
    /// Computes the quantiles of at least one duration.
    pub fn of(mut times: Vec<Duration>) -> Quantiles {
        times.sort_unstable();
        let at = |part: f64| {
            let index = ((times.len() as f64 * part) as usize).min(times.len() - 1);
            times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        Quantiles { number: times.len(), p50: at(0.5), p99: at(0.99), most: at(1.0) }
    }

    pub fn json(&self) -> Value {
        json!({"samples": self.number, "p50_ms": self.p50, "p99_ms": self.p99, "max_ms": self.most})
    }

    /// Row of a table: number, p50, p99 and maximum.
    pub fn row(&self, name: &str) -> String {
        let Quantiles { number, p50, p99, most } = self;
        format!("| {name} | {number} | {p50:.2} | {p99:.2} | {most:.2} |\n")
    }
}

/// The median, with the range in brackets.
pub fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return "–".into() };
    let median = values.get(values.len() / 2).unwrap_or(first);
    format!("{median:.digits$} [{first:.digits$} … {last:.digits$}]")
}
