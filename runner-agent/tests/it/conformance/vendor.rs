//! Plugin that a file describes: the executable of a vendor, or the example.

use std::{collections::BTreeMap, fs, path::PathBuf};

use oci_layout::sha256;
use serde::Deserialize;
use serde_json::Value;

use super::{
    subjects::{Subject, built},
    test_runner::TestRunner,
};

const EXAMPLE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/plugins/files/conformance.json");

/// Values that the scenario deploys.
const TEXTS: [&str; 3] = ["one", "two", "three"];

/// Contents of the file. In every string of `inputs`, `slow_inputs` and `env`, `$TEXT` is the value
/// that a deploy sets and `$DIR` a directory of the test.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// Component type.
    name: String,
    /// Path of the executable, relative to the file, or `package:NAME` of this workspace.
    executable: String,
    /// Files of the component's source.
    #[serde(default)]
    source: BTreeMap<String, String>,
    /// Environment variables of all jobs.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Further environment variables of a deploy that takes at least 20 seconds.
    #[serde(default)]
    slow_env: BTreeMap<String, String>,
    /// Inputs of a deploy.
    inputs: Value,
    /// Path of an output that shows the deployed value, as a JSON pointer.
    output: String,
    /// Value of that output. `$SHA256` is the digest of the value that a deploy sets.
    output_value: String,
    /// Inputs of a deploy that takes at least 20 seconds.
    slow_inputs: Value,
    /// Text of a line that the plugin logs in the middle of the slow deploy.
    slow_line: String,
    /// True if the state directory contains the state, false if it is elsewhere.
    state_on_host: bool,
}

/// Returns the plugin of `STEAD_CONFORMANCE`, else the example.
pub fn described(runner: &mut TestRunner) -> Subject {
    let file = std::env::var_os("STEAD_CONFORMANCE").map_or_else(|| EXAMPLE.into(), PathBuf::from);
    let text = fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
    let description: Description = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{} is not valid: {error}", file.display()));
    let Description { name, executable, source, env, inputs, output, output_value, .. } =
        description;
    let executable = match executable.strip_prefix("package:") {
        Some(package) => built(package),
        None => file.parent().unwrap().join(executable),
    };
    let dir = runner.at("own").display().to_string();
    fs::create_dir(&dir).unwrap();
    for (name, value) in env {
        runner.env.insert(name, value.replace("$DIR", &dir));
    }
    let path = std::env::var("PATH").unwrap();
    runner.env.entry("PATH".into()).or_insert(path);
    let source: Vec<_> = source.iter().map(|(path, text)| (&**path, &**text)).collect();
    Subject {
        plugin: runner.plugin(&name, &executable),
        artifact: runner.artifact(&source),
        slow: replaced(&description.slow_inputs, "one", &dir),
        inputs: Box::new(move |text| replaced(&inputs, text, &dir)),
        deployed_value: Box::new(move |outputs| {
            let outputs = Value::Object(outputs.clone());
            let value = outputs.pointer(&output)?.as_str()?;
            let expected = |text: &&&str| {
                let digest = sha256(text.as_bytes()).to_string();
                output_value.replace("$TEXT", text).replace("$SHA256", &digest) == value
            };
            TEXTS.iter().find(expected).map(|text| (*text).to_owned())
        }),
        slow_env: description.slow_env,
        text_during_apply: description.slow_line,
        state_on_host: description.state_on_host,
        _cluster: None,
    }
}

fn replaced(value: &Value, text: &str, dir: &str) -> Value {
    match value {
        Value::String(string) => string.replace("$TEXT", text).replace("$DIR", dir).into(),
        Value::Array(items) => items.iter().map(|item| replaced(item, text, dir)).collect(),
        Value::Object(map) => {
            let members = map.iter().map(|(key, item)| (key.clone(), replaced(item, text, dir)));
            Value::Object(members.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
