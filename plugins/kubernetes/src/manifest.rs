//! Desired objects, parsed from YAML documents, with their start lines.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{
    failure::{Failure, Outcome, listed},
    object::ObjectRef,
    settings::Settings,
};

/// Maximum number of objects of a component. A larger inventory would not fit into a Secret.
const MAX_OBJECTS: usize = 2000;
/// Maximum number of values in all documents of a manifest, including those that aliases repeat.
const MAX_VALUES: usize = 500_000;
/// Maximum number of values that the aliases of one document repeat.
const MAX_REPEATED: usize = 20_000;

/// Object of a manifest, before its namespace is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// Reference with the namespace that the manifest names.
    pub reference: ObjectRef,
    pub object: Value,
    /// File and line, as in `web.yaml:12`.
    pub place: String,
}

/// Checks the manifest of the settings. The build of a kustomization checks its objects.
pub fn check(settings: &Settings) -> Outcome<()> {
    match (&settings.manifest, &settings.kustomize) {
        (Some(manifest), None) => parse(manifest, file_name(settings)).map(drop),
        (None, Some(_)) => Ok(()),
        (Some(_), Some(_)) => {
            Err(Failure::refused("`manifest` and `kustomize` are both set; keep one of them"))
        }
        (None, None) => {
            Err(Failure::refused("`manifest` or `kustomize` is missing; name the objects to apply"))
        }
    }
}

pub fn file_name(settings: &Settings) -> &str {
    settings.manifest_file.as_deref().unwrap_or("manifest")
}

/// Parses the documents of a manifest.
///
/// # Errors
/// Names every invalid document with its line.
pub fn parse(text: &str, file: &str) -> Outcome<Vec<Desired>> {
    let (mut desired, mut errors) = (vec![], vec![]);
    let documents = documents(text);
    let count = documents.iter().filter(|document| !document.text.trim().is_empty()).count();
    check_count(count, file)?;
    let mut values = 0;
    for document in documents {
        match parse_document(&document, file, Booleans::Strict) {
            Ok(objects) => {
                values += objects.iter().map(|one| count_values(&one.object)).sum::<usize>();
                desired.extend(objects);
            }
            Err(error) => errors.push(error),
        }
        if values > MAX_VALUES {
            return Err(Failure::refused(format!(
                "{file}: too many values: more than {MAX_VALUES} with repetitions by aliases; \
                 split the component"
            )));
        }
    }
    check_count(desired.len(), file)?;
    if !errors.is_empty() {
        return Err(Failure::refused(listed("invalid manifest", &errors)));
    }
    check_unique(desired.iter().map(|one| (&one.reference, one.place.as_str())))?;
    Ok(desired)
}

fn check_count(count: usize, file: &str) -> Outcome<()> {
    match count > MAX_OBJECTS {
        true => Err(Failure::refused(format!(
            "{file}: too many objects: {count}, limit {MAX_OBJECTS}; split the component"
        ))),
        false => Ok(()),
    }
}

fn count_values(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(items) => 1 + items.iter().map(count_values).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(count_values).sum::<usize>(),
    }
}

/// Rejects two desired states of one object.
pub fn check_unique<'o>(objects: impl Iterator<Item = (&'o ObjectRef, &'o str)>) -> Outcome<()> {
    let mut seen = BTreeMap::new();
    let mut errors = vec![];
    for (object, place) in objects {
        if let Some(first) = seen.insert(object.key(), place) {
            errors.push(format!("{place}: {object} is also at {first}; keep one of them"));
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Failure::refused(listed("duplicate objects in the manifest", &errors))),
    }
}

/// One YAML document, with the number of lines before it.
pub struct Document<'t> {
    pub text: &'t str,
    lines_before: usize,
}

/// Rules by which plain scalars become booleans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Booleans {
    /// `true` and `false`, as in YAML 1.2.
    Strict,
    /// Also `yes`, `no`, `on` and `off`, as Helm reads them.
    Legacy,
}

/// Splits a text at its document markers. A marker is never part of a value: values are indented.
pub fn documents(text: &str) -> Vec<Document<'_>> {
    let (mut found, mut start, mut lines_before) = (vec![], 0, 0);
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let rest = line.strip_prefix("---");
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])) {
            found.push(Document { text: &text[start..offset], lines_before });
            (start, lines_before) = (offset + 3, number);
        }
        offset += line.len();
    }
    found.push(Document { text: &text[start..], lines_before });
    found
}

