//! Substitutions: the data in `substitutions.toml`, and the ones that an app used.
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value as Json};
use toml::Table;

use crate::{
    api_proxy::{FIELDS, PODS, VERSIONS},
    app::{App, items, plain, text},
};

const FILE: &str = include_str!("substitutions.toml");

/// Rules of the file, and the list of those that this app used.
#[derive(Debug)]
pub(crate) struct Rules {
    file: Table,
    used: RefCell<BTreeSet<String>>,
    /// File to which programs append their names.
    calls: PathBuf,
}

impl Rules {
    pub(crate) fn load(dir: &Path) -> Rules {
        let file = FILE.parse().expect("substitutions.toml is invalid");
        Rules { file, used: RefCell::default(), calls: dir.join("calls") }
    }

    /// Records a substitution for the result.
    pub(crate) fn note(&self, substitution: impl Into<String>) {
        self.used.borrow_mut().insert(substitution.into());
    }

    /// Returns the substitutions so far, and the programs that scripts called.
    pub(crate) fn used(&self) -> Vec<String> {
        let calls = fs::read_to_string(&self.calls).unwrap_or_default();
        let called: BTreeSet<&str> = calls.lines().collect();
        let mut used: Vec<String> = self.used.borrow().iter().cloned().collect();
        let read = |name| fs::read_to_string(self.calls.with_file_name(name)).unwrap_or_default();
        let (pods, fields, versions) = (read(PODS), read(FIELDS), read(VERSIONS));
        let mut list = |what: &str, names: BTreeSet<&str>| {
            if !names.is_empty() {
                used.push(format!("{what} {}", Vec::from_iter(names).join(", ")));
            }
        };
        list("busybox in pods of", pods.lines().collect());
        list("older versions of", versions.lines().collect());
        list("without the fields", fields.lines().collect());
        list("programs", called);
        used
    }

    /// Returns what an error waits for, if a later issue adds it.
    pub(crate) fn waits_for(&self, message: &str) -> Option<String> {
        let rules = items(&self.file, "waits").into_iter();
        let mut matching =
            rules.filter(|rule| text(rule, "message").is_some_and(|part| message.contains(&part)));
        matching.next().and_then(|rule| text(&rule, "on"))
    }

    /// Returns values for all inputs without a default: those of the app's own install, or
    /// generated ones.
    pub(crate) fn inputs(&self, app: &App) -> BTreeMap<String, String> {
        let names: BTreeSet<String> =
            app.inputs.iter().filter_map(|input| text(input, "name")).collect();
        let examples = app.example_inputs().into_iter();
        let mut values: BTreeMap<_, _> =
            examples.filter(|(name, _)| names.contains(name)).collect();
        let mut generated = vec![];
        for input in &app.inputs {
            let Some(name) = text(input, "name") else { continue };
            let kind = text(input, "type").unwrap_or_else(|| "string".into());
            let has_default =
                input.get("default").is_some_and(|value| is_valid(&plain(value), &kind));
            let is_required = input.get("required").and_then(toml::Value::as_bool) == Some(true);
            let is_sensitive = input.get("sensitive").and_then(toml::Value::as_bool) == Some(true);
            if has_default || !is_required || is_sensitive || values.contains_key(&name) {
                continue;
            }
            let value = self.file["inputs"].get(&kind).or(self.file["inputs"].get("string"));
            values.insert(name.clone(), plain(value.unwrap()));
            generated.push(name);
        }
        if !generated.is_empty() {
            self.note(format!("inputs {}", generated.join(", ")));
        }
        values
    }

    /// Returns values for the sensitive inputs without a default, and whether each is required.
    pub(crate) fn sensitive_inputs(&self, app: &App) -> Vec<(String, String, bool)> {
        let flag =
            |input: &Table, key: &str| input.get(key).and_then(toml::Value::as_bool) == Some(true);
        let value = |input: &Table| {
            let kind = text(input, "type").unwrap_or_else(|| "string".into());
            let value = self.file["inputs"].get(&kind).or(self.file["inputs"].get("string"));
            Some((text(input, "name")?, plain(value?), flag(input, "required")))
        };
        let sensitive = app.inputs.iter().filter(|input| flag(input, "sensitive"));
        let sensitive: Vec<_> =
            sensitive.filter(|input| !input.contains_key("default")).filter_map(value).collect();
        if !sensitive.is_empty() {
            let names: Vec<&str> = sensitive.iter().map(|(name, ..)| name.as_str()).collect();
            self.note(format!("inputs {}", names.join(", ")));
        }
        sensitive
    }

