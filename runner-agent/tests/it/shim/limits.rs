//! Tests of the limits of memory and processes of a job, at each level.
use super::*;

also_in_sandbox!(
    a_job_that_uses_too_much_memory_ends_with_the_name_of_the_limit,
    a_job_that_starts_too_many_processes_ends_with_the_name_of_the_limit,
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

#[test]
fn a_job_within_its_limits_succeeds() {
    let limits = JobLimits { memory_bytes: Some(2 << 30), processes: Some(100) };
    assert_eq!(ended_by(limits, "sleep 0.5 & wait").outcome, Outcome::Succeeded);
}
