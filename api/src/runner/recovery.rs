//! Recovery of an install on a new host: the wrapped seeds that its runner stores here, and the
//! enrolment of the successor.
use std::collections::BTreeMap;

use axum::{Extension, Json, extract::State};
use domain::{
    actor::Actor,
    decider::Decider as _,
    enrolment::{Enrolment, EnrolmentCommand, Purpose, Redemption},
    ids::{InstallId, RunnerId},
    install::{Install, InstallCommand, InstallError, InstallEvent, Recovery},
    runner::{self as aggregate, InstallPublicKeys, Runner, RunnerCommand, RunnerError},
};
use event_log::{Meta, StreamId, transaction::completed};
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
    let (install, chosen) = record_offer(&app, &body.token).await?;
    if let Some(Extension(connection)) = connection {
        connection.authenticate();
    }
    let known = app.engine.load::<Install>(install).await?;
    let runners = match chosen {
        Some(former) => vec![former],
        None => with_current_keys(&app, install, &known).await?,
    };
    let seeds = wrapped_seeds::of_runners(&app.pool, install, &runners).await?;
    let mut connection = app.pool.acquire().await?;
    let states = state_versions::newest_of_install(&mut connection, install).await?;
    let (log_id, awaited) = (app.engine.log().log_id().to_string(), known.awaited_states);
    Ok(Json(RecoveryOffer { install, log_id, seeds, states, awaited }))
}

/// Records that a holder of the token reads the offer. Returns the install of the token, and the
/// former runner that the vendor chose.
async fn record_offer(app: &App, token: &str) -> Result<(InstallId, Option<RunnerId>), Problem> {
    let id = enrolments::id_of(token).ok_or_else(unknown_token)?;
    let meta = Meta::new(Actor::System, ids::new_ulid().to_string());
    let call = Call::of(Meta { route: Some("/runner/v1/recovery".into()), ..meta });
    let token = token.to_owned();
    let recorded = app.engine.transact(&call, move |unit| {
        let token = token.clone();
        Box::pin(async move {
            let of = purpose_of(unit.load::<Enrolment>(id).await?, &token)?;
            unit.handle::<Enrolment>(id, EnrolmentCommand::OfferRecovery).await?;
            Ok(of)
        })
    });
    Ok(recorded.await.map_err(caller::retryable)?.value)
}

/// Returns the install of an enrolment token, and the former runner that the vendor chose.
fn purpose_of(
    enrolment: &Enrolment,
    token: &str,
) -> Result<(InstallId, Option<RunnerId>), Problem> {
    let issue = enrolment.issue.as_ref().filter(|issue| secret::matches(token, &issue.sha256));
    let issue = issue.ok_or_else(unknown_token)?;
    match issue.purpose {
        Purpose::Install { install } => Ok((install, issue.recover_from)),
        Purpose::Build => {
            let detail = "cannot recover an install: the enrolment token is for a build runner; ask the vendor for a token \
                          of the install";
            Err(Problem::new(Code::Invalid, detail))
        }
    }
}

/// Returns the runners with a wrapped seed that have the same keys as the runner of the install,
/// which comes first. Other keys were replaced, or have a successor: their recovery needs a decision
/// of the vendor.
async fn with_current_keys(
    app: &App,
    id: InstallId,
    install: &Install,
) -> Result<Vec<RunnerId>, Problem> {
    let Some(current) = install.stack.as_ref().map(|stack| stack.runner) else { return Ok(vec![]) };
    let mut same = with_keys_of(app, id, &[current]).await?;
    same.sort_by_key(|runner| *runner != current);
    Ok(same)
}

/// Returns the runners with a wrapped seed that have the same keys as one of these runners.
async fn with_keys_of(
    app: &App,
    install: InstallId,
    runners: &[RunnerId],
) -> Result<Vec<RunnerId>, Problem> {
    let mut keys = vec![];
    for runner in runners {
        keys.extend(app.engine.load::<Runner>(*runner).await?.install_keys().cloned());
    }
    let mut same = vec![];
    for runner in wrapped_seeds::runners(&app.pool, install).await? {
        let known = app.engine.load::<Runner>(runner).await?;
        if known.install_keys().is_some_and(|of| keys.iter().any(|one| one.is_same(of))) {
            same.push(runner);
        }
    }
    Ok(same)
}

