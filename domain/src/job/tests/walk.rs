//! Invariants of every history that two executions can produce with six commands.
use super::{transitions::commands, *};
use crate::{
    decider::Event,
    testing::{replay, walk},
};

pub fn every_history(class: JobClass) -> Vec<(Vec<JobEvent>, Job)> {
    // One report that does not end the job represents all of them. Late results and divergent logs
    // affect no other command.
    let all = commands(class, A).chain(commands(class, B));
    let few = all.filter(|command| {
        !matches!(
            command,
            JobCommand::Report {
                report: Report::Plan(_)
                    | Report::Outputs { .. }
                    | Report::State { .. }
                    | Report::Artifact(_),
                ..
            } | JobCommand::RecordDivergence { .. }
                | JobCommand::RecordLateResult { .. }
        )
    });
    walk(&few.collect::<Vec<_>>(), 6, ask)
}

/// Returns the command with the next sequence number, and its time. A command that declares a
/// missed deadline gets a time after the deadline.
pub fn ask(command: &JobCommand, job: &Job) -> (JobCommand, Timestamp) {
    let is_late = matches!(command, JobCommand::DeclareLost { loss_reason: DeadlinePassed, .. });
    let now = if is_late { late() } else { Timestamp::UNIX_EPOCH };
    if let JobCommand::Report { execution, report: next, .. } = command.clone() {
        return (report(execution, job.reports.len() as u64 + 1, next), now);
    }
    (command.clone(), now)
}

fn all() -> impl Iterator<Item = (Vec<JobEvent>, Job)> {
    CLASSES.into_iter().flat_map(every_history)
}

#[test]
fn a_job_is_never_with_two_executions_and_a_lost_one_stays_lost() {
    for (history, _) in all() {
        let mut live = vec![];
        let mut lost = vec![];
        let mut finalized = vec![];
        for fact in &history {
            match fact {
                JobEvent::Claimed { execution, .. } => live.push(*execution),
                JobEvent::Requeued { execution, .. } => {
                    live.retain(|held| held != execution);
                    lost.push(*execution);
                }
                JobEvent::Started { execution, .. }
                | JobEvent::PhaseEntered { execution, .. }
                | JobEvent::PlanProduced { execution, .. }
                | JobEvent::OutputsReported { execution, .. }
                | JobEvent::StateReported { execution, .. }
                | JobEvent::ArtifactPushed { execution, .. }
                | JobEvent::Disconnected { execution }
                | JobEvent::Reattached { execution }
                | JobEvent::OutcomeUnknown { execution, .. }
                | JobEvent::OutcomeResolved { execution, .. }
                | JobEvent::CancelUnconfirmed { execution }
                | JobEvent::Succeeded { execution, .. }
                | JobEvent::Failed { execution: Some(execution), .. }
                | JobEvent::Cancelled { execution: Some(execution), .. }
                | JobEvent::Lost { execution, .. } => assert_eq!(live, [*execution]),
                JobEvent::LogFinalized(log) => {
                    assert!([&live[..], &lost].concat().contains(&log.execution), "{history:?}");
                    assert!(!finalized.contains(&log.execution), "{history:?}");
                    finalized.push(log.execution);
                }
                JobEvent::LogDiverged { execution, .. }
                | JobEvent::LateResultReported { execution, .. } => {
                    assert!([&live[..], &lost].concat().contains(execution), "{history:?}");
                }
                JobEvent::Queued(_)
                | JobEvent::CancelRequested { .. }
                | JobEvent::Failed { execution: None, .. }
                | JobEvent::Cancelled { execution: None, .. } => {}
            }
            assert!(live.len() <= 1, "{history:?}");
            assert!(!live.iter().any(|held| lost.contains(held)), "{history:?}");
        }
    }
}

#[test]
fn work_that_is_not_pure_is_never_queued_again_unless_it_never_spawned_or_somebody_decides_so() {
    for (class, deciders) in [(Mutating, &[ANN, policy()][..]), (Unsafe, &[ANN])] {
        let (mut never_spawned, mut retried) = (0, 0);
        for (history, _) in every_history(class) {
            for at in 1..history.len() {
                if let JobEvent::Requeued { execution: lost, loss_reason, .. } = history[at] {
                    let start = JobEvent::Started { execution: lost, seq: 1 };
                    let started = history[..at].contains(&start);
                    let retry =
                        |by: &crate::actor::Actor| decided(lost, by.clone(), Resolution::Retry);
                    if loss_reason == Some(NeverSpawned) && !started {
                        never_spawned += 1;
                    } else if deciders.iter().any(|by| history[at - 1] == retry(by)) {
                        retried += 1;
                    } else {
                        panic!("{history:?}");
                    }
                }
            }
        }
        assert!(never_spawned > 0 && retried > 0, "the walk is too short to prove anything");
    }
}

#[test]
fn unsafe_work_is_never_resolved_by_a_policy() {
    for (history, _) in every_history(Unsafe) {
        for fact in &history {
            if let JobEvent::OutcomeResolved { by, .. } = fact {
                assert_eq!(*by, ANN, "{history:?}");
            }
        }
    }
}

#[test]
fn the_outcome_of_an_ended_job_never_changes() {
    for class in CLASSES {
        for (history, job) in every_history(class) {
            if let State::Ended { .. } = job.state {
                for command in commands(class, A).chain(commands(class, B)) {
                    let (command, now) = ask(&command, &job);
                    for fact in job.decide(command, now).unwrap_or_default() {
                        let mut after = job.clone();
                        after.evolve(fact.clone());
                        let notes =
                            ["job.log_finalized", "job.log_diverged", "job.late_result_reported"];
                        assert!(notes.contains(&fact.name()), "{fact:?} after {history:?}");
                        assert_eq!(after.state, job.state, "{history:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn history_and_snapshot_read_back_from_disk_give_the_same_job() {
    for (history, job) in all().step_by(11) {
        let history: Vec<JobEvent> = reread(&history);
        assert_eq!(replay::<Job>(history), job);
        assert_eq!(reread(&job), job);
    }
}

#[test]
fn any_fact_in_any_state_is_taken_without_a_panic() {
    let walked: Vec<_> = all().collect();
    for (_, job) in walked.iter().step_by(97) {
        for (history, _) in walked.iter().step_by(997) {
            history.iter().cloned().for_each(|fact| job.clone().evolve(fact));
        }
    }
}

pub fn reread<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}
