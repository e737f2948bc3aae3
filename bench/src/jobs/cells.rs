//! Measured cells and their ratios.
use measure::Ratio;

/// Contender and mode of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub queue: Queue,
    pub mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// Jobs that the server's use case queues, without HTTP.
    Stead,
    /// Jobs of builds that callers retry over HTTP.
    Builds,
    Other(Other, Tuning),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    Graphile,
    PgBoss,
}

/// Configuration of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tuning {
    /// 24 concurrent jobs, with defaults for everything else.
    Stock,
    /// With batches, as the documentation of the job queue recommends for throughput.
    Tuned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Jobs are queued one by one while workers run.
    Together,
    /// All jobs are queued before the clock starts.
    Drained,
}

impl Other {
    /// File name of the job queue's script.
    pub fn script(self) -> &'static str {
        match self {
            Other::Graphile => "graphile.mjs",
            Other::PgBoss => "pg-boss.mjs",
        }
    }
}

impl Tuning {
    /// Argument of the script.
    pub fn name(self) -> &'static str {
        match self {
            Tuning::Stock => "stock",
            Tuning::Tuned => "tuned",
        }
    }
}

impl measure::Cell for Cell {
    fn name(self) -> String {
        let queue = match self.queue {
            Queue::Stead => "Stead, complete lifecycle over HTTP".to_string(),
            Queue::Builds => "Stead, queued over HTTP (build retry), complete lifecycle".into(),
            Queue::Other(Other::Graphile, tuning) => {
                format!("graphile-worker 0.18 {}", tuning.name())
            }
            Queue::Other(Other::PgBoss, tuning) => format!("pg-boss 12.26 {}", tuning.name()),
        };
        match self.mode {
            Mode::Together => format!("{queue}: together"),
            Mode::Drained => format!("{queue}: drained"),
        }
    }
}

const fn both_modes(queue: Queue) -> [Cell; 2] {
    [Cell { queue, mode: Mode::Together }, Cell { queue, mode: Mode::Drained }]
}

const STEAD: [Cell; 2] = both_modes(Queue::Stead);
const BUILDS: [Cell; 2] = both_modes(Queue::Builds);
const GRAPHILE: [Cell; 2] = both_modes(Queue::Other(Other::Graphile, Tuning::Stock));
const GRAPHILE_TUNED: [Cell; 2] = both_modes(Queue::Other(Other::Graphile, Tuning::Tuned));
const PG_BOSS: [Cell; 2] = both_modes(Queue::Other(Other::PgBoss, Tuning::Stock));
const PG_BOSS_TUNED: [Cell; 2] = both_modes(Queue::Other(Other::PgBoss, Tuning::Tuned));

/// Cells in the order in which a round measures them.
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
