//! The customer's switch: a file, so that it works with no server and no agent.
use std::{io, path::PathBuf};

use chrono::{DateTime, Utc};
use schemas::moment;
use serde::{Deserialize, Serialize};

use crate::{
    data::{self, Data},
    host,
    journal::{Fact, Journal},
};

/// What the file says while the runner is off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Off {
    /// Since when.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    /// Why, for the vendor to read.
    pub reason: String,
    /// Also stop what runs.
    #[serde(default)]
    pub stop_jobs: bool,
}

fn path(data: &Data) -> PathBuf {
    data.path("disabled")
}

/// Whether it is off. A file that cannot be read means off: nobody makes one by accident.
pub fn off(data: &Data) -> Option<Off> {
    match data::read_json(&path(data)) {
        Ok(off) => off,
        Err(_) => {
            let reason = "the switch file cannot be read".into();
            Some(Off { at: host::now(), reason, stop_jobs: false })
        }
    }
}

/// Off: nothing new is taken from now on.
pub fn disable(data: &Data, reason: &str, stop_jobs: bool) -> io::Result<()> {
    data::replace_json(&path(data), &Off { at: host::now(), reason: reason.into(), stop_jobs })?;
    Journal::open(data)?.write(Fact::Disabled { reason: reason.into() })
}

/// On.
pub fn enable(data: &Data) -> io::Result<()> {
    data::remove(&path(data))?;
    Journal::open(data)?.write(Fact::Enabled {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_read_live_and_doubt_means_off() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        assert_eq!(off(&data), None);
        disable(&data, "audit", false).unwrap();
        assert_eq!(off(&data).unwrap().reason, "audit");
        std::fs::write(path(&data), "yes").unwrap();
        assert!(off(&data).is_some());
        enable(&data).unwrap();
        assert_eq!(off(&data), None);
    }
}
