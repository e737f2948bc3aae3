//! Converts rows of jobs, with their attempts, to the API type.
use domain::{git::without_userinfo, job::Origin};
use projections::views::{jobs, waiting};
use schemas::control::{
    Waiting,
    jobs::{Attempt, FinalizedLog, Job, Resolution, SignedResult},
};

use super::{variant_name, waiting};
use crate::queries::lookup::Lookup;

/// Converts a job, with the name of its component or action and the condition that it waits for.
pub(crate) async fn job(lookup: &mut Lookup<'_>, row: &jobs::Row) -> Result<Job, sqlx::Error> {
    let cancel = row.cancel.as_ref().filter(|_| row.ended_at.is_none());
    let mut job = Job {
        id: row.job,
        kind: variant_name(&row.work.kind),
        class: variant_name(&row.work.class),
        state: row.state.as_str().into(),
        cancelling: cancel.is_some(),
        manifest: row.work.manifest.clone(),
        install: row.install(),
        run: row.run(),
        step: row.step().map(|(_, step)| step),
        build: row.build(),
        name: None,
        attempts: Vec::new(),
        waiting: None,
        reason: row.failure.as_ref().map(|failure| variant_name(&failure.reason)),
        detail: row.failure.as_ref().map(|failure| failure.detail.clone()),
        resolution: None,
        queued_at: row.queued_at,
        ended_at: row.ended_at,
    };
    if let Some(resolved) = &row.resolution {
        lookup.for_actors([&resolved.by]).await?;
        job.resolution = Some(resolution(lookup, resolved));
    }
    for row in &row.attempts {
        let signed = match &row.signed {
            Some(result) => Some(signed_result(lookup, row, result).await?),
            None => None,
        };
        job.attempts.push(Attempt { signed, ..attempt(row) });
    }
    if cancel.is_some_and(|cancel| cancel.unconfirmed) {
        job.detail = Some("cancellation requested; the runner has not confirmed it yet".into());
    }
    if let Some(build) = row.build() {
        let build = lookup.build(build).await?;
        job.name = build.map(|build| build.order.component_name.clone());
    }
    if let Origin::Preflight { .. } = &row.work.origin {
        job.name = Some(row.work.kind.as_str().into());
    }
    if let Origin::Source { repo, reference, .. } = &row.work.origin {
        job.name = Some(format!("{} at {reference}", without_userinfo(repo)));
    }
    if let Some((run, step)) = row.step() {
        let run = lookup.run(run).await?;
        let step = run.as_ref().and_then(|run| run.state.step(step));
        job.name = step.map(|step| waiting::name(&step.spec.target).to_owned());
    }
    if row.ended_at.is_none() {
        job.waiting = waiting_for(lookup, row).await?.map(waiting);
        if job.waiting.is_none() && lookup.is_suspect(row.job) {
            job.waiting = Some(missing_contact(row));
        }
    }
    Ok(job)
}

/// Converts the resolution of an unknown outcome. The caller must have prefetched the name of the
/// resolution's author.
pub(super) fn resolution(lookup: &Lookup<'_>, resolved: &jobs::ResolutionRecord) -> Resolution {
    Resolution {
        execution: resolved.execution,
        resolution: variant_name(&resolved.resolution),
        by: resolved.by.to_string(),
        by_name: lookup.name(&resolved.by),
        reason: resolved.reason.clone(),
        at: resolved.at,
    }
}

/// Returns the condition that a job waits for while its runner is out of contact, before the job
/// counts as disconnected.
fn missing_contact(row: &jobs::Row) -> Waiting {
    Waiting {
        on: "runner".into(),
        detail: "no contact with the runner; it may still reconnect".into(),
        job: Some(row.job),
        run: None,
        install: row.install(),
        runner: row.held().map(|held| held.runner),
    }
}

async fn waiting_for(
    lookup: &mut Lookup<'_>,
    row: &jobs::Row,
) -> Result<Option<waiting::Waiting>, sqlx::Error> {
    let Some(install) = row.install() else {
        let runner = lookup.build_runner().await?;
        let held = match &runner {
            Some(runner) => lookup.claimed_jobs(runner.runner).await?.len(),
            None => 0,
        };
        return Ok(waiting::of_job(
            row,
            runner.as_deref().map(|row| lookup.with_contact(row)),
            held,
        ));
    };
    let runner = lookup.install(install).await?.and_then(|install| install.runner());
    let runner = match runner {
        Some(runner) => lookup.runner(runner).await?,
        None => None,
    };
    let held = match &runner {
        Some(runner) => lookup.claimed_jobs(runner.runner).await?.len(),
        None => 0,
    };
    Ok(waiting::of_job(row, runner.as_deref().map(|row| lookup.with_contact(row)), held))
}

async fn signed_result(
    lookup: &mut Lookup<'_>,
    row: &jobs::Attempt,
    result: &domain::job::SignedResult,
) -> Result<SignedResult, sqlx::Error> {
    let runner = lookup.runner(row.runner).await?;
    let key_matches_runner = runner.is_some_and(|runner| {
        runner.state.key() == Some(&result.key) || runner.state.former_keys.contains(&result.key)
    });
    Ok(SignedResult {
        statement: result.statement.clone(),
        digest: proof::sha256(result.statement.as_bytes()).into(),
        key: result.key.clone(),
        key_matches_runner,
        signature: result.signature.clone(),
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
        isolation: row.isolation.clone(),
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
