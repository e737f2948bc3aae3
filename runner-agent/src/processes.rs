//! Finds, signals and reaps descendants of this process, even after `setsid` and a double fork.
//!
//! A process that calls [`adopt_orphans`] becomes the parent of every descendant whose own parent
//! ends. So no descendant can leave the tree below that process. [`spawn`] records the children
//! that Tokio waits for. [`reap`] reaps all others.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, PipeWriter},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::Pid,
};
use rustix::io::{FdFlags, fcntl_setfd};
use tokio::process::{Child, Command};

use crate::host::{Process, Stat, read_boot_id};

/// Start times of the children that Tokio waits for, by pid; absent where `/proc` hides the child.
static OWN_CHILDREN: Mutex<BTreeMap<u32, Option<u64>>> = Mutex::new(BTreeMap::new());
/// Environment variable that marks the customer's hooks. Processes that a hook leaves behind belong
/// to the customer.
pub(crate) const HOOK_VARIABLE: &str = "STEAD_HOOK";

fn own_children() -> MutexGuard<'static, BTreeMap<u32, Option<u64>>> {
    OWN_CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Becomes the parent of every descendant whose own parent ends.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Starts a child and records it: [`reap`] must not reap the child, and [`adopted`] must not return
/// it.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    spawn_with(command, None)
}

/// Starts a child that inherits this file at the same number, as [`spawn`] does.
pub(crate) fn spawn_with(command: &mut Command, passed: Option<&PipeWriter>) -> io::Result<Child> {
    // Hold the lock during the start: otherwise [`reap`] could reap a child that ends immediately,
    // and another child could inherit the file.
    let mut own = own_children();
    if let Some(file) = passed {
        fcntl_setfd(file, FdFlags::empty())?;
    }
    let started = command.spawn();
    if let Some(file) = passed {
        fcntl_setfd(file, FdFlags::CLOEXEC)?;
    }
    let child = started?;
    let start_time = |pid: u32| Stat::of(pid).ok().map(|stat| stat.start_time);
    own.retain(|pid, started| exists(*pid) && start_time(*pid) == *started);
    if let Some(pid) = child.id() {
        own.insert(pid, start_time(pid));
    }
    Ok(child)
}

/// Returns whether a process has this pid. A process that has ended keeps its pid until it is
/// reaped.
pub(crate) fn exists(pid: u32) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH))
}

/// Reaps adopted processes that have ended. Does not wait for running processes.
pub(crate) fn reap() {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    while let Ok(ended) = waitid(Id::All, flags | WaitPidFlag::WNOWAIT) {
        let (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) = ended else { return };
        let own = own_children();
        if own.contains_key(&pid.as_raw().unsigned_abs()) {
            // Tokio waits for this child. A later call reaps the other processes.
            return;
        }
        let _reaped = waitpid(pid, Some(WaitPidFlag::WNOHANG));
    }
}

/// Returns the running descendants of this process.
pub(crate) fn descendants() -> io::Result<Vec<RunningProcess>> {
    RunningProcess::below(&BTreeSet::from([std::process::id()]), &Stat::all()?)
}

/// Returns adopted children of this process and their descendants: processes whose parents have
/// ended. Omits the children that this process started itself, and processes of the customer's
/// hooks.
pub(crate) fn adopted() -> io::Result<Vec<RunningProcess>> {
    if !nix::sys::prctl::get_child_subreaper()? {
        return Ok(Vec::new());
    }
    let own = own_children();
    let all = Stat::all()?;
    let own_pid = std::process::id();
    let orphans = all.iter().filter(|stat| stat.parent == own_pid && !own.contains_key(&stat.pid));
    let orphans: BTreeSet<u32> = orphans
        .filter(|stat| !has_variable(stat.pid, HOOK_VARIABLE, None))
        .map(|stat| stat.pid)
        .collect();
    RunningProcess::with_descendants(&orphans, &all)
}

/// Returns processes whose environment names this execution, and their descendants.
pub(crate) fn of_execution(execution: &str) -> io::Result<Vec<RunningProcess>> {
    let all = Stat::all()?;
    let own_pid = std::process::id();
    let has = |stat: &&Stat| {
        stat.pid != own_pid && has_variable(stat.pid, "STEAD_EXECUTION", Some(execution))
    };
    let marked = all.iter().filter(has).map(|stat| stat.pid).collect();
    RunningProcess::with_descendants(&marked, &all)
}

/// Returns processes of the session that this process led, and their descendants.
pub(crate) fn of_session(leader: &Process) -> io::Result<Vec<RunningProcess>> {
    if leader.boot_id != read_boot_id()? {
        return Ok(Vec::new());
    }
    let all = Stat::all()?;
    RunningProcess::with_descendants(&leader.session_members(&all), &all)
}

/// Returns the resident memory of these processes together. Shared pages count for each.
pub(crate) fn resident_bytes(of: &[RunningProcess]) -> u64 {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|page| u64::try_from(page).ok()).unwrap_or(4096);
    let pages = |process: &RunningProcess| {
        let text = fs::read_to_string(format!("/proc/{}/statm", process.pid())).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()
    };
    of.iter().filter_map(pages).sum::<u64>() * page
}

/// Returns the pid of a process in its own pid namespace, if that is inside this one.
pub(crate) fn inner_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().skip(1).last()?.parse().ok()
}

/// Returns the running processes with these pids, and their descendants.
pub(crate) fn among(pids: &BTreeSet<u32>) -> io::Result<Vec<RunningProcess>> {
    if pids.is_empty() {
        return Ok(Vec::new());
    }
    RunningProcess::with_descendants(pids, &Stat::all()?)
}

