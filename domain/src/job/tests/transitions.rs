//! Golden test of the transition table of a job.
use super::{
    walk::{every_history, to_command},
    *,
};
use crate::{
    actor::Actor,
    ids::ExecutionId,
    testing::{golden, table},
};

/// Returns the row name of a command, and the command of the next row. The match makes the compiler
/// report a command without a row.
fn line(command: &JobCommand, by: ExecutionId) -> (&'static str, Option<JobCommand>) {
    let next =
        |report: Report| Some(JobCommand::Report { execution: by, seq: 0, report, signed: None });
    let end = |result| next(Report::Finished(result));
    let phase = || Report::Phase { phase: "init".into() };
    match command {
        JobCommand::Queue(_) => ("queue", Some(claim(by))),
        JobCommand::Claim { .. } => ("claim", next(Report::Started { isolation: None })),
        JobCommand::Report { report, .. } => match report {
            Report::Started { .. } => ("report: started", next(phase())),
            Report::Phase { .. } => ("report: phase", next(Report::Plan(plan()))),
            Report::Plan(_) => {
                ("report: plan", next(Report::Outputs { outputs: Default::default() }))
            }
            Report::Outputs { .. } => {
                ("report: outputs", next(Report::State { state: state_version() }))
            }
            Report::State { .. } => ("report: state", next(Report::Artifact(artifact()))),
            Report::Artifact(_) => ("report: artifact", next(Report::Checks { checks: checks() })),
            Report::Checks { .. } => ("report: checks", end(success())),
            Report::Finished(ExecutionResult::Succeeded { .. }) => {
                ("report: succeeded", end(failure()))
            }
            Report::Finished(ExecutionResult::Failed { .. }) => {
                ("report: failed", end(cancellation()))
            }
            Report::Finished(ExecutionResult::Cancelled { .. }) => {
                ("report: cancelled", Some(disconnect(by)))
            }
        },
        JobCommand::Disconnect { .. } => ("disconnect", Some(reattach(by))),
        JobCommand::Reattach { .. } => ("reattach", Some(declare_lost(by, ExecutionNotInJournal))),
        JobCommand::DeclareLost { loss_reason, .. } => match loss_reason {
            ExecutionNotInJournal => {
                ("lost: not in journal", Some(declare_lost(by, DeadlinePassed)))
            }
            DeadlinePassed => ("lost: deadline", Some(declare_lost(by, Disconnected))),
            Disconnected => ("lost: disconnected", Some(declare_lost(by, NeverSpawned))),
            NeverSpawned => ("lost: never spawned", Some(declare_lost(by, HostReplaced))),
            HostReplaced => ("lost: host replaced", Some(resolve(by, Resolution::Succeeded))),
        },
        JobCommand::Resolve { by: Actor::Principal(_), resolution, .. } => match resolution {
            Resolution::Succeeded => ("resolve: succeeded", Some(resolve(by, Resolution::Failed))),
            Resolution::Failed => ("resolve: failed", Some(resolve(by, Resolution::Retry))),
            Resolution::Retry => {
                ("resolve: retry", Some(resolve_by(by, policy(), Resolution::Retry)))
            }
        },
        JobCommand::Resolve {
            by: Actor::Policy(_) | Actor::Runner(_) | Actor::Timer(_) | Actor::System,
            ..
        } => ("policy: retry", Some(cancel(false))),
        JobCommand::RequestCancel { force: false, .. } => ("cancel", Some(cancel(true))),
        JobCommand::RequestCancel { force: true, .. } => ("cancel: force", Some(unconfirmed(by))),
        JobCommand::DeclareCancelUnconfirmed { .. } => {
            ("cancel unconfirmed", Some(JobCommand::Expire { attempt: 1 }))
        }
        JobCommand::Expire { .. } => ("expire: first", Some(fail_unclaimed(1))),
        JobCommand::FailUnclaimed { .. } => ("fail unclaimed: first", Some(finalize_log(by))),
        JobCommand::FinalizeLog(_) => ("finalize log", Some(diverge(by))),
        JobCommand::RecordDivergence { .. } => {
            ("log diverged", Some(record_late(by, 9, success())))
        }
        JobCommand::RecordLateResult { .. } => ("late result", None),
    }
}

pub fn commands(class: JobClass, by: ExecutionId) -> impl Iterator<Item = JobCommand> {
    std::iter::successors(Some(queue(class)), move |command| line(command, by).1)
}

fn state(job: &Job) -> &'static str {
    match &job.state {
        State::NotCreated => "new",
        State::Queued { attempt: 1 } => "queued",
        State::Queued { .. } => "requeued",
        State::Claimed(held) if held.attempt == job.attempts() => "claimed, last",
        State::Claimed(_) => "claimed",
        State::Running(held) => match (held.contact, &held.cancel) {
            (Contact::Connected, None) => "running",
            (Contact::Disconnected, None) => "disconnected",
            (Contact::Connected | Contact::Disconnected, Some(_)) => "cancelling",
        },
        State::OutcomeUnknown(_) => "outcome unknown",
        State::Ended { outcome, execution } => match outcome {
            Succeeded => "succeeded",
            Failed if execution.is_none() => "expired",
            Failed => "failed",
            Cancelled => "cancelled",
            Lost => "lost",
        },
    }
}

fn rejection_text(error: JobError) -> String {
    match error {
        NotFound => "not found",
        NoAttempts => "no attempts",
        AlreadyQueued => "queued",
        AlreadyClaimed { .. } => "claimed",
        Fenced { .. } => "fenced",
        NotStarted => "not started",
        AlreadyStarted => "started",
        SeqConflict { .. } => "seq conflict",
        SeqGap { .. } => "gap",
        TooManyPhases { .. } => "too many",
        NotThisKind { .. } => "not this kind",
        AlreadyReported { .. } => "reported",
        ReasonNotReportable => "not a runner's reason",
        StillConnected => "connected",
        DeadlineNotPassed { .. } => "deadline ahead",
        MayStillRun => "may still run",
        NothingToResolve => "nothing to resolve",
        PrincipalRequired => "only a principal",
        RunnerMayNotResolve => "not a runner",
        CancelNotRequested => "not requested",
        OutcomeUnknown => "unknown",
        AnotherAttempt { .. } => "another attempt",
        StillRunning => "running",
        LogAlreadyFinalized => "log finalized",
        Cancelling => "being cancelled",
        AlreadyEnded { .. } => "ended",
    }
    .into()
}

/// Each column uses the first job with its state name that the walk finds. Execution B does not
/// hold the job in any column.
#[test]
fn transitions_match_the_golden_table() {
    let mut text = String::from("· no change   ✗ rejected   A reports and may hold the job\n");
    for class in CLASSES {
        let mut states: Vec<(&str, Job)> = vec![];
        for (_, job) in every_history(class) {
            let known = states.iter().any(|(name, _)| *name == state(&job));
            if !known && job.fence(B).is_err() {
                states.push((state(&job), job));
            }
        }
        states.sort_by_key(|(_, job)| matches!(job.state, State::Ended { .. }));
        let rows: Vec<_> = commands(class, A).map(|c| (line(&c, A).0, c)).collect();
        text += &format!(
            "\n{class:?}, 2 attempts\n{}",
            table(&states, &rows, to_command, rejection_text)
        );
    }
    golden("transitions/job.txt", &text);
}
