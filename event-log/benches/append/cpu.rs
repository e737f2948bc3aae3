//! Processor time of whoever asks and of the database, from the kernel's own counts.
use std::{fs, path::Path};

/// Processor time, µs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// This process and the programs it started, but for the database.
    pub client: f64,
    /// The postmaster and all its children, those that have ended too.
    pub database: f64,
}

/// Counts so far.
pub struct Meter {
    postmaster: u32,
    before: Used,
}

impl Meter {
    pub fn start(cluster: &Path) -> Meter {
        let lock = fs::read_to_string(cluster.join("data/postmaster.pid")).unwrap();
        let postmaster = lock.lines().next().unwrap().parse().unwrap();
        Meter { postmaster, before: now(postmaster) }
    }

    pub fn stop(&self) -> Used {
        let now = now(self.postmaster);
        Used {
            client: now.client - self.before.client,
            database: now.database - self.before.database,
        }
    }
}

fn now(postmaster: u32) -> Used {
    let children = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let (parent, used) = stat(process)?;
        (parent == postmaster).then_some(used)
    });
    let database = children.sum::<f64>() + stat(postmaster).map_or(0.0, |(_, used)| used);
    Used { client: stat(std::process::id()).map_or(0.0, |(_, used)| used), database }
}

/// Its parent, and what it and its children that have ended used: fields 4 and 14 to 17 of proc(5).
fn stat(process: u32) -> Option<(u32, f64)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name, in parentheses, may hold anything.
    let fields: Vec<_> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: f64 = fields.get(11..15)?.iter().filter_map(|field| field.parse::<f64>().ok()).sum();
    // USER_HZ is 100 on every Linux that Rust runs on.
    Some((fields.get(1)?.parse().ok()?, ticks * 10_000.0))
}
