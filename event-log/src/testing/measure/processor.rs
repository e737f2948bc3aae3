//! Processor time of whoever asks, of servers and of the database, from the kernel's own counts.
use std::fs;

/// Processor time, µs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// This process and the programs it started and that have ended, but for the database.
    pub client: f64,
    /// Servers that are processes of their own.
    pub server: f64,
    /// The postmaster and all its children, those that have ended too.
    pub database: f64,
}

impl Used {
    /// The share of one of so many.
    pub fn each(self, number: usize) -> Used {
        let of = |used: f64| used / number as f64;
        Used { client: of(self.client), server: of(self.server), database: of(self.database) }
    }
}

/// Counts so far.
pub struct Meter {
    postmaster: u32,
    servers: Vec<u32>,
    before: Used,
}

impl Meter {
    /// Count from now on: this process, that postmaster, and these servers.
    pub fn start(postmaster: u32, servers: &[u32]) -> Meter {
        Meter { postmaster, servers: servers.to_vec(), before: now(postmaster, servers) }
    }

    /// What was used since.
    pub fn stop(&self) -> Used {
        let now = now(self.postmaster, &self.servers);
        Used {
            client: now.client - self.before.client,
            server: now.server - self.before.server,
            database: now.database - self.before.database,
        }
    }
}

fn now(postmaster: u32, servers: &[u32]) -> Used {
    let children = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let (parent, used) = stat(process)?;
        (parent == postmaster).then_some(used)
    });
    let of = |process: u32| stat(process).map_or(0.0, |(_, used)| used);
    Used {
        client: of(std::process::id()),
        server: servers.iter().map(|server| of(*server)).sum(),
        database: children.sum::<f64>() + of(postmaster),
    }
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
