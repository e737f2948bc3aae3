//! Settings of an install: components that it enables, stack outputs, and automatic approval.
use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use domain::ids::InstallId;
use serde::Deserialize;
use serde_json::Value;

use super::{
    change::FormToken,
    changes::{PATCH, submit},
    response::{Form, PageProblem, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path},
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
