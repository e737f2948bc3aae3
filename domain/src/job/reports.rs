//! Reports of a runner. Each report is recorded once and in order.
use super::{
    Decision, Execution, ExecutionResult, Job, JobError, JobEvent, JobKind, JobProduct, Outcome,
    Report, SignedResult, State,
};
use crate::ids::ExecutionId;

/// Maximum number of phases that one execution may report.
pub const PHASES: usize = 64;

impl Job {
    pub(super) fn record_report(
        &self,
        execution: ExecutionId,
        seq: u64,
        report: Report,
        signed: Option<SignedResult>,
    ) -> Decision {
        let state = self.fence(execution)?;
        let event = report.clone().into_event(execution, seq, signed);
        let before = usize::try_from(seq).ok().and_then(|seq| seq.checked_sub(1));
        if let Some(recorded) = before.and_then(|before| self.reports.get(before)) {
            let is_repeated = recorded.unsigned() == event.unsigned();
            return if is_repeated { Ok(vec![]) } else { Err(JobError::SeqConflict { seq }) };
        }
        match state {
            // Reports are also accepted while the outcome is unknown, because the final report can
            // follow only after all earlier reports.
            State::Claimed(held) | State::Running(held) | State::OutcomeUnknown(held) => {
                let expected = self.reports.len() as u64 + 1;
                if seq != expected {
                    return Err(JobError::SeqGap { expected });
                }
                self.check_report(held, &report)?;
                Ok(vec![event])
            }
            // An actor resolved the outcome, and the late report has the same outcome.
            State::Ended { outcome, .. } if report.outcome() == Some(*outcome) => Ok(vec![]),
            State::NotCreated | State::Queued { .. } | State::Ended { .. } => Err(self.rejection()),
        }
    }

    fn check_report(&self, held: &Execution, report: &Report) -> Result<(), JobError> {
        let ensure = |condition: bool, error| if condition { Ok(()) } else { Err(error) };
        let kind = self.work.as_ref().map(|work| work.kind);
        let has_product = |product| kind.is_some_and(|kind| kind.product() == product);
        let count = |matches: fn(&JobEvent) -> bool| {
            self.reports.iter().filter(|event| matches(event)).count()
        };
        match report {
            Report::Started { .. } => {
                ensure(!held.started, JobError::AlreadyReported { what: "its start" })
            }
            Report::Finished(ExecutionResult::Failed { reason, .. }) => {
                ensure(reason.may_be_reported(), JobError::ReasonNotReportable)
            }
            Report::Finished(ExecutionResult::Cancelled { .. }) => {
                ensure(held.cancel.is_some(), JobError::CancelNotRequested)
            }
            Report::Finished(ExecutionResult::Succeeded { .. }) | Report::Outputs { .. } => {
                ensure(held.started, JobError::NotStarted)
            }
            Report::State { .. } => {
                let what = "a state";
                ensure(held.started, JobError::NotStarted)?;
                ensure(kind.is_some_and(JobKind::uses_state), JobError::NotThisKind { what })?;
                let states = count(|event| matches!(event, JobEvent::StateReported { .. }));
                ensure(states == 0, JobError::AlreadyReported { what })
            }
            Report::Phase { .. } => {
                ensure(held.started, JobError::NotStarted)?;
                let entered = count(|event| matches!(event, JobEvent::PhaseEntered { .. }));
                ensure(entered < PHASES, JobError::TooManyPhases { most: PHASES })
            }
            Report::Plan(_) => {
                let what = "a plan";
                ensure(held.started, JobError::NotStarted)?;
                ensure(has_product(JobProduct::Plan), JobError::NotThisKind { what })?;
                let plans = count(|event| matches!(event, JobEvent::PlanProduced { .. }));
                ensure(plans == 0, JobError::AlreadyReported { what })
            }
            Report::Artifact(_) => {
                let what = "an artifact";
                ensure(held.started, JobError::NotStarted)?;
                ensure(has_product(JobProduct::Artifact), JobError::NotThisKind { what })?;
                let artifacts = count(|event| matches!(event, JobEvent::ArtifactPushed { .. }));
                ensure(artifacts == 0, JobError::AlreadyReported { what })
            }
            Report::Checks { .. } => {
                let what = "checks";
                ensure(held.started, JobError::NotStarted)?;
                ensure(has_product(JobProduct::Checks), JobError::NotThisKind { what })?;
                let checks = count(|event| matches!(event, JobEvent::ChecksReported { .. }));
                ensure(checks == 0, JobError::AlreadyReported { what })
            }
        }
    }
}

impl Report {
    fn into_event(
        self,
        execution: ExecutionId,
        seq: u64,
        signed: Option<SignedResult>,
    ) -> JobEvent {
        match self {
            Report::Started { isolation } => JobEvent::Started { execution, seq, isolation },
            Report::Phase { phase } => JobEvent::PhaseEntered { execution, seq, phase },
            Report::Plan(plan) => JobEvent::PlanProduced { execution, seq, plan },
            Report::Outputs { outputs } => JobEvent::OutputsReported { execution, seq, outputs },
            Report::State { state } => JobEvent::StateReported { execution, seq, state },
            Report::Artifact(artifact) => JobEvent::ArtifactPushed { execution, seq, artifact },
            Report::Checks { checks } => JobEvent::ChecksReported { execution, seq, checks },
            Report::Finished(result) => result.into_event(execution, Some(seq), signed),
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        match self {
            Report::Finished(ExecutionResult::Succeeded { .. }) => Some(Outcome::Succeeded),
            Report::Finished(ExecutionResult::Failed { .. }) => Some(Outcome::Failed),
            Report::Finished(ExecutionResult::Cancelled { .. }) => Some(Outcome::Cancelled),
            Report::Started { .. }
            | Report::Phase { .. }
            | Report::Plan(_)
            | Report::Outputs { .. }
            | Report::State { .. }
            | Report::Artifact(_)
            | Report::Checks { .. } => None,
        }
    }
}

impl ExecutionResult {
    fn into_event(
        self,
        execution: ExecutionId,
        seq: Option<u64>,
        signed: Option<SignedResult>,
    ) -> JobEvent {
        match self {
            ExecutionResult::Succeeded { exit_code, not_ended } => {
                JobEvent::Succeeded { execution, seq, exit_code, signed, not_ended }
            }
            ExecutionResult::Failed { reason, detail, exit_code, signal, not_ended } => {
                JobEvent::Failed {
                    execution: Some(execution),
                    seq,
                    reason,
                    detail,
                    exit_code,
                    signal,
                    signed,
                    not_ended,
                }
            }
            ExecutionResult::Cancelled { forced, not_ended } => {
                let execution = Some(execution);
                JobEvent::Cancelled { execution, seq, forced, signed, not_ended }
            }
        }
    }
}
