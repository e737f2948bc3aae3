//! Groups in which the kernel limits the programs of a job.
//!
//! With cgroup v1, the controllers have hierarchies of their own. With v2, only a group without
//! processes can give its controllers to further groups. The group of the agent has processes, so the
//! limits need the root group, or a parent of the agent's group that belongs to the service
//! (`Delegate=yes` and `DelegateSubgroup=` of systemd).
use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{hierarchies, remove};

/// Limit of the kernel that a job exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exceeded {
    Memory,
    Processes,
}

/// Groups with the limits of one job. Threads count as processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Limiter {
    memory: Option<PathBuf>,
    processes: Option<PathBuf>,
}

/// Files of a controller in one version.
struct Files {
    limit: &'static str,
    /// Files that limit memory with swap, or swap alone. Not every kernel has them.
    swap: Option<(&'static str, bool)>,
    events: &'static str,
    /// Line of `events` with the number of times that the limit was exceeded.
    event: &'static str,
}

const MEMORY: [Files; 2] = [
    Files {
        limit: "memory.max",
        swap: Some(("memory.swap.max", false)),
        events: "memory.events",
        event: "oom_kill",
    },
    Files {
        limit: "memory.limit_in_bytes",
        swap: Some(("memory.memsw.limit_in_bytes", true)),
        events: "memory.oom_control",
        event: "oom_kill",
    },
];
const PROCESSES: [Files; 1] =
    [Files { limit: "pids.max", swap: None, events: "pids.events", event: "max" }];

impl Limiter {
    /// Creates groups with these limits. `job` is the group of the job, whose name they get.
    pub(super) fn create(job: &Path, memory: Option<u64>, processes: Option<u32>) -> Limiter {
        let limited = |controller, files: &[Files], limit: Option<u64>| {
            limit.and_then(|limit| create(job, controller, files, limit))
        };
        Limiter {
            memory: limited("memory", &MEMORY, memory),
            processes: limited("pids", &PROCESSES, processes.map(u64::from)),
        }
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.memory.iter().chain(&self.processes).map(PathBuf::as_path)
    }

