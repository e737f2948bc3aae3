//! Compares two configs and explains the changes: which components need a build, and which
//! components a changed default affects.
use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::{
    model::{AppConfig, Input, Module},
    refs::{Graph, graph},
};

mod display;
mod supporting;

pub use self::supporting::SupportingChange;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Added,
    Changed,
    Removed,
    Unchanged,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum ChangeReason {
    /// The module directory has different bytes.
    Source,
    /// A key in the part's file changed. An absent value means that the config does not have the
    /// key.
    Setting { key: String, before: Option<Value>, after: Option<Value> },
    /// A key with a long or sensitive string changed. The string itself is not shown.
    Text { key: String },
    /// A file that the part names has different bytes.
    File { path: String },
    /// The plugin of the part is a different executable, or only one of the configs pins a plugin.
    Plugin { name: String },
    /// The default of an input changed. The part or the runner's `env_vars` read that input,
    /// directly or through another default.
    InputDefault { input: String, before: Option<String>, after: Option<String> },
    /// The runner's `env_vars` changed. Every job gets them.
    RunnerEnv,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartChange {
    pub name: String,
    pub change: Change,
    pub why: Vec<ChangeReason>,
    /// True if the part is a new module, or the digest of the module changed. This requires a
    /// build. A changed default alone requires only a plan. Always false for parts without a
    /// module.
    pub rebuild: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Difference {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<PartChange>,
    /// Components of either config, by name, including unchanged ones.
    pub components: Vec<PartChange>,
    pub actions: Vec<PartChange>,
    pub inputs: Vec<PartChange>,
    /// Changed roles, policies, secrets, runbooks and other supporting parts.
    pub around: Vec<SupportingChange>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        let parts = self.components.iter().chain(&self.actions).chain(&self.inputs);
        let is_same = parts.chain(&self.sandbox).all(|part| part.change == Change::Unchanged);
        is_same && self.around.is_empty()
    }

    /// Names of the components that need a build.
    pub fn to_build(&self) -> BTreeSet<String> {
        self.components.iter().filter(|part| part.rebuild).map(|part| part.name.clone()).collect()
    }

    /// Components that an install must plan when it moves from one config to the other.
    pub fn to_plan(&self) -> BTreeSet<String> {
        let planned = |part: &&PartChange| matches!(part.change, Change::Added | Change::Changed);
        self.components.iter().filter(planned).map(|part| part.name.clone()).collect()
    }
}

/// Computes the changes from `before` to `after`.
pub fn diff(before: &AppConfig, after: &AppConfig) -> Difference {
    let graph = graph(after);
    let defaults = changed_defaults(before, after);
    let environment = env_of(before) != env_of(after);
    let context = Context { before, after, graph: &graph, defaults: &defaults, environment };
    let names = |config: &AppConfig| -> Vec<String> {
        config.components.iter().map(|component| component.name.clone()).collect()
    };
    let components = both(names(before), names(after))
        .into_iter()
        .map(|name| {
            let find = |config: &'_ AppConfig| config.component(&name).map(|c| c.module.clone());
            context.module(&name, find(before).as_ref(), find(after).as_ref(), false)
        })
        .collect();
    let base = |config: &AppConfig| config.sandbox.as_ref().map(|sandbox| sandbox.module.clone());
    let sandbox = match (base(before), base(after)) {
        (None, None) => None,
        (old, new) => Some(context.module("sandbox", old.as_ref(), new.as_ref(), true)),
    };
    Difference {
        sandbox,
        components,
        actions: actions(before, after),
        inputs: inputs(before, after),
        around: supporting::around(before, after),
    }
}

struct Context<'c> {
    before: &'c AppConfig,
    after: &'c AppConfig,
    graph: &'c Graph,
    defaults: &'c [(String, Option<String>, Option<String>)],
    environment: bool,
}

impl Context<'_> {
    fn module(
        &self,
        name: &str,
        old: Option<&Module>,
        new: Option<&Module>,
        base: bool,
    ) -> PartChange {
        let (old, new) = match (old, new) {
            (Some(old), Some(new)) => (old, new),
            (None, _) => return part(name, Change::Added, Vec::new(), true),
            (_, None) => return part(name, Change::Removed, Vec::new(), false),
        };
        let mut why = Vec::new();
        if old.source_digest != new.source_digest {
            why.push(ChangeReason::Source);
        }
        settings("", &old.settings, &new.settings, &mut why);
        for path in both(old.files.keys().cloned(), new.files.keys().cloned()) {
            if old.files.get(&path) != new.files.get(&path) {
                why.push(ChangeReason::File { path });
            }
        }
        let pin =
            |config: &AppConfig, kind: &str| config.plugin(kind).map(|pin| pin.digest.clone());
        if pin(self.before, &old.kind) != pin(self.after, &new.kind) {
            why.push(ChangeReason::Plugin { name: new.kind.clone() });
        }
        let rebuild = old.digest != new.digest;
        let reads = if base {
            Some(&self.graph.sandbox)
        } else {
            self.graph.components.get(name).map(|node| &node.reads)
        };
        for (input, before, after) in self.defaults {
            let reached = self.graph.and_derived(&[input.clone()].into());
            let read =
                |reads: &crate::refs::Reads| reached.iter().any(|name| reads.reads_input(name));
            if reads.is_some_and(read) || read(&self.graph.runner) {
                let (input, before, after) = (input.clone(), before.clone(), after.clone());
                why.push(match is_sensitive(self.before, self.after, &input) {
                    true => ChangeReason::Text { key: format!("default of the input {input}") },
                    false => ChangeReason::InputDefault { input, before, after },
                });
            }
        }
        if self.environment {
            why.push(ChangeReason::RunnerEnv);
        }
        let change = if why.is_empty() && !rebuild { Change::Unchanged } else { Change::Changed };
        part(name, change, why, rebuild)
    }
}

