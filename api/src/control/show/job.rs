//! Jobs and their attempts.
use domain::job::{Contact, Job as JobState, JobEvent, Origin, State};
use domain::run::Run;
use schemas::control::jobs::{Attempt, Job, SealedLog};

use super::{waiting, word};
use crate::{control::read::History, problem::Problem, state::App};

/// A job; nothing when the stream has no work yet.
pub async fn job(app: &App, history: &History<JobState>) -> Result<Option<Job>, Problem> {
    let Some(work) = &history.state.work else { return Ok(None) };
    let id = history.id.parse().map_err(Problem::internal)?;
    let cancel = history.state.execution().and_then(|held| held.cancel.as_ref());
    let mut job = Job {
        id,
        kind: word(&work.kind),
        class: word(&work.class),
        state: state(&history.state).into(),
        cancelling: cancel.is_some(),
        manifest: work.manifest.clone(),
        install: None,
        run: None,
        step: None,
        build: None,
        name: None,
        attempts: attempts(history),
        waiting: waiting::job(app, &history.state).await?,
        reason: None,
        detail: None,
        queued_at: history.began(),
        ended_at: history.last(JobEvent::is_end),
    };
    match work.origin {
        Origin::Build { build, .. } => {
            let order = app.engine.load::<domain::build::Build>(build).await?.order;
            (job.build, job.name) = (Some(build), order.map(|order| order.component_name));
        }
        Origin::Step { install, run, step } => {
            let state = app.engine.load::<Run>(run).await?;
            job.name = state.step(step).map(|step| super::run::name(&step.spec.target));
            (job.install, job.run, job.step) = (Some(install), Some(run), Some(step));
        }
    }
    (job.reason, job.detail) = why(history);
    if cancel.is_some_and(|cancel| cancel.unconfirmed) {
        job.detail = Some("asked to stop, and the runner has not confirmed it".into());
    }
    Ok(Some(job))
}

fn state(job: &JobState) -> String {
    match &job.state {
        State::Unborn | State::Queued { .. } => "queued".into(),
        State::Claimed(held) | State::Running(held) if held.contact == Contact::Disconnected => {
            "disconnected".into()
        }
        State::Claimed(_) => "claimed".into(),
        State::Running(_) => "running".into(),
        State::OutcomeUnknown(_) => "outcome_unknown".into(),
        State::Ended { outcome, .. } => outcome.to_string(),
    }
}

/// Why it did not succeed.
fn why(history: &History<JobState>) -> (Option<String>, Option<String>) {
    let said = history.events.iter().rev().find_map(|(_, event)| match event {
        JobEvent::Failed { reason, detail, .. } => Some((word(reason), detail.clone())),
        JobEvent::Lost { proof, .. } => Some((word(proof), String::new())),
        _ => None,
    });
    let (reason, detail) = said.unzip();
    (reason, detail.filter(|detail| !detail.is_empty()))
}

/// One for each claim, told from the events after it.
fn attempts(history: &History<JobState>) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for (stored, event) in &history.events {
        let at = stored.recorded_at;
        if let JobEvent::Claimed { execution, runner, attempt, .. } = event {
            attempts.push(Attempt {
                attempt: *attempt,
                execution: *execution,
                runner: *runner,
                phase: None,
                claimed_at: at,
                started_at: None,
                ended_at: None,
                exit_code: None,
                signal: None,
                log: None,
            });
            continue;
        }
        if let JobEvent::LogSealed(log) = event {
            let of = attempts.iter_mut().find(|attempt| attempt.execution == log.execution);
            if let Some(attempt) = of {
                attempt.log = Some(SealedLog {
                    length_bytes: log.length_bytes,
                    sha256: log.sha256.clone(),
                    omitted_bytes: log.omitted_bytes,
                    complete: log.complete,
                });
            }
            continue;
        }
        let Some(attempt) = attempts.last_mut() else { continue };
        match event {
            JobEvent::Started { .. } => attempt.started_at = Some(at),
            JobEvent::PhaseEntered { phase, .. } => attempt.phase = Some(phase.clone()),
            JobEvent::Requeued { .. } => attempt.ended_at = Some(at),
            JobEvent::Succeeded { exit_code, .. } => {
                (attempt.ended_at, attempt.exit_code) = (Some(at), *exit_code);
            }
            JobEvent::Failed { exit_code, signal, .. } => {
                attempt.ended_at = Some(at);
                (attempt.exit_code, attempt.signal) = (*exit_code, *signal);
            }
            JobEvent::Cancelled { .. } | JobEvent::Lost { .. } => attempt.ended_at = Some(at),
            _ => {}
        }
    }
    attempts
}
