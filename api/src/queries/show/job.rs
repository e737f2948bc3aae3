//! Converts rows of jobs, with their attempts, to the API type.
use projections::views::{jobs, waiting};
use schemas::control::{
    Waiting,
    jobs::{Attempt, FinalizedLog, Job, Resolution, SignedResult},
};

use super::{waiting, word};
use crate::queries::lookup::Lookup;

/// Converts a job with its purpose and what it waits for.
pub async fn job(look: &mut Lookup<'_>, row: &jobs::Row) -> Result<Job, sqlx::Error> {
    let cancel = row.cancel.as_ref().filter(|_| row.ended_at.is_none());
    let mut job = Job {
        id: row.job,
        kind: word(&row.work.kind),
        class: word(&row.work.class),
        state: row.state.as_str().into(),
        cancelling: cancel.is_some(),
        manifest: row.work.manifest.clone(),
        install: row.install(),
        run: row.step().map(|(run, _)| run),
        step: row.step().map(|(_, step)| step),
        build: row.build(),
        name: None,
        attempts: Vec::new(),
        waiting: None,
        reason: row.failure.as_ref().map(|failure| word(&failure.reason)),
        detail: row.failure.as_ref().map(|failure| failure.detail.clone()),
        resolution: None,
        queued_at: row.queued_at,
        ended_at: row.ended_at,
    };
    if let Some(resolved) = &row.resolution {
        look.for_actors([&resolved.by]).await?;
        job.resolution = Some(resolution(look, resolved));
    }
    for row in &row.attempts {
        let signed = match &row.signed {
            Some(said) => Some(signed(look, row, said).await?),
            None => None,
        };
        job.attempts.push(Attempt { signed, ..attempt(row) });
    }
    if cancel.is_some_and(|cancel| cancel.unconfirmed) {
        job.detail = Some("cancellation requested; the runner has not confirmed it yet".into());
    }
    if let Some(build) = row.build() {
        let build = look.build(build).await?;
        job.name = build.map(|build| build.order.component_name.clone());
    }
    if let Some((run, step)) = row.step() {
        let run = look.run(run).await?;
        let step = run.as_ref().and_then(|run| run.state.step(step));
        job.name = step.map(|step| waiting::name(&step.spec.target).to_owned());
    }
    if row.ended_at.is_none() {
        job.waiting = awaited(look, row).await?.map(waiting);
        if job.waiting.is_none() && look.is_suspect(row.job) {
            job.waiting = Some(missing_contact(row));
        }
    }
    Ok(job)
}

/// Converts the resolution of an unknown outcome. The caller must have prefetched the name of the
/// resolution's author.
pub fn resolution(look: &Lookup<'_>, resolved: &jobs::ResolutionRecord) -> Resolution {
    Resolution {
        execution: resolved.execution,
        resolution: word(&resolved.resolution),
        by: resolved.by.to_string(),
        by_name: look.name(&resolved.by),
        reason: resolved.reason.clone(),
        at: resolved.at,
    }
}

/// Shows missing contact before the job counts as disconnected.
fn missing_contact(row: &jobs::Row) -> Waiting {
    Waiting {
        on: "runner".into(),
        detail: "no contact with the runner for a while; it may reconnect at any time".into(),
        job: Some(row.job),
        run: None,
        install: row.install(),
        runner: row.held().map(|held| held.runner),
    }
}

async fn awaited(
    look: &mut Lookup<'_>,
    row: &jobs::Row,
) -> Result<Option<waiting::Waiting>, sqlx::Error> {
    let Some(install) = row.install() else {
        let runner = look.build_runner().await?;
        let held = match &runner {
            Some(runner) => look.held(runner.runner).await?.len(),
            None => 0,
        };
        return Ok(waiting::of_job(row, runner.as_deref().map(|row| look.awaited(row)), held));
    };
    let runner = look.install(install).await?.and_then(|install| install.runner());
    let runner = match runner {
        Some(runner) => look.runner(runner).await?,
        None => None,
    };
    let held = match &runner {
        Some(runner) => look.held(runner.runner).await?.len(),
        None => 0,
    };
    Ok(waiting::of_job(row, runner.as_deref().map(|row| look.awaited(row)), held))
}

async fn signed(
    look: &mut Lookup<'_>,
    row: &jobs::Attempt,
    said: &domain::job::SignedResult,
) -> Result<SignedResult, sqlx::Error> {
    let runner = look.runner(row.runner).await?;
    let key_matches_runner = runner.is_some_and(|runner| {
        runner.state.key() == Some(&said.key) || runner.state.former_keys.contains(&said.key)
    });
    Ok(SignedResult {
        statement: said.statement.clone(),
        digest: proof::sha256(said.statement.as_bytes()).into(),
        key: said.key.clone(),
        key_matches_runner,
        signature: said.signature.clone(),
    })
}

fn attempt(row: &jobs::Attempt) -> Attempt {
    Attempt {
        attempt: row.attempt,
        execution: row.execution,
        runner: row.runner,
        phase: row.phases.last().map(|(phase, _)| phase.clone()),
        claimed_at: row.claimed_at,
        started_at: row.started_at,
        ended_at: row.ended_at,
        exit_code: row.exit_code,
        signal: row.signal,
        log: row.log.as_ref().map(|log| FinalizedLog {
            length_bytes: log.length_bytes,
            sha256: log.sha256.clone(),
            omitted_bytes: log.omitted_bytes,
            complete: log.complete,
        }),
        signed: None,
        warnings: row.notes.clone(),
    }
}
