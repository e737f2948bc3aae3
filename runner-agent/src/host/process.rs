//! Processes of the host, and their groups and sessions.
use std::{collections::BTreeSet, io};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{Stat, read_boot_id};

/// Identity of a process, which distinguishes it from a later process with the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id, which the kernel can reuse after the process has ended.
    pub pid: u32,
    /// Start of the process, in clock ticks since the host started.
    pub start_time: u64,
    /// Boot id at the start of the process.
    pub boot_id: String,
}

impl Process {
    /// Returns the identity of the process that has this pid now.
    pub fn of(pid: u32) -> io::Result<Self> {
        let start_time = Stat::of(pid)?.start_time;
        Ok(Process { pid, start_time, boot_id: read_boot_id()? })
    }

    /// Returns whether the process still runs. The process has ended if it is a zombie, its pid is
    /// free, the pid has another start time, or the host was rebooted. After an error, it is
    /// unknown whether the process runs.
    pub fn is_alive(&self) -> io::Result<bool> {
        if self.boot_id != read_boot_id()? {
            return Ok(false);
        }
        let pid = Pid::from_raw(i32::try_from(self.pid).map_err(io::Error::other)?);
        match kill(pid, None) {
            Err(Errno::ESRCH) => return Ok(false),
            // `EPERM`: the process belongs to another user.
            Ok(()) | Err(Errno::EPERM) => {}
            Err(error) => return Err(error.into()),
        }
        match Stat::of(self.pid) {
            Ok(stat) => Ok(stat.runs && stat.start_time == self.start_time),
            // The process may have ended meanwhile. If so, its pid is free.
            Err(error) => match kill(pid, None) {
                Err(Errno::ESRCH) => Ok(false),
                Ok(()) | Err(_) => Err(error),
            },
        }
    }

    /// Returns the result of [`Self::is_alive`], or true after an error.
    pub fn may_be_alive(&self) -> bool {
        self.is_alive().unwrap_or_else(|error| {
            warn!(process.id = self.pid, %error, "Cannot determine whether a process runs, assuming that it does");
            true
        })
    }

