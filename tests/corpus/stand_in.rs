//! Stand-ins for what the directory of repositories does not have: modules, charts, kustomizations
//! and scripts. Modules use the built-in `terraform_data` only.
use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::{Map, Value as Json};
use toml::Table;

use crate::{
    app::{App, Component, text},
    available::{Module, missing_dependency},
    rules::Rules,
};

/// Template of a chart: one object, which shows the values.
const CHART_TEMPLATE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-values
data:
  values.json: |
    {{ toJson .Values }}
";

/// Writes the source of a component, unless this machine can run it. Returns what was written.
pub(crate) fn component(
    app: &App,
    component: &Component,
    dir: &Path,
    rules: &Rules,
) -> Option<String> {
    match component.kind.as_str() {
        "terraform_module" => {
            let read = format!("nuon.components.{}.outputs.", component.name);
            let outputs = outputs(app, &[&read], &component.name, rules);
            terraform(&component.settings, outputs, dir, "module")
        }
        "helm_chart" if !dir.join("Chart.yaml").is_file() => {
            chart(&component.name, "0.1.0", dir);
            Some("stand-in chart".into())
        }
        "helm_chart" => {
            let dependency = missing_dependency(dir)?;
            fs::remove_dir_all(dir).unwrap();
            chart(&component.name, "0.1.0", dir);
            Some(format!("stand-in chart (needs {dependency})"))
        }
        "kubernetes_manifest" => {
            let kustomize = component.settings.get("kustomize")?.as_table()?;
            let dir = dir.join(text(kustomize, "path")?.trim_start_matches("./"));
            if dir.is_dir() {
                return None;
            }
            kustomization(&dir);
            Some("stand-in kustomization".into())
        }
        _ => None,
    }
}

/// Writes the module of the sandbox, unless this machine can run it.
pub(crate) fn sandbox(app: &App, dir: &Path, rules: &Rules) -> Option<String> {
    let settings = app.sandbox.as_ref()?;
    if text(settings, "type").is_some_and(|kind| kind == "pulumi") {
        return None;
    }
    let reads = ["nuon.sandbox.outputs.", "nuon.install.sandbox.outputs."];
    terraform(settings, outputs(app, &reads, "sandbox", rules), dir, "sandbox")
}

/// Writes a module, unless this machine can run the one of the directory.
fn terraform(
    settings: &Table,
    mut outputs: Map<String, Json>,
    dir: &Path,
    what: &str,
) -> Option<String> {
    let original = Module::read(dir);
    let exists = has_file(dir, ".tf");
    if exists && original.needs.is_none() {
        let is_changed = complete_outputs(outputs, dir);
        return is_changed.then(|| "completed outputs of".into());
    }
    for name in &original.outputs {
        outputs.entry(name.as_str()).or_insert_with(|| format!("{what}-{name}").into());
    }
    for file in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if name.ends_with(".tf") || name.ends_with(".tf.json") || name == ".terraform.lock.hcl" {
            fs::remove_file(file.path()).unwrap();
        }
    }
    module(settings, &original, outputs, dir);
    match original.needs {
        Some(needs) => Some(format!("stand-in {what} (needs {needs})")),
        None => Some(format!("stand-in {what}")),
    }
}

/// Writes the script of an action, unless it exists.
pub(crate) fn script(dir: &Path, command: &str) -> Option<String> {
    let path = command.split_whitespace().next()?.strip_prefix("./")?;
    let file = dir.join(path);
    if file.exists() {
        return None;
    }
    fs::create_dir_all(file.parent()?).unwrap();
    fs::write(&file, "#!/bin/sh\necho \"stand-in for $0\"\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    Some("stand-in script".into())
}

/// Writes a chart with one object.
pub(crate) fn chart(name: &str, version: &str, dir: &Path) {
    let templates = dir.join("templates");
    fs::create_dir_all(&templates).unwrap();
    let name = name.replace('_', "-");
    let text = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
    fs::write(dir.join("Chart.yaml"), text).unwrap();
    fs::write(dir.join("values.yaml"), "{}\n").unwrap();
    fs::write(templates.join("values.yaml"), CHART_TEMPLATE).unwrap();
}

fn kustomization(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: stand-in\ndata:\n  a: b\n";
    fs::write(dir.join("configmap.yaml"), object).unwrap();
    fs::write(dir.join("kustomization.yaml"), "resources:\n- configmap.yaml\n").unwrap();
}

/// Writes a module with the variables of the settings and of the original, and these outputs.
fn module(settings: &Table, original: &Module, outputs: Map<String, Json>, dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let variables = settings.get("vars").and_then(toml::Value::as_table);
    let mut names: BTreeSet<&String> = variables.into_iter().flat_map(Table::keys).collect();
    names.extend(&original.variables);
    let mut module = String::new();
    for name in &names {
        module += &format!("variable \"{name}\" {{\n  type    = any\n  default = null\n}}\n");
    }
    let values: Vec<String> = names.iter().map(|name| format!("{name} = var.{name}")).collect();
    let values = values.join(", ");
    module +=
        &format!("resource \"terraform_data\" \"stand_in\" {{\n  input = {{ {values} }}\n}}\n");
    for (name, value) in outputs {
        let sensitive =
            if original.sensitive.contains(&name) { "\n  sensitive = true" } else { "" };
        module += &format!("output \"{name}\" {{\n  value = {value}{sensitive}\n}}\n");
    }
    fs::write(dir.join("main.tf"), module).unwrap();
}

/// Replaces an output that is a plain text, where the app reads members of an object. Returns true if
/// there is such an output.
fn complete_outputs(outputs: Map<String, Json>, dir: &Path) -> bool {
    let file = dir.join("main.tf");
    let Ok(module) = fs::read_to_string(&file) else { return false };
    let mut completed = module.clone();
    for (name, value) in outputs.into_iter().filter(|(_, value)| value.is_object()) {
        let start = format!("output \"{name}\" {{");
        let Some((before, rest)) = completed.split_once(&start) else { continue };
        let Some((block, after)) = rest.split_once("\n}") else { continue };
        let is_text = |line: &&str| line.trim_start().starts_with("value = \"");
        let Some(line) = block.lines().find(is_text) else { continue };
        let block = block.replace(line, &format!("  value = {value}"));
        completed = format!("{before}{start}{block}\n}}{after}");
    }
    let is_changed = completed != module;
    fs::write(file, completed).unwrap();
    is_changed
}

/// Returns the outputs that the app reads below these variables.
fn outputs(app: &App, prefixes: &[&str], owner: &str, rules: &Rules) -> Map<String, Json> {
    let mut outputs = Map::new();
    for read in &app.reads {
        let path = prefixes.iter().find_map(|prefix| read.strip_prefix(prefix));
        if let Some(path) = path {
            rules.set(&mut outputs, path, owner);
        }
    }
    outputs
}

fn has_file(dir: &Path, end: &str) -> bool {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().ends_with(end))
}
