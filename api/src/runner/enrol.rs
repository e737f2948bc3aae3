//! A runner comes to be known: its token is used, the runner exists, and the install has what its
//! stack gave out, in one commit.
use axum::{Extension, Json, extract::State};
use domain::{
    actor::Actor,
    app::App as AppState,
    enrolment::{Enrolment, EnrolmentCommand, Issue, Purpose, Use},
    ids::{InstallId, RunnerId, TokenId},
    install::{Install, InstallCommand},
    runner::{Host, Identity, Mode, Runner, RunnerCommand},
};
use ed25519_dalek::VerifyingKey;
use event_log::Meta;
use schemas::{
    problem::FieldProblem,
    runner::{Enrol, Enrolled, RunnerMode},
};
use ulid::Ulid;

use super::caller;
use crate::{
    auth::secret,
    compose::config::published,
    execute::{Call, Unit},
    extract,
    listen::Ticket,
    problem::{Answer, Code, Problem},
    state::App,
    usecases::{enrolments, stack},
};

/// Enrol a runner with a single-use token. The same token and key get the same response again.
#[utoipa::path(post, path = "/runner/v1/enrol", tag = "identity", request_body = Enrol,
    responses((status = 200, body = Enrolled), (status = "4XX", body = schemas::problem::Problem)))]
pub async fn enrol(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    extract::Json(ask): extract::Json<Enrol>,
) -> Answer<Enrolled> {
    check(&ask)?;
    let (runner, install) = admit(&app, &ask).await?;
    if let Some(Extension(connection)) = connection {
        connection.authenticate();
    }
    tracing::info!(runner.id = %runner, "Runner enrolled");
    let log_id = app.engine.log().log_id().to_string();
    let keys = app.keys.list(&log_id, app.now()).map_err(Problem::internal)?;
    let (mode, server_time) = (ask.mode, app.now());
    Ok(Json(Enrolled { runner, mode, install, log_id, keys, server_time }))
}

/// Let it in, once.
async fn admit(app: &App, ask: &Enrol) -> Result<(RunnerId, Option<InstallId>), Problem> {
    let token = enrolments::id_of(&ask.token).ok_or_else(unknown)?;
    let new = RunnerId(Ulid::new());
    let meta = Meta::new(Actor::Runner(new), Ulid::new().to_string());
    let call = Call::of(Meta { route: Some("/runner/v1/enrol".into()), ..meta });
    let (ask, owned) = (ask.clone(), app.clone());
    let done = app.engine.transact(&call, move |unit| {
        let (ask, app) = (ask.clone(), owned.clone());
        Box::pin(async move { admitted(&app, unit, token, new, &ask).await })
    });
    Ok(done.await.map_err(caller::again)?.answer)
}

async fn admitted(
    app: &App,
    unit: &mut Unit,
    token: TokenId,
    new: RunnerId,
    ask: &Enrol,
) -> Result<(RunnerId, Option<InstallId>), Problem> {
    let enrolment = unit.load::<Enrolment>(token).await?.clone();
    let known = enrolment.issue.filter(|issue| secret::is(&ask.token, &issue.sha256));
    let known = known.ok_or_else(unknown)?;
    let install = purpose(&known, ask.mode)?;
    let asked = Use { runner: new, identity_key: ask.identity_key.clone() };
    if unit.tell::<Enrolment>(token, EnrolmentCommand::Use(asked)).await? == 0 {
        // It came in before, and its answer was lost.
        let runner = enrolment.used.map(|by| by.runner).ok_or_else(unknown)?;
        return Ok((runner, install));
    }
    unit.begin::<Runner>(new, RunnerCommand::Enrol(identity(ask, install, token))).await?;
    if let Some(install) = install {
        let outputs = ask.stack_outputs.clone().into();
        stack::fits(&outputs)?;
        let before = unit.load::<Install>(install).await?.stack.as_ref().map(|has| has.runner);
        let replaces = match before {
            Some(before) => unit.load::<Runner>(before).await?.revoked.then_some(before),
            None => None,
        };
        let report = InstallCommand::ReportStack { runner: new, outputs, replaces };
        unit.tell::<Install>(install, report).await?;
        can_be_provisioned(app, unit, install).await?;
    }
    Ok((new, install))
}

