//! Reports figures and their ratios, because absolute figures depend on the machine and the time.
use std::{collections::BTreeMap, fmt::Debug, fmt::Write as _};

use serde_json::{Value, json};

use super::{Conditions, Figure, spread};

/// A measured case. The order of the cases is that of the table.
pub trait Cell: Copy + Ord + Debug + 'static {
    /// Name in the table.
    fn name(self) -> String;
}

pub struct Ratio<C: 'static> {
    /// Name in the table.
    pub name: &'static str,
    /// Case of the numerator.
    pub over: C,
    /// Case of the denominator.
    pub under: C,
    /// Function that returns the figure to compare.
    pub of: fn(&Figure) -> f64,
    /// Target for the reader, or empty.
    pub bar: &'static str,
}

impl<C> Ratio<C> {
    /// Ratio of events per second.
    pub const fn of_speed(name: &'static str, over: C, under: C, bar: &'static str) -> Ratio<C> {
        Ratio { name, over, under, of: |figure| figure.per_second, bar }
    }

    /// Ratio of median durations of a call.
    pub const fn of_latency(name: &'static str, over: C, under: C, bar: &'static str) -> Ratio<C> {
        Ratio { name, over, under, of: |figure| figure.call.map_or(f64::NAN, |call| call.p50), bar }
    }
}

/// Figures of all rounds.
pub struct Report<C: 'static> {
    unit: &'static str,
    ratios: &'static [Ratio<C>],
    figures: BTreeMap<C, Vec<Figure>>,
}

impl<C: Cell> Report<C> {
    pub fn of(unit: &'static str, ratios: &'static [Ratio<C>]) -> Report<C> {
        Report { unit, ratios, figures: BTreeMap::new() }
    }

    pub fn add(&mut self, cell: C, figure: Figure) {
        eprintln!("  {}: {:.0} {}/s", cell.name(), figure.per_second, self.unit);
        self.figures.entry(cell).or_default().push(figure);
    }

    /// The report as Markdown: medians and ranges of the figures, and of their ratios per round.
    pub fn markdown(&self, conditions: &Conditions) -> String {
        let mut text = format!("{}\n", conditions.markdown());
        let _ = writeln!(
            text,
            "| case | {}/s | p50 ms | p99 ms | CPU µs each: client | server | Postgres |\n|---|---|---|---|---|---|---|",
            self.unit
        );
        for (cell, figures) in &self.figures {
            let of = |of: fn(&Figure) -> f64, digits| spread(figures.iter().map(of), digits);
            let calls = || figures.iter().filter_map(|figure| figure.call);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                cell.name(),
                of(|figure| figure.per_second, 0),
                spread(calls().map(|call| call.p50), 2),
                spread(calls().map(|call| call.p99), 2),
                of(|figure| figure.used.client, 1),
                of(|figure| figure.used.server, 1),
                of(|figure| figure.used.database, 1),
            );
        }
        text.push_str("\n| ratio, per round | median [range] | target |\n|---|---|---|\n");
        for (ratio, values) in self.ratios() {
            let _ = writeln!(text, "| {} | {} | {} |", ratio.name, spread(values, 2), ratio.bar);
        }
        text
    }

    pub fn json(&self, conditions: &Conditions) -> Value {
        let figures = self.figures.iter().map(|(cell, figures)| {
            let rounds: Vec<_> = figures.iter().map(Figure::json).collect();
            json!({"what": cell.name(), "rounds": rounds})
        });
        let ratios = self.ratios().map(|(ratio, values)| {
            json!({"what": ratio.name, "bar": ratio.bar, "rounds": values.collect::<Vec<_>>()})
        });
        json!({
            "conditions": conditions.json(),
            "unit": self.unit,
            "figures": figures.collect::<Vec<_>>(),
            "ratios": ratios.collect::<Vec<_>>(),
        })
    }

    fn ratios(&self) -> impl Iterator<Item = (&'static Ratio<C>, impl Iterator<Item = f64>)> {
        self.ratios.iter().filter_map(|ratio| {
            let (over, under) = (self.figures.get(&ratio.over)?, self.figures.get(&ratio.under)?);
            let values = over.iter().zip(under);
            Some((ratio, values.map(|(over, under)| (ratio.of)(over) / (ratio.of)(under))))
        })
    }
}
