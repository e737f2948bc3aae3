//! Control group of one execution. Every process of the job starts in the group, even in a new
//! session.
//!
//! The shim enters the group before it starts a process, and leaves the group before it kills the
//! members. If the shim itself is killed, the agent finds the group through the job's directory.
//! The shim uses cgroup v2 if it is writable, otherwise the freezer of cgroup v1. If neither is
//! writable, the job has no group.
//!
//! The limits of the job are in further groups ([`Limiter`]), which the shim does not enter: a job at
//! its limit must not prevent that the shim starts a thread.
mod limiter;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

pub(crate) use self::limiter::{Exceeded, Limiter};
use crate::{data, data::JobDir, ids};

/// File that freezes a group, with the values that freeze and thaw it: version 2, then version 1.
const FREEZERS: [(&str, &str, &str); 2] =
    [("cgroup.freeze", "1", "0"), ("freezer.state", "FROZEN", "THAWED")];
const PREFIX: &str = "stead-";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cgroup {
    dir: PathBuf,
    /// Groups with the limits of the job.
    limiting: BTreeSet<PathBuf>,
}

impl Cgroup {
    /// Creates the job's group below the group of this process, records its path in the job's
    /// directory, and enters it. Returns `None` if no hierarchy is writable, or if the process
    /// cannot record or enter the group.
    pub(crate) fn enter(dir: &JobDir) -> Option<Cgroup> {
        // The name is unique, because every member of the group will be killed.
        let name = format!("{}.{}", name(dir)?, ids::new_ulid());
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let group = hierarchies(&mounts, &own, "freezer")
            .into_iter()
            .find_map(|parent| Cgroup::create(&parent.dir, &name))?;
        // Record the group before entering it: a killed shim must not leave an unknown group
        // behind.
        if group.record(dir).and_then(|()| join(&group.dir)).is_err() {
            group.remove();
            let _best_effort = data::remove(&dir.cgroup());
            return None;
        }
        Some(group)
    }

    fn create(parent: &Path, name: &str) -> Option<Cgroup> {
        let group = Cgroup { dir: parent.join(name), limiting: BTreeSet::new() };
        fs::create_dir(&group.dir).ok().map(|()| group)
    }

    /// Writes the paths of the groups to the job's directory, one per line.
    fn record(&self, job: &JobDir) -> io::Result<()> {
        let lines = self.all().map(|dir| dir.as_os_str().as_encoded_bytes());
        data::replace(&job.cgroup(), &lines.collect::<Vec<_>>().join(&b'\n'))
    }

    /// Returns the groups that a job's directory records, if one of them still exists. The one with
    /// the limits can have members that the first one lost.
    pub(crate) fn of(job: &JobDir) -> Option<Cgroup> {
        let text = String::from_utf8(fs::read(job.cgroup()).ok()?).ok()?;
        // Ignore a record that names the group of another job: callers kill the members.
        let own = name(job)?;
        let is_own = |dir: &Path| {
            let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix(&own).is_some_and(|rest| rest.starts_with('.'))
        };
        let mut dirs = text.lines().map(PathBuf::from).filter(|dir| is_own(dir));
        let group = Cgroup { dir: dirs.next()?, limiting: dirs.collect() };
        let is_left = group.all().any(|dir| dir.join("cgroup.procs").exists());
        is_left.then_some(group)
    }

    /// Lets the kernel limit the programs of the job, as far as groups with the controllers are
    /// writable. Programs enter with [`Limiter::admit`].
    pub(crate) fn limit(
        &mut self,
        job: &JobDir,
        memory: Option<u64>,
        processes: Option<u32>,
    ) -> Limiter {
        let limiter = Limiter::create(&self.dir, memory, processes);
        self.limiting = limiter.dirs().map(Path::to_owned).collect();
        if self.record(job).is_err() {
            // A killed shim would leave groups behind that the agent does not know.
            self.limiting.iter().for_each(|dir| remove(dir));
            self.limiting.clear();
            return Limiter::default();
        }
        limiter
    }

    fn all(&self) -> impl Iterator<Item = &Path> {
        [self.dir.as_path()].into_iter().chain(self.limiting.iter().map(PathBuf::as_path))
    }

    /// Moves this process to the parent group.
    pub(crate) fn leave(&self) -> io::Result<()> {
        self.dir.parent().map_or(Ok(()), join)
    }

