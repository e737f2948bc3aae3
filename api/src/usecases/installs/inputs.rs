//! Inputs of an install, checked against its config.
use std::collections::{BTreeMap, BTreeSet};

use domain::{
    decider::Decider as _,
    erasure::ERASED,
    ids::InstallId,
    install::{Install, InstallEvent},
};
use event_log::StreamId;
use schemas::{control::apps::InputDifference, problem::FieldProblem};
use serde_json::Value;

use crate::{
    configs::{Config, invalid_inputs, known},
    problem::{Code, Problem},
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
    let known = |name: &str| config.app.input(name).is_some();
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
