//! Converts installs and their enrolment tokens to the API types.
use std::collections::BTreeMap;

use domain::{
    ids::{RunId, RunnerId, TokenId},
    install::{self, Deployed},
};
use projections::views::{installs, waiting::Contact};
use schemas::control::{
    Diagnostic,
    installs::{Enrolment, FormerKeys, Install, InstallComponent, InstallKeys},
};
use serde_json::Value;

use super::diagnostic;
use crate::{
    configs::{self, chosen_inputs},
    problem::Problem,
    queries::lookup::Lookup,
    render::toggles::is_enabled,
    state::{App, Config},
    usecases::enrolments::NewEnrolment,
};

/// Type shown for a deployed component or sandbox that the config version no longer declares.
const NOT_IN_CONFIG: &str = "no longer in the config";

/// Maximum number of earlier generations of keys that a response contains.
const MAX_FORMER: usize = 16;

/// Returns the keys that each recovery of the install succeeded, back from those of the current
/// runner.
async fn former_keys(
    state: &install::Install,
    current: Option<RunnerId>,
    lookup: &mut Lookup<'_>,
) -> Result<Vec<FormerKeys>, Problem> {
    let (mut successor, mut all) = (current, vec![]);
    for recovery in state.recoveries.iter().rev().take(MAX_FORMER) {
        // A runner with new keys succeeds none.
        if successor != Some(recovery.runner) {
            continue;
        }
        let former = lookup.runner(recovery.former).await?;
        let Some(keys) = former.as_ref().and_then(|former| former.state.install_keys()) else {
            break;
        };
        all.push(FormerKeys {
            generation: keys.generation,
            encryption_key: keys.encryption_key.clone(),
            signing_key: keys.signing_key.clone(),
            signature: recovery.signature.clone(),
        });
        successor = Some(recovery.former);
    }
    Ok(all)
}

/// Converts an install with its declared and deployed components. Returns `None` for an install
/// without an app.
pub(crate) async fn install(
    app: &App,
    lookup: &mut Lookup<'_>,
    row: &installs::Row,
) -> Result<Option<Install>, Problem> {
    let state = &row.state;
    let Some(app_id) = state.app else { return Ok(None) };
    let config = lookup.config(app_id, state.config_version).await?;
    // Values that the config no longer accepts are shown as entered.
    let inputs = chosen_inputs(&config, &state.inputs).unwrap_or_else(|_| state.inputs.clone());
    let holder_of = |name: &str| state.holders.get(name).map(|holder| holder.run);
    let declared = config.app.sandbox.as_ref().map(|sandbox| sandbox.module.kind.as_str());
    let left = state.sandbox.as_ref().map(|_| NOT_IN_CONFIG);
    let sandbox = declared.or(left).map(|kind| InstallComponent {
        name: "sandbox".into(),
        kind: kind.into(),
        disabled: false,
        state: match &state.sandbox {
            Some(has) => deploy_state(has.fingerprint.is_some()),
            None => "absent",
        }
        .into(),
        config_version: state.sandbox.as_ref().map(|has| has.config_version),
        build: state.sandbox.as_ref().map(|has| has.build),
        outputs: state.sandbox.as_ref().map(|has| has.outputs.clone().into()).unwrap_or_default(),
        reserved_by: state.sandbox_holder.map(|holder| holder.run),
        drift: None,
    });
    let mut components: BTreeMap<&str, InstallComponent> = BTreeMap::new();
    let declared = config.app.components.iter().map(|c| (c.name.as_str(), c.module.kind.as_str()));
    let left = state.components.keys().map(|name| (name.as_str(), NOT_IN_CONFIG));
    let choices = state.component_choices();
    for (name, kind) in declared.chain(left) {
        let is_torn_down = row.torn_down.contains(name);
        let part = || {
            let mut converted =
                component(name, kind, state.components.get(name), is_torn_down, holder_of(name));
            let declared = config.app.component(name);
            converted.disabled = declared.is_some_and(|one| !is_enabled(one, &choices));
            converted
        };
        components.entry(name).or_insert_with(part);
    }
    let app_name = lookup.app(app_id).await?.map(|of| of.name.clone());
    let runner = match row.runner() {
        Some(runner) => lookup.runner(runner).await?,
        None => None,
    };
    let contact = row.runner().and_then(|runner| lookup.contact(runner));
    let former = former_keys(state, row.runner(), lookup).await?;
    let keys = runner.as_ref().and_then(|runner| runner.state.install_keys());
    let keys = keys.map(|keys| InstallKeys {
        log_id: app.engine.log().log_id().to_string(),
        generation: keys.generation,
        encryption_key: keys.encryption_key.clone(),
        signing_key: keys.signing_key.clone(),
        former,
    });
    Ok(Some(Install {
        id: row.install,
        name: state.name.clone(),
        app: app_id,
        app_name: app_name.unwrap_or_default(),
        config_version: state.config_version,
        state: row.install_state().as_str().into(),
        auto_approve: state.auto_approve,
        inputs: inputs.into_iter().map(|(name, text)| (name, Value::String(text))).collect(),
        waits_for: match state.deprovisioned {
            true => vec![],
            false => configs::awaited_inputs(&config, &state.inputs),
        },
        stack_outputs: state.stack_outputs().into(),
        runner: row.runner(),
        runner_state: runner.as_ref().map(|runner| match (runner.state_name(), contact) {
            ("active", Some(Contact { online: false, .. })) => "disconnected".into(),
            (state, _) => state.into(),
        }),
        runner_last_contact: contact
            .and_then(|contact| contact.last)
            .or_else(|| runner?.state.disconnected_since),
        keys,
        sandbox,
        components: components.into_values().collect(),
        ignored_settings: vec![],
        runs: state.runs.keys().copied().collect(),
        created_at: row.created_at,
        position: app.projections.position(),
    }))
}

