//! Creation of an install, and of enrolment tokens for its runner.
use std::collections::BTreeMap;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use dashboard::pages::{self, EnrolmentPage, NewInstallPage};
use domain::ids::InstallId;
use schemas::control::PageQuery;
use serde::Deserialize;

use super::{
    change::{FormToken, once},
    pages::caller_of,
    response::{Form, Page, PageProblem, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path, Query},
    queries::{apps, installs as queries, min_position, show},
    state::App,
    usecases::{apps as app_names, installs},
};

/// Config version whose inputs the form has. Default: the newest.
#[derive(Deserialize)]
pub(super) struct Of {
    version: Option<u32>,
}

pub(super) async fn page(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    Ui(Query(of)): Ui<Query<Of>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, None).await?;
    let shown = apps::get(&app, &caller, &name).await?;
    let id = shown.id.to_string();
    let version = of.version.unwrap_or(shown.version);
    let config = apps::version(&app, &caller, (&id, version)).await?.config;
    let versions = apps::versions(&app, &caller, &id, PageQuery::default()).await?.items;
    let versions = versions.iter().map(|version| version.version).collect();
    let page = NewInstallPage { app: shown, version, versions, config };
    Ok(Page(pages::new_install(&caller_of(&app, &caller, &session).await?, &page)))
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Approval {
    Required,
    /// Automatic for the first provision.
    First,
    Automatic,
}

/// New install. Field `input.NAME` has the value of an input. An empty one has the default.
#[derive(Deserialize)]
pub(super) struct Create {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    name: String,
    version: u32,
    approval: Approval,
    #[serde(flatten)]
    fields: BTreeMap<String, String>,
}

/// Creates an install. The response shows the enrolment token, because no later page can.
pub(super) async fn create(
    State(app): State<App>,
    Ui(Path(of)): Ui<Path<String>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Create>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let of = app_names::find(&app, &of).await?;
    let inputs = inputs(&form.fields);
    let new = installs::NewInstall {
        app: of,
        name: form.name.trim().to_owned(),
        inputs,
        auto_approve: matches!(form.approval, Approval::Automatic),
        auto_approve_first: matches!(form.approval, Approval::First),
        config_version: Some(form.version),
        stack_outputs: BTreeMap::<String, serde_json::Value>::new().into(),
    };
    let content =
        format!("{of}\n{}\n{:?}\n{:?}\n{}", new.name, new.inputs, form.approval, form.version);
    let key = (("POST", "/v1/installs"), form.idempotency_key.as_str(), content);
    let mut enrolment = None;
    once(&app, &caller, key, async |call| {
        let done = installs::create(&app, call, new.clone()).await?;
        enrolment = Some(show::enrolment(&app, done.value.enrolment.clone(), "install"));
        Ok(done)
    })
    .await?;
    let page = EnrolmentPage { install: new.name, is_new: true, enrolment };
    let frame = caller_of(&app, &caller, &session).await?;
    Ok(Page(pages::enrolment(&frame, &page)).into_response())
}

fn inputs(fields: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let named = fields.iter().filter_map(|(field, text)| {
        let name = field.strip_prefix("input.")?;
        (!text.is_empty()).then(|| (name.to_owned(), text.replace("\r\n", "\n")))
    });
    named.collect()
}

/// Form without further fields.
#[derive(Deserialize)]
pub(super) struct Enrol {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
}

/// Creates another enrolment token. The response shows it, because no later page can.
pub(super) async fn enrol(
    State(app): State<App>,
    Ui(Path(install)): Ui<Path<InstallId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Enrol>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let route = ("POST", "/v1/installs/{install}/enrolment-tokens");
    let key = (route, form.idempotency_key.as_str(), install.to_string());
    let mut enrolment = None;
    once(&app, &caller, key, async |call| {
        let done = installs::enrol(&app, call, install, None).await?;
        enrolment = Some(show::enrolment(&app, done.value.clone(), "install"));
        Ok(done)
    })
    .await?;
    let name = queries::get(&app, &caller, &install.to_string()).await?.name;
    let page = EnrolmentPage { install: name, is_new: false, enrolment };
    let frame = caller_of(&app, &caller, &session).await?;
    Ok(Page(pages::enrolment(&frame, &page)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_inputs_have_their_defaults() {
        let fields = [("input.a", "1\r\n2"), ("input.b", ""), ("other", "x")];
        let fields = fields.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        assert_eq!(inputs(&fields), [("a".to_owned(), "1\n2".to_owned())].into());
    }
}
