//! Checks the outputs of the customer's stack against the outputs that a config reads, before
//! anything runs.
use std::collections::{BTreeMap, BTreeSet};

use app_config::{Reads, Text, model::AppConfig, tree::SANDBOX};
use domain::{
    install::{Install, Outputs},
    run::{Operation, RunKind, StepSpec, Target},
};
use schemas::problem::FieldProblem;
use serde_json::Value;

use crate::{configs::Config, problem::Problem, render::desired};

/// Maximum number of outputs of a stack.
const MAX_OUTPUTS: usize = 256;
/// Maximum size of all outputs, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Missing outputs, each with one location in the config that reads it.
type Missing = BTreeMap<String, SourceLocation>;

/// File, line and column that read an output.
struct SourceLocation {
    file: String,
    line: u32,
    column: u32,
}

/// Checks the names, number and size of outputs.
pub(crate) fn check_limits(outputs: &Outputs) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_name = |name: &str| !name.is_empty() && name.len() <= 128 && name.chars().all(plain);
    let mut errors: Vec<FieldProblem> = outputs
        .keys()
        .filter(|name| !is_name(name))
        .map(|name| FieldProblem {
            field: Some("stack_outputs".into()),
            message: format!("{name:?} is not a valid output name"),
            remedy: Some("use letters, digits, `_` and `-`, at most 128 characters".into()),
            ..FieldProblem::default()
        })
        .collect();
    let bytes: usize =
        outputs.iter().map(|(name, value)| name.len() + value.to_string().len()).sum();
    if outputs.len() > MAX_OUTPUTS || bytes > MAX_BYTES {
        errors.push(FieldProblem {
            field: Some("stack_outputs".into()),
            message: format!(
                "too many stack outputs: the limits are {MAX_OUTPUTS} outputs and \
                              {MAX_BYTES} bytes in total"
            ),
            remedy: Some("set only the outputs that the app reads".into()),
            ..FieldProblem::default()
        });
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Problem::invalid("invalid stack outputs; nothing was changed", errors)),
    }
}

/// Checks that all outputs exist that these steps read.
pub(crate) fn check_available(
    config: &Config,
    install: &Install,
    steps: &[StepSpec],
) -> Result<(), Problem> {
    // A destroy step uses the version that deployed the component. The outputs of that version were
    // checked before its deploy.
    let created = steps.iter().filter(|step| step.operation != Operation::Destroy);
    let names = created.map(|step| match &step.target {
        Target::Sandbox { .. } => OutputReader::Module(SANDBOX),
        Target::Component { name, .. } => OutputReader::Module(name),
        Target::Action { name } => OutputReader::Action(name),
    });
    reject_missing(install, missing(&config.app, &install.stack_outputs(), names))
}

/// Checks that all outputs exist that the first provision reads.
pub(crate) fn check_all_available(config: &Config, install: &Install) -> Result<(), Problem> {
    let app = &config.app;
    let sandbox = app.sandbox.iter().map(|_| OutputReader::Module(SANDBOX));
    let components = app.components.iter().map(|component| OutputReader::Module(&component.name));
    let after = desired::trigger(RunKind::Provision);
    let after = app
        .actions
        .iter()
        .filter(|action| action.triggers.iter().any(|trigger| Some(trigger.kind) == after));
    let after = after.map(|action| OutputReader::Action(&action.name));
    let names = sandbox.chain(components).chain(after);
    reject_missing(install, missing(app, &install.stack_outputs(), names))
}

