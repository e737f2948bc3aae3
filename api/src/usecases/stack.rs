//! What the customer's stack gives out, against what a config reads of it: what is missing is said before anything
//! runs.
use std::collections::{BTreeMap, BTreeSet};

use app_config::{Reads, Text, model::AppConfig, tree::SANDBOX};
use domain::{
    install::{Install, Outputs},
    run::{Operation, RunKind, StepSpec, Target},
};
use schemas::problem::FieldProblem;
use serde_json::Value;

use super::runs;
use crate::{compose::config::Config, problem::Problem};

/// The most outputs that a stack gives out.
const MOST: usize = 256;
/// The most bytes of all of them.
const MOST_BYTES: usize = 64 * 1024;

/// Outputs by the name under which something reads them.
type Missing = BTreeMap<String, Place>;

/// Where an output is read: file and line.
struct Place {
    file: String,
    line: u32,
    column: u32,
}

/// Whether what is given can be kept.
pub fn fits(outputs: &Outputs) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_name = |name: &str| !name.is_empty() && name.len() <= 128 && name.chars().all(plain);
    let mut errors: Vec<FieldProblem> = outputs
        .keys()
        .filter(|name| !is_name(name))
        .map(|name| FieldProblem {
            field: Some("stack_outputs".into()),
            message: format!("{name:?} is no name of an output"),
            remedy: Some("use letters, digits, `_` and `-`, at most 128".into()),
            ..FieldProblem::default()
        })
        .collect();
    let bytes: usize =
        outputs.iter().map(|(name, value)| name.len() + value.to_string().len()).sum();
    if outputs.len() > MOST || bytes > MOST_BYTES {
        errors.push(FieldProblem {
            field: Some("stack_outputs".into()),
            message: format!("at most {MOST} outputs of {MOST_BYTES} bytes together are taken"),
            remedy: Some("give those that the app reads".into()),
            ..FieldProblem::default()
        });
    }
    match errors.is_empty() {
        true => Ok(()),
        false => {
            Err(Problem::invalid("the stack outputs cannot be kept; nothing was changed", errors))
        }
    }
}

/// Whether everything that these steps read of the stack is there.
pub fn suffices(config: &Config, install: &Install, steps: &[StepSpec]) -> Result<(), Problem> {
    // What goes is destroyed by the version that brought it, which had what it reads.
    let brought = steps.iter().filter(|step| step.operation != Operation::Destroy);
    let names = brought.map(|step| match &step.target {
        Target::Sandbox { .. } => Part::Module(SANDBOX),
        Target::Component { name, .. } => Part::Module(name),
        Target::Action { name } => Part::Action(name),
    });
    refuse(install, missing(&config.app, &install.stack_outputs(), names))
}

/// Whether everything that the first provision reads of the stack is there.
pub fn suffices_for_all(config: &Config, install: &Install) -> Result<(), Problem> {
    let app = &config.app;
    let sandbox = app.sandbox.iter().map(|_| Part::Module(SANDBOX));
    let components = app.components.iter().map(|component| Part::Module(&component.name));
    let after = runs::trigger(RunKind::Provision);
    let after = app
        .actions
        .iter()
        .filter(|action| action.triggers.iter().any(|trigger| Some(trigger.kind) == after));
    let after = after.map(|action| Part::Action(&action.name));
    let names = sandbox.chain(components).chain(after);
    refuse(install, missing(app, &install.stack_outputs(), names))
}

/// What reads of the stack.
enum Part<'p> {
    /// A component, or the sandbox.
    Module(&'p str),
    Action(&'p str),
}

fn missing<'p>(
    app: &AppConfig,
    outputs: &Outputs,
    parts: impl Iterator<Item = Part<'p>>,
) -> Missing {
    let mut missing = Missing::new();
    let mut look = |texts: &mut dyn Iterator<Item = &Text>| {
        for text in texts {
            for name in Reads::of([text]).needed_stack {
                if !is_there(outputs, &name) {
                    let at = &text.origin;
                    let place = Place { file: at.file.clone(), line: at.line, column: at.column };
                    missing.entry(name).or_insert(place);
                }
            }
        }
    };
    let mut is_any = false;
    for part in parts {
        match part {
            // Its deploy is refused for another reason.
            Part::Module(name) if app.lacks_plugin(name).is_some() => continue,
            Part::Module(SANDBOX) => {
                look(&mut app.sandbox.iter().flat_map(|sandbox| &sandbox.module.texts));
            }
            Part::Module(name) => {
                look(&mut app.component(name).into_iter().flat_map(|one| &one.module.texts));
            }
            Part::Action(name) => {
                look(&mut app.action(name).into_iter().flat_map(|action| &action.texts));
            }
        }
        is_any = true;
    }
    // These are in every job.
    if is_any {
        look(&mut app.runner.iter().flat_map(|runner| runner.env_vars.values()));
    }
    missing
}

/// Azure calls its regions locations.
fn is_there(outputs: &Outputs, name: &str) -> bool {
    outputs.contains_key(name) || (name == "location" && outputs.contains_key("region"))
}

fn refuse(install: &Install, missing: Missing) -> Result<(), Problem> {
    if missing.is_empty() {
        return Ok(());
    }
    let named: BTreeSet<&str> = missing.keys().map(String::as_str).collect();
    let flags: Vec<String> = named.iter().map(|name| format!("--stack-output {name}=…")).collect();
    let flags = flags.join(" ");
    let errors = missing.iter().map(|(name, at)| FieldProblem {
        field: Some(format!("stack_outputs.{name}")),
        file: Some(at.file.clone()).filter(|file| !file.is_empty()),
        line: Some(at.line).filter(|line| *line > 0),
        column: Some(at.column).filter(|column| *column > 0),
        message: format!("the stack output `{name}` is read here, and nobody gave it"),
        remedy: Some(format!("give it: --stack-output {name}=…")),
    });
    let named: Vec<&str> = named.into_iter().collect();
    let detail = format!(
        "the app reads stack outputs that nobody gave: {}; nothing was started. The vendor gives them with \
         `stead installs set-stack-outputs {} {flags}`, or the runner brings them when it enrols: `stead-runner … \
         {flags}`",
        named.join(", "),
        install.name
    );
    Err(Problem::invalid(detail, errors.collect()))
}

/// Whether these changes can have an effect: what the runner brought is the customer's to say, and what was never given
/// cannot be taken back.
pub fn can_change(
    install: &Install,
    changes: &BTreeMap<String, Option<Value>>,
) -> Result<(), Problem> {
    let brought = |name: &str| install.stack.as_ref().and_then(|stack| stack.outputs.get(name));
    let without_effect = changes.iter().filter_map(|(name, value)| {
        let (message, remedy) = match (brought(name), value) {
            (Some(brought), Some(value)) if brought == value => return None,
            (Some(_), _) => (
                format!("{name} was brought by the customer's runner, which has the last word"),
                "the customer enrols the runner again with the value that is right".into(),
            ),
            (None, None) if !install.given.contains_key(name) => (
                format!("{name} was never given"),
                format!("`stead installs show {}` lists what is", install.name),
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

/// What the vendor gives, with these in their places; `None` takes one back.
pub fn changed(given: &Outputs, changes: &BTreeMap<String, Option<Value>>) -> Outputs {
    let mut outputs = given.clone();
    for (name, value) in changes {
        match value {
            Some(value) => drop(outputs.insert(name.clone(), value.clone())),
            None => drop(outputs.remove(name)),
        }
    }
    outputs
}
