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
        "helm_chart" => match missing_dependency(dir) {
            Some(dependency) => {
                fs::remove_dir_all(dir).unwrap();
                chart(&component.name, "0.1.0", dir);
                Some(format!("stand-in chart (needs {dependency})"))
            }
            None => accept_any_cluster(dir).then(|| "any version of Kubernetes for chart".into()),
        },
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
        let is_changed = complete_outputs(outputs, &original, dir);
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

/// Writes the script that the command of an action calls, unless it exists. Without a script, only
/// the directory is necessary.
pub(crate) fn script(dir: &Path, command: &str) -> Option<String> {
    let is_script = |word: &&str| word.starts_with("./") || word.ends_with(".sh");
    let script = command.split_whitespace().find(is_script);
    if script.is_none() && dir.is_dir() {
        return None;
    }
    let file = dir.join(script.unwrap_or("README"));
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

/// Removes the condition on the version of Kubernetes from a chart and its subcharts. Returns true if
/// there was one.
pub(crate) fn accept_any_cluster(chart: &Path) -> bool {
    let subcharts = fs::read_dir(chart.join("charts")).into_iter().flatten().flatten();
    let mut is_changed = false;
    for subchart in subcharts.filter(|entry| entry.path().is_dir()) {
        is_changed |= accept_any_cluster(&subchart.path());
    }
    let file = chart.join("Chart.yaml");
    let Ok(text) = fs::read_to_string(&file) else { return is_changed };
    let kept = text.split_inclusive('\n').filter(|line| !line.starts_with("kubeVersion:"));
    let kept: String = kept.collect();
    if kept == text {
        return is_changed;
    }
    fs::write(file, kept).unwrap();
    true
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

/// Adds the outputs that the app reads and the module lacks. Replaces a text output if the app
/// reads members of it. Returns true if an output was added or replaced.
fn complete_outputs(outputs: Map<String, Json>, original: &Module, dir: &Path) -> bool {
    let file = dir.join("main.tf");
    let module = fs::read_to_string(&file).unwrap_or_default();
    let mut completed = module.clone();
    for (name, value) in outputs {
        if !original.outputs.contains(&name) {
            completed += &format!("\noutput \"{name}\" {{\n  value = {value}\n}}\n");
            continue;
        }
        if !value.is_object() {
            continue;
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outputs_that_the_app_reads_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("main.tf");
        let module = "output \"a\" {\n  value = \"a\"\n}\noutput \"b\" {\n  value = \"b\"\n}\n";
        fs::write(&file, module).unwrap();
        let complete = |outputs: Json| {
            let outputs = outputs.as_object().unwrap().clone();
            complete_outputs(outputs, &Module::read(dir.path()), dir.path())
        };
        assert!(!complete(json!({"a": "other"})));
        assert!(complete(json!({"a": "other", "b": {"c": "d"}, "e": ["f"]})));
        let completed = fs::read_to_string(&file).unwrap();
        let expected = "output \"a\" {\n  value = \"a\"\n}\noutput \"b\" {\n  value = {\"c\":\"d\"}\n}\n\n\
                        output \"e\" {\n  value = [\"f\"]\n}\n";
        assert_eq!(completed, expected);
    }

    #[test]
    fn a_chart_and_its_subcharts_accept_any_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("charts/sub");
        fs::create_dir_all(&sub).unwrap();
        let text = "name: a\nkubeVersion: \">=1.25.0-0\"\nversion: 1.0.0\n";
        for dir in [dir.path(), &sub] {
            fs::write(dir.join("Chart.yaml"), text).unwrap();
        }
        assert!(accept_any_cluster(dir.path()));
        for dir in [dir.path(), &sub] {
            let kept = fs::read_to_string(dir.join("Chart.yaml")).unwrap();
            assert_eq!(kept, "name: a\nversion: 1.0.0\n");
        }
        assert!(!accept_any_cluster(dir.path()));
    }

    #[test]
    fn a_missing_script_is_written_where_the_command_finds_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("here.sh"), "").unwrap();
        for (command, file, is_written) in [
            ("./here.sh", "here.sh", false),
            ("./in/check", "in/check", true),
            ("bash later.sh --all", "later.sh", true),
            ("echo a", "README", false),
        ] {
            assert_eq!(script(dir.path(), command).is_some(), is_written, "{command}");
            assert_eq!(dir.path().join(file).exists(), file != "README", "{command}");
        }
        // without a script, the directory must exist
        assert!(script(&dir.path().join("none"), "echo a").is_some());
        assert!(dir.path().join("none/README").exists());
    }
}