/// Part of a config that reads stack outputs.
enum OutputReader<'p> {
    /// Component, or the sandbox.
    Module(&'p str),
    Action(&'p str),
}

fn missing<'p>(
    app: &AppConfig,
    outputs: &Outputs,
    parts: impl Iterator<Item = OutputReader<'p>>,
) -> Missing {
    let mut missing = Missing::new();
    let mut add_missing = |texts: &mut dyn Iterator<Item = &Text>| {
        for text in texts {
            for name in Reads::of([text]).needed_stack {
                if !has_output(outputs, &name) {
                    let at = &text.origin;
                    let place =
                        SourceLocation { file: at.file.clone(), line: at.line, column: at.column };
                    missing.entry(name).or_insert(place);
                }
            }
        }
    };
    let mut is_any = false;
    for part in parts {
        match part {
            // The deploy of a component without a plugin is rejected for the missing plugin.
            OutputReader::Module(name) if app.lacks_plugin(name).is_some() => continue,
            OutputReader::Module(SANDBOX) => {
                add_missing(&mut app.sandbox.iter().flat_map(|sandbox| &sandbox.module.texts));
            }
            OutputReader::Module(name) => {
                add_missing(&mut app.component(name).into_iter().flat_map(|one| &one.module.texts));
            }
            OutputReader::Action(name) => {
                add_missing(&mut app.action(name).into_iter().flat_map(|action| &action.texts));
            }
        }
        is_any = true;
    }
    // All jobs have these variables.
    if is_any {
        add_missing(&mut app.runner.iter().flat_map(|runner| runner.env_vars.values()));
    }
    missing
}

/// Returns true if the outputs contain `name`. For `location`, the Azure name of a region, `region`
/// is enough.
fn has_output(outputs: &Outputs, name: &str) -> bool {
    outputs.contains_key(name) || (name == "location" && outputs.contains_key("region"))
}

fn reject_missing(install: &Install, missing: Missing) -> Result<(), Problem> {
    if missing.is_empty() {
        return Ok(());
    }
    let names: BTreeSet<&str> = missing.keys().map(String::as_str).collect();
    let flags: Vec<String> = names.iter().map(|name| format!("--stack-output {name}=…")).collect();
    let flags = flags.join(" ");
    let errors = missing.iter().map(|(name, at)| FieldProblem {
        field: Some(format!("stack_outputs.{name}")),
        file: Some(at.file.clone()).filter(|file| !file.is_empty()),
        line: Some(at.line).filter(|line| *line > 0),
        column: Some(at.column).filter(|column| *column > 0),
        message: format!("the config reads the stack output `{name}`, which is not set"),
        remedy: Some(format!("pass --stack-output {name}=…")),
    });
    let names: Vec<&str> = names.into_iter().collect();
    let detail = format!(
        "cannot start the run: the app reads stack outputs that are not set: {}; set them with \
         `stead installs set-stack-outputs {} {flags}`, or at the enrolment of the runner with `stead-runner … \
         {flags}`",
        names.join(", "),
        install.name
    );
    Err(Problem::invalid(detail, errors.collect()))
}

/// Checks that these changes have an effect. Only the customer can change outputs that the runner
/// reported, and only outputs that are set can be removed.
pub(crate) fn check_changes(
    install: &Install,
    changes: &BTreeMap<String, Option<Value>>,
) -> Result<(), Problem> {
    let current = |name: &str| install.stack.as_ref().and_then(|stack| stack.outputs.get(name));
    let without_effect = changes.iter().filter_map(|(name, value)| {
        let (message, remedy) = match (current(name), value) {
            (Some(current), Some(value)) if current == value => return None,
            (Some(_), _) => (
                format!("{name} was reported by the customer's runner, which has precedence"),
                "ask the customer to enrol the runner again with the correct value".into(),
            ),
            (None, None) if !install.vendor_outputs.contains_key(name) => (
                format!("{name} is not set"),
                format!("`stead installs show {}` lists the outputs that are set", install.name),
            ),
            (None, _) => return None,
        };
        Some(FieldProblem {
            field: Some(format!("stack_outputs.{name}")),
            message,
            remedy: Some(remedy),
            ..FieldProblem::default()
        })
    });
    let errors: Vec<_> = without_effect.collect();
    match errors.is_empty() {
        true => Ok(()),
        false => {
            Err(Problem::invalid("the change would have no effect; nothing was changed", errors))
        }
    }
}

/// Applies changes to the outputs that the vendor set. `None` removes an output.
pub(crate) fn apply_changes(
    current: &Outputs,
    changes: &BTreeMap<String, Option<Value>>,
) -> Outputs {
    let mut outputs = current.clone();
    for (name, value) in changes {
        match value {
            Some(value) => drop(outputs.insert(name.clone(), value.clone())),
            None => drop(outputs.remove(name)),
        }
    }
    outputs
}
