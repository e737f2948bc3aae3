//! What an install is given, against what a config takes.
use std::collections::{BTreeMap, BTreeSet};

use app_config::InputProblem;
use schemas::problem::FieldProblem;

use crate::{compose::config::Config, problem::Problem};

/// What an install keeps that a config does not know is not passed on, and no obstacle: another
/// version may want it again.
pub fn passed(
    config: &Config,
    kept: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Problem> {
    let known = kept.iter().filter(|(name, _)| config.app.input(name).is_some());
    resolved(config, &known.map(|(name, text)| (name.clone(), text.clone())).collect())
}

/// The same where a version or its inputs are chosen.
pub(super) fn chosen(config: &Config, kept: &BTreeMap<String, String>) -> Result<(), Problem> {
    let known = kept.iter().filter(|(name, _)| config.app.input(name).is_some());
    let given = known.map(|(name, text)| (name.clone(), text.clone().into())).collect();
    app_config::choose_inputs(&config.app, &given).map(drop).map_err(|problems| unfit(&problems))
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

/// Whether these inputs can be given to an install of a config: what is unknown, missing or ill-typed is refused.
pub(super) fn given(config: &Config, given: &BTreeMap<String, String>) -> Result<(), Problem> {
    let given = given.iter().map(|(name, text)| (name.clone(), text.clone().into())).collect();
    app_config::choose_inputs(&config.app, &given).map(drop).map_err(|problems| unfit(&problems))
}

/// Every input of a config, given or by default.
fn resolved(
    config: &Config,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Problem> {
    let given = given.iter().map(|(name, text)| (name.clone(), text.clone().into())).collect();
    app_config::resolve_inputs(&config.app, &given).map_err(|problems| unfit(&problems))
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