/// Returns the running members of this process group.
pub(crate) fn of_group(group: u32) -> io::Result<Vec<Process>> {
    let boot_id = read_boot_id()?;
    let all = Stat::all()?;
    let members = all.iter().filter(|stat| stat.group == group);
    Ok(members.filter_map(|stat| Some(RunningProcess::of(stat, &boot_id)?.process)).collect())
}

/// Returns whether a process has this variable. Another user's environment cannot be read, so its
/// variables count as absent.
fn has_variable(pid: u32, name: &str, value: Option<&str>) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| {
        let Ok(variable) = std::str::from_utf8(variable) else { return false };
        variable.split_once('=').is_some_and(|(found, actual)| {
            found == name && value.is_none_or(|expected| expected == actual)
        })
    })
}

/// Process that `/proc` listed as running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningProcess {
    process: Process,
    parent: u32,
    group: u32,
    name: String,
    threads: u32,
}

/// Returns the processes whose parent is not among them. These are stopped first: a program such as
/// Terraform stops its own children in the right order.
pub(crate) fn topmost(found: &[RunningProcess]) -> impl Iterator<Item = &RunningProcess> {
    let all: BTreeSet<u32> = found.iter().map(RunningProcess::pid).collect();
    found.iter().filter(move |process| !all.contains(&process.parent))
}

impl RunningProcess {
    fn below(roots: &BTreeSet<u32>, all: &[Stat]) -> io::Result<Vec<RunningProcess>> {
        let mut within = roots.clone();
        loop {
            let before = within.len();
            let children = all.iter().filter(|stat| within.contains(&stat.parent));
            within.extend(children.map(|stat| stat.pid).collect::<Vec<_>>());
            if within.len() == before {
                break;
            }
        }
        let below = |stat: &&Stat| within.contains(&stat.pid) && !roots.contains(&stat.pid);
        let boot_id = read_boot_id()?;
        let found = all.iter().filter(below).filter_map(|stat| RunningProcess::of(stat, &boot_id));
        Ok(found.collect())
    }

    fn with_descendants(roots: &BTreeSet<u32>, all: &[Stat]) -> io::Result<Vec<RunningProcess>> {
        let mut found = RunningProcess::below(roots, all)?;
        let boot_id = read_boot_id()?;
        let root_processes = all.iter().filter(|stat| roots.contains(&stat.pid));
        found.extend(root_processes.filter_map(|stat| RunningProcess::of(stat, &boot_id)));
        Ok(found)
    }

    fn of(stat: &Stat, boot_id: &str) -> Option<RunningProcess> {
        stat.runs.then(|| RunningProcess {
            process: Process {
                pid: stat.pid,
                start_time: stat.start_time,
                boot_id: boot_id.into(),
            },
            parent: stat.parent,
            group: stat.group,
            name: stat.name.clone(),
            threads: stat.threads,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid
    }

    pub(crate) fn group(&self) -> u32 {
        self.group
    }

    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }

    /// Sends a signal, unless the process has ended or its pid now belongs to another process.
    pub(crate) fn signal(&self, signal: Signal) {
        if let (Ok(true), Ok(pid @ 2..)) =
            (self.process.is_alive(), i32::try_from(self.process.pid))
        {
            // The process may end between the check and the signal.
            let _gone = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Returns name and pid for a report. A program chooses its own name, so characters other than
    /// ASCII letters, digits and `._+-` are replaced.
    pub(crate) fn label(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
        let name = self.name.chars().map(|c| if plain(c) { c } else { '_' });
        format!("{} (pid {})", name.collect::<String>(), self.process.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u32, parent: u32) -> Stat {
        let state = if pid == 13 { "Z" } else { "S" };
        let text = format!("{pid} (a b) {state} {parent} 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 7 0");
        Stat::read(pid, &text).unwrap()
    }

    #[test]
    fn descendants_are_found_at_any_depth_in_any_order_without_zombies() {
        let all =
            [stat(14, 12), stat(12, 11), stat(11, 10), stat(13, 10), stat(10, 1), stat(20, 1)];
        let pids =
            |found: Vec<RunningProcess>| found.iter().map(RunningProcess::pid).collect::<Vec<_>>();
        assert_eq!(pids(RunningProcess::below(&[10].into(), &all).unwrap()), [14, 12, 11]);
        assert_eq!(
            pids(RunningProcess::with_descendants(&[11].into(), &all).unwrap()),
            [14, 12, 11]
        );
    }

    #[test]
    fn the_topmost_processes_are_those_without_a_parent_among_them() {
        let all = [stat(14, 12), stat(12, 11), stat(11, 10), stat(15, 10), stat(10, 1)];
        let found = RunningProcess::below(&[10].into(), &all).unwrap();
        assert_eq!(topmost(&found).map(RunningProcess::pid).collect::<Vec<_>>(), [11, 15]);
    }

    #[test]
    fn a_label_contains_no_control_characters() {
        let found = RunningProcess {
            name: "a\x1b]0;b c".into(),
            ..RunningProcess::of(&stat(11, 10), "b").unwrap()
        };
        assert_eq!(found.label(), "a__0_b_c (pid 11)");
    }

    #[tokio::test]
    async fn reap_leaves_own_children_to_tokio() {
        let mut child = spawn(Command::new("true").env_clear()).unwrap();
        for _ in 0..50 {
            reap();
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(child.wait().await.unwrap().success());
    }
}
