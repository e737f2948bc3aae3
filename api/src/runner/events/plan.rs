//! Checks of a reported plan. Users approve its digest, so the digest must match the summary that
//! they see.
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId},
    job::{Job, JobProduct, Origin},
};
use ed25519_dalek::VerifyingKey;
use event_log::{
    encryption::data::{self, DataId, Stored},
    upload,
};
use proof::plan::PartsV2;
use schemas::{
    plugin::PlanDetails,
    runner::{DETAILS_BYTES, PlanReport, PlanV2, SaltedDetails},
};
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

/// Checks that this runner signed the plan, that its summary was uploaded, and that digest, details
/// and counts match. Otherwise a user could approve a plan that differs from the displayed one.
pub(super) async fn check(
    app: &App,
    runner: &RunnerCaller,
    (job, execution): (JobId, ExecutionId),
    (plan, details): (&PlanReport, Option<&SaltedDetails>),
) -> Result<(), Problem> {
    check_signature(app, runner, (job, execution), plan).await?;
    let job = app.engine.load::<Job>(job).await?;
    let (manifest, origin) = match &job.work {
        Some(work) if work.kind.product() == JobProduct::Plan => {
            (work.manifest.bytes(), &work.origin)
        }
        // The job aggregate rejects plans of jobs of other kinds.
        Some(_) | None => return Ok(()),
    };
    if digest_of(plan, &manifest) != plan.digest.bytes() {
        return Err(invalid(
            "invalid plan: digest is not the digest of file, summary, tool, the job's manifest and the parts in v2; compute \
             it from those",
        ));
    }
    check_details(plan, details)?;
    let PlanReport { noop, add, change, destroy, .. } = *plan;
    let counts: Counts = serde_json::from_slice(&uploaded(app, execution, &plan.summary).await?)
        .map_err(|error| invalid(&format!("invalid plan: summary has no counts: {error}")))?;
    if counts != (Counts { noop, add, change, destroy }) {
        return Err(invalid(
            "invalid plan: noop, add, change and destroy differ from the summary; send the counts of the summary",
        ));
    }
    // These are the last steps, because a rejected report must not store anything.
    let (clock, execution) = (app.log().clock(), execution.to_string());
    if let (Some(details), Origin::Step { install, .. }) = (details, origin) {
        store_details(app, &install.to_string(), &execution, details).await?;
    }
    match upload::move_to_blob(&app.pool, clock, &execution, &plan.summary).await? {
        true => Ok(()),
        false => Err(missing(&plan.summary)),
    }
}

fn digest_of(plan: &PlanReport, manifest: &proof::Hash) -> proof::Hash {
    let (file, summary) = (plan.file.bytes(), plan.summary.bytes());
    match &plan.v2 {
        None => proof::plan::digest_of(&file, &summary, manifest, &plan.tool),
        Some(PlanV2 { details, plugin, tool }) => {
            let [details, plugin, tool] =
                [details, plugin, tool].map(|part| part.as_ref().map(Digest::bytes));
            let parts = PartsV2 { details, plugin, tool };
            proof::plan::digest_v2(&file, &summary, manifest, &plan.tool, &parts)
        }
    }
}

/// Checks that the report has exactly the details that the plan digest covers.
fn check_details(plan: &PlanReport, details: Option<&SaltedDetails>) -> Result<(), Problem> {
    let covered = plan.v2.as_ref().and_then(|v2| v2.details.as_ref());
    if covered != details.map(SaltedDetails::digest).as_ref() {
        return Err(invalid(
            "invalid plan: its details do not match the digest in v2; send the details of that digest with the report",
        ));
    }
    let Some(SaltedDetails { content, .. }) = details else { return Ok(()) };
    if content.len() > DETAILS_BYTES {
        return Err(invalid(&format!(
            "invalid plan: its details are larger than {DETAILS_BYTES} bytes; shorten them"
        )));
    }
    let parsed: PlanDetails = serde_json::from_str(content).map_err(|error| {
        invalid(&format!("invalid plan: its details cannot be parsed: {error}"))
    })?;
    // Readers show the parsed details, so these must be all that the digest covers.
    match proof::canonical::json(&parsed) {
        Ok(bytes) if bytes == content.as_bytes() => Ok(()),
        Ok(_) | Err(_) => Err(invalid(
            "invalid plan: its details are not RFC 8785 JSON, or have unknown members; send exactly the known members",
        )),
    }
}

/// Stores the details, encrypted with the key of the install.
async fn store_details(
    app: &App,
    install: &str,
    execution: &str,
    details: &SaltedDetails,
) -> Result<(), Problem> {
    let digest = details.digest();
    let id = DataId { subject: install, digest: &digest };
    let plain = serde_json::to_vec(details).map_err(Problem::internal)?;
    let (keys, clock) = (app.log().key_ring(), app.log().clock());
    let stored = data::put(&app.pool, keys, clock, id, (execution, &plain)).await;
    match stored.map_err(Problem::internal)? {
        Stored::Stored => Ok(()),
        Stored::Erased => Err(Problem::new(
            Code::Fenced,
            "cannot record the plan: the data of this install was erased",
        )),
        Stored::OtherData => Err(invalid(
            "cannot record the plan: this execution has already reported other details; report one plan",
        )),
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
