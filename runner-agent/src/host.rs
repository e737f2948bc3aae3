//! Clocks, processes and disk of the host.
mod clock;
mod process;
mod stat;

use std::{fs, path::Path};

pub use self::{
    clock::{boot_id, now, server_now, set_server_time, uptime_ms},
    process::Process,
};
pub(crate) use self::{
    clock::{read_boot_id, system_time},
    stat::Stat,
};

/// Keeps other processes of the same user from reading the memory and environment of this process,
/// and crashes from writing them to disk.
pub fn make_undumpable() {
    // Every supported Linux kernel has this call.
    let _always = nix::sys::prctl::set_dumpable(false);
}

/// Returns whether `/proc` is mounted with `hidepid`, so that only root sees a process that is not
/// dumpable. Dumpable processes of the same user stay visible.
pub fn hides_undumpable_processes() -> bool {
    hides(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// Returns true if the visible mount of `/proc` has `hidepid`. The last mount on a path is the
/// visible one.
fn hides(mounts: &str) -> bool {
    let of_proc = mounts.lines().rev().find_map(|line| {
        let (place, source) = line.split_once(" - ")?;
        (place.split(' ').nth(4) == Some("/proc")).then_some(source)
    });
    let options = of_proc.and_then(|source| source.rsplit(' ').next()).unwrap_or_default();
    let how = options.split(',').find_map(|option| option.strip_prefix("hidepid="));
    how.is_some_and(|how| !matches!(how, "0" | "off"))
}

/// Returns the free bytes on the file system of this path, or 0 if they are unknown.
pub fn disk_free(path: &Path) -> u64 {
    let free = nix::sys::statvfs::statvfs(path);
    free.map_or(0, |disk| disk.blocks_available().saturating_mul(disk.fragment_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_that_hides_processes_is_known_by_its_last_mount() {
        let mount = |at: &str, options: &str| {
            format!("22 28 0:21 / {at} rw,nosuid shared:12 - proc proc rw{options}\n")
        };
        for (options, hidden) in [
            ("", false),
            (",hidepid=0", false),
            (",hidepid=off", false),
            (",gid=7,hidepid=1", true),
            (",hidepid=2", true),
            (",hidepid=invisible", true),
            (",hidepid=ptraceable", true),
        ] {
            assert_eq!(hides(&mount("/proc", options)), hidden, "{options}");
        }
        assert!(!hides(&mount("/jail/proc", ",hidepid=2")) && !hides(""));
        assert!(hides(&(mount("/proc", "") + &mount("/proc", ",hidepid=2"))));
        assert!(!hides(&(mount("/proc", ",hidepid=2") + &mount("/proc", ""))));
    }
}
