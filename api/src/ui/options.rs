//! Settings of an install: components that it enables, stack outputs, and automatic approval.
use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use domain::{ids::InstallId, install::Install, state_version::StateVersion};
use serde::Deserialize;
use serde_json::Value;

use super::{
    change::{FormToken, once},
    changes::{PATCH, submit},
    response::{Form, PageProblem, Ui, see_other},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path},
    problem::{Code, Problem},
    state::App,
    usecases::{installs, reason},
};

/// Component to enable or to disable.
#[derive(Deserialize)]
pub(super) struct Component {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    component: String,
    enabled: bool,
    reason: String,
}

/// Enables a component and deploys it, or disables it and destroys it.
pub(super) async fn component(
    State(app): State<App>,
    Ui(Path(install)): Ui<Path<InstallId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Component>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let Component { component, enabled, reason, .. } = form;
    let content = format!("{install}\n{component}\n{enabled}\n{reason}");
    let key = (PATCH, form.idempotency_key.as_str(), content);
    submit(&app, &caller, (key, install), async |call| {
        let update = installs::Update {
            components: [(component.clone(), enabled)].into(),
            reason: reason::optional(Some(reason.clone()))?,
            ..installs::Update::default()
        };
        installs::update(&app, call, install, update).await
    })
    .await
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutputChange {
    Set,
    Remove,
}

/// Stack output to set or to remove.
#[derive(Deserialize)]
pub(super) struct StackOutput {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    name: String,
    value: String,
    change: OutputChange,
    #[serde(default)]
    plan_all: bool,
    reason: String,
}

pub(super) async fn stack_output(
    State(app): State<App>,
    Ui(Path(install)): Ui<Path<InstallId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<StackOutput>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let StackOutput { name, value, change, plan_all, reason, .. } = form;
    let value = match change {
        OutputChange::Set => Some(Value::String(value)),
        OutputChange::Remove => None,
    };
    let outputs = BTreeMap::from([(name.trim().to_owned(), value)]);
    let content = format!("{install}\n{outputs:?}\n{plan_all}\n{reason}");
    let key = (PATCH, form.idempotency_key.as_str(), content);
    submit(&app, &caller, (key, install), async |call| {
        let update = installs::Update {
            stack_outputs: outputs.clone(),
            plan_all,
            reason: reason::optional(Some(reason.clone()))?,
            ..installs::Update::default()
        };
        installs::update(&app, call, install, update).await
    })
    .await
}

/// Automatic approval of the plans of an install.
#[derive(Deserialize)]
pub(super) struct Approval {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    automatic: bool,
    reason: String,
}

pub(super) async fn approval(
    State(app): State<App>,
    Ui(Path(install)): Ui<Path<InstallId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Approval>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let Approval { automatic, reason, .. } = form;
    let content = format!("{install}\n{automatic}\n{reason}");
    let key = (PATCH, form.idempotency_key.as_str(), content);
    submit(&app, &caller, (key, install), async |call| {
        let update = installs::Update {
            auto_approve: Some(automatic),
            reason: reason::optional(Some(reason.clone()))?,
            ..installs::Update::default()
        };
        installs::update(&app, call, install, update).await
    })
    .await
}

/// State of a component to accept.
#[derive(Deserialize)]
pub(super) struct AcceptState {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    component: String,
    lineage: String,
    serial: String,
    #[serde(default)]
    force: bool,
    /// Name of the install, typed by the user.
    confirm: String,
    reason: String,
}

/// Route of the Control API that accepts a state.
const ACCEPT: (&str, &str) =
    ("POST", "/v1/installs/{install}/components/{component}/accepted-state");

/// Accepts a state of a component, even if a newer state or another lineage is known.
pub(super) async fn accept_state(
    State(app): State<App>,
    Ui(Path(install)): Ui<Path<InstallId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<AcceptState>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let AcceptState { component, lineage, serial, force, confirm, reason, .. } = form;
    let serial: u64 = serial.trim().parse().map_err(|_| {
        Problem::invalid_field("serial", "is not a number", "copy it from the runner's refusal")
    })?;
    let lineage = lineage.trim().to_owned();
    let content = format!("{install}\n{component}\n{lineage}\n{serial}\n{force}\n{reason}");
    let key = (ACCEPT, form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
        let name = app.engine.load::<Install>(install).await?.name.clone();
        if confirm.trim() != name {
            let detail = format!(
                "nothing was accepted: the typed name is not {name:?}; type the name of the install"
            );
            return Err(Problem::new(Code::Invalid, detail));
        }
        let state = StateVersion { lineage: lineage.clone(), serial, digest: None };
        let reason = reason::required(&reason)?;
        installs::accept_state(&app, call, install, component.clone(), state, reason, force).await
    });
    Ok(see_other(&format!("/ui/installs/{install}/change"), position.await?))
}
