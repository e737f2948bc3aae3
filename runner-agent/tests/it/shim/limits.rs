//! Tests of the limits of memory and processes of a job, at each level.
use super::*;

also_in_sandbox!(
    a_job_that_uses_too_much_memory_ends_with_the_name_of_the_limit,
    a_job_that_starts_too_many_processes_ends_with_the_name_of_the_limit,
    a_program_that_the_kernel_ends_at_a_limit_is_no_failure_by_a_signal,
    a_job_within_its_limits_succeeds,
);

fn ended_by(limits: JobLimits, script: &str) -> Finished {
    LIMITS.set(limits);
    let mut run = start(script, MINUTE, |_| {});
    let last = run.end();
    assert_eq!(last.not_ended, Vec::<String>::new());
    last
}

#[test]
fn a_job_that_uses_too_much_memory_ends_with_the_name_of_the_limit() {
    let limits = JobLimits { memory_bytes: Some(200 << 20), processes: None };
    // A shell variable of 300 MiB, in a process that ignores the stop signal.
    let script = "trap '' TERM; x=$(head -c 314572800 /dev/zero | tr '\\0' a); sleep 30";
    let last = ended_by(limits, script);
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::MemoryLimit)));
    assert!(last.detail.contains("more memory than its limit"), "{}", last.detail);
    assert_eq!(last.signal, None);
}

#[test]
fn a_job_that_starts_too_many_processes_ends_with_the_name_of_the_limit() {
    let limits = JobLimits { memory_bytes: None, processes: Some(50) };
    let script = "n=0; while [ $n -lt 200 ]; do sleep 31 & n=$((n + 1)); done; wait";
    let last = ended_by(limits, script);
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::ProcessLimit)));
}

/// The kernel ends a program that exceeds the limit between two checks.
#[test]
fn a_program_that_the_kernel_ends_at_a_limit_is_no_failure_by_a_signal() {
    if !has_controllers() {
        return;
    }
    let limits = JobLimits { memory_bytes: Some(100 << 20), processes: Some(100) };
    let last = ended_by(limits, "head -c 1073741824 /dev/zero | tail -c 1073741824");
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::MemoryLimit)));
    assert_eq!((last.signal, last.exit_code), (None, None));
    // The shell itself cannot start a process.
    let last = ended_by(limits, "for n in $(seq 300); do sleep 9 & done");
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::ProcessLimit)));
    assert_eq!((last.signal, last.exit_code), (None, None));
}

/// Returns whether the kernel limits jobs on this host.
pub(super) fn has_controllers() -> bool {
    LIMITS.set(JobLimits { memory_bytes: None, processes: Some(4096) });
    let mut run = start("true", MINUTE, |_| {});
    LIMITS.take();
    assert_eq!(run.end().outcome, Outcome::Succeeded);
    let is_limited = |record: &LogRecord| {
        record.m.starts_with("limits: processes and threads 4096 by the kernel; not enforced: ")
    };
    let found = run.records().iter().any(is_limited);
    let why = "needs writable control groups with the controllers memory and pids";
    if !found && fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap() {
        // With version 2, the group of the tests has processes, so it has no controllers for others.
        eprintln!("SKIPPED: {why}");
    } else if !found {
        skip(why);
    }
    found
}

/// The policies of existing installs have no limit, which an upgrade does not change.
#[test]
fn only_a_sandbox_limits_the_processes_of_a_job_without_a_rule() {
    if !has_controllers() {
        return;
    }
    let line = || {
        let mut run = start("true", MINUTE, |_| {});
        assert_eq!(run.end().outcome, Outcome::Succeeded);
        let found = run.records().into_iter().find(|record| record.m.starts_with("limits: "));
        found.unwrap().m
    };
    let missing = "limits: none; not enforced: memory, processes, processor time, disk";
    assert_eq!(line(), missing);
    let Some(sandbox) = sandbox_or_skip() else { return };
    ISOLATION.set(sandbox);
    assert!(line().starts_with("limits: processes and threads 4096 by the kernel"));
}

#[test]
fn a_job_within_its_limits_succeeds() {
    let limits = JobLimits { memory_bytes: Some(2 << 30), processes: Some(100) };
    assert_eq!(ended_by(limits, "sleep 0.5 & wait").outcome, Outcome::Succeeded);
}
