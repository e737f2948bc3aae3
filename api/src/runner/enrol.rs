//! Enrolment of a runner: redeems the token, creates the runner and records the stack outputs of
//! the install, in one commit.
use std::{collections::BTreeMap, sync::Arc};

use axum::{Extension, Json, extract::State};
use domain::{
    actor::Actor,
    app::App as AppState,
    enrolment::{Enrolment, EnrolmentCommand, EnrolmentToken, Purpose, Redemption},
    ids::{InstallId, RunnerId, TokenId},
    install::{Install, InstallCommand},
    runner::{Identity, Runner, RunnerCommand},
};
use event_log::Meta;
use schemas::{
    problem::FieldProblem,
    runner::{Enrol, Enrolled, RunnerMode, StateHead},
};

use super::{
    caller,
    install_keys::{check, is_ed25519_key},
    recovery,
};
use crate::{
    auth::secret,
    configs::published,
    execute::{Call, Done, UnitOfWork},
    extract, ids,
    listen::Ticket,
    problem::{ApiResult, Code, Problem},
    state::App,
    usecases::{enrolments, stack},
};

/// Enrol a runner with a single-use token. A repeated request with the same token and key returns
/// the same runner.
#[utoipa::path(post, path = "/runner/v1/enrol", tag = "identity", request_body = Enrol,
    responses((status = 200, body = Enrolled), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn enrol(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    extract::Json(body): extract::Json<Enrol>,
) -> ApiResult<Enrolled> {
    validate(&body)?;
    let (runner, install) = redeem(&app, &body).await?;
    if let Some(Extension(connection)) = connection {
        connection.authenticate();
    }
    tracing::info!(runner.id = %runner, "Runner enrolled");
    let log_id = app.engine.log().log_id().to_string();
    let keys = app.keys.list(&log_id, app.now()).map_err(Problem::internal)?;
    let (mode, server_time) = (body.mode, app.now());
    Ok(Json(Enrolled { runner, mode, install, log_id, keys, server_time }))
}

/// Redeems the token and creates the runner.
async fn redeem(app: &App, body: &Enrol) -> Result<(RunnerId, Option<InstallId>), Problem> {
    let token = enrolments::id_of(&body.token).ok_or_else(unknown_token)?;
    let new = RunnerId(ids::new_ulid());
    let meta = Meta::new(Actor::Runner(new), ids::new_ulid().to_string());
    let call = Call::of(Meta { route: Some("/runner/v1/enrol".into()), ..meta });
    let request = Request { call, token, new, body: body.clone() };
    match &body.recovery {
        None => Ok(request.commit(app, BTreeMap::new()).await?.value),
        Some(proof) => {
            let done = recovery::enrol(app, request, proof.clone()).await?;
            // This server rejects the former runner from the response on.
            app.principals.wait_for_position(done.position).await;
            Ok(done.value)
        }
    }
}

/// Enrolment with the id of the new runner.
pub(super) struct Request {
    call: Call,
    token: TokenId,
    pub new: RunnerId,
    pub body: Enrol,
}

impl Request {
    /// Redeems the token and creates the runner. `states` are those of the install, in a recovery.
    pub(super) async fn commit(
        &self,
        app: &App,
        states: BTreeMap<String, StateHead>,
    ) -> Result<Done<(RunnerId, Option<InstallId>)>, Problem> {
        let (token, new) = (self.token, self.new);
        let owned = Arc::new((app.clone(), self.body.clone(), states));
        let done = app.engine.transact(&self.call, move |unit| {
            let owned = Arc::clone(&owned);
            Box::pin(async move {
                let (app, body, states) = &*owned;
                redeem_token(app, unit, (token, new), body, states).await
            })
        });
        done.await.map_err(caller::retryable)
    }
}

async fn redeem_token(
    app: &App,
    unit: &mut UnitOfWork,
    (token, new): (TokenId, RunnerId),
    body: &Enrol,
    states: &BTreeMap<String, StateHead>,
) -> Result<(RunnerId, Option<InstallId>), Problem> {
    let enrolment = unit.load::<Enrolment>(token).await?.clone();
    let known = enrolment.issue.filter(|issue| secret::matches(&body.token, &issue.sha256));
    let known = known.ok_or_else(unknown_token)?;
    let install = purpose(&known, body.mode)?;
    let redemption = Redemption { runner: new, identity_key: body.identity_key.clone() };
    if unit.handle::<Enrolment>(token, EnrolmentCommand::Redeem(redemption)).await? == 0 {
        // The request was handled before. The runner repeats it if the response was lost.
        let runner = enrolment.redeemed.map(|by| by.runner).ok_or_else(unknown_token)?;
        return Ok((runner, install));
    }
    unit.create::<Runner>(new, RunnerCommand::Enrol(identity(body, install, token))).await?;
    if let Some(install) = install {
        if let (Some(proof), Some(keys)) = (&body.recovery, &body.install_keys) {
            let chosen = known.recover_from;
            recovery::register(unit, (install, new), (keys, proof), chosen, states).await?;
        }
        let outputs = body.stack_outputs.clone().into();
        stack::check_limits(&outputs)?;
        let before = unit.load::<Install>(install).await?.stack.clone();
        let is_kept = body.recovery.is_some() && body.stack_outputs.is_empty();
        let kept = before.as_ref().filter(|_| is_kept).map(|stack| stack.outputs.clone());
        let outputs = kept.unwrap_or(outputs);
        let replaces = match before.map(|stack| stack.runner) {
            Some(before) => unit.load::<Runner>(before).await?.revoked.then_some(before),
            None => None,
        };
        let report = InstallCommand::ReportStackOutputs { runner: new, outputs, replaces };
        unit.handle::<Install>(install, report).await?;
        check_provision_outputs(app, unit, install).await?;
    }
    Ok((new, install))
}

/// Checks the stack outputs that the provision run requires. The enrolment of the runner starts
/// this run, so the operator who starts the runner sees an error immediately.
async fn check_provision_outputs(
    app: &App,
    unit: &mut UnitOfWork,
    id: InstallId,
) -> Result<(), Problem> {
    let install = unit.load::<Install>(id).await?.clone();
    let of = install.app.filter(|_| !install.had_deploy && !install.deprovisioned);
    let Some(of) = of else { return Ok(()) };
    let state = unit.load::<AppState>(of).await?;
    // An unreadable config fails the provision run instead, because the operator who starts the
    // runner cannot fix it.
    let Ok(published) = published(state, install.config_version) else { return Ok(()) };
    match app.configs.get(&app.pool, published).await {
        Ok(config) => stack::check_all_available(&config, &install),
        Err(_) => Ok(()),
    }
}

fn identity(body: &Enrol, install: Option<InstallId>, enrolment: TokenId) -> Identity {
    Identity {
        mode: body.mode,
        install,
        identity_key: body.identity_key.clone(),
        install_keys: body.install_keys.clone(),
        version: body.version.clone(),
        host: body.host.clone(),
        enrolment,
    }
}

fn purpose(issue: &EnrolmentToken, mode: RunnerMode) -> Result<Option<InstallId>, Problem> {
    match (issue.purpose, mode) {
        (Purpose::Install { install }, RunnerMode::Install) => Ok(Some(install)),
        (Purpose::Build, RunnerMode::Build) => Ok(None),
        (Purpose::Install { .. }, RunnerMode::Build) => Err(Problem::new(
            Code::Invalid,
            "enrolment token rejected: it is for an install; start the runner with --mode install",
        )),
        (Purpose::Build, RunnerMode::Install) => Err(Problem::new(
            Code::Invalid,
            "enrolment token rejected: it is for a build runner; start the runner with --mode build",
        )),
    }
}

pub(super) fn unknown_token() -> Problem {
    Problem::new(
        Code::TokenUnknown,
        "enrolment token rejected: this server did not issue it; create another token",
    )
}

/// Validates the request without any stored state.
fn validate(body: &Enrol) -> Result<(), Problem> {
    let mut errors = Vec::new();
    let mut wrong = |field: &str, message: &str| {
        let (field, message) = (Some(field.to_string()), message.to_string());
        errors.push(FieldProblem { field, message, ..FieldProblem::default() });
    };
    if !is_ed25519_key(&body.identity_key) {
        wrong("identity_key", "must be an Ed25519 public key: 64 lower-case hexadecimal digits");
    }
    match (body.mode, &body.install_keys) {
        (RunnerMode::Install, Some(keys)) => {
            if let Err(message) = check(keys, &body.identity_key) {
                wrong("install_keys", message);
            }
        }
        (RunnerMode::Build, None) => {}
        (RunnerMode::Install, None) => {
            wrong("install_keys", "must be present; install a newer stead-runner");
        }
        (RunnerMode::Build, Some(_)) => wrong("install_keys", "must be absent for a build runner"),
    }
    if body.mode == RunnerMode::Build && !body.stack_outputs.is_empty() {
        wrong("stack_outputs", "must be empty for a build runner; start it without --stack-output");
    }
    if body.mode == RunnerMode::Build && body.recovery.is_some() {
        wrong("recovery", "must be absent for a build runner");
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Problem::invalid("invalid enrolment request", errors))
    }
}
