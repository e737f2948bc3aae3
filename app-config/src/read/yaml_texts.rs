//! YAML of manifests and values files, before it is rendered, and names of releases. A document with a template is YAML
//! only after its rendering, so the preflight of a run checks it instead.
use std::collections::BTreeMap;

use serde_json::Value;

use super::reader::Reader;
use crate::{
    diagnostic::Diagnostic,
    model::{AppConfig, Component, HelmChart, KubernetesManifest, Spec},
    template::is_template,
    text::Text,
};

/// Maximum size of a checked text. The preflight checks larger texts.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of values that the aliases of one document repeat, as in the plugins.
const MAX_REPEATED: usize = 20_000;

pub fn check(config: &AppConfig, reader: &Reader<'_>) {
    let (mut objects, mut releases) = (BTreeMap::new(), BTreeMap::new());
    for component in &config.components {
        match &component.module.spec {
            Spec::HelmChart(chart) => {
                chart.values_files.iter().for_each(|text| values(reader, text));
                release(reader, component, chart, &mut releases);
            }
            Spec::KubernetesManifest(manifest) => {
                self::manifest(reader, component, manifest, &mut objects);
            }
            Spec::TerraformModule
            | Spec::Image(_)
            | Spec::DockerBuild(_)
            | Spec::Pulumi(_)
            | Spec::Job(_)
            | Spec::Plugin => {}
        }
    }
}

/// Name, namespace and context that identify a release.
type ReleaseKey<'c> = (&'c str, Option<&'c str>, Option<&'c str>);

/// Reports a release of two components. Equal templates have equal values in one install.
fn release<'c>(
    reader: &Reader<'_>,
    component: &'c Component,
    chart: &'c HelmChart,
    releases: &mut BTreeMap<ReleaseKey<'c>, &'c Component>,
) {
    let name = &chart.chart_name;
    if name.value.is_empty() {
        return;
    }
    let namespace = chart.namespace.as_ref().map(|namespace| namespace.value.as_str());
    let context = component.module.options.kubernetes_context.as_deref();
    let Some(other) = releases.insert((&name.value, namespace, context), component) else { return };
    if is_optional(other, component) {
        return;
    }
    let message =
        format!("the release {} is also that of the component `{}`", name.value, other.name);
    let remedy = "give one of the two components another chart_name or namespace";
    report(reader, name, 0, "duplicate_release", message, remedy);
}

/// Reports values that are no map.
fn values(reader: &Reader<'_>, text: &Text) {
    if is_template(&text.value) || text.value.len() > MAX_BYTES {
        return;
    }
    match parse(&text.value) {
        Ok(Value::Object(_) | Value::Null) => {}
        Ok(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            let message = "the values are no map".to_owned();
            report(reader, text, 0, "bad_values", message, "write lines of the form NAME: VALUE");
        }
        Err((line, why)) => {
            let at = offset(&text.value, line);
            let message = format!("the values are not valid YAML: {why}");
            report(reader, text, at, "bad_values", message, "correct the YAML");
        }
    }
}

/// Object of a manifest, by the parts that identify it in a cluster.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ObjectKey {
    group: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    /// Context of the component: the cluster of the object.
    context: Option<String>,
}

/// Component of an object, with file and line.
type Owner<'c> = (&'c Component, String);

/// Reports documents that are no objects, and objects of two components.
fn manifest<'c>(
    reader: &Reader<'_>,
    component: &'c Component,
    manifest: &KubernetesManifest,
    objects: &mut BTreeMap<ObjectKey, Owner<'c>>,
) {
    let Some(text) = manifest.manifest.as_ref().filter(|text| text.value.len() <= MAX_BYTES) else {
        return;
    };
    let rendered = is_template(&text.value);
    for (start, document) in documents(&text.value) {
        if rendered && document.contains("{{") {
            continue;
        }
        let first = start + document.len() - document.trim_start().len();
        match parse(document) {
            Ok(Value::Null) => {}
            Ok(value @ Value::Object(_)) => {
                for key in keys(&value, component, manifest) {
                    let line = text.origin.locate(&text.value, first).0;
                    let owner = (component, format!("{}:{line}", text.origin.file));
                    let name = format!("{} {}", key.kind, key.name);
                    let Some((other, place)) = objects.insert(key, owner) else { continue };
                    if other.name == component.name || is_optional(other, component) {
                        continue;
                    }
                    let message =
                        format!("{name} is also in the component `{}` ({place})", other.name);
                    let remedy = "keep the object in one of the two components";
                    report(reader, text, first, "duplicate_object", message, remedy);
                }
            }
            Ok(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                let message = "this document of the manifest is no object".to_owned();
                let remedy = "write apiVersion, kind and metadata";
                report(reader, text, first, "bad_manifest", message, remedy);
            }
            Err((line, why)) => {
                let at = start + offset(document, line);
                let message = format!("the manifest is not valid YAML: {why}");
                report(reader, text, at, "bad_manifest", message, "correct the YAML");
            }
        }
    }
}

/// Returns whether an install may have only one of two components.
fn is_optional(one: &Component, other: &Component) -> bool {
    [one, other].iter().any(|component| component.module.options.is_toggleable())
}

/// Returns the keys of an object, or of the items of a List. Without a name an object has none.
fn keys(value: &Value, component: &Component, manifest: &KubernetesManifest) -> Vec<ObjectKey> {
    if let Some(items) = value["items"].as_array().filter(|_| value["kind"] == "List") {
        return items.iter().flat_map(|item| keys(item, component, manifest)).collect();
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let metadata = &value["metadata"];
    let (Some(version), Some(kind), Some(name)) =
        (text(&value["apiVersion"]), text(&value["kind"]), text(&metadata["name"]))
    else {
        return vec![];
    };
    let of_component = manifest.namespace.as_ref().map(|namespace| namespace.value.clone());
    let key = ObjectKey {
        group: version.rsplit_once('/').map_or(String::new(), |(group, _)| group.to_owned()),
        kind,
        namespace: text(&metadata["namespace"]).or(of_component),
        name,
        context: component.module.options.kubernetes_context.clone(),
    };
    vec![key]
}

/// Splits a text at its document markers. Returns each document with its offset.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut start, mut offset) = (vec![], 0, 0);
    for line in text.split_inclusive('\n') {
        let rest = line.strip_prefix("---");
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])) {
            found.push((start, &text[start..offset]));
            start = offset + 3;
        }
        offset += line.len();
    }
    found.push((start, &text[start..]));
    found
}

/// Parses a document. An error has its line, from 1.
fn parse(text: &str) -> Result<Value, (u64, String)> {
    let mut options = serde_saphyr::Options::default();
    options.alias_limits.max_total_replayed_events = MAX_REPEATED;
    options.with_snippet = false;
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line());
        let why = error.to_string();
        // The line of the parser is that of the document. The finding has the line of the file.
        let why = why.lines().next().unwrap_or_default().split(" at line ").next();
        (line, why.unwrap_or_default().to_owned())
    })
}

/// Offset of a line in a text.
fn offset(text: &str, line: u64) -> usize {
    let before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    text.split_inclusive('\n').take(before).map(str::len).sum::<usize>().min(text.len())
}

fn report(
    reader: &Reader<'_>,
    text: &Text,
    at: usize,
    code: &'static str,
    message: String,
    remedy: &str,
) {
    let end = text.value[at..].find('\n').map_or(text.value.len(), |length| at + length);
    let place = text.origin.within(&text.value, at..end);
    reader.report(Diagnostic::error(code, message, remedy).at(&text.origin.file, place));
}