/// Stores the wrapped seeds of a runner that opens a session, and records their recipients.
pub(super) async fn record(
    app: &App,
    runner: &RunnerCaller,
    seeds: Option<&Vec<WrappedSeed>>,
) -> Result<(), Problem> {
    let (Some(install), Some(seeds)) = (runner.install, seeds) else { return Ok(()) };
    if let Err(error) = check_seeds(seeds) {
        // Without a session, the install would stop for a file that concerns no job.
        tracing::warn!(runner.id = %runner.id, error, "Ignored invalid wrapped seeds; the stored ones stay");
        return Ok(());
    }
    let recipients: BTreeMap<String, aggregate::WrappedSeed> =
        seeds.iter().map(|seed| (seed.recipient.clone(), recorded(seed))).collect();
    if app.engine.load::<Runner>(runner.id).await?.recipients == recipients {
        return Ok(());
    }
    wrapped_seeds::replace(&app.pool, app.now(), (install, runner.id), seeds).await?;
    if !seeds.is_empty() {
        delete_former(app, install, runner.id).await?;
    }
    let (call, id) = (caller::call(runner, "/runner/v1/sessions"), runner.id);
    let recorded = app.engine.transact(&call, move |unit| {
        let change = RunnerCommand::ChangeRecoveryRecipients { recipients: recipients.clone() };
        Box::pin(unit.handle::<Runner>(id, change))
    });
    recorded.await.map(drop).map_err(caller::retryable)
}

/// Deletes what other runners stored of the same seed, if this is the runner of the install: of the
/// keys that it recovered, and of a data directory whose keys it was given. A recipient that the
/// customer removed must not keep one. Another runner with new keys deletes none of a lost host.
async fn delete_former(app: &App, install: InstallId, runner: RunnerId) -> Result<(), Problem> {
    let known = app.log().reload::<Install>(&install.to_string()).await?.state;
    if known.stack.as_ref().is_none_or(|stack| stack.runner != runner) {
        return Ok(());
    }
    let mut chain = vec![runner];
    for recovery in known.recoveries.iter().rev() {
        if chain.last() == Some(&recovery.runner) {
            chain.push(recovery.former);
        }
    }
    let mut former = with_keys_of(app, install, &chain).await?;
    former.retain(|other| *other != runner);
    Ok(wrapped_seeds::delete(&app.pool, install, &former).await?)
}

