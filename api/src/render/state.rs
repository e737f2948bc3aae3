//! State of an install for templates, as `.nuon…` and identically as `.stead…`.
use std::collections::BTreeMap;

use app_config::{AppConfig, tree::SANDBOX};
use domain::{
    app::App as AppState,
    digest::Digest,
    ids::{AppId, ComponentId, InstallId},
    install::{Deployed, Install, Outputs},
};
use serde_json::{Map, Value, json};

use crate::configs::Config;

/// Returns the state that templates read. Inputs are those that the config declares, with their set
/// or default values. The secrets of the customer are `.install.secrets`.
pub(crate) fn template_state(
    app: (AppId, &AppState),
    install: (InstallId, &Install),
    config: &Config,
    inputs: &BTreeMap<String, String>,
) -> Value {
    let (app_id, app) = app;
    let (install_id, install) = install;
    let name = app.name.clone().unwrap_or_default();
    let sandbox = sandbox(install, config);
    let id = install_name(install_id);
    let component = |name: &String| {
        component(&id, app.components.get(name).copied(), install.components.get(name))
    };
    let components: Map<String, Value> =
        config.app.components.iter().map(|c| (c.name.clone(), component(&c.name))).collect();
    let workflows: Map<String, Value> =
        config.app.actions.iter().map(|a| (a.name.clone(), action(install, &a.name))).collect();
    let stack = install.stack_outputs();
    let stack_status = if install.stack.is_some() { "active" } else { "pending" };
    let runner = install.stack.as_ref().map(|stack| stack.runner.to_string());
    // A secret without a value is absent, so that a template that reads it fails.
    let (secrets, inputs): (BTreeMap<_, _>, BTreeMap<_, _>) =
        inputs.iter().partition(|(name, _)| config.app.secret_input(name).is_some());
    let secrets: BTreeMap<_, _> =
        secrets.into_iter().filter(|(_, text)| !text.is_empty()).collect();
    let domain = |key: &str| value_at(&sandbox, &["outputs", "nuon_dns", key, "name"]);
    let nuon = json!({
        "id": id,
        "name": install.name,
        "app": { "id": app_id.to_string(), "name": name, "status": "active", "variables": {} },
        "org": { "id": "", "name": "", "status": "active" },
        "install": {
            "id": id,
            "name": install.name,
            "public_domain": domain("public_domain"),
            "internal_domain": domain("internal_domain"),
            "inputs": inputs,
            "secrets": secrets,
            "sandbox": sandbox,
        },
        "inputs": { "inputs": inputs },
        "sandbox": sandbox,
        "components": components,
        "actions": { "workflows": workflows },
        "install_stack": { "status": stack_status, "outputs": stack },
        "cloud_account": cloud_account(&config.app, &stack),
        "domain": {
            "public_domain": domain("public_domain"),
            "internal_domain": domain("internal_domain"),
        },
        "secrets": {},
        "runner": { "id": runner.unwrap_or_default(), "status": stack_status },
    });
    json!({ "nuon": nuon, "stead": nuon })
}

/// Returns the id of an install in the alphabet of DNS. Apps use it in names of Kubernetes objects,
/// buckets, clusters and domains, none of which allow upper-case letters or `_`.
pub(crate) fn install_name(id: InstallId) -> String {
    dns_label(&id.to_string())
}

fn dns_label(id: &str) -> String {
    id.to_lowercase().replace('_', "-")
}

fn sandbox(install: &Install, config: &Config) -> Value {
    let kind = config.app.sandbox.as_ref().map_or("", |sandbox| sandbox.module.kind.as_str());
    let (status, outputs, build) = match &install.sandbox {
        Some(has) => (status(&has.fingerprint), has.outputs.clone(), has.build.to_string()),
        None => ("pending", Outputs::new(), String::new()),
    };
    json!({ "name": SANDBOX, "type": kind, "version": build, "status": status, "outputs": outputs })
}

/// Returns the state of a component. Its `install_component_id` stays the same over deploys and
/// teardowns of this install.
fn component(install: &str, of_app: Option<ComponentId>, has: Option<&Deployed>) -> Value {
    let mut state = match has {
        Some(has) => json!({
            "id": has.component.to_string(),
            "component_id": has.component.to_string(),
            "build_id": has.build.to_string(),
            "status": status(&has.fingerprint),
            "outputs": has.outputs,
        }),
        None => json!({ "status": "pending", "outputs": {} }),
    };
    if let Some(id) = of_app {
        state["install_component_id"] = format!("{install}-{}", dns_label(&id.to_string())).into();
    }
    state
}

/// Returns `active` only after a complete apply, because only then does the target have a
/// fingerprint.
fn status(fingerprint: &Option<Digest>) -> &'static str {
    if fingerprint.is_some() { "active" } else { "pending" }
}

fn action(install: &Install, name: &str) -> Value {
    match install.actions.get(name) {
        Some(outputs) => json!({ "status": "active", "outputs": outputs }),
        None => json!({ "status": "pending", "outputs": {} }),
    }
}

/// Returns the customer's region and account from the stack outputs, under the name of the app's
/// cloud.
fn cloud_account(app: &AppConfig, stack: &Outputs) -> Value {
    let types = [
        app.runner.as_ref().map(|runner| runner.runner_type.as_str()),
        app.stack.as_ref().map(|stack| stack.stack_type.as_str()),
    ];
    let is_for = |cloud: &str| types.iter().flatten().any(|name| name.starts_with(cloud));
    let (cloud, keys): (&str, &[(&str, &str)]) = if is_for("azure") {
        ("azure", &[("location", "location"), ("location", "region")])
    } else if is_for("gcp") {
        ("gcp", &[("region", "region"), ("project_id", "project_id")])
    } else {
        ("aws", &[("region", "region"), ("account_id", "account_id")])
    };
    let mut account = Map::new();
    for (key, output) in keys {
        if let (Some(value), false) = (stack.get(*output), account.contains_key(*key)) {
            account.insert((*key).to_owned(), value.clone());
        }
    }
    match account.is_empty() {
        true => json!({}),
        false => json!({ cloud: account }),
    }
}

fn value_at(value: &Value, path: &[&str]) -> Value {
    let found = path.iter().try_fold(value, |at, key| at.get(key));
    found.cloned().unwrap_or_else(|| Value::String(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_read_the_id_of_an_install_as_a_dns_label() {
        let id = InstallId(ulid::Ulid(1 << 70));
        let name = install_name(id);
        assert_eq!(name.len(), id.to_string().len());
        assert!(name.starts_with("ins-"), "{name}");
        let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        assert!(name.bytes().all(is_allowed), "{name}");
    }

    #[test]
    fn the_id_of_a_component_of_an_install_exists_before_its_deploy() {
        let (install, id) = (install_name(InstallId(ulid::Ulid(1))), ComponentId(ulid::Ulid(2)));
        let state = component(&install, Some(id), None);
        let shown = state["install_component_id"].as_str().unwrap();
        assert!(shown.starts_with(&format!("{install}-cmp-")) && shown.len() <= 63, "{shown}");
        // and differs between installs
        let other = component("ins-other", Some(id), None);
        assert_ne!(other["install_component_id"], state["install_component_id"]);
    }
}
