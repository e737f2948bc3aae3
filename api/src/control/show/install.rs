//! Installs, and what a customer runs.
use std::collections::BTreeMap;

use domain::{
    app::App as AppState,
    ids::TokenId,
    install::{Deployed, Install as InstallOf},
};
use schemas::control::installs::{Enrolment, Install, InstallComponent};
use serde_json::Value;

use crate::{
    compose::config::published,
    control::read::History,
    problem::Problem,
    state::App,
    usecases::{enrolments::Issued, installs::resolved},
};

/// An install; nothing when the stream has no beginning yet.
pub async fn install(app: &App, history: &History<InstallOf>) -> Result<Option<Install>, Problem> {
    let state = &history.state;
    let Some(app_id) = state.app else { return Ok(None) };
    let of = app.engine.load::<AppState>(app_id).await?;
    let bundle = &published(&of, state.config_version)?.bundle;
    let config = app.configs.get(&app.pool, bundle).await?;
    // Values that the config no longer takes are shown as they were given.
    let inputs = resolved(&config, &state.inputs).unwrap_or_else(|_| state.inputs.clone());
    let held = |name: &str| state.holders.get(name).map(|holder| holder.run);
    let sandbox = config.app.sandbox.as_ref().map(|sandbox| InstallComponent {
        name: "sandbox".into(),
        kind: sandbox.module.kind.clone(),
        state: if state.sandbox.is_some() { "deployed" } else { "absent" }.into(),
        config_version: None,
        build: state.sandbox.as_ref().map(|has| has.build),
        outputs: state.sandbox.as_ref().map(|has| has.outputs.clone()).unwrap_or_default(),
        held_by: state.sandbox_holder.map(|holder| holder.run),
    });
    let mut components: BTreeMap<&str, InstallComponent> = BTreeMap::new();
    for wanted in &config.app.components {
        let has = state.components.get(&wanted.name);
        let part = component(&wanted.name, &wanted.module.kind, has, held(&wanted.name));
        components.insert(&wanted.name, part);
    }
    for (name, has) in &state.components {
        let gone = || component(name, "no longer in the config", Some(has), held(name));
        components.entry(name).or_insert_with(gone);
    }
    Ok(Some(Install {
        id: history.id.parse().map_err(Problem::internal)?,
        name: state.name.clone(),
        app: app_id,
        app_name: of.name.unwrap_or_default(),
        config_version: state.config_version,
        state: word(state, config.app.components.len()).into(),
        auto_approve: state.auto_approve,
        inputs: inputs.into_iter().map(|(name, text)| (name, Value::String(text))).collect(),
        stack: state.stack.as_ref().map(|stack| stack.outputs.clone()).unwrap_or_default(),
        runner: state.stack.as_ref().map(|stack| stack.runner),
        sandbox,
        components: components.into_values().collect(),
        runs: state.runs.keys().copied().collect(),
        created_at: history.began(),
        position: app.engine.log().position(),
    }))
}

fn component(
    name: &str,
    kind: &str,
    has: Option<&Deployed>,
    held_by: Option<domain::ids::RunId>,
) -> InstallComponent {
    InstallComponent {
        name: name.into(),
        kind: kind.into(),
        state: if has.is_some() { "deployed" } else { "absent" }.into(),
        config_version: has.map(|has| has.config_version),
        build: has.map(|has| has.build),
        outputs: has.map(|has| has.outputs.clone()).unwrap_or_default(),
        held_by,
    }
}

fn word(state: &InstallOf, wanted: usize) -> &'static str {
    let deployed = state.components.len();
    if state.deprovisioned {
        "deprovisioned"
    } else if state.stack.is_none() {
        "waiting_for_runner"
    } else if !state.runs.is_empty() {
        "changing"
    } else if wanted > 0 && deployed == 0 {
        "empty"
    } else if deployed < wanted {
        "partial"
    } else {
        "active"
    }
}

/// What lets one runner in, and the command that uses it.
pub fn enrolment(app: &App, issued: Issued, mode: &str) -> Enrolment {
    let Issued { id, token, expires_at } = issued;
    let (server_key, runner_url) = (app.keys.fingerprint(), app.config.runner_url.clone());
    let command = command(mode, &runner_url, &server_key, &token);
    Enrolment { id: TokenId(id.0), token, expires_at, server_key, runner_url, command }
}

/// The token goes by the environment: a command line is seen by everybody on the machine.
fn command(mode: &str, url: &str, key: &str, token: &str) -> String {
    format!(
        "STEAD_ENROLMENT_TOKEN={token} stead-runner --mode {mode} --server {url} --server-key {key}"
    )
}
