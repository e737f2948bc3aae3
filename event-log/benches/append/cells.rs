//! The measured cases and the ratios between them.
use measure::Ratio;

/// A measured system, with its number of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Insert(usize),
    Stead(usize),
    PostgresEs(usize),
    MessageDb(usize),
    Emmett(usize),
    CopyIn,
    CopyOut,
}

impl Cell {
    /// Returns true if the system needs packages from npm.
    pub fn is_of_npm(self) -> bool {
        matches!(self, Cell::MessageDb(_) | Cell::Emmett(_))
    }
}

impl measure::Cell for Cell {
    fn name(self) -> String {
        match self {
            Cell::Insert(n) => {
                format!("single-row INSERT, 2 indexes (pgbench), {n} connections")
            }
            Cell::Stead(n) => format!("Stead append, all features, 5 % conflicts, {n} callers"),
            Cell::PostgresEs(n) => format!("postgres-es 0.5 execute, no conflicts, {n} callers"),
            Cell::MessageDb(n) => {
                format!("message-db 1.3 write_message (pgbench), no conflicts, {n} connections")
            }
            Cell::Emmett(n) => {
                format!("emmett-postgresql 0.42 appendToStream, no conflicts, {n} callers")
            }
            Cell::CopyIn => "COPY in, 10,000 rows per commit, 2 indexes".into(),
            Cell::CopyOut => "COPY out, binary, Stead's log".into(),
        }
    }
}

/// The cases, in the order in which they run.
#[rustfmt::skip]
pub const CELLS: [Cell; 13] = {
    use Cell::*;
    [
        Insert(1), Stead(1), MessageDb(1), Insert(16), Stead(16), Insert(64), Stead(64), MessageDb(64), Emmett(64),
        PostgresEs(64), Stead(256), CopyIn, CopyOut,
    ]
};

#[rustfmt::skip]
pub const RATIOS: &[Ratio<Cell>] = {
    use Cell::*;
    &[
        Ratio::of_speed("64 callers ÷ postgres-es at 64", Stead(64), PostgresEs(64), "≥ 4, stretch 8"),
        Ratio::of_speed("64 callers ÷ message-db at 64", Stead(64), MessageDb(64), ""),
        Ratio::of_speed("64 callers ÷ emmett-postgresql at 64", Stead(64), Emmett(64), ""),
        Ratio::of_speed("256 callers ÷ INSERT at 16", Stead(256), Insert(16), "≥ 2, stretch 4"),
        Ratio::of_speed("64 callers ÷ INSERT at 64", Stead(64), Insert(64), ""),
        Ratio::of_speed("16 callers ÷ INSERT at 16", Stead(16), Insert(16), ""),
        Ratio::of_speed("256 callers ÷ COPY in", Stead(256), CopyIn, ""),
        Ratio::of_latency("1 caller, p50 ÷ bare one-row commit", Stead(1), Insert(1), "≤ 1.5, stretch 1.2"),
        Ratio::of_latency("1 caller, p50 ÷ message-db at 1", Stead(1), MessageDb(1), ""),
    ]
};