/// Parses one document. Empty documents and comments have no objects.
///
/// # Errors
/// Names the line of an invalid document.
pub fn parse_document(
    document: &Document<'_>,
    file: &str,
    booleans: Booleans,
) -> Result<Vec<Desired>, String> {
    let blank = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let comments = document.text.lines().take_while(blank).count();
    if comments == document.text.lines().count() {
        return Ok(vec![]);
    }
    let line = document.lines_before + comments + 1;
    // Go's parser reads 0644 as an octal number, and manifests rely on that for file modes.
    let mut options = serde_saphyr::Options::default();
    options.legacy_octal_numbers = true;
    options.alias_limits.max_total_replayed_events = MAX_REPEATED;
    options.strict_booleans = booleans == Booleans::Strict;
    options.with_snippet = false;
    let parsed: Value =
        serde_saphyr::from_str_with_options(document.text, options).map_err(|e| {
            let line = e.location().map_or(line, |at| document.lines_before + at.line() as usize);
            let why = e.to_string();
            // The parser counts from the start of the document.
            let why = why.lines().next().unwrap_or_default().split(" at line ").next();
            format!("{file}:{line}: {}", why.unwrap_or_default())
        })?;
    let place = format!("{file}:{line}");
    if parsed.is_null() {
        return Ok(vec![]);
    }
    if parsed["kind"] != "List" {
        return Ok(vec![desired(&parsed, &place)?]);
    }
    let items = parsed["items"]
        .as_array()
        .ok_or_else(|| format!("{place}: the List has no `items`; add it"))?;
    items.iter().map(|item| desired(item, &place)).collect()
}

fn desired(object: &Value, place: &str) -> Result<Desired, String> {
    let fail = |why: String| format!("{place}: {why}");
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let missing = |key: &str| fail(format!("the object has no {key}; add it"));
    let api_version = text(&object["apiVersion"]).ok_or_else(|| missing("apiVersion"))?;
    let kind = text(&object["kind"]).ok_or_else(|| missing("kind"))?;
    let metadata = &object["metadata"];
    let name = text(&metadata["name"]).ok_or_else(|| {
        let hint = match metadata.get("generateName") {
            Some(_) => "; generateName is not supported: each apply would create another object",
            None => "; add it",
        };
        fail(format!("the {kind} has no metadata.name{hint}"))
    })?;
    let written = metadata.get("namespace").filter(|namespace| !namespace.is_null());
    let namespace = written.map(|written| {
        text(written).ok_or_else(|| {
            fail(format!("the {kind} {name} has an invalid metadata.namespace; use a name"))
        })
    });
    let namespace = namespace.transpose()?;
    if let Some(invalid) =
        [Some(&name), namespace.as_ref()].into_iter().flatten().find(|one| !is_name(one))
    {
        return Err(fail(format!(
            "the {kind} has an invalid name or namespace {invalid:?}; use at most 253 characters \
             without / ? # % and control characters"
        )));
    }
    if !is_api_version(&api_version) {
        return Err(fail(format!(
            "the {kind} {name} has an invalid apiVersion {api_version:?}; write a version, or a \
             group and a version as in apps/v1"
        )));
    }
    for set_by_server in ["resourceVersion", "uid", "managedFields"] {
        if metadata.get(set_by_server).is_some_and(|value| !value.is_null()) {
            return Err(fail(format!(
                "the {kind} {name} has metadata.{set_by_server}, which only the API server sets; \
                 remove it"
            )));
        }
    }
    let reference = ObjectRef { api_version, kind, namespace, name };
    let mut object = object.clone();
    if ["", "apps", "batch"].contains(&reference.group()) {
        add_protocols(&mut object);
    }
    if reference.is_secret() {
        encode_string_data(&mut object);
    }
    Ok(Desired { reference, object, place: place.to_owned() })
}

/// Returns whether a text can be part of a URL as the name of an object or a namespace.
pub fn is_name(text: &str) -> bool {
    let is_reserved = |c: char| "/?#%".contains(c) || c.is_control();
    !text.is_empty()
        && text.len() <= 253
        && text != "."
        && text != ".."
        && !text.contains(is_reserved)
}

fn is_api_version(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        is_name(part) && part.chars().all(is_plain)
    };
    let parts: Vec<&str> = text.split('/').collect();
    parts.len() <= 2 && parts.into_iter().all(is_part)
}

/// Moves `stringData` of a Secret to `data`, as the API server does. Ownership and differences then
/// refer to the same fields as the stored object.
fn encode_string_data(secret: &mut Value) {
    let texts = secret["stringData"].as_object().into_iter().flatten();
    let encoded = texts
        .map(|(key, text)| Some((key.clone(), Value::String(STANDARD.encode(text.as_str()?)))));
    // The API server rejects a value that is not a string.
    let Some(encoded) = encoded.collect::<Option<serde_json::Map<_, _>>>() else { return };
    let Some(members) = secret.as_object_mut().filter(|_| !encoded.is_empty()) else { return };
    members.remove("stringData");
    let data = members.entry("data").or_insert_with(|| Value::Object(Default::default()));
    if data.is_null() {
        *data = Value::Object(Default::default());
    }
    data.as_object_mut().into_iter().for_each(|data| data.extend(encoded.clone()));
}

/// Adds the default protocol to ports without one. The protocol is a key of these lists, and API
/// servers before 1.22 set no default for a key.
fn add_protocols(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let ports = member.as_array_mut().filter(|_| name == "ports");
                for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                    if port.contains_key("port") || port.contains_key("containerPort") {
                        port.entry("protocol").or_insert_with(|| "TCP".into());
                    }
                }
                add_protocols(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(add_protocols),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests;