/// An install provisions itself when its runner has enrolled. What it then reads of the stack has to be there now,
/// while whoever starts the runner is looking.
async fn can_be_provisioned(app: &App, unit: &mut Unit, id: InstallId) -> Result<(), Problem> {
    let install = unit.load::<Install>(id).await?.clone();
    let of = install.app.filter(|_| !install.was_begun && !install.deprovisioned);
    let Some(of) = of else { return Ok(()) };
    let state = unit.load::<AppState>(of).await?;
    // What cannot be read is the provision's to say: nobody who starts a runner can mend it.
    let Ok(published) = published(state, install.config_version) else { return Ok(()) };
    let bundle = published.bundle.clone();
    match app.configs.get(&app.pool, &bundle).await {
        Ok(config) => stack::suffices_for_all(&config, &install),
        Err(_) => Ok(()),
    }
}

fn identity(ask: &Enrol, install: Option<InstallId>, enrolment: TokenId) -> Identity {
    let schemas::runner::Host { os, arch, hostname } = ask.host.clone();
    Identity {
        mode: match ask.mode {
            RunnerMode::Install => Mode::Install,
            RunnerMode::Build => Mode::Build,
        },
        install,
        identity_key: ask.identity_key.clone(),
        sealing_key: ask.encryption_key.clone(),
        version: ask.version.clone(),
        host: Host { os, arch, hostname },
        enrolment,
    }
}

fn purpose(issue: &Issue, mode: RunnerMode) -> Result<Option<InstallId>, Problem> {
    match (issue.purpose, mode) {
        (Purpose::Install { install }, RunnerMode::Install) => Ok(Some(install)),
        (Purpose::Build, RunnerMode::Build) => Ok(None),
        (Purpose::Install { .. }, RunnerMode::Build) => Err(Problem::new(
            Code::Invalid,
            "the token is for an install: start the runner with --mode install",
        )),
        (Purpose::Build, RunnerMode::Install) => Err(Problem::new(
            Code::Invalid,
            "the token is for a build runner: start the runner with --mode build",
        )),
    }
}

fn unknown() -> Problem {
    Problem::new(Code::TokenUnknown, "the enrolment token is not known here")
}

/// What can be said without knowing anything.
fn check(ask: &Enrol) -> Result<(), Problem> {
    let mut errors = Vec::new();
    let mut wrong = |field: &str, message: &str| {
        let (field, message) = (Some(field.to_string()), message.to_string());
        errors.push(FieldProblem { field, message, ..FieldProblem::default() });
    };
    let key = |text: &str| -> Option<[u8; 32]> {
        hex::decode(text).ok()?.try_into().ok().filter(|key| hex::encode(key) == text)
    };
    if key(&ask.identity_key).and_then(|key| VerifyingKey::from_bytes(&key).ok()).is_none() {
        wrong("identity_key", "an Ed25519 public key is 64 hexadecimal digits in lower case");
    }
    match (ask.mode, &ask.encryption_key) {
        (RunnerMode::Install, Some(sealing)) if key(sealing).is_some() => {}
        (RunnerMode::Build, None) => {}
        (RunnerMode::Install, _) => {
            wrong("encryption_key", "an X25519 public key is 64 hexadecimal digits in lower case");
        }
        (RunnerMode::Build, Some(_)) => wrong("encryption_key", "a build runner has none"),
    }
    if ask.mode == RunnerMode::Build && !ask.stack_outputs.is_empty() {
        wrong("stack_outputs", "a build runner has no stack: start it without --stack-output");
    }
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid("this cannot enrol", errors)) }
}
