//! Recovery of an install on a new host: the wrapped seeds that its runner stores here, and the
//! enrolment of the successor.
use std::collections::BTreeMap;

use axum::{Extension, Json, extract::State};
use domain::{
    actor::Actor,
    enrolment::{Enrolment, EnrolmentError, Purpose},
    ids::{InstallId, RunnerId},
    install::{Install, InstallCommand, Recovery},
    job::LossReason,
    runner::{self as aggregate, InstallPublicKeys, Runner, RunnerCommand},
};
use schemas::{
    manifest::Fence,
    runner::{
        MAX_RECIPIENTS, RecoveryOffer, RecoveryProof, RecoveryRequest, StateHead, WrappedSeed,
        succession_is_signed,
    },
};

use super::{caller, enrol::unknown_token, resume};
use crate::{
    auth::secret,
    execute::UnitOfWork,
    extract::{self, RunnerCaller},
    listen::Ticket,
    problem::{ApiResult, Code, Problem},
    state::App,
    state_versions,
    usecases::enrolments,
    wrapped_seeds,
};

/// Read what a new host needs to recover the keys of an install: the wrapped seeds, and the newest
/// states. The enrolment token stays valid.
#[utoipa::path(post, path = "/runner/v1/recovery", tag = "identity", request_body = RecoveryRequest,
    responses((status = 200, body = RecoveryOffer), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn offer(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    extract::Json(body): extract::Json<RecoveryRequest>,
) -> ApiResult<RecoveryOffer> {
    let (install, own) = install_of(&app, &body.token).await?;
    if let Some(Extension(connection)) = connection {
        connection.authenticate();
    }
    let recoveries = app.engine.load::<Install>(install).await?.recoveries;
    // Keys have one successor. The one that enrolled with this token may repeat its recovery.
    let has_other_successor = |former: RunnerId| {
        recoveries.iter().any(|known| known.former == former && Some(known.runner) != own)
    };
    let mut seeds = wrapped_seeds::of_install(&app.pool, install).await?;
    seeds.retain(|seed| !has_other_successor(seed.runner));
    let mut connection = app.pool.acquire().await?;
    let states = state_versions::newest_of_install(&mut connection, install).await?;
    let log_id = app.engine.log().log_id().to_string();
    Ok(Json(RecoveryOffer { install, log_id, seeds, states }))
}

/// Returns the install of a valid enrolment token, and the runner that has used the token: the
/// response to its enrolment may have been lost.
async fn install_of(app: &App, token: &str) -> Result<(InstallId, Option<RunnerId>), Problem> {
    let id = enrolments::id_of(token).ok_or_else(unknown_token)?;
    let enrolment = app.log().reload::<Enrolment>(&id.to_string()).await?.state;
    let issue = enrolment.issue.as_ref().filter(|issue| secret::matches(token, &issue.sha256));
    let issue = issue.ok_or_else(unknown_token)?;
    if enrolment.revoked {
        return Err(EnrolmentError::Revoked.into());
    }
    if app.now() >= issue.expires_at {
        return Err(EnrolmentError::Expired.into());
    }
    match issue.purpose {
        Purpose::Install { install } => {
            Ok((install, enrolment.redeemed.as_ref().map(|by| by.runner)))
        }
        Purpose::Build => {
            let detail = "cannot recover an install: the enrolment token is for a build runner; ask the vendor for a token \
                          of the install";
            Err(Problem::new(Code::Invalid, detail))
        }
    }
}

/// Stores the wrapped seeds of a runner that opens a session, and records their recipients.
pub(super) async fn record(
    app: &App,
    runner: &RunnerCaller,
    seeds: Option<&Vec<WrappedSeed>>,
) -> Result<(), Problem> {
    let (Some(install), Some(seeds)) = (runner.install, seeds) else { return Ok(()) };
    if seeds.len() > MAX_RECIPIENTS {
        let detail = format!(
            "cannot store the wrapped seeds: there are {}, and {MAX_RECIPIENTS} are allowed; remove recipients with \
             `stead-runner recovery remove`",
            seeds.len()
        );
        return Err(Problem::new(Code::Invalid, detail));
    }
    if let Some(why) = seeds.iter().find_map(WrappedSeed::problem) {
        let detail = format!(
            "cannot store a wrapped seed: it {why}; add the recipient again with `stead-runner recovery add`"
        );
        return Err(Problem::new(Code::Invalid, detail));
    }
    let recipients: BTreeMap<String, aggregate::WrappedSeed> =
        seeds.iter().map(|seed| (seed.recipient.clone(), recorded(seed))).collect();
    if app.engine.load::<Runner>(runner.id).await?.recipients == recipients {
        return Ok(());
    }
    wrapped_seeds::replace(&app.pool, app.now(), (install, runner.id), seeds).await?;
    let (call, id) = (caller::call(runner, "/runner/v1/sessions"), runner.id);
    let recorded = app.engine.transact(&call, move |unit| {
        let change = RunnerCommand::ChangeRecoveryRecipients { recipients: recipients.clone() };
        Box::pin(unit.handle::<Runner>(id, change))
    });
    recorded.await.map(drop).map_err(caller::retryable)
}

fn recorded(seed: &WrappedSeed) -> aggregate::WrappedSeed {
    let digest = proof::sha256(seed.wrapped.as_bytes()).into();
    aggregate::WrappedSeed { generation: seed.generation, digest }
}

/// Registers a new runner as the successor of the one whose keys it recovered, and revokes that one.
pub(super) async fn register(
    app: &App,
    unit: &mut UnitOfWork,
    (install, new): (InstallId, RunnerId),
    keys: &InstallPublicKeys,
    proof: &RecoveryProof,
) -> Result<(), Problem> {
    let former = unit.load::<Runner>(proof.former).await?;
    former.check_successor(install, keys)?;
    let former_key = former.install_keys().map(|keys| keys.signing_key.clone());
    let of = (app.log().log_id(), install);
    let is_signed = |key: &String| succession_is_signed(of, keys, key, &proof.signature);
    if !former_key.as_ref().is_some_and(is_signed) {
        let detail = "cannot recover the install: the keys of the former runner did not sign the new ones; recover the wrapped \
                      seed of this install";
        return Err(Problem::new(Code::Rejected, detail));
    }
    check_states(app, install, &proof.accepted_states).await?;
    let current = unit.load::<Install>(install).await?.stack.as_ref().map(|stack| stack.runner);
    for lost in [Some(proof.former), current].into_iter().flatten() {
        let reason = format!("its install was recovered on another host, as {new}");
        let revoke = RunnerCommand::Revoke { by: Actor::Runner(new), reason };
        unit.handle::<Runner>(lost, revoke).await?;
    }
    let (former, signature) = (proof.former, proof.signature.clone());
    let unproved = proof.accepted_states.iter();
    let unproved_states = unproved.map(|(name, head)| (name.clone(), head.version())).collect();
    let generation = keys.generation;
    let recovery = Recovery { runner: new, former, generation, signature, unproved_states };
    unit.handle::<Install>(install, InstallCommand::Recover(recovery)).await.map(drop)
}

/// Checks that the customer accepted the newest state of each component.
async fn check_states(
    app: &App,
    install: InstallId,
    accepted: &BTreeMap<String, StateHead>,
) -> Result<(), Problem> {
    let mut connection = app.pool.acquire().await?;
    let newest = state_versions::newest_of_install(&mut connection, install).await?;
    let differs = |name: &&String| newest.get(*name) != accepted.get(*name);
    let Some(name) = newest.keys().chain(accepted.keys()).find(differs) else { return Ok(()) };
    let detail = match newest.get(name) {
        Some(head) => format!(
            "cannot recover the install: the newest state of {name} is {}, and it was not accepted; repeat the recovery",
            head.version()
        ),
        None => {
            "cannot recover the install: the server has no state of an accepted component; repeat the recovery".into()
        }
    };
    Err(Problem::new(Code::StateConflict, detail))
}

/// Ends the permission of all executions of the former runner to store states, because another
/// server process may not know yet that it is revoked. Declares its executions lost. Can be repeated.
pub(super) async fn exclude_former(
    app: &App,
    (install, new): (InstallId, RunnerId),
    former: RunnerId,
) -> Result<(), Problem> {
    let position = state_versions::log_position(&app.pool).await?;
    let until = Fence { epoch: app.log().epoch(), position };
    state_versions::end_all(&app.pool, install, until).await?;
    let held: Vec<_> = {
        let dispatch_state = app.dispatch.state();
        let held = dispatch_state.jobs.held_by(former);
        held.filter_map(|(job, tracked)| Some((job, tracked.active_execution()?.id))).collect()
    };
    let caller = RunnerCaller {
        id: new,
        mode: aggregate::RunnerMode::Install,
        install: Some(install),
        generation: 0,
    };
    for (job, execution) in held {
        resume::declare_lost(app, &caller, job, execution, LossReason::HostReplaced).await?;
    }
    Ok(())
}
