//! CPU time of this process, of servers and of the database, as the kernel counts it.
use std::fs;

/// CPU time in µs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// This process and its finished child processes, without the database.
    pub client: f64,
    /// Servers in separate processes.
    pub server: f64,
    /// The postmaster and all its child processes, including finished ones.
    pub database: f64,
}

impl Used {
    /// Returns the CPU time per unit, given the number of units.
    pub fn each(self, number: usize) -> Used {
        let of = |used: f64| used / number as f64;
        Used { client: of(self.client), server: of(self.server), database: of(self.database) }
    }
}

/// Counters at the start of a measurement.
pub struct Meter {
    postmaster: u32,
    servers: Vec<u32>,
    before: Used,
}

impl Meter {
    /// Starts a measurement of this process, a postmaster and these servers.
    pub fn start(postmaster: u32, servers: &[u32]) -> Meter {
        Meter { postmaster, servers: servers.to_vec(), before: now(postmaster, servers) }
    }

    /// CPU time since the start.
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

/// Parent of a process, and CPU time of the process and its finished children: fields 4 and 14 to
/// 17 of proc(5).
fn stat(process: u32) -> Option<(u32, f64)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The process name in parentheses may contain any character.
    let fields: Vec<_> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: f64 = fields.get(11..15)?.iter().filter_map(|field| field.parse::<f64>().ok()).sum();
    // USER_HZ is 100 on every Linux that Rust runs on.
    Some((fields.get(1)?.parse().ok()?, ticks * 10_000.0))
}
