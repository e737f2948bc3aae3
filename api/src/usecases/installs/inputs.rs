//! What an install is given, against what a config takes.
use std::collections::{BTreeMap, BTreeSet};

use app_config::InputProblem;
use schemas::problem::FieldProblem;
use serde_json::Value;

use crate::{compose::config::Config, problem::Problem};

/// Every input of a config for an install that keeps these.
pub fn passed(
    config: &Config,
    kept: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Problem> {
    app_config::resolve_inputs(&config.app, &known(config, kept))
        .map_err(|problems| unfit(&problems))
}

/// Whether an install that keeps these can have this version, or these inputs.
pub(super) fn chosen(config: &Config, kept: &BTreeMap<String, String>) -> Result<(), Problem> {
    fit(config, &known(config, kept))
}

/// Whether a new install can be given these: what is unknown, missing or ill-typed is refused.
pub(super) fn given(config: &Config, given: &BTreeMap<String, String>) -> Result<(), Problem> {
    fit(config, &given.iter().map(|(name, text)| (name.clone(), text.clone().into())).collect())
}

fn fit(config: &Config, inputs: &BTreeMap<String, Value>) -> Result<(), Problem> {
    app_config::choose_inputs(&config.app, inputs).map(drop).map_err(|problems| unfit(&problems))
}

/// What an install keeps that a config does not know is not passed on, and no obstacle: another
/// version may want it again.
fn known(config: &Config, kept: &BTreeMap<String, String>) -> BTreeMap<String, Value> {
    let known = kept.iter().filter(|(name, _)| config.app.input(name).is_some());
    known.map(|(name, text)| (name.clone(), text.clone().into())).collect()
}

/// Whether a config knows what is given, and install or config what is taken back.
pub(super) fn takes(
    config: &Config,
    kept: &BTreeMap<String, String>,
    set: &BTreeMap<String, String>,
    unset: &BTreeSet<String>,
) -> Result<(), Problem> {
    let known = |name: &str| config.app.input(name).is_some();
    let unknown = set.keys().filter(|name| !known(name));
    let unknown = unknown.chain(unset.iter().filter(|n| !known(n) && !kept.contains_key(*n)));
    let errors: Vec<FieldProblem> = unknown
        .map(|name| {
            let names: Vec<&str> = config.app.inputs.iter().map(|i| i.name.as_str()).collect();
            FieldProblem {
                field: Some(format!("inputs.{name}")),
                message: format!("there is no input {name:?} in this config version"),
                remedy: Some(format!("the inputs are: {}", names.join(", "))),
                ..FieldProblem::default()
            }
        })
        .collect();
    match errors.is_empty() {
        true => Ok(()),
        false => {
            Err(Problem::invalid("the inputs do not fit the app; nothing was changed", errors))
        }
    }
}

fn unfit(problems: &[InputProblem]) -> Problem {
    let errors = problems
        .iter()
        .map(|problem| FieldProblem {
            field: Some(format!("inputs.{}", problem.name())),
            file: None,
            line: None,
            column: None,
            message: problem.to_string(),
            remedy: Some(problem.remedy()),
        })
        .collect();
    Problem::invalid("the inputs do not fit the app; nothing was changed", errors)
}
