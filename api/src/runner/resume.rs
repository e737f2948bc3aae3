//! Recovers the executions of an agent's previous session from its journal.
use std::collections::HashSet;

use domain::{
    ids::{ExecutionId, JobId, RunnerId, SessionId},
    job::{Job, JobCommand, LossReason, State},
};
use schemas::runner::{ExecutionState, JournalEntry, Resume, ResumeAction};

use super::caller;
use crate::{extract::RunnerCaller, problem::Problem, state::App};

/// Decides on each journal entry, and on each execution that the journal does not contain. Skips
/// executions that were claimed in this same session: a duplicate of the opening request can arrive
/// after such a claim.
pub(super) async fn resume(
    app: &App,
    runner: &RunnerCaller,
    session: SessionId,
    journal: &[JournalEntry],
    same_journal: bool,
) -> Result<Vec<Resume>, Problem> {
    let mut responses = Vec::new();
    let mut named = HashSet::new();
    for entry in journal {
        let job = app.engine.log().reload::<Job>(&entry.job.to_string()).await?.state;
        let decision = decide(&job, runner.id, entry, same_journal);
        if let Some((execution, loss_reason)) = decision.lost {
            declare_lost(app, runner, entry.job, execution, loss_reason).await?;
        }
        named.insert(entry.job);
        let (job, execution) = (entry.job, decision.execution.or(entry.execution));
        responses.push(Resume { job, execution, action: decision.action });
    }
    for (job, execution) in previous_executions(app, runner.id, session) {
        if !named.contains(&job) {
            declare_lost(app, runner, job, execution, LossReason::ExecutionNotInJournal).await?;
        }
    }
    Ok(responses)
}

/// Result for one journal entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decision {
    action: ResumeAction,
    execution: Option<ExecutionId>,
    lost: Option<(ExecutionId, LossReason)>,
}

fn decide(job: &Job, runner: RunnerId, entry: &JournalEntry, same_journal: bool) -> Decision {
    let active = job.execution().filter(|active| active.runner == runner);
    let current = active.filter(|active| match entry.execution {
        Some(execution) => execution == active.id,
        // The runner did not receive the response to the claim, so only the claim id identifies the
        // execution.
        None => entry.claim_id == active.claim_id,
    });
    let Some(current) = current else {
        let action = if has_incomplete_log(job, entry) {
            ResumeAction::Report
        } else {
            ResumeAction::Abandon
        };
        return Decision { action, execution: None, lost: None };
    };
    let (action, loss_reason) = match entry.state {
        ExecutionState::Alive => (ResumeAction::Resume, None),
        ExecutionState::Exited => (ResumeAction::Report, None),
        // Only the journal that contains the claim can prove that no process was started.
        ExecutionState::NeverSpawned if same_journal && !current.started => {
            (ResumeAction::Abandon, Some(LossReason::NeverSpawned))
        }
        ExecutionState::NeverSpawned | ExecutionState::Unknown => {
            (ResumeAction::Abandon, Some(LossReason::ExecutionNotInJournal))
        }
    };
    let lost = loss_reason.map(|loss_reason| (current.id, loss_reason));
    Decision { action, execution: Some(current.id), lost }
}

/// Returns true if this execution ended the job and its log is not complete yet.
fn has_incomplete_log(job: &Job, entry: &JournalEntry) -> bool {
    match (&job.state, entry.state) {
        (State::Ended { execution: Some(ended), .. }, ExecutionState::Exited) => {
            entry.execution == Some(*ended)
                && !job.logs.iter().any(|log| log.execution == *ended && log.complete)
        }
        (
            State::Ended { .. }
            | State::NotCreated
            | State::Queued { .. }
            | State::Claimed(_)
            | State::Running(_)
            | State::OutcomeUnknown(_),
            _,
        ) => false,
    }
}

fn previous_executions(
    app: &App,
    runner: RunnerId,
    session: SessionId,
) -> Vec<(JobId, ExecutionId)> {
    let dispatch_state = app.dispatch.state();
    let claims = dispatch_state.jobs.held_by(runner);
    let former = claims.filter_map(|(job, tracked)| Some((job, tracked.active_execution()?)));
    former
        .filter(|(_, execution)| execution.session != session)
        .map(|(job, execution)| (job, execution.id))
        .collect()
}