fn part(name: &str, change: Change, why: Vec<ChangeReason>, rebuild: bool) -> PartChange {
    PartChange { name: name.to_string(), change, why, rebuild }
}

fn env_of(config: &AppConfig) -> Vec<(&String, &String)> {
    let vars = config.runner.iter().flat_map(|runner| &runner.env_vars);
    vars.map(|(name, text)| (name, &text.value)).collect()
}

fn changed_defaults(
    before: &AppConfig,
    after: &AppConfig,
) -> Vec<(String, Option<String>, Option<String>)> {
    let common = before.inputs.iter().filter_map(|old| Some((old, after.input(&old.name)?)));
    common
        .filter(|(old, new)| old.default != new.default)
        .map(|(old, new)| (old.name.clone(), old.default.clone(), new.default.clone()))
        .collect()
}

/// True if either config marks the input as sensitive. Its default must not be shown.
fn is_sensitive(before: &AppConfig, after: &AppConfig, input: &str) -> bool {
    [before, after].iter().any(|config| config.input(input).is_some_and(|input| input.sensitive))
}

fn actions(before: &AppConfig, after: &AppConfig) -> Vec<PartChange> {
    let names = |config: &AppConfig| -> Vec<String> {
        config.actions.iter().map(|action| action.name.clone()).collect()
    };
    both(names(before), names(after))
        .into_iter()
        .map(|name| match (before.action(&name), after.action(&name)) {
            (Some(old), Some(new)) => {
                let mut why = Vec::new();
                settings("", &old.settings, &new.settings, &mut why);
                let changed = old.digest != new.digest;
                let change = if changed { Change::Changed } else { Change::Unchanged };
                part(&name, change, why, false)
            }
            (None, _) => part(&name, Change::Added, Vec::new(), false),
            (_, None) => part(&name, Change::Removed, Vec::new(), false),
        })
        .collect()
}

fn inputs(before: &AppConfig, after: &AppConfig) -> Vec<PartChange> {
    let names = |config: &AppConfig| -> Vec<String> {
        config.inputs.iter().map(|input| input.name.clone()).collect()
    };
    both(names(before), names(after))
        .into_iter()
        .map(|name| match (before.input(&name), after.input(&name)) {
            (Some(old), Some(new)) => {
                let mut why = Vec::new();
                let (mut old_json, mut new_json) = (input_json(old), input_json(new));
                if old.sensitive || new.sensitive {
                    let key = "default".to_string();
                    why.extend((old.default != new.default).then_some(ChangeReason::Text { key }));
                    for json in [&mut old_json, &mut new_json] {
                        json.as_object_mut().map(|json| json.remove("default"));
                    }
                }
                settings("", &old_json, &new_json, &mut why);
                let change = if why.is_empty() { Change::Unchanged } else { Change::Changed };
                part(&name, change, why, false)
            }
            (None, _) => part(&name, Change::Added, Vec::new(), false),
            (_, None) => part(&name, Change::Removed, Vec::new(), false),
        })
        .collect()
}

fn input_json(input: &Input) -> Value {
    serde_json::to_value(input).unwrap_or_default()
}

fn both(
    old: impl IntoIterator<Item = String>,
    new: impl IntoIterator<Item = String>,
) -> BTreeSet<String> {
    old.into_iter().chain(new).collect()
}

/// Adds a reason for each key in which two JSON values differ. Compares nested objects key by key,
/// and lists as a whole.
fn settings(key: &str, old: &Value, new: &Value, why: &mut Vec<ChangeReason>) {
    if old == new {
        return;
    }
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        for name in both(old.keys().cloned(), new.keys().cloned()) {
            let path = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            match (old.get(&name), new.get(&name)) {
                (Some(old), Some(new)) => settings(&path, old, new, why),
                (before, after) => {
                    let (before, after) = (before.cloned(), after.cloned());
                    why.push(ChangeReason::Setting { key: path, before, after });
                }
            }
        }
        return;
    }
    if is_long(old) || is_long(new) {
        why.push(ChangeReason::Text { key: key.to_string() });
        return;
    }
    let (before, after) = (Some(old.clone()), Some(new.clone()));
    why.push(ChangeReason::Setting { key: key.to_string(), before, after });
}

/// True for a string of several lines or over 200 bytes, which is too long to show in a list.
fn is_long(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() > 200 || text.trim_end().contains('\n'))
}
