//! Invariants of every history that two executions can produce with at most six commands.
use super::{transitions::commands, *};
use crate::{
    decider::Event,
    testing::{replay, walk},
};

pub fn every_history(class: JobClass) -> Vec<(Vec<JobEvent>, Job)> {
    // A phase report represents the reports that are omitted here. Late results and divergent logs
    // affect no other command.
    let all = commands(class, A).chain(commands(class, B));
    let selected = all.filter(|command| {
        !matches!(
            command,
            JobCommand::Report {
                report: Report::Plan(_)
                    | Report::Outputs { .. }
                    | Report::State { .. }
                    | Report::Artifact(_)
                    | Report::Checks { .. },
                ..
            } | JobCommand::RecordDivergence { .. }
                | JobCommand::RecordLateResult { .. }
        )
    });
    walk(&selected.collect::<Vec<_>>(), 6, to_command)
}

/// Returns the command with its time. A report gets the next sequence number. A command that
/// declares a missed deadline gets the time of the deadline.
pub fn to_command(command: &JobCommand, job: &Job) -> (JobCommand, Timestamp) {
    let is_late = matches!(command, JobCommand::DeclareLost { loss_reason: DeadlinePassed, .. });
    let now = if is_late { deadline() } else { Timestamp::UNIX_EPOCH };
    if let JobCommand::Report { execution, report: next, .. } = command.clone() {
        return (report(execution, job.reports.len() as u64 + 1, next), now);
    }
    (command.clone(), now)
}

fn all() -> impl Iterator<Item = (Vec<JobEvent>, Job)> {
    CLASSES.into_iter().flat_map(every_history)
}

#[test]
fn a_job_has_at_most_one_execution_and_a_lost_one_stays_lost() {
    for (history, _) in all() {
        let mut holders = vec![];
        let mut lost = vec![];
        let mut finalized = vec![];
        for event in &history {
            match event {
                JobEvent::Claimed { execution, .. } => holders.push(*execution),
                JobEvent::Requeued { execution, .. } => {
                    holders.retain(|held| held != execution);
                    lost.push(*execution);
                }
                JobEvent::Started { execution, .. }
                | JobEvent::PhaseEntered { execution, .. }
                | JobEvent::PlanProduced { execution, .. }
                | JobEvent::OutputsReported { execution, .. }
                | JobEvent::StateReported { execution, .. }
                | JobEvent::ArtifactPushed { execution, .. }
                | JobEvent::ChecksReported { execution, .. }
                | JobEvent::Disconnected { execution }
                | JobEvent::Reattached { execution }
                | JobEvent::OutcomeUnknown { execution, .. }
                | JobEvent::OutcomeResolved { execution, .. }
                | JobEvent::CancelUnconfirmed { execution }
                | JobEvent::Succeeded { execution, .. }
                | JobEvent::Failed { execution: Some(execution), .. }
                | JobEvent::Cancelled { execution: Some(execution), .. }
                | JobEvent::Lost { execution, .. } => assert_eq!(holders, [*execution]),
                JobEvent::LogFinalized(log) => {
                    assert!([&holders[..], &lost].concat().contains(&log.execution), "{history:?}");
                    assert!(!finalized.contains(&log.execution), "{history:?}");
                    finalized.push(log.execution);
                }
                JobEvent::LogDiverged { execution, .. }
                | JobEvent::LateResultReported { execution, .. } => {
                    assert!([&holders[..], &lost].concat().contains(execution), "{history:?}");
                }
                JobEvent::Queued(_)
                | JobEvent::CancelRequested { .. }
                | JobEvent::Failed { execution: None, .. }
                | JobEvent::Cancelled { execution: None, .. } => {}
            }
            assert!(holders.len() <= 1, "{history:?}");
            assert!(!holders.iter().any(|held| lost.contains(held)), "{history:?}");
        }
    }
}

#[test]
fn mutating_work_is_requeued_only_if_it_never_spawned_or_by_a_resolution() {
    for (class, deciders) in [(Mutating, &[ANN, policy()][..]), (Unsafe, &[ANN])] {
        let (mut never_spawned, mut retried) = (0, 0);
        for (history, _) in every_history(class) {
            for at in 1..history.len() {
                if let JobEvent::Requeued { execution: lost, loss_reason, .. } = history[at] {
                    let start = JobEvent::Started { execution: lost, seq: 1, isolation: None };
                    let started = history[..at].contains(&start);
                    let retry =
                        |by: &crate::actor::Actor| resolved_by(lost, by.clone(), Resolution::Retry);
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
        for event in &history {
            if let JobEvent::OutcomeResolved { by, .. } = event {
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
                    let (command, now) = to_command(&command, &job);
                    for event in job.decide(command, now).unwrap_or_default() {
                        let mut after = job.clone();
                        after.evolve(event.clone());
                        let notes =
                            ["job.log_finalized", "job.log_diverged", "job.late_result_reported"];
                        assert!(notes.contains(&event.name()), "{event:?} after {history:?}");
                        assert_eq!(after.state, job.state, "{history:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn history_and_snapshot_deserialize_to_the_same_job() {
    for (history, job) in all().step_by(11) {
        let history: Vec<JobEvent> = reread(&history);
        assert_eq!(replay::<Job>(history), job);
        assert_eq!(reread(&job), job);
    }
}

#[test]
fn every_event_applies_to_every_state_without_a_panic() {
    let walked: Vec<_> = all().collect();
    for (_, job) in walked.iter().step_by(97) {
        for (history, _) in walked.iter().step_by(997) {
            history.iter().cloned().for_each(|event| job.clone().evolve(event));
        }
    }
}

pub fn reread<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}