    pub(crate) fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn limits_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Moves a process to the groups, before it starts others.
    pub(crate) fn admit(&self, pid: u32) -> io::Result<()> {
        for dir in self.dirs() {
            match fs::write(dir.join("cgroup.procs"), pid.to_string()) {
                // The process has ended.
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Returns the limit that a program exceeded: the kernel killed it, or did not let it start a
    /// process.
    pub(crate) fn exceeded(&self) -> Option<Exceeded> {
        if self.memory.as_deref().is_some_and(|dir| happened(dir, &MEMORY)) {
            Some(Exceeded::Memory)
        } else if self.processes.as_deref().is_some_and(|dir| happened(dir, &PROCESSES)) {
            Some(Exceeded::Processes)
        } else {
            None
        }
    }
}

/// Creates a group with a limit, below the first group that has the controller and is writable.
fn create(job: &Path, controller: &str, files: &[Files], limit: u64) -> Option<PathBuf> {
    let name = job.file_name()?.to_str()?;
    parents(job, controller).into_iter().find_map(|(parent, suffix)| {
        let dir = parent.join(format!("{name}{suffix}"));
        // The controllers of a job share one group of version 2.
        let is_new = match fs::create_dir(&dir) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(_) => return None,
        };
        let is_set = files.iter().any(|files| set(&dir, files, limit).is_ok());
        if is_new && !is_set {
            remove(&dir);
        }
        is_set.then_some(dir)
    })
}

fn set(dir: &Path, files: &Files, limit: u64) -> io::Result<()> {
    // Opening a file that does not exist must not create it: the directory may not be a group.
    let write = |file: &str, value: u64| {
        let mut file = fs::File::options().write(true).open(dir.join(file))?;
        io::Write::write_all(&mut file, value.to_string().as_bytes())
    };
    write(files.limit, limit)?;
    if let Some((file, includes_memory)) = files.swap {
        // Without swap, the kernel has no such file.
        let _missing = write(file, if includes_memory { limit } else { 0 });
    }
    Ok(())
}

/// Returns directories for the group, with the end of its name. With version 2, the name differs from
/// that of the job's group.
fn parents(job: &Path, controller: &str) -> Vec<(PathBuf, &'static str)> {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let own = hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"), controller);
    let mut parents = Vec::new();
    let second = job.parent().filter(|dir| dir.join("cgroup.controllers").exists());
    // The group of the service, if the agent is in a subgroup. Other groups belong to systemd.
    let is_of_service = |dir: &&Path| dir.extension().is_some_and(|kind| kind == "service");
    let above = second.and_then(Path::parent).filter(is_of_service);
    for dir in [second, above].into_iter().flatten() {
        // The kernel refuses this if the group has processes, or if it belongs to others.
        let _refused = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
        parents.push((dir.to_owned(), ".limits"));
    }
    parents.extend(own.into_iter().filter(|own| !own.is_second).map(|own| (own.dir, "")));
    parents
}

/// Returns whether the kernel counted an excess of the limit.
fn happened(dir: &Path, files: &[Files]) -> bool {
    let read = |files: &Files| {
        let text = fs::read_to_string(dir.join(files.events)).ok()?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == files.event)?.1.trim().parse::<u64>().ok()
    };
    files.iter().filter_map(read).any(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use domain::ids::ExecutionId;

    use super::{
        super::{Cgroup, PREFIX},
        *,
    };
    use crate::data::{Data, JobDir};

    /// Creates a group of a job, as its shim does. Reports a host without writable groups as skipped.
    fn group(dir: &tempfile::TempDir) -> Option<(Cgroup, JobDir)> {
        let job = Data::open(dir.path()).unwrap().job(ExecutionId(ulid::Ulid::new()));
        job.create().unwrap();
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        let parents =
            hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"), "freezer");
        let root = job.root().file_name().unwrap().to_str().unwrap();
        let name = format!("{PREFIX}{root}.{}", ulid::Ulid::new());
        let created = parents.iter().find_map(|parent| Cgroup::create(&parent.dir, &name));
        if created.is_none() {
            skip("no control group is writable");
        }
        created.map(|group| (group, job))
    }

    /// With version 2 alone, the group of the tests has processes, so it gives no controllers to others.
    fn skip(why: &str) {
        let is_second_alone = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let is_ci = std::env::var_os("CI").is_some();
        assert!(is_second_alone || !is_ci, "CI must give tests control groups: {why}");
        eprintln!("SKIPPED: {why}");
    }

    /// Runs a script in the groups, and returns whether it succeeded.
    fn run(limiter: &Limiter, script: &str) -> bool {
        let gated = format!("read -r _ && {{ {script}\n}}");
        let mut child = Command::new("sh")
            .args(["-c", &gated])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        limiter.admit(child.id()).unwrap();
        let mut input = child.stdin.take().unwrap();
        io::Write::write_all(&mut input, b"\n").unwrap();
        drop(input);
        child.wait().unwrap().success()
    }

    #[test]
    fn the_kernel_enforces_the_limits_and_names_the_one_that_was_exceeded() {
        let dir = tempfile::tempdir().unwrap();
        let cases = [
            ("head -c 314572800 /dev/zero | tail -c 314572800", Exceeded::Memory),
            ("for n in $(seq 60); do sleep 1 & done; wait", Exceeded::Processes),
        ];
        for (script, expected) in cases {
            let Some((mut group, job)) = group(&dir) else { return };
            let limiter = group.limit(&job, Some(100 << 20), Some(40));
            if !(limiter.limits_memory() && limiter.limits_processes()) {
                group.remove();
                return skip("the controllers memory and pids are missing");
            }
            assert!(run(&limiter, "sleep 0.1 & wait"));
            assert_eq!(limiter.exceeded(), None);
            assert!(!run(&limiter, script), "{script}");
            assert_eq!(limiter.exceeded(), Some(expected), "{script}");
            // The agent finds all groups after the shim was killed, also if only those with the limits
            // are left.
            assert_eq!(Cgroup::of(&job).as_ref(), Some(&group));
            remove(&group.dir);
            let found = Cgroup::of(&job).unwrap();
            assert_eq!(found, group);
            assert!(limiter.dirs().all(Path::exists));
            let begun = std::time::Instant::now();
            while limiter.dirs().any(Path::exists) {
                found.kill();
                found.remove();
                assert!(begun.elapsed().as_secs() < 20, "{:?} cannot be removed", found);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn a_host_without_controllers_limits_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            create(&dir.path().join("stead-x"), "none", &PROCESSES, 9),
            None,
            "a plain directory is no control group"
        );
        let files = &PROCESSES[0];
        assert!(set(dir.path(), files, 9).is_err());
        assert!(!dir.path().join(files.limit).exists());
    }

    #[test]
    fn events_are_read_in_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        for (files, text, expected) in [
            (&MEMORY[..], "low 0\nmax 9\noom 1\noom_kill 0\noom_group_kill 0\n", false),
            (&MEMORY[..], "low 0\noom 1\noom_kill 2\n", true),
            (&PROCESSES[..], "max 0\n", false),
            (&PROCESSES[..], "max 3\n", true),
        ] {
            fs::write(dir.path().join(files[0].events), text).unwrap();
            assert_eq!(happened(dir.path(), files), expected, "{text}");
        }
        let dir = tempfile::tempdir().unwrap();
        let first = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
        fs::write(dir.path().join("memory.oom_control"), first).unwrap();
        assert!(happened(dir.path(), &MEMORY));
    }
}
