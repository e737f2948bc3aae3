//! Disk budgets for artifacts and for files of ended executions.
use std::io;

use oci_layout::Layout;
use serde::{Deserialize, Serialize};

use crate::{
    data::{self, Data},
    journal,
};

const FILE: &str = "budgets.json";

/// Budgets of a data directory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// Budget of pulled artifacts. The two most recently used versions of each component and the
    /// artifacts of open jobs always stay.
    pub artifacts: u64,
    /// Budget of the files of ended executions. The files of open jobs and of unresolved applies
    /// always stay.
    pub jobs: u64,
}

impl Default for Budgets {
    fn default() -> Self {
        Budgets { artifacts: 4 << 30, jobs: 1 << 30 }
    }
}

impl Budgets {
    /// Records the budgets of the running agent, which `status` shows.
    pub fn record(&self, data: &Data) -> io::Result<()> {
        data::replace_json(&data.path(FILE), self)
    }

    /// Returns the budgets of the agent that started last.
    pub fn recorded(data: &Data) -> io::Result<Option<Self>> {
        data::read_json(&data.path(FILE))
    }
}

/// Disk use of a runner, with sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Pulled artifacts, including corrupt and incomplete ones.
    pub artifacts: u64,
    /// Files of executions.
    pub jobs: u64,
    /// All files of the journal. They are never removed.
    pub journal: u64,
    pub journal_files: usize,
}

impl Usage {
    /// Measures the disk use of a data directory.
    pub fn of(data: &Data) -> anyhow::Result<Self> {
        let files = journal::files(data)?;
        let length = |path: &std::path::PathBuf| Ok(std::fs::metadata(path)?.len());
        let journal = files.iter().map(length).sum::<io::Result<u64>>()?;
        let artifacts = Layout::new(data.path("artifacts")).size()?;
        let jobs = data::size(&data.path("jobs"))?;
        Ok(Usage { artifacts, jobs, journal, journal_files: files.len() })
    }
}
