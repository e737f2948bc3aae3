//! Measured cells and their ratios.
use measure::Ratio;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    CopyChunks,
    Stead,
    CopyRows,
}

impl Cell {
    /// Cells in the order in which a round measures them.
    pub const ALL: [Cell; 3] = [Cell::CopyChunks, Cell::Stead, Cell::CopyRows];
}

impl measure::Cell for Cell {
    fn name(self) -> String {
        match self {
            Cell::CopyChunks => "COPY of 64 KiB chunks, lz4, 128 a commit".into(),
            Cell::Stead => "Stead, 64 runners over HTTP, 64 KiB chunks (times: of a chunk)".into(),
            Cell::CopyRows => "COPY of lines, a row each, 10,000 a commit".into(),
        }
    }
}

/// All cells write the same lines, so ratios of bytes equal ratios of lines.
pub const RATIOS: &[Ratio<Cell>] = {
    use Cell::*;
    &[
        Ratio::of_speed("Stead ÷ COPY of lz4 chunks", Stead, CopyChunks, "≥ 0.5"),
        Ratio::of_speed("Stead ÷ COPY of rows, lines/s", Stead, CopyRows, "stretch ≥ 1"),
    ]
};
