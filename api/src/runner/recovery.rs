//! Recovery of an install on a new host: the wrapped seeds that its runner stores here, and the
//! enrolment of the successor.
use std::collections::BTreeMap;

use axum::{Extension, Json, extract::State};
use domain::{
    actor::Actor,
    enrolment::{Enrolment, EnrolmentCommand, Purpose},
    ids::{InstallId, RunnerId},
    install::{Install, InstallCommand, Recovery},
    runner::{self as aggregate, InstallPublicKeys, Runner, RunnerCommand},
};
use event_log::{Meta, transaction::completed};
use schemas::{
    manifest::Fence,
    runner::{
        MAX_RECIPIENTS, RecoveryOffer, RecoveryProof, RecoveryRequest, StateHead, WrappedSeed,
        succession_is_signed,
    },
};

use super::{
    caller,
    enrol::{Request, unknown_token},
};
use crate::{
    auth::secret,
    execute::{Call, Done, UnitOfWork},
    extract::{self, RunnerCaller},
    ids,
    listen::Ticket,
    problem::{ApiResult, Code, Problem},
    state::App,
    state_versions,
    usecases::enrolments,
    wrapped_seeds,
};

/// Read what a new host needs to recover the keys of an install: the wrapped seeds, and the newest
/// states. The enrolment token stays valid. The log records each offer.
#[utoipa::path(post, path = "/runner/v1/recovery", tag = "identity", request_body = RecoveryRequest,
    responses((status = 200, body = RecoveryOffer), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn offer(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    extract::Json(body): extract::Json<RecoveryRequest>,
) -> ApiResult<RecoveryOffer> {
    let install = record_offer(&app, &body.token).await?;
    if let Some(Extension(connection)) = connection {
        connection.authenticate();
    }
    let known = app.engine.load::<Install>(install).await?;
    let runners = wrapped_seeds::runners(&app.pool, install).await?;
    let runners = with_current_keys(&app, &known, runners).await?;
    let seeds = wrapped_seeds::of_runners(&app.pool, install, &runners).await?;
    let mut connection = app.pool.acquire().await?;
    let states = state_versions::newest_of_install(&mut connection, install).await?;
    let (log_id, awaited) = (app.engine.log().log_id().to_string(), known.awaited_states);
    Ok(Json(RecoveryOffer { install, log_id, seeds, states, awaited }))
}

/// Records that a holder of the token reads the offer. Returns the install of the token.
async fn record_offer(app: &App, token: &str) -> Result<InstallId, Problem> {
    let id = enrolments::id_of(token).ok_or_else(unknown_token)?;
    let meta = Meta::new(Actor::System, ids::new_ulid().to_string());
    let call = Call::of(Meta { route: Some("/runner/v1/recovery".into()), ..meta });
    let token = token.to_owned();
    let recorded = app.engine.transact(&call, move |unit| {
        let token = token.clone();
        Box::pin(async move {
            let install = install_of(unit.load::<Enrolment>(id).await?, &token)?;
            unit.handle::<Enrolment>(id, EnrolmentCommand::OfferRecovery).await?;
            Ok(install)
        })
    });
    Ok(recorded.await.map_err(caller::retryable)?.value)
}

/// Returns the install of an enrolment token.
fn install_of(enrolment: &Enrolment, token: &str) -> Result<InstallId, Problem> {
    let issue = enrolment.issue.as_ref().filter(|issue| secret::matches(token, &issue.sha256));
    match issue.ok_or_else(unknown_token)?.purpose {
        Purpose::Install { install } => Ok(install),
        Purpose::Build => {
            let detail = "cannot recover an install: the enrolment token is for a build runner; ask the vendor for a token \
                          of the install";
            Err(Problem::new(Code::Invalid, detail))
        }
    }
}

/// Returns those of the runners that have the same keys as the runner of the install, which comes
/// first. Nobody can recover other keys: they were replaced, or have a successor.
async fn with_current_keys(
    app: &App,
    install: &Install,
    runners: Vec<RunnerId>,
) -> Result<Vec<RunnerId>, Problem> {
    let Some(current) = install.stack.as_ref().map(|stack| stack.runner) else { return Ok(vec![]) };
    let current_runner = app.engine.load::<Runner>(current).await?;
    let Some(keys) = current_runner.install_keys() else { return Ok(vec![]) };
    let mut same = vec![];
    for runner in runners {
        let known = app.engine.load::<Runner>(runner).await?;
        if known.install_keys().is_some_and(|of_runner| of_runner.is_same(keys)) {
            same.push(runner);
        }
    }
    same.sort_by_key(|runner| *runner != current);
    Ok(same)
}

/// Stores the wrapped seeds of a runner that opens a session, and records their recipients.
pub(super) async fn record(
    app: &App,
    runner: &RunnerCaller,
    seeds: Option<&Vec<WrappedSeed>>,
) -> Result<(), Problem> {
    let (Some(install), Some(seeds)) = (runner.install, seeds) else { return Ok(()) };
    check_seeds(seeds)?;
    let recipients: BTreeMap<String, aggregate::WrappedSeed> =
        seeds.iter().map(|seed| (seed.recipient.clone(), recorded(seed))).collect();
    if app.engine.load::<Runner>(runner.id).await?.recipients == recipients {
        return Ok(());
    }
    wrapped_seeds::replace(&app.pool, app.now(), (install, runner.id), seeds).await?;
    let recoveries = app.engine.load::<Install>(install).await?.recoveries;
    if !seeds.is_empty() && recoveries.iter().any(|known| known.runner == runner.id) {
        wrapped_seeds::delete_others(&app.pool, (install, runner.id)).await?;
    }
    let (call, id) = (caller::call(runner, "/runner/v1/sessions"), runner.id);
    let recorded = app.engine.transact(&call, move |unit| {
        let change = RunnerCommand::ChangeRecoveryRecipients { recipients: recipients.clone() };
        Box::pin(unit.handle::<Runner>(id, change))
    });
    recorded.await.map(drop).map_err(caller::retryable)
}

fn check_seeds(seeds: &[WrappedSeed]) -> Result<(), Problem> {
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
    Ok(())
}

fn recorded(seed: &WrappedSeed) -> aggregate::WrappedSeed {
    let digest = proof::sha256(seed.wrapped.as_bytes()).into();
    aggregate::WrappedSeed { generation: seed.generation, digest }
}

/// Enrols the successor of a lost host. No state of the install can be stored between the check of
/// the accepted ones and the fence against the former runner.
pub(super) async fn enrol(
    app: &App,
    request: Request,
    proof: RecoveryProof,
) -> Result<Done<(RunnerId, Option<InstallId>)>, Problem> {
    let app = app.clone();
    completed(async move {
        let (new, body) = (request.new, &request.body);
        let id = enrolments::id_of(&body.token).ok_or_else(unknown_token)?;
        let enrolment = app.log().reload::<Enrolment>(&id.to_string()).await?.state;
        let install = install_of(&enrolment, &body.token)?;
        if enrolment.redeemed.is_some() {
            // The request was handled before. It changes nothing, whatever its proof says.
            return request.commit(&app, BTreeMap::new()).await;
        }
        let keys = body.install_keys.as_ref().ok_or_else(unsigned)?;
        check_seeds(&proof.wrapped_seeds)?;
        check_signature(&app.engine.load(proof.former).await?, &app, install, keys, &proof)?;
        let Some(held) = state_versions::hold(&app.pool, install).await? else {
            let detail = "cannot recover the install: a state is being stored; try again";
            return Err(Problem::new(Code::Busy, detail).retry_after(1));
        };
        // Before the commit: the keys have only one successor, whose host may be lost at once.
        let of = (install, new);
        wrapped_seeds::replace(&app.pool, app.now(), of, &proof.wrapped_seeds).await?;
        match request.commit(&app, held.newest.clone()).await {
            Ok(done) if done.value.0 == new => {
                let until = Fence { epoch: app.log().epoch(), position: done.position };
                held.end_all(until).await?;
                Ok(done)
            }
            not_enrolled => {
                held.release().await?;
                wrapped_seeds::replace(&app.pool, app.now(), of, &[]).await?;
                not_enrolled
            }
        }
    })
    .await
}

fn unsigned() -> Problem {
    let detail = "cannot recover the install: the keys of the former runner did not sign the new ones; recover the wrapped \
                  seed of this install";
    Problem::new(Code::Rejected, detail)
}

fn check_signature(
    former: &Runner,
    app: &App,
    install: InstallId,
    keys: &InstallPublicKeys,
    proof: &RecoveryProof,
) -> Result<(), Problem> {
    let former_key = former.install_keys().map(|keys| &keys.signing_key);
    let of = (app.log().log_id(), install);
    let is_signed = |key: &String| succession_is_signed(of, keys, key, &proof.signature);
    former_key.is_some_and(is_signed).then_some(()).ok_or_else(unsigned)
}

/// Registers a new runner as the successor of the one whose keys it recovered, and revokes that one.
/// The caller has verified the signature: the keys of a generation never change.
pub(super) async fn register(
    unit: &mut UnitOfWork,
    (install, new): (InstallId, RunnerId),
    (keys, proof): (&InstallPublicKeys, &RecoveryProof),
    newest: &BTreeMap<String, StateHead>,
) -> Result<(), Problem> {
    let (former, signature) = (proof.former, proof.signature.clone());
    let unproved = proof.accepted_states.iter();
    let unproved_states = unproved.map(|(name, head)| (name.clone(), head.version())).collect();
    let generation = keys.generation;
    let recovery = Recovery { runner: new, former, generation, signature, unproved_states };
    unit.handle::<Install>(install, InstallCommand::Recover(recovery)).await?;
    let current = unit.load::<Install>(install).await?.stack.as_ref().map(|stack| stack.runner);
    let current_keys = match current {
        Some(current) => unit.load::<Runner>(current).await?.install_keys().cloned(),
        None => None,
    };
    let former_runner = unit.load::<Runner>(former).await?;
    former_runner.check_successor(install, keys, current_keys.as_ref())?;
    check_states(newest, &proof.accepted_states)?;
    for lost in [Some(former), current].into_iter().flatten() {
        let reason = format!("its install was recovered on another host, as {new}");
        let revoke = RunnerCommand::Revoke { by: Actor::Runner(new), reason };
        unit.handle::<Runner>(lost, revoke).await?;
    }
    Ok(())
}

/// Checks that the customer accepted the newest state of each component.
fn check_states(
    newest: &BTreeMap<String, StateHead>,
    accepted: &BTreeMap<String, StateHead>,
) -> Result<(), Problem> {
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