    /// Returns outputs of a stack for the app's platform, with every output that the app reads.
    pub(crate) fn stack_outputs(&self, app: &App) -> Json {
        let sets = &self.file["stack_outputs"];
        let platform = sets.get(app.platform).and_then(|set| set.as_table());
        let common = sets["any"].as_table();
        let mut outputs = Map::new();
        for (name, value) in common.into_iter().chain(platform).flatten() {
            let value = serde_json::to_value(value).unwrap_or_default();
            outputs.insert(name.clone(), value);
        }
        let reads = app.reads.iter().filter_map(|read| read.split("install_stack.outputs.").nth(1));
        for path in reads {
            // The ARNs of several roles are a map by role.
            let is_map = path.ends_with("_arns") && !path.contains('.');
            let path = if is_map { format!("{path}.role") } else { path.to_owned() };
            self.set(&mut outputs, &path, "stack");
        }
        self.note("stack outputs");
        Json::Object(outputs)
    }

    /// Sets a value at a dotted path, unless there is one.
    pub(crate) fn set(&self, outputs: &mut Map<String, Json>, path: &str, owner: &str) {
        match path.split_once('.') {
            None if outputs.contains_key(path) => {}
            None => drop(outputs.insert(path.to_owned(), self.value(owner, path))),
            Some((first, rest)) => {
                let inner = outputs.entry(first).or_insert_with(|| Json::Object(Map::new()));
                if !inner.is_object() {
                    *inner = Json::Object(Map::new());
                }
                if let Json::Object(inner) = inner {
                    self.set(inner, rest, owner);
                }
            }
        }
    }

    /// Returns a value for an output: a list for the names of lists, otherwise a text.
    fn value(&self, owner: &str, name: &str) -> Json {
        let lists = self.file["stand_ins"]["lists"].as_array().into_iter().flatten();
        let is_list = lists.filter_map(|end| end.as_str()).any(|end| name.ends_with(end));
        let text = format!("{owner}-{name}").replace('_', "-");
        match is_list && owner != "stack" {
            true => Json::from([format!("{text}-0"), format!("{text}-1")].to_vec()),
            false => text.into(),
        }
    }

    /// Writes the programs of the file to a directory, for the start of a PATH.
    pub(crate) fn programs(&self, app: &App, dir: &Path) {
        let outputs = app.step_outputs().join(" ");
        fs::create_dir_all(dir).unwrap();
        for program in items(&self.file, "program") {
            let (Some(name), Some(script)) = (text(&program, "name"), text(&program, "script"))
            else {
                continue;
            };
            let real = on_path(&name).map(|path| path.display().to_string()).unwrap_or_default();
            let log = format!("echo '{name}' >>'{}'\n", self.calls.display());
            let file = dir.join(&name);
            fs::write(
                &file,
                format!("#!/bin/bash\n{log}REAL='{real}' OUTPUTS='{outputs}'\n{script}\n"),
            )
            .unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

/// Returns true if a text is a value of a type. Some required inputs have a placeholder as default.
fn is_valid(value: &str, kind: &str) -> bool {
    match kind {
        "bool" => ["true", "false"].contains(&value),
        "number" => value.parse::<f64>().is_ok(),
        "json" | "list" => serde_json::from_str::<Json>(value).is_ok(),
        _ => !value.is_empty(),
    }
}

/// Returns the machine's own program. `kubectl` is the one of the tests, if they have one.
fn on_path(name: &str) -> Option<PathBuf> {
    if let Some(tool) = std::env::var_os("STEAD_TEST_KUBECTL").filter(|_| name == "kubectl") {
        return Some(tool.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}
