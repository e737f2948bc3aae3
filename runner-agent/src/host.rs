//! What only the host knows: its clocks, its processes, its disk.
use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicI64, Ordering},
    time::SystemTime,
};

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// Milliseconds by which the server's clock is ahead of ours.
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// The host's clock, for the journal and for people, as exact as it is written.
pub fn now() -> DateTime<Utc> {
    DateTime::<Utc>::from(SystemTime::now()).trunc_subsecs(6)
}

/// The server's clock as far as we know it, for what the server compares.
pub fn server_now() -> DateTime<Utc> {
    now() + TimeDelta::milliseconds(AHEAD_MS.load(Ordering::Relaxed))
}

/// The server said what time it is.
pub fn server_said(time: DateTime<Utc>) {
    AHEAD_MS.store((time - now()).num_milliseconds(), Ordering::Relaxed);
}

/// Milliseconds since the host started. Nobody can set this clock, and it counts sleep.
pub fn uptime_ms() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let (whole, part) =
        text.split(' ').next().and_then(|s| s.split_once('.')).unwrap_or(("0", "0"));
    let hundredths: u64 = part.parse().unwrap_or(0);
    whole.parse::<u64>().unwrap_or(0) * 1_000 + hundredths * 10
}

/// Changes whenever the host starts.
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().into()
}

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Clock ticks from the host's start to its own.
    pub start_time: u64,
    /// The host's life that it belongs to.
    pub boot_id: String,
}

impl Process {
    /// A process that runs now.
    pub fn of(pid: u32) -> io::Result<Self> {
        let (_, start_time) = stat(pid)?;
        Ok(Process { pid, start_time, boot_id: boot_id() })
    }

    /// Whether it still runs: a zombie does not.
    pub fn lives(&self) -> bool {
        self.boot_id == boot_id()
            && stat(self.pid)
                .is_ok_and(|(state, start)| start == self.start_time && !"ZX".contains(state))
    }
}

/// State and start time of a process.
fn stat(pid: u32) -> io::Result<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may hold spaces and brackets: everything that counts is after the last one.
    let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let state = fields.next().and_then(|state| state.chars().next());
    let start = fields.nth(18).and_then(|start| start.parse().ok());
    state.zip(start).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not understood")))
}

/// Bytes that are free where this path is.
pub fn disk_free(path: &Path) -> u64 {
    let free = nix::sys::statvfs::statvfs(path);
    free.map_or(0, |disk| disk.blocks_available().saturating_mul(disk.fragment_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let me = Process::of(std::process::id()).unwrap();
        assert!(me.lives());
        assert!(!Process { start_time: me.start_time + 1, ..me.clone() }.lives());
        assert!(!Process { boot_id: "another life".into(), ..me }.lives());
    }

    #[test]
    fn a_zombie_does_not_live() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.lives());
        child.kill().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!process.lives());
        child.wait().unwrap();
    }

    #[test]
    fn the_uptime_goes_on() {
        assert!(uptime_ms() > 0);
        assert!(!boot_id().is_empty());
    }
}
