use domain::{
    ids::{InstallId, RunId, StepId},
    job::{JobKind, Origin, Work},
};
use ulid::Ulid;

use super::*;

fn failed(class: JobClass, exit_code: Option<i32>, not_ended: &[&str]) -> Job {
    let origin = Origin::Step {
        install: InstallId(Ulid::nil()),
        run: RunId(Ulid::nil()),
        step: StepId(Ulid::nil()),
    };
    let manifest = format!("sha256:{:064x}", 1).parse().unwrap();
    let work = Work {
        kind: JobKind::Apply,
        class,
        attempts: 1,
        manifest,
        origin,
        deadline_ms: 1,
        queue_ttl_ms: 1,
    };
    let ended = JobEvent::Failed {
        execution: None,
        seq: None,
        reason: FailureReason::ExitCode,
        detail: String::new(),
        exit_code,
        signal: None,
        signed: None,
        not_ended: not_ended.iter().map(ToString::to_string).collect(),
    };
    Job { work: Some(work), reports: vec![ended], ..Job::default() }
}

#[test]
fn mutating_job_is_not_retried_after_a_signal() {
    for class in [JobClass::Mutating, JobClass::Unsafe] {
        for by_itself in [1, 2, 127] {
            assert!(may_retry(&failed(class, Some(by_itself), &[])), "{by_itself}");
        }
        // A shell returns 137 if its child was killed, and 143 if it was terminated.
        for unknown in [Some(128), Some(137), Some(143), Some(255), Some(-1), None] {
            assert!(!may_retry(&failed(class, unknown, &[])), "{unknown:?}");
        }
        assert!(!may_retry(&failed(class, Some(1), &["sleep (pid 7)"])));
    }
}

#[test]
fn pure_job_is_retried_after_any_exit_code() {
    for code in [Some(1), Some(137), None] {
        assert!(may_retry(&failed(JobClass::Pure, code, &["sleep (pid 7)"])), "{code:?}");
    }
}
