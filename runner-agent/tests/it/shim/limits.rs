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
fn has_controllers() -> bool {
    LIMITS.take();
    let mut run = start("true", MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded);
    let is_limited = |record: &LogRecord| {
        record.m.starts_with("limits: processes and threads 4096 by the kernel; not enforced: ")
    };
    let found = run.records().iter().any(is_limited);
    if !found {
        skip("needs writable control groups with the controllers memory and pids");
    }
    found
}

#[test]
fn a_job_within_its_limits_succeeds() {
    let limits = JobLimits { memory_bytes: Some(2 << 30), processes: Some(100) };
    assert_eq!(ended_by(limits, "sleep 0.5 & wait").outcome, Outcome::Succeeded);
}