async fn declare_lost(
    app: &App,
    runner: &RunnerCaller,
    job: JobId,
    execution: ExecutionId,
    loss_reason: LossReason,
) -> Result<(), Problem> {
    tracing::warn!(runner.id = %runner.id, job.id = %job, execution.id = %execution, "Runner reconnected without an execution that it held");
    let call = caller::call(runner, "/runner/v1/sessions");
    let lost = app.engine.transact(&call, move |unit| {
        Box::pin(async move {
            // The execution may have reported, or may have been declared lost, in the meantime.
            unit.try_handle::<Job>(job, JobCommand::DeclareLost { execution, loss_reason })
                .await
                .map(|_| ())
        })
    });
    lost.await.map(|_| ()).map_err(caller::retryable)
}

#[cfg(test)]
mod tests {
    use domain::{
        decider::Timestamp,
        ids::SessionId,
        job::{Contact, Execution, Outcome},
    };
    use ulid::Ulid;

    use super::*;

    fn execution() -> Execution {
        Execution {
            id: ExecutionId(Ulid(1)),
            runner: RunnerId(Ulid(1)),
            session: SessionId(Ulid(1)),
            claim_id: "c".into(),
            attempt: 1,
            deadline: Timestamp::UNIX_EPOCH,
            started: true,
            contact: Contact::Connected,
            cancel: None,
        }
    }

    fn running() -> Job {
        Job { state: State::Running(execution()), ..Job::default() }
    }

    fn entry(state: ExecutionState) -> JournalEntry {
        let (job, execution) = (JobId(Ulid(1)), Some(ExecutionId(Ulid(1))));
        JournalEntry { job, execution, claim_id: "c".into(), state, log_len: 0, exit: None }
    }

    fn decided(job: &Job, entry: &JournalEntry) -> (ResumeAction, Option<LossReason>) {
        let decision = decide(job, RunnerId(Ulid(1)), entry, true);
        (decision.action, decision.lost.map(|(_, loss_reason)| loss_reason))
    }

    #[test]
    fn live_process_resumes_and_ended_one_is_reported() {
        use ExecutionState::*;
        assert_eq!(decided(&running(), &entry(Alive)), (ResumeAction::Resume, None));
        assert_eq!(decided(&running(), &entry(Exited)), (ResumeAction::Report, None));
    }

    #[test]
    fn execution_with_unknown_state_is_lost() {
        let loss_reason = Some(LossReason::ExecutionNotInJournal);
        let unknown = entry(ExecutionState::Unknown);
        assert_eq!(decided(&running(), &unknown), (ResumeAction::Abandon, loss_reason));
    }

    #[test]
    fn only_the_journal_of_the_claim_proves_that_no_process_started() {
        let claimed = Execution { started: false, ..execution() };
        let claimed = Job { state: State::Claimed(claimed), ..Job::default() };
        let never = JournalEntry { execution: None, ..entry(ExecutionState::NeverSpawned) };
        assert_eq!(decided(&claimed, &never).1, Some(LossReason::NeverSpawned));
        let (runner, loss_reason) = (RunnerId(Ulid(1)), LossReason::ExecutionNotInJournal);
        let other = decide(&claimed, runner, &never, false);
        assert_eq!(
            other.lost.map(|(_, loss_reason)| loss_reason),
            Some(loss_reason),
            "another journal"
        );
        assert_eq!(decided(&running(), &never).1, Some(loss_reason), "it has started");
    }

    #[test]
    fn executions_of_others_are_abandoned() {
        let other =
            JournalEntry { execution: Some(ExecutionId(Ulid(2))), ..entry(ExecutionState::Alive) };
        assert_eq!(decided(&running(), &other), (ResumeAction::Abandon, None));
        let stranger = decide(&running(), RunnerId(Ulid(2)), &entry(ExecutionState::Alive), true);
        assert_eq!((stranger.action, stranger.lost), (ResumeAction::Abandon, None));
    }

    #[test]
    fn ended_execution_must_complete_its_log() {
        let state =
            State::Ended { outcome: Outcome::Succeeded, execution: Some(ExecutionId(Ulid(1))) };
        let ended = Job { state, ..Job::default() };
        let (alive, exited) = (entry(ExecutionState::Alive), entry(ExecutionState::Exited));
        assert_eq!(decided(&ended, &exited).0, ResumeAction::Report);
        assert_eq!(decided(&ended, &alive).0, ResumeAction::Abandon);
    }
}
