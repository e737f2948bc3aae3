//! What is measured, and what is divided by what.
use event_log::testing::measure::{self, Ratio};

/// Whose jobs, and how they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub who: Who,
    pub mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Jobs that the server queues.
    Stead,
    /// Jobs that people ask for.
    Builds,
    Other(Other, How),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    Graphile,
    PgBoss,
}

/// How one of the others is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// 24 at once, everything else as it is.
    Stock,
    /// With batches, as its documentation advises for throughput.
    Tuned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Queued one by one while they are worked at.
    Together,
    /// All of them are in the queue before.
    Drained,
}

impl Other {
    /// Its script.
    pub fn script(self) -> &'static str {
        match self {
            Other::Graphile => "graphile.mjs",
            Other::PgBoss => "pg-boss.mjs",
        }
    }
}

impl How {
    /// The script's word for it.
    pub fn word(self) -> &'static str {
        match self {
            How::Stock => "stock",
            How::Tuned => "tuned",
        }
    }
}

impl measure::Cell for Cell {
    fn name(self) -> String {
        let who = match self.who {
            Who::Stead => "Stead, whole lifecycle over HTTP".to_string(),
            Who::Builds => "Stead, asked for over HTTP (a build's retry), whole lifecycle".into(),
            Who::Other(Other::Graphile, how) => format!("graphile-worker 0.18 {}", how.word()),
            Who::Other(Other::PgBoss, how) => format!("pg-boss 12.26 {}", how.word()),
        };
        match self.mode {
            Mode::Together => format!("{who}: together"),
            Mode::Drained => format!("{who}: drained"),
        }
    }
}

const fn both(who: Who) -> [Cell; 2] {
    [Cell { who, mode: Mode::Together }, Cell { who, mode: Mode::Drained }]
}

const STEAD: [Cell; 2] = both(Who::Stead);
const BUILDS: [Cell; 2] = both(Who::Builds);
const GRAPHILE: [Cell; 2] = both(Who::Other(Other::Graphile, How::Stock));
const GRAPHILE_TUNED: [Cell; 2] = both(Who::Other(Other::Graphile, How::Tuned));
const PG_BOSS: [Cell; 2] = both(Who::Other(Other::PgBoss, How::Stock));
const PG_BOSS_TUNED: [Cell; 2] = both(Who::Other(Other::PgBoss, How::Tuned));

/// In turns, as they are here.
#[rustfmt::skip]
pub const CELLS: [Cell; 11] = [
    GRAPHILE[0], GRAPHILE[1], STEAD[0], STEAD[1], GRAPHILE_TUNED[0], GRAPHILE_TUNED[1], BUILDS[0], PG_BOSS[0],
    PG_BOSS[1], PG_BOSS_TUNED[0], PG_BOSS_TUNED[1],
];

#[rustfmt::skip]
pub const RATIOS: &[Ratio<Cell>] = &[
    Ratio::of_speed("Stead ÷ graphile-worker stock, together", STEAD[0], GRAPHILE[0], "≥ 1"),
    Ratio::of_speed("Stead, together ÷ graphile-worker stock, drained", STEAD[0], GRAPHILE[1], "≥ 1"),
    Ratio::of_speed("Stead ÷ graphile-worker stock, drained", STEAD[1], GRAPHILE[1], "≥ 1"),
    Ratio::of_speed("Stead ÷ graphile-worker tuned, together", STEAD[0], GRAPHILE_TUNED[0], ""),
    Ratio::of_speed("Stead ÷ graphile-worker tuned, drained", STEAD[1], GRAPHILE_TUNED[1], ""),
    Ratio::of_speed("Stead ÷ pg-boss stock, together", STEAD[0], PG_BOSS[0], ""),
    Ratio::of_speed("Stead ÷ pg-boss tuned, together", STEAD[0], PG_BOSS_TUNED[0], ""),
    Ratio::of_speed("Stead ÷ pg-boss tuned, drained", STEAD[1], PG_BOSS_TUNED[1], ""),
    Ratio::of_speed("Stead, builds ÷ graphile-worker stock, together", BUILDS[0], GRAPHILE[0], ""),
];