/// Settings of the install's config version that this release parses but ignores.
pub(crate) async fn ignored_settings_of(
    lookup: &mut Lookup<'_>,
    row: &installs::Row,
) -> Result<Vec<Diagnostic>, Problem> {
    let Some(app_id) = row.state.app else { return Ok(vec![]) };
    let config = lookup.config(app_id, row.state.config_version).await?;
    Ok(ignored_settings(&config))
}

/// Settings of a config version that this release parses but ignores.
pub(crate) fn ignored_settings(config: &configs::Config) -> Vec<Diagnostic> {
    let warnings = config.warnings.iter().filter(|warning| warning.is_about_ignored_setting());
    warnings.map(diagnostic).collect()
}

fn deploy_state(is_whole: bool) -> &'static str {
    if is_whole { "deployed" } else { "incomplete" }
}

fn component(
    name: &str,
    kind: &str,
    has: Option<&Deployed>,
    torn_down: bool,
    reserved_by: Option<RunId>,
) -> InstallComponent {
    InstallComponent {
        name: name.into(),
        kind: kind.into(),
        disabled: false,
        state: match (has, torn_down) {
            (Some(has), _) => deploy_state(has.fingerprint.is_some()),
            (None, true) => "torn_down",
            (None, false) => "absent",
        }
        .into(),
        config_version: has.map(|has| has.config_version),
        build: has.map(|has| has.build),
        outputs: has.map(|has| has.outputs.clone().into()).unwrap_or_default(),
        reserved_by,
        drift: None,
    }
}

/// Converts a new enrolment token, with the command that uses it.
pub(crate) fn enrolment(app: &App, issued: NewEnrolment, mode: &str) -> Enrolment {
    let NewEnrolment { id, token, expires_at } = issued;
    let (server_key, runner_url) = (app.keys.fingerprint(), app.config.runner_url.clone());
    let command = command(mode, &app.config, &server_key);
    Enrolment { id: TokenId(id.0), token, expires_at, server_key, runner_url, command }
}

/// Returns a command that reads the token from standard input. An argument would be visible in the
/// shell history and in the process list.
fn command(mode: &str, config: &Config, key: &str) -> String {
    let url = &config.runner_url;
    let pin = config.runner_ca.as_ref().map(|root| format!(" --ca-fingerprint {root}"));
    let publisher = config.plugin_publisher.get();
    let publisher = publisher.filter(|_| mode == "install");
    let publisher = publisher.map(|key| format!(" --plugin-publisher {key}"));
    let pin = format!("{}{}", pin.unwrap_or_default(), publisher.unwrap_or_default());
    let data = if mode == "build" { "stead-build-runner" } else { "stead-runner" };
    let data = format!("/var/lib/{data}");
    format!(
        "stead-runner --data {data} --mode {mode} --server {url} --server-key {key}{pin} --policy {data}/policy.toml \
         --token-file -"
    )
}