    /// Returns the pids of the processes in the group and in its subgroups.
    pub(crate) fn members(&self) -> BTreeSet<u32> {
        let mut members = BTreeSet::new();
        let mut open: Vec<_> = self.all().map(Path::to_owned).collect();
        while let Some(dir) = open.pop() {
            let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            // Skips 0, which stands for a process of another pid namespace, and 1, the init
            // process.
            let pids = text.lines().filter_map(|pid| pid.parse::<u32>().ok());
            members.extend(pids.filter(|pid| *pid > 1));
            let below = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
            open.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        members
    }

    /// Kills all members. If the kernel has no `cgroup.kill`, freezes the group first if possible,
    /// so that no member can fork.
    pub(crate) fn kill(&self) {
        let is_left =
            |dir: &&Path| fs::write(dir.join("cgroup.kill"), "1").is_err() && dir.exists();
        if self.all().filter(is_left).count() == 0 {
            return;
        }
        let freezer = FREEZERS.iter().find(|(file, ..)| self.dir.join(file).exists());
        let freeze = |value: fn(&(&str, &'static str, &'static str)) -> &'static str| {
            if let Some(freezer) = freezer {
                // If the group cannot be frozen, its members are still killed one by one.
                let _best_effort = fs::write(self.dir.join(freezer.0), value(freezer));
            }
        };
        freeze(|(_, frozen, _)| frozen);
        for pid in self.members() {
            if let Ok(pid @ 2..) = i32::try_from(pid) {
                let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        freeze(|(.., thawed)| thawed);
    }

    /// Removes the groups and their subgroups. A group that still has members stays.
    pub(crate) fn remove(&self) {
        self.all().for_each(remove);
    }
}

/// Returns what the control groups of a job on this host limit. `None` if a job would get none.
pub(crate) fn of_host() -> Option<Limits> {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let parents = hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"), "freezer");
    let name = format!("{PREFIX}doctor-{}", ids::new_ulid());
    let group = parents.iter().find_map(|parent| Cgroup::create(&parent.dir, &name));
    group.map(|group| {
        let limiter = Limiter::create(&group.dir, Some(1 << 30), Some(1000));
        let limits =
            Limits { memory: limiter.limits_memory(), processes: limiter.limits_processes() };
        limiter.dirs().for_each(remove);
        group.remove();
        limits
    })
}

/// Limits of a job that the kernel can enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub memory: bool,
    pub processes: bool,
}

fn name(dir: &JobDir) -> Option<String> {
    Some(format!("{PREFIX}{}", dir.root().file_name()?.to_str()?))
}

fn join(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

fn remove(dir: &Path) {
    for below in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        if below.path().is_dir() {
            remove(&below.path());
        }
    }
    let _has_members = fs::remove_dir(dir);
}

/// Directory of this process's own group in one hierarchy.
#[derive(Debug, PartialEq)]
struct Own {
    is_second: bool,
    dir: PathBuf,
}

/// Returns the directories of this process's own groups: version 2, then the hierarchy of version 1
/// with this controller.
fn hierarchies(mounts: &str, own: &str, controller: &str) -> Vec<Own> {
    let group = |line: &str| -> Option<Own> {
        let (mount, source) = line.split_once(" - ")?;
        let mount: Vec<_> = mount.split(' ').collect();
        let (root, at) = (mount.get(3)?, mount.get(4)?);
        let mut source = source.split(' ');
        let (kind, options) = (source.next()?, source.next_back()?);
        let is_second = kind == "cgroup2";
        let is_first = kind == "cgroup" && options.split(',').any(|option| option == controller);
        let mine = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let required = if is_second { "" } else { controller };
            controllers.split(',').any(|one| one == required).then_some(path)
        });
        let mine = Path::new(mine.filter(|_| is_second || is_first)?);
        let below = mine.strip_prefix(root).ok()?;
        Some(Own { is_second, dir: Path::new(at).join(below) })
    };
    let mut groups: Vec<_> = mounts.lines().filter_map(group).collect();
    groups.sort_by_key(|own| !own.is_second);
    groups
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const MOUNTS: &str = "\
25 20 0:22 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/freezer rw shared:5 - cgroup cgroup rw,freezer
27 25 0:24 / /sys/fs/cgroup/cpu rw shared:6 - cgroup cgroup rw,cpu,cpuacct
28 25 0:25 /docker/x /sys/fs/cgroup/unified rw shared:7 - cgroup2 cgroup2 rw
";

    #[test]
    fn own_groups_are_found_in_both_versions() {
        let own = "6:freezer:/a\n4:cpu,cpuacct:/b\n0::/docker/x/c\n";
        let found = |controller| {
            let found = hierarchies(MOUNTS, own, controller).into_iter();
            found.map(|own| (own.is_second, own.dir.display().to_string())).collect::<Vec<_>>()
        };
        let second = (true, "/sys/fs/cgroup/unified/c".to_owned());
        assert_eq!(found("freezer"), [second.clone(), (false, "/sys/fs/cgroup/freezer/a".into())]);
        assert_eq!(found("cpuacct"), [second.clone(), (false, "/sys/fs/cgroup/cpu/b".into())]);
        assert_eq!(found("pids"), [second]);
        assert_eq!(hierarchies(MOUNTS, "0::/elsewhere\n", "freezer"), []);
        assert_eq!(hierarchies("", own, "freezer"), []);
    }

    /// Tests every writable hierarchy of this host, because cgroup v1 and v2 kill their members
    /// differently.
    #[test]
    fn a_group_ends_with_all_its_members_also_in_another_session() {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        let parents =
            hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"), "freezer");
        let (mut tested, mut untested) = (0, Vec::new());
        for Own { dir: parent, .. } in parents {
            let name = format!("{PREFIX}test-{}", ulid::Ulid::new());
            let Some(group) = Cgroup::create(&parent, &name) else {
                untested.push(format!("{} is not writable", parent.display()));
                continue;
            };
            let joins = format!("echo $$ > '{}/cgroup.procs' || exit 0", group.dir.display());
            let script = format!("{joins}; setsid sleep 60 & setsid sleep 61 & echo in; wait");
            let mut child = Command::new("sh")
                .args(["-c", &script])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut output = [0; 3];
            let out = child.stdout.as_mut().unwrap();
            if io::Read::read_exact(out, &mut output).is_ok() {
                while group.members().len() < 3 {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                group.kill();
                tested += 1;
            } else {
                untested.push(format!("{} accepts no process", group.dir.display()));
            }
            child.wait().unwrap();
            let begun = std::time::Instant::now();
            while !group.members().is_empty() {
                assert!(begun.elapsed().as_secs() < 20, "{group:?}: {:?}", group.members());
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            while group.dir.exists() {
                group.remove();
                assert!(begun.elapsed().as_secs() < 20, "{group:?} cannot be removed");
            }
        }
        let skipped = tested == 0;
        assert!(
            !skipped || std::env::var_os("CI").is_none(),
            "CI must give tests a control group: {untested:?}"
        );
        if skipped {
            eprintln!("SKIPPED: no control group is writable: {untested:?}");
        }
    }
}
