//! A table with one row per operation and one column per number of events.
use std::{fmt::Write as _, time::Duration};

use measure::{Conditions, Quantiles};
use serde_json::{Value, json};

#[derive(Default)]
pub struct Table {
    events: Vec<u64>,
    rows: Vec<Row>,
}

struct Row {
    what: String,
    unit: &'static str,
    /// Medians, one per column, each with an optional value in brackets.
    cells: Vec<(f64, Option<f64>)>,
}

impl Table {
    /// Starts the column for this number of events.
    pub fn column(&mut self, events: u64) {
        self.events.push(events);
    }

    pub fn times(&mut self, what: &str, times: Vec<Duration>) {
        let Quantiles { p50, p99, .. } = Quantiles::of(times);
        self.add(what, "ms", (p50, Some(p99)));
    }

    pub fn figure(&mut self, what: &str, unit: &'static str, value: f64) {
        self.add(what, unit, (value, None));
    }

    fn add(&mut self, what: &str, unit: &'static str, cell: (f64, Option<f64>)) {
        eprintln!("  {what}: {:.2} {unit}", cell.0);
        match self.rows.iter_mut().find(|row| row.what == what) {
            Some(row) => row.cells.push(cell),
            None => self.rows.push(Row { what: what.into(), unit, cells: vec![cell] }),
        }
    }

    pub fn markdown(&self) -> String {
        let mut text = "| what; p50 [p99] | unit |".to_string();
        for events in &self.events {
            let _ = write!(text, " {events} events |");
        }
        text.push_str(" last ÷ first |\n|---|---|");
        text.push_str(&"---|".repeat(self.events.len() + 1));
        text.push('\n');
        for row in &self.rows {
            let _ = write!(text, "| {} | {} |", row.what, row.unit);
            for (value, p99) in &row.cells {
                let p99 = p99.map(|p99| format!(" [{}]", short(p99)));
                let _ = write!(text, " {}{} |", short(*value), p99.unwrap_or_default());
            }
            let _ = writeln!(text, " {:.2} |", row.ratio());
        }
        text
    }

    pub fn json(&self, conditions: &Conditions) -> Value {
        let rows = self.rows.iter().map(|row| {
            let cells = row.cells.iter().map(|(value, p99)| json!({"value": value, "p99": p99}));
            let cells: Vec<_> = cells.collect();
            json!({"what": row.what, "unit": row.unit, "cells": cells, "last_per_first": row.ratio()})
        });
        json!({
            "conditions": conditions.json(), "events": self.events, "rows": rows.collect::<Vec<_>>(),
        })
    }
}

impl Row {
    fn ratio(&self) -> f64 {
        let value = |cell: Option<&(f64, Option<f64>)>| cell.map_or(f64::NAN, |(value, _)| *value);
        value(self.cells.last()) / value(self.cells.first())
    }
}

/// Formats a value. Small values get decimal places.
fn short(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}
