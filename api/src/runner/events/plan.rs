//! Checks of a reported plan. Users approve its digest, so the digest must match the summary that
//! they see.
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId},
    job::{Job, JobProduct},
};
use ed25519_dalek::VerifyingKey;
use event_log::upload;
use schemas::runner::PlanReport;
use serde::Deserialize;

use super::keys::{self, IdentityKeys};
use crate::{
    extract::RunnerCaller,
    problem::{Code, Problem},
    state::App,
};

/// Counts of a summary that are displayed with its digest.
#[derive(Deserialize, PartialEq)]
struct Counts {
    noop: bool,
    add: u64,
    change: u64,
    destroy: u64,
}

/// Checks that this runner signed the plan, that its summary was uploaded, and that digest and
/// counts match. Otherwise a user could approve a plan that differs from the displayed one.
pub(super) async fn check(
    app: &App,
    runner: &RunnerCaller,
    (job, execution): (JobId, ExecutionId),
    plan: &PlanReport,
) -> Result<(), Problem> {
    check_signature(app, runner, (job, execution), plan).await?;
    let job = app.engine.load::<Job>(job).await?;
    let manifest = match &job.work {
        Some(work) if work.kind.product() == JobProduct::Plan => work.manifest.bytes(),
        // The job aggregate rejects plans of jobs of other kinds.
        Some(_) | None => return Ok(()),
    };
    let (file, summary) = (plan.file.bytes(), plan.summary.bytes());
    if proof::plan::digest_of(&file, &summary, &manifest, &plan.tool) != plan.digest.bytes() {
        return Err(invalid(
            "invalid plan: digest is not the digest of file, summary, tool and the job's manifest; compute it from those",
        ));
    }
    let PlanReport { noop, add, change, destroy, .. } = *plan;
    let counts: Counts = serde_json::from_slice(&uploaded(app, execution, &plan.summary).await?)
        .map_err(|error| invalid(&format!("invalid plan: summary has no counts: {error}")))?;
    if counts != (Counts { noop, add, change, destroy }) {
        return Err(invalid(
            "invalid plan: noop, add, change and destroy differ from the summary; send the counts of the summary",
        ));
    }
    // This is the last step, because a rejected report must not store anything.
    let (clock, execution) = (app.log().clock(), execution.to_string());
    match upload::move_to_blob(&app.pool, clock, &execution, &plan.summary).await? {
        true => Ok(()),
        false => Err(missing(&plan.summary)),
    }
}

/// Checks that the plan is signed by the runner, so that its origin can be verified later.
async fn check_signature(
    app: &App,
    runner: &RunnerCaller,
    (job, execution): (JobId, ExecutionId),
    plan: &PlanReport,
) -> Result<(), Problem> {
    let of = (job, execution);
    if is_signed(&keys::cached_keys(app, runner).await?, of, plan) {
        return Ok(());
    }
    let current = keys::logged_keys(app, runner).await?;
    if is_signed(&current, of, plan) {
        return Ok(());
    }
    if is_signed_by(&current.former, &plan_statement(of, plan), &plan.signature) {
        return Err(keys::former_key_problem(runner, "plan"));
    }
    Err(invalid(
        "invalid plan: signature is not by this runner's identity key; sign the plan with that key",
    ))
}

/// Returns true if the runner's current key signed this plan.
pub(super) fn is_signed(keys: &IdentityKeys, of: (JobId, ExecutionId), plan: &PlanReport) -> bool {
    is_signed_by(&keys.current, &plan_statement(of, plan), &plan.signature)
}

fn plan_statement((job, execution): (JobId, ExecutionId), plan: &PlanReport) -> Vec<u8> {
    proof::plan::statement(&plan.digest.bytes(), &job.to_string(), &execution.to_string())
}

fn is_signed_by(keys: &[VerifyingKey], statement: &[u8], signature: &str) -> bool {
    keys.iter().any(|key| proof::plan::is_signed(statement, signature, key))
}

/// Uploaded bytes that a report references by digest.
async fn uploaded(app: &App, execution: ExecutionId, digest: &Digest) -> Result<Vec<u8>, Problem> {
    let bytes = upload::read(&app.pool, &execution.to_string(), digest).await?;
    bytes.ok_or_else(|| missing(digest))
}

fn missing(digest: &Digest) -> Problem {
    invalid(&format!(
        "cannot record the plan: its summary is not uploaded; PUT /runner/v1/blobs/{digest}, then repeat the report"
    ))
}

fn invalid(detail: &str) -> Problem {
    Problem::new(Code::Invalid, detail)
}
