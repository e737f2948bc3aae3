//! Ratios first: absolute figures are one machine's on one evening.
use std::{collections::BTreeMap, fmt::Write, time::Duration};

/// What was measured, with how many callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Raw(usize),
    Ours(usize),
    Stock(usize),
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Figure {
    /// From the time of each call and of all of them.
    pub fn of(mut calls: Vec<Duration>, whole: Duration) -> Figure {
        calls.sort_unstable();
        let at = |part: f64| {
            let index = (calls.len() as f64 * part) as usize;
            calls.get(index.min(calls.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        let per_second = calls.len() as f64 / whole.as_secs_f64();
        Figure { per_second, p50: at(0.5), p99: at(0.99) }
    }
}

#[derive(Default)]
pub struct Report(BTreeMap<Cell, Vec<Figure>>);

impl Report {
    pub fn add(&mut self, cell: Cell, figure: Figure) {
        eprintln!(
            "  {cell:?}: {:.0}/s p50 {:?} p99 {:?}",
            figure.per_second, figure.p50, figure.p99
        );
        self.0.entry(cell).or_default().push(figure);
    }

    /// Medians and ranges of the figures and of their ratios, round by round.
    pub fn markdown(&self, rounds: u64, period: Duration) -> String {
        let mut text = format!("{rounds} rounds of {} s each, in turns.\n\n", period.as_secs());
        text.push_str("| what | events/s | p50 ms | p99 ms |\n|---|---|---|---|\n");
        for (cell, figures) in &self.0 {
            let name = match cell {
                Cell::Raw(n) => format!("single-row INSERT, 2 indexes (pgbench), {n} connections"),
                Cell::Ours(n) => format!("Stead append, everything on, 5 % conflicts, {n} callers"),
                Cell::Stock(n) => format!("postgres-es 0.5 execute, no conflicts, {n} callers"),
            };
            let millis = |of: fn(&Figure) -> Duration| {
                spread(figures.iter().map(|figure| of(figure).as_secs_f64() * 1e3).collect(), 2)
            };
            let speed = spread(figures.iter().map(|figure| figure.per_second).collect(), 0);
            let (p50, p99) = (millis(|figure| figure.p50), millis(|figure| figure.p99));
            let _ = writeln!(text, "| {name} | {speed} | {p50} | {p99} |");
        }
        text.push_str("\n| ratio, per round | median [range] | bar |\n|---|---|---|\n");
        let speed = |figure: &Figure| figure.per_second;
        let latency = |figure: &Figure| figure.p50.as_secs_f64();
        for (name, over, under, of, bar) in [
            (
                "64 callers ÷ postgres-es at 64",
                Cell::Ours(64),
                Cell::Stock(64),
                speed as fn(&Figure) -> f64,
                "≥ 4, aim 8",
            ),
            ("256 callers ÷ INSERT at 16", Cell::Ours(256), Cell::Raw(16), speed, "≥ 2, aim 4"),
            ("64 callers ÷ INSERT at 64", Cell::Ours(64), Cell::Raw(64), speed, ""),
            ("16 callers ÷ INSERT at 16", Cell::Ours(16), Cell::Raw(16), speed, ""),
            (
                "1 caller, p50 ÷ bare one-row commit",
                Cell::Ours(1),
                Cell::Raw(1),
                latency,
                "≤ 1.5, aim 1.2",
            ),
        ] {
            let (Some(over), Some(under)) = (self.0.get(&over), self.0.get(&under)) else {
                continue;
            };
            let ratios = over.iter().zip(under).map(|(over, under)| of(over) / of(under)).collect();
            let _ = writeln!(text, "| {name} | {} | {bar} |", spread(ratios, 2));
        }
        text
    }
}

fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (first, last) = (values.first().unwrap_or(&0.0), values.last().unwrap_or(&0.0));
    let median = values.get(values.len() / 2).unwrap_or(&0.0);
    format!("{median:.digits$} [{first:.digits$} … {last:.digits$}]")
}
