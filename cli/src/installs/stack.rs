//! Outputs of the customer's stack, set by the vendor.
use std::{collections::BTreeMap, fs, path::PathBuf};

use clap::Args;
use schemas::control::installs::UpdateInstall;
use serde_json::Value;

use super::change::{RunArgs, pair};
use crate::{failure::Failure, runs::print_run_or_text, settings::CommandContext};

#[derive(Debug, Args)]
pub(crate) struct Outputs {
    /// Output of the customer's stack, such as its region; may be repeated
    #[arg(long = "stack-output", value_name = "NAME=VALUE", value_parser = pair)]
    outputs: Vec<(String, String)>,
    /// File of stack outputs: a JSON object (*.json), or TOML with `name = "value"` lines
    #[arg(long = "stack-outputs-file", value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SetStackOutputs {
    /// Name or id of the install
    install: String,
    #[command(flatten)]
    outputs: Outputs,
    /// Output to remove; may be repeated
    #[arg(long, value_name = "NAME")]
    unset: Vec<String>,
    #[command(flatten)]
    then: RunArgs,
}

impl Outputs {
    /// Reads the outputs. The command line overrides the file.
    pub(crate) fn read(self) -> Result<BTreeMap<String, Value>, Failure> {
        let mut outputs = BTreeMap::new();
        if let Some(path) = &self.file {
            let wrong = |reason: String| {
                Failure::Usage(format!(
                    "cannot read the stack outputs file {}: {reason}",
                    path.display()
                ))
            };
            let text = fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
            let is_json = path.extension().is_some_and(|extension| extension == "json");
            let read: BTreeMap<String, Value> = match is_json {
                true => serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?,
                false => toml::from_str(&text).map_err(|e| wrong(e.to_string()))?,
            };
            for (name, value) in read {
                let value = template_value(value)
                    .ok_or_else(|| wrong(format!("{name} is null\n  try: omit it")))?;
                outputs.insert(name, value);
            }
        }
        outputs.extend(self.outputs.into_iter().map(|(name, text)| (name, Value::String(text))));
        Ok(outputs)
    }
}

/// Converts numbers and booleans to strings, because a template would print a large number as
/// 1e+07. Returns `None` for null.
fn template_value(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) => Some(Value::String(value.to_string())),
        Value::String(_) | Value::Array(_) | Value::Object(_) => Some(value),
    }
}

pub(crate) async fn set(context: &CommandContext, args: SetStackOutputs) -> Result<(), Failure> {
    let SetStackOutputs { install, outputs, unset, then } = args;
    let values = outputs.read()?;
    if let Some(both) = unset.iter().find(|name| values.contains_key(*name)) {
        return Err(Failure::Usage(format!(
            "cannot change {both}: the command both sets and unsets it\n  try: either --stack-output or --unset"
        )));
    }
    let mut changes: BTreeMap<_, _> =
        values.into_iter().map(|(name, value)| (name, Some(value))).collect();
    changes.extend(unset.into_iter().map(|name| (name, None)));
    if changes.is_empty() {
        let message = "cannot change the stack outputs: the command names none\n  try: --stack-output NAME=VALUE, or --unset NAME";
        return Err(Failure::Usage(message.into()));
    }
    let change = UpdateInstall {
        stack_outputs: Some(changes),
        reason: then.reason,
        plan_all: then.plan_all,
        ..UpdateInstall::default()
    };
    let done = context.client.update_install(&install, &change).await?;
    let no_run_text = match done.changed {
        true => "Changed the outputs. No deployed component reads them, so no run is needed.",
        false => "No changes: the outputs already have these values.",
    };
    print_run_or_text(context, &done, done.run, no_run_text, then.wait).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn command_line_outputs_override_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            Outputs { outputs: vec![("b".into(), "x=y".into())], file: Some(path) }.read()
        };
        let expected = json!({"a": "1", "b": "x=y", "c": ["s"], "n": "10000000"});
        let json = r#"{"a": "1", "b": "2", "c": ["s"], "n": 10000000}"#;
        assert_eq!(json!(of("outputs.json", json).unwrap()), expected);
        let toml = "a = \"1\"\nc = [\"s\"]\nn = 10000000\n";
        assert_eq!(json!(of("outputs.toml", toml).unwrap()), expected);
        for wrong in ["[]", "{\"a\": null}", "{"] {
            assert!(of("wrong.json", wrong).is_err(), "{wrong}");
        }
    }
}
