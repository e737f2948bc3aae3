//! Changes of an install: the page with the forms, the move to another version, inputs and runs.
use std::collections::{BTreeMap, BTreeSet};

use axum::{extract::State, response::Response};
use dashboard::pages::{self, ChangePage, UpgradePage};
use domain::{
    ids::{InstallId, RunId},
    install::Install,
};
use schemas::control::{
    apps::DiffQuery,
    runs::{RequestRun, RequestedKind},
};
use serde::Deserialize;

use super::{
    change::{FormToken, once},
    pages::{Freshness, caller_of},
    response::{Form, Page, PageProblem, PageResult, Ui, see_other},
};
use crate::{
    auth::sessions::Session,
    execute::{Call, Done},
    extract::{Caller, Path, Query},
    problem::{Code, Problem},
    queries::{apps, installs as queries, min_position},
    state::App,
    usecases::{installs, reason, run_request::run_request, runs},
};

/// Page with the forms that change an install.
pub(super) async fn change(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    Ui(Query(query)): Ui<Query<Freshness>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let install = queries::get(&app, &caller, &name).await?;
    let version = (install.app.to_string(), install.config_version);
    let config = apps::version(&app, &caller, (&version.0, version.1)).await?.config;
    let page = ChangePage { install, config };
    Ok(Page(pages::change(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Version to compare with that of an install.
#[derive(Deserialize)]
pub(super) struct Target {
    to: u32,
    #[serde(default)]
    restore_inputs: bool,
}

/// Shows what a move to another version changes, before the form that moves the install.
pub(super) async fn compare(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    Ui(Query(target)): Ui<Query<Target>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, None).await?;
    let install = queries::get(&app, &caller, &name).await?;
    let query = DiffQuery {
        from: Some(install.config_version),
        to: Some(target.to),
        install: Some(install.id.to_string()),
        inputs_of: target.restore_inputs.then_some(target.to),
        min_position: None,
    };
    let diff = apps::diff(&app, &caller, &install.app.to_string(), query).await?;
    let page = UpgradePage { install, to: target.to, restores_inputs: target.restore_inputs, diff };
    Ok(Page(pages::upgrade(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Move of an install to another version.
#[derive(Deserialize)]
pub(super) struct Upgrade {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    /// Version of the install when the page compared the versions.
    from: u32,
    to: u32,
    #[serde(default)]
    restore_inputs: bool,
    #[serde(default)]
    plan_all: bool,
    reason: String,
}

pub(super) async fn upgrade(
    State(app): State<App>,
    Ui(Path(install)): Ui<Path<InstallId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Upgrade>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let Upgrade { from, to, restore_inputs, plan_all, reason, .. } = form;
    let content = format!("{install}\n{from}\n{to}\n{restore_inputs}\n{plan_all}\n{reason}");
    let key = (PATCH, form.idempotency_key.as_str(), content);
    submit(&app, &caller, (key, install), async |call| {
        let update = installs::Update {
            config_version: Some(to),
            compared_version: Some(from),
            inputs_of: restore_inputs.then_some(to),
            plan_all,
            reason: reason::optional(Some(reason.clone()))?,
            ..installs::Update::default()
        };
        installs::update(&app, call, install, update).await
    })
    .await
}

/// Route of the Control API that changes an install.
pub(super) const PATCH: (&str, &str) = ("PATCH", "/v1/installs/{install}");
/// Route of the Control API that requests a run.
const REQUEST: (&str, &str) = ("POST", "/v1/installs/{install}/runs");

/// Makes the change of a form, and shows its run, or the install if there is none.
pub(super) async fn submit(
    app: &App,
    caller: &Caller,
    (key, install): (((&str, &str), &str, String), InstallId),
    change: impl AsyncFnOnce(&Call) -> Result<Done<Option<RunId>>, Problem>,
) -> Result<Response, PageProblem> {
    let mut run = None;
    let position = once(app, caller, key, async |call| {
        let done = change(call).await?;
        run = done.value;
        Ok(done)
    });
    let position = position.await?;
    let shown = match run {
        Some(run) => format!("/ui/runs/{run}"),
        None => format!("/ui/installs/{install}"),
    };
    Ok(see_other(&shown, position))
}

/// Plain inputs. Field `input.NAME` has the value, and `was.NAME` the value when the page was made.
#[derive(Deserialize)]
pub(super) struct Inputs {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    #[serde(default)]
    plan_all: bool,
    reason: String,
    #[serde(flatten)]
    fields: BTreeMap<String, String>,
}

/// Returns the changed values. A browser sends each line break as CR LF.
fn changed(fields: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let lines = |text: &str| text.replace("\r\n", "\n");
    let value = |(field, text): (&String, &String)| {
        let name = field.strip_prefix("input.")?;
        let is_same =
            fields.get(&format!("was.{name}")).is_some_and(|was| lines(was) == lines(text));
        (!is_same).then(|| (name.to_owned(), lines(text)))
    };
    fields.iter().filter_map(value).collect()
}

pub(super) async fn inputs(
    State(app): State<App>,
    Ui(Path(install)): Ui<Path<InstallId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Inputs>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let Inputs { plan_all, reason, .. } = form;
    let set = changed(&form.fields);
    if set.is_empty() {
        let detail = "nothing to save: no input changed; change a field first";
        return Err(Problem::new(Code::Invalid, detail).into());
    }
    let content = format!("{install}\n{set:?}\n{plan_all}\n{reason}");
    let key = (PATCH, form.idempotency_key.as_str(), content);
    submit(&app, &caller, (key, install), async |call| {
        let update = installs::Update {
            set: set.clone(),
            unset: BTreeSet::new(),
            plan_all,
            reason: reason::optional(Some(reason.clone()))?,
            ..installs::Update::default()
        };
        installs::update(&app, call, install, update).await
    })
    .await
}

/// Request for a run. An empty component stands for all.
#[derive(Deserialize)]
pub(super) struct RunForm {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    kind: RequestedKind,
    #[serde(default)]
    component: String,
    action: Option<String>,
    /// Name of the install, typed by the user who destroys it.
    confirm: Option<String>,
    #[serde(default)]
    plan_all: bool,
    reason: String,
}

pub(super) async fn run(
    State(app): State<App>,
    Ui(Path(install)): Ui<Path<InstallId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<RunForm>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let RunForm { kind, component, action, confirm, plan_all, reason, .. } = form;
    let content = format!("{install}\n{kind:?}\n{component}\n{action:?}\n{plan_all}\n{reason}");
    let key = (REQUEST, form.idempotency_key.as_str(), content);
    submit(&app, &caller, (key, install), async |call| {
        let destroys = matches!(kind, RequestedKind::Teardown | RequestedKind::Deprovision);
        if destroys {
            let name = app.engine.load::<Install>(install).await?.name.clone();
            if confirm.as_deref().map(str::trim) != Some(name.as_str()) {
                let detail = format!(
                    "nothing was destroyed: the typed name is not {name:?}; type the name of the install"
                );
                return Err(Problem::new(Code::Invalid, detail));
            }
        }
        let components = Some(component.clone()).filter(|name| !name.is_empty());
        let request = RequestRun {
            kind,
            components: components.into_iter().collect(),
            action: action.clone(),
            reason: Some(reason.clone()),
            plan_all,
        };
        runs::request(&app, call, install, run_request(request)?).await
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_inputs_are_sent() {
        let fields = [
            ("input.a", "1"),
            ("was.a", "1"),
            ("input.b", "x\r\ny"),
            ("was.b", "x\ny"),
            ("input.c", "new\r\nline"),
            ("was.c", "old"),
            ("input.d", ""),
            ("was.d", "value"),
            ("other", "ignored"),
        ];
        let fields = fields.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let expected = [("c", "new\nline"), ("d", "")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        assert_eq!(changed(&fields), expected);
    }
}