    /// Sends a signal, if the process still runs.
    pub fn signal(&self, signal: Signal) {
        if let (Ok(true), Ok(pid @ 2..)) = (self.is_alive(), i32::try_from(self.pid)) {
            // The process may end between the check and the signal.
            let _gone = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Returns whether a process runs in the session that this process leads or led.
    pub fn session_lives(&self) -> io::Result<bool> {
        Ok(self.boot_id == read_boot_id()? && has_session(self, &Stat::all()?))
    }

    /// Returns whether this process or a member of its process group runs. Counts only members in
    /// the session of `shim`.
    pub fn group_lives(&self, shim: Option<&Process>) -> io::Result<bool> {
        if self.is_alive()? {
            return Ok(true);
        }
        let Some(shim) = shim else { return Ok(false) };
        if self.boot_id != read_boot_id()? {
            return Ok(false);
        }
        Ok(has_members(self, shim, &Stat::all()?))
    }

    /// Returns the other members of the session that this process led. The kernel reuses the id of
    /// a session only after its last member ended. If another process has the id, no member is
    /// left.
    pub(crate) fn session_members(&self, all: &[Stat]) -> BTreeSet<u32> {
        let is_its = |stat: &&Stat| {
            let begun_by_it = stat.start_time >= self.start_time;
            stat.session == self.pid && stat.pid != self.pid && begun_by_it
        };
        let is_anothers =
            all.iter().any(|stat| stat.pid == self.pid && stat.start_time != self.start_time);
        let members = all.iter().filter(is_its).filter(|_| !is_anothers);
        members.map(|stat| stat.pid).collect()
    }
}

/// Returns whether one of these processes is in the group of `leader` and in the session of `shim`.
/// The kernel reuses the id of a group or session only after its last member ended. If another
/// process has one of the ids, as after a restart of the container, no member is left.
fn has_members(leader: &Process, shim: &Process, all: &[Stat]) -> bool {
    let is_anothers = |of: &Process| {
        all.iter().any(|stat| stat.pid == of.pid && stat.start_time != of.start_time)
    };
    let is_member = |stat: &Stat| {
        let begun_by_it = stat.start_time >= leader.start_time;
        stat.runs && stat.group == leader.pid && stat.session == shim.pid && begun_by_it
    };
    !is_anothers(leader) && !is_anothers(shim) && all.iter().any(is_member)
}

/// Returns whether one of these processes runs in the session of `leader`. Handles reused ids as
/// [`has_members`] does.
fn has_session(leader: &Process, all: &[Stat]) -> bool {
    let is_anothers =
        all.iter().any(|stat| stat.pid == leader.pid && stat.start_time != leader.start_time);
    let is_member = |stat: &Stat| {
        stat.runs && stat.session == leader.pid && stat.start_time >= leader.start_time
    };
    !is_anothers && all.iter().any(is_member)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let me = Process::of(std::process::id()).unwrap();
        assert!(me.is_alive().unwrap());
        assert!(!Process { start_time: me.start_time + 1, ..me.clone() }.is_alive().unwrap());
        assert!(!Process { boot_id: "another life".into(), ..me }.is_alive().unwrap());
    }

    #[test]
    fn a_process_that_cannot_be_looked_at_is_not_called_dead() {
        // given a running shim, and an agent without a file descriptor to read /proc
        let me = Process::of(std::process::id()).unwrap();
        let mut open = Vec::new();
        let failed = loop {
            match fs::File::open("/dev/null") {
                Ok(file) => open.push(file),
                Err(error) => break error,
            }
            assert!(open.len() < 1 << 20, "no limit on open files");
        };
        // then the state of the shim is unknown
        let errors = (failed.raw_os_error(), me.is_alive().map_err(|error| error.raw_os_error()));
        let may_be_alive = me.may_be_alive();
        drop(open);
        assert_eq!(errors, (Some(Errno::EMFILE as i32), Err(Some(Errno::EMFILE as i32))));
        assert!(may_be_alive && me.is_alive().unwrap());
    }

    #[test]
    fn a_zombie_does_not_live() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.is_alive().unwrap());
        child.kill().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!process.is_alive().unwrap());
        child.wait().unwrap();
    }

    #[test]
    fn a_group_lives_as_long_as_anyone_in_it() {
        use std::os::unix::process::CommandExt as _;
        let mut leader = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & read _"])
            .stdin(std::process::Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let process = Process::of(leader.id()).unwrap();
        let session = nix::unistd::getsid(None).unwrap().as_raw().unsigned_abs();
        // The leader of this session may be invisible, especially in a container.
        let shim = Process::of(session).unwrap_or(Process { pid: session, ..process.clone() });
        let other = Process { pid: session + 1, ..shim.clone() };
        std::thread::sleep(std::time::Duration::from_millis(200));
        leader.kill().unwrap();
        leader.wait().unwrap();
        assert!(!process.is_alive().unwrap() && process.group_lives(Some(&shim)).unwrap());
        assert!(
            !process.group_lives(Some(&other)).unwrap(),
            "a group of another session is not ours"
        );
        let group = nix::unistd::Pid::from_raw(i32::try_from(process.pid).unwrap());
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!process.group_lives(Some(&shim)).unwrap());
    }

    #[test]
    fn a_session_lives_as_long_as_any_process_in_it() {
        let mut leader = std::process::Command::new("setsid")
            .args(["sh", "-c", "sleep 60 & echo started; read _"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut started = [0];
        io::Read::read_exact(leader.stdout.as_mut().unwrap(), &mut started).unwrap();
        let process = Process::of(leader.id()).unwrap();
        leader.kill().unwrap();
        leader.wait().unwrap();
        assert!(!process.is_alive().unwrap() && process.session_lives().unwrap());
        let later = Process { start_time: process.start_time + 100, ..process.clone() };
        assert!(!later.session_lives().unwrap(), "these processes began before it");
        let group = nix::unistd::Pid::from_raw(i32::try_from(process.pid).unwrap());
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while process.session_lives().unwrap() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!process.session_lives().unwrap());
    }

    #[test]
    fn numbers_that_come_again_in_the_same_life_of_the_host_are_not_believed() {
        // given child 25 of shim 20, in a container that ended
        let process = |pid, start_time| Process { pid, start_time, boot_id: "b".into() };
        let (shim, child) = (process(20, 1_000), process(25, 1_010));
        let stat = |pid, group, session, start_time| {
            let name = "odd) name";
            let text = format!(
                "{pid} ({name}) S 1 {group} {session} 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 {start_time} 0"
            );
            Stat::read(pid, &text).unwrap()
        };
        let lives = |all: &[Stat]| has_members(&child, &shim, all);
        // then a process that the child started is in the child's group
        let orphan = || stat(31, 25, 20, 1_020);
        assert!(lives(&[orphan()]));
        assert!(lives(&[stat(20, 20, 20, 1_000), orphan()]));
        // but not if another process has the pid of the child or of the shim
        assert!(!lives(&[stat(25, 25, 20, 5_010), stat(31, 25, 20, 5_020)]));
        assert!(!lives(&[stat(20, 20, 20, 5_000), stat(31, 25, 20, 5_020)]));
        // and the session of the shim follows the same rule
        let members = |all: &[Stat]| shim.session_members(all).into_iter().collect::<Vec<_>>();
        assert_eq!(members(&[stat(20, 20, 20, 1_000), stat(31, 31, 20, 1_020)]), [31]);
        assert_eq!(members(&[stat(31, 31, 20, 1_020), stat(32, 25, 21, 1_020)]), [31]);
        assert!(members(&[stat(20, 20, 20, 5_000), stat(31, 25, 20, 5_020)]).is_empty());
        assert!(members(&[stat(31, 25, 20, 999)]).is_empty());
        // but not a process that is older than the child, in another group or in another session
        assert!(!lives(&[stat(31, 25, 20, 1_009)]));
        assert!(!lives(&[stat(31, 26, 20, 1_020), stat(32, 25, 21, 1_020)]));
    }

    #[test]
    fn a_process_that_keeps_to_itself_can_still_be_told_from_others() {
        crate::host::make_undumpable();
        assert!(!nix::sys::prctl::get_dumpable().unwrap());
        assert!(Process::of(std::process::id()).unwrap().is_alive().unwrap());
        assert!(fs::read_link("/proc/self/exe").is_ok());
    }
}
