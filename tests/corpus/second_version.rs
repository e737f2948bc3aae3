//! Second version of an app: one module, one chart with a value, and one manifest differ.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tests::stdout_of;
use toml::{Table, Value};

use crate::{
    app::{Component, Source, text},
    journey::Journey,
    session::{Failure, Outcome},
};

const MODULE: &str = "resource \"terraform_data\" \"corpus\" {\n  input = \"version 2\"\n}\n";
const TEMPLATE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-corpus
data:
  version: {{ .Values.corpus | default \"2\" | quote }}
";
const DOCUMENT: &str = "
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: corpus
data:
  version: \"2\"
";

/// Directory of the second version, and the components that it changes.
#[derive(Debug)]
pub(crate) struct SecondVersion {
    pub(crate) app: PathBuf,
    pub(crate) components: Vec<String>,
}

/// Copies the app, and changes one component of each kind in the copy and in the repositories.
pub(crate) fn write(journey: &Journey<'_>) -> Outcome<SecondVersion> {
    let copy = journey.place.work.join("version-2").join(&journey.app.name);
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    stdout_of(Command::new("cp").args(["-R", "-L"]).arg(&journey.app.dir).arg(&copy));
    stdout_of(Command::new("chmod").args(["-R", "u+w"]).arg(&copy));
    let mut components = vec![];
    for kind in ["terraform_module", "helm_chart", "kubernetes_manifest"] {
        let of_kind =
            journey.app.components.iter().filter(|one| one.kind == kind && is_enabled(one));
        let changed = of_kind.into_iter().find(|component| change(journey, component, &copy));
        components.extend(changed.map(|component| component.name.clone()));
    }
    if components.is_empty() && change_sandbox(journey) {
        components.push("sandbox".into());
    }
    journey.sources.push();
    match components.is_empty() {
        true => Err(Failure::new("no component can be changed")),
        false => Ok(SecondVersion { app: copy, components }),
    }
}

/// Changes the module of the sandbox, for an app without components. Returns false if there is none.
fn change_sandbox(journey: &Journey<'_>) -> bool {
    let source = journey.app.sandbox.as_ref().and_then(Source::of);
    let dir = source.and_then(|source| journey.sources.directory(&source));
    let written = dir.map(|dir| fs::write(dir.join("corpus-version-2.tf"), MODULE));
    written.is_some_and(|written| written.is_ok())
}

fn is_enabled(component: &Component) -> bool {
    component.settings.get("default_enabled").and_then(Value::as_bool) != Some(false)
}

/// Changes a component. Returns false if it cannot be changed.
fn change(journey: &Journey<'_>, component: &Component, copy: &Path) -> bool {
    let dir = match component.source() {
        Some(source) => journey.sources.directory(&source),
        None => local_directory(&component.settings).map(|dir| copy.join(dir)),
    };
    match component.kind.as_str() {
        "terraform_module" => {
            let Some(dir) = dir.filter(|dir| dir.is_dir()) else { return false };
            fs::write(dir.join("corpus-version-2.tf"), MODULE).unwrap();
            true
        }
        "helm_chart" => {
            let mut settings = component.settings.clone();
            if let Some(dir) = dir.filter(|dir| dir.join("templates").is_dir()) {
                fs::write(dir.join("templates/corpus.yaml"), TEMPLATE).unwrap();
                if dir.join("values.schema.json").is_file() {
                    return true;
                }
            }
            let values = settings.entry("values").or_insert_with(|| Value::Table(Table::new()));
            let Some(values) = values.as_table_mut() else { return false };
            values.insert("corpus".into(), "2".into());
            fs::write(copy.join(&component.file), settings.to_string()).unwrap();
            true
        }
        _ => change_manifest(component, copy),
    }
}

fn change_manifest(component: &Component, copy: &Path) -> bool {
    let Some(manifest) = text(&component.settings, "manifest") else { return false };
    if let Some(path) = manifest.strip_prefix("./").filter(|path| !path.contains('\n')) {
        let file = copy.join("components").join(path);
        let Ok(text) = fs::read_to_string(&file) else { return false };
        fs::write(file, text + DOCUMENT).unwrap();
        return true;
    }
    let mut settings = component.settings.clone();
    settings.insert("manifest".into(), Value::String(manifest + DOCUMENT));
    fs::write(copy.join(&component.file), settings.to_string()).unwrap();
    true
}

/// Returns the directory of a component in the app itself (`repo = "."`).
fn local_directory(settings: &Table) -> Option<String> {
    if Source::of(settings).is_some() {
        return None;
    }
    let git = ["public_repo", "connected_repo"].iter().find_map(|key| settings.get(*key))?;
    text(git.as_table()?, "directory")
}