fn check_seeds(seeds: &[WrappedSeed]) -> Result<(), String> {
    if seeds.len() > MAX_RECIPIENTS {
        return Err(format!(
            "cannot store the wrapped seeds: there are {}, and {MAX_RECIPIENTS} are allowed; remove recipients with \
             `stead-runner recovery remove`",
            seeds.len()
        ));
    }
    match seeds.iter().find_map(WrappedSeed::problem) {
        None => Ok(()),
        Some(why) => Err(format!(
            "cannot store a wrapped seed: it {why}; add the recipient again with `stead-runner recovery add`"
        )),
    }
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
        let (install, chosen) = purpose_of(&enrolment, &body.token)?;
        if enrolment.redeemed.is_some() {
            // The request was handled before. It changes nothing, whatever its proof says.
            let done = request.commit(&app, BTreeMap::new()).await?;
            repair_fence(&app, install, done.value.0).await?;
            return Ok(done);
        }
        // Everything that does not depend on the states comes before the hold, which stops all uploads
        // of the install.
        let redemption = Redemption { runner: new, identity_key: body.identity_key.clone() };
        enrolment.decide(EnrolmentCommand::Redeem(redemption), app.now())?;
        let keys = body.install_keys.as_ref().ok_or_else(unsigned)?;
        check_seeds(&proof.wrapped_seeds).map_err(|detail| Problem::new(Code::Invalid, detail))?;
        check_succession(&app, (install, new), (keys, &proof), chosen).await?;
        let held = state_versions::hold(&app.pool, install).await?.ok_or_else(busy)?;
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

/// Sets the fence of a recovery that a crashed server has committed. Ends no execution of the
/// successor, because each has a later position.
async fn repair_fence(app: &App, install: InstallId, runner: RunnerId) -> Result<(), Problem> {
    let stream = StreamId::of::<Install>(install);
    let is_it = |event: &InstallEvent| matches!(event, InstallEvent::Recovered(recovery) if recovery.runner == runner);
    for stored in app.log().read_stream(&stream, 0).await?.into_iter().rev() {
        if stored.event_type == "install.recovered" && stored.decode()?.iter().any(is_it) {
            let held = state_versions::hold(&app.pool, install).await?.ok_or_else(busy)?;
            let until = Fence { epoch: app.log().epoch(), position: stored.position };
            return Ok(held.end_all(until).await?);
        }
    }
    Ok(())
}

fn busy() -> Problem {
    let detail = "cannot recover the install: states are being stored; try again";
    Problem::new(Code::Busy, detail).retry_after(1)
}

/// Checks that the log permits the recovery, as [`register`] does.
async fn check_succession(
    app: &App,
    (install, new): (InstallId, RunnerId),
    (keys, proof): (&InstallPublicKeys, &RecoveryProof),
    chosen: Option<RunnerId>,
) -> Result<(), Problem> {
    if let Some(chosen) = chosen.filter(|chosen| *chosen != proof.former) {
        return Err(RunnerError::NotChosen { chosen }.into());
    }
    let former = app.log().reload::<Runner>(&proof.former.to_string()).await?.state;
    check_signature(&former, app, install, keys, proof)?;
    let known = app.log().reload::<Install>(&install.to_string()).await?.state;
    let recover = InstallCommand::Recover(recovery(new, keys, proof));
    known.decide(recover, app.now())?;
    let base = chosen.or(known.stack.as_ref().map(|stack| stack.runner));
    let current = match base {
        Some(base) => {
            app.log().reload::<Runner>(&base.to_string()).await?.state.install_keys().cloned()
        }
        None => None,
    };
    Ok(former.check_successor(install, keys, current.as_ref())?)
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

fn recovery(runner: RunnerId, keys: &InstallPublicKeys, proof: &RecoveryProof) -> Recovery {
    let (former, signature) = (proof.former, proof.signature.clone());
    let unproved = proof.accepted_states.iter();
    let unproved_states = unproved.map(|(name, head)| (name.clone(), head.version())).collect();
    Recovery { runner, former, generation: keys.generation, signature, unproved_states }
}

/// Registers a new runner as the successor of the one whose keys it recovered, and revokes that one.
/// `chosen` is the former runner that the vendor chose. The caller has verified the signature: the
/// keys of a generation never change.
pub(super) async fn register(
    unit: &mut UnitOfWork,
    (install, new): (InstallId, RunnerId),
    (keys, proof): (&InstallPublicKeys, &RecoveryProof),
    chosen: Option<RunnerId>,
    newest: &BTreeMap<String, StateHead>,
) -> Result<(), Problem> {
    let former = proof.former;
    if let Some(chosen) = chosen {
        check_chosen(unit, install, chosen).await?;
    }
    unit.handle::<Install>(install, InstallCommand::Recover(recovery(new, keys, proof))).await?;
    let current = unit.load::<Install>(install).await?.stack.as_ref().map(|stack| stack.runner);
    let current_keys = match chosen.or(current) {
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

/// Checks that nothing has happened since the decision of the vendor that would let two hosts continue.
async fn check_chosen(
    unit: &mut UnitOfWork,
    install: InstallId,
    chosen: RunnerId,
) -> Result<(), Problem> {
    let known = unit.load::<Install>(install).await?;
    let (current, recoveries) =
        (known.stack.as_ref().map(|has| has.runner), known.recoveries.clone());
    if let Some(runner) = current
        && !unit.load::<Runner>(runner).await?.revoked
    {
        return Err(InstallError::HasRunner { runner }.into());
    }
    // Several runners have the same keys after the customer copied them to another directory.
    let keys = unit.load::<Runner>(chosen).await?.recoverable_keys(install)?.clone();
    for Recovery { runner, former, .. } in recoveries {
        let recovered = unit.load::<Runner>(former).await?.install_keys();
        if recovered.is_some_and(|recovered| recovered.is_same(&keys)) {
            return Err(InstallError::AlreadyRecovered { former, runner }.into());
        }
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
