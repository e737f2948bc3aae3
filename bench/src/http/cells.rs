//! Measured cells and their ratios.
use measure::Ratio;

/// A measurement with a number of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Insert(usize),
    Command(usize),
    Keyed(usize),
    Acknowledged(usize),
    Queued(usize),
}

impl Cell {
    pub fn is_of_pgbench(self) -> bool {
        matches!(self, Cell::Insert(_))
    }
}

impl measure::Cell for Cell {
    fn name(self) -> String {
        match self {
            Cell::Insert(n) => {
                format!("single-row INSERT, 2 indexes (pgbench), {n} connections")
            }
            Cell::Command(n) => format!("command over HTTP → one event, {n} callers"),
            Cell::Keyed(n) => {
                format!("command with an idempotency key over HTTP → one event, {n} callers")
            }
            Cell::Acknowledged(n) => {
                format!("job over HTTP (build retry), {n} callers: acknowledged")
            }
            Cell::Queued(n) => {
                format!("job over HTTP (build retry), {n} callers: all jobs in the queue")
            }
        }
    }
}

/// Cells in the order in which a round measures them. [`Cell::Queued`] continues the run of
/// [`Cell::Acknowledged`].
pub const CELLS: [Cell; 6] = {
    use Cell::*;
    [Insert(64), Command(64), Keyed(64), Insert(16), Acknowledged(16), Queued(16)]
};

#[rustfmt::skip]
pub const RATIOS: &[Ratio<Cell>] = {
    use Cell::*;
    &[
        Ratio::of_speed("command ÷ INSERT at 64", Command(64), Insert(64), "≥ 0.75, stretch 1.5"),
        Ratio::of_speed("command with a key ÷ INSERT at 64", Keyed(64), Insert(64), ""),
        Ratio::of_speed("job acknowledged ÷ INSERT at 16", Acknowledged(16), Insert(16), ""),
        Ratio::of_speed("job in the queue ÷ INSERT at 16", Queued(16), Insert(16), "≥ 0.3"),
        Ratio::of_latency("command, p50 ÷ INSERT at 64", Command(64), Insert(64), ""),
    ]
};
