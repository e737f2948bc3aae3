//! Inputs of an install, checked against its config.
use std::collections::{BTreeMap, BTreeSet};

use domain::{
    decider::Decider as _,
    erasure::ERASED,
    ids::{InstallId, ValueId},
    install::{Install, InstallEvent},
    secret::{of_placeholder, placeholder},
};
use event_log::StreamId;
use schemas::{
    control::apps::InputDifference,
    problem::FieldProblem,
    secret::{EncryptedValue, input_name},
};
use serde_json::Value;

use crate::{
    configs::{Config, invalid_inputs, known},
    problem::{Code, Problem},
    sensitive,
    state::App,
};

/// Returns the inputs of an install at the end of the last commit after which the install followed
/// `version`.
pub(crate) async fn of_version(
    app: &App,
    install: InstallId,
    version: u32,
) -> Result<BTreeMap<String, String>, Problem> {
    let stream = StreamId::of::<Install>(install.to_string());
    let (mut state, mut found_inputs) = (Install::default(), None);
    let mut events = app.log().read_stream(&stream, 0).await?.into_iter().peekable();
    while let Some(stored) = events.next() {
        for event in stored.decode::<InstallEvent>()? {
            state.evolve(event);
        }
        let is_last = events.peek().is_none_or(|next| next.commit_no != stored.commit_no);
        if is_last && state.config_version == version {
            found_inputs = Some(state.inputs.clone());
        }
    }
    let never = || {
        let detail = format!(
            "cannot use the inputs of config version {version}: {install} never had this version; choose another version"
        );
        Problem::new(Code::NotFound, detail)
    };
    let inputs = found_inputs.ok_or_else(never)?;
    match inputs.iter().find(|(_, value)| *value == ERASED) {
        Some((name, _)) => {
            let detail = format!(
                "cannot use the inputs of config version {version}: the value of {name:?} was erased; choose another version"
            );
            Err(Problem::new(Code::NotFound, detail))
        }
        None => Ok(inputs),
    }
}

/// Inputs whose values differ between `before` and `after`.
pub(crate) fn differences(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<InputDifference> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    differs
        .map(|name| {
            let (before, after) = (before.get(name).cloned(), after.get(name).cloned());
            InputDifference { name: name.clone(), before, after }
        })
        .collect()
}

/// Sets the inputs of encrypted values to their ids, and returns the values.
pub(super) fn take_encrypted(
    set: &mut BTreeMap<String, String>,
    values: Vec<EncryptedValue>,
) -> Result<Vec<EncryptedValue>, Problem> {
    for value in &values {
        let input = value.name.strip_prefix("inputs.").unwrap_or_default();
        let is_whole = value.ciphertext.is_some() && !value.signed && !value.json;
        let text = placeholder(value.id);
        if input.is_empty() || !is_whole || set.insert(input.to_owned(), text).is_some() {
            let name = &value.name;
            let detail = format!(
                "cannot set {name:?}: an encrypted value needs the name of an input, which the request sets once, \
                 and a ciphertext by a holder of the public key; use `stead installs set-inputs`"
            );
            return Err(Problem::new(Code::Invalid, detail));
        }
    }
    Ok(values)
}

/// Checks that new ids of sensitive inputs name stored values of these inputs.
pub(super) async fn check_placeholders(
    app: &App,
    install: InstallId,
    config: &Config,
    before: &BTreeMap<String, String>,
    set: &BTreeMap<String, String>,
) -> Result<(), Problem> {
    let is_sensitive =
        |name: &str| config.app.install_value(name).is_some_and(|input| input.sensitive);
    let plain =
        set.iter().find(|(name, text)| of_placeholder(text).is_some() && !is_sensitive(name));
    if let Some((name, _)) = plain {
        let detail = format!(
            "cannot set the input {name} to an encrypted value: this config version does not declare it as sensitive; set \
             a plain value, or correct the name"
        );
        return Err(Problem::new(Code::Invalid, detail));
    }
    let changed = config.app.install_values().filter(|input| input.sensitive).filter_map(|input| {
        let text = set.get(&input.name).filter(|text| before.get(&input.name) != Some(*text))?;
        Some((&input.name, of_placeholder(text)?))
    });
    let changed: Vec<(&String, ValueId)> = changed.collect();
    if changed.is_empty() {
        return Ok(());
    }
    let known = sensitive::of_install(&app.pool, install).await?;
    for (name, id) in changed {
        let now = before.get(name).and_then(|text| known.get(&of_placeholder(text)?));
        let new = known.get(&id);
        if config.app.secret_input(name).is_some() && new.is_some_and(|new| !new.customer) {
            let detail = format!(
                "cannot set the secret {name}: only the customer sets it, with `stead-runner secret set {name}` on the \
                 runner's host"
            );
            return Err(Problem::new(Code::Rejected, detail));
        }
        if now.is_some_and(|now| now.customer) && new.is_some_and(|new| !new.customer) {
            let detail = format!(
                "cannot set the sensitive input {name}: the customer has set it on the runner's host; the customer can \
                 replace it with `stead-runner secret set {name}`, or remove it first"
            );
            return Err(Problem::new(Code::Rejected, detail));
        }
        let is_usable = |value: &sensitive::Known| {
            value.name == input_name(name) && (value.customer || value.is_new(app.now()))
        };
        if !known.get(&id).is_some_and(is_usable) {
            let detail = format!(
                "cannot set the sensitive input {name}: the server has no new value {id} of this input; it was replaced \
                 or erased; set it again with `stead installs set-inputs {install} --secret {name}=FILE`"
            );
            return Err(Problem::new(Code::Invalid, detail));
        }
    }
    Ok(())
}

/// Checks that an install with these inputs can use the config version.
pub(super) fn check_stored(
    config: &Config,
    inputs: &BTreeMap<String, String>,
) -> Result<(), Problem> {
    check(config, &known(config, inputs))
}

/// Checks the inputs of a new install. Rejects unknown and missing inputs, and values of another
/// type.
pub(super) fn check_new(config: &Config, inputs: &BTreeMap<String, String>) -> Result<(), Problem> {
    check(config, &inputs.iter().map(|(name, text)| (name.clone(), text.clone().into())).collect())
}

fn check(config: &Config, inputs: &BTreeMap<String, Value>) -> Result<(), Problem> {
    app_config::choose_inputs(&config.app, inputs)
        .map(drop)
        .map_err(|problems| invalid_inputs(&problems))
}

/// Checks a change of inputs: the config must declare each input to set, and the config or the
/// install each input to remove.
pub(super) fn check_changes(
    config: &Config,
    current: &BTreeMap<String, String>,
    set: &BTreeMap<String, String>,
    unset: &BTreeSet<String>,
) -> Result<(), Problem> {
    let known = |name: &str| config.app.install_value(name).is_some();
    let unknown = set.keys().filter(|name| !known(name));
    let unknown = unknown.chain(unset.iter().filter(|n| !known(n) && !current.contains_key(*n)));
    let errors: Vec<FieldProblem> = unknown
        .map(|name| {
            let names: Vec<&str> = config.app.inputs.iter().map(|i| i.name.as_str()).collect();
            FieldProblem {
                field: Some(format!("inputs.{name}")),
                message: format!("this config version has no input {name:?}"),
                remedy: Some(format!("valid inputs: {}", names.join(", "))),
                ..FieldProblem::default()
            }
        })
        .collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Problem::invalid("invalid inputs; nothing was changed", errors)),
    }
}
