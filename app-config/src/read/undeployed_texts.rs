//! Texts that this release does not deploy but that may be templates: of the stack, secrets, roles,
//! runbooks and descriptions. A problem in such a text is a warning.
use super::{cross_checks::text_refers, reader::Reader};
use crate::{
    diagnostic::{Diagnostic, Location, Severity},
    document::{Document, Node, Spot},
    model::{AppConfig, Input},
    refs::Reads,
    template::is_template,
    text::Text,
};

/// Files whose texts another module checks, or whose values are not templates.
const OTHER_FILES: [&str; 5] =
    ["actions/", "components/", "installs/", "installs.toml", "sandbox.toml"];
/// Keys whose values are never templates: types, dependencies and repositories.
const NO_TEMPLATES: [&str; 5] =
    ["connected_repo", "dependencies", "helm_repo", "public_repo", "type"];

/// Texts of a file that may be templates.
pub fn texts(document: &Document) -> Vec<Text> {
    let mut found = Vec::new();
    if OTHER_FILES.iter().any(|file| document.file.starts_with(file)) {
        return found;
    }
    let is_input = document.file == "inputs.toml" || document.file.starts_with("inputs/");
    for (key, entry) in &document.root {
        // The runner's `env_vars` are in every job, so `cross_checks` reports their problems as
        // errors.
        let is_apart = document.file == "runner.toml" && key == "env_vars";
        // A default may be sensitive, so `default` checks it.
        if is_apart || (is_input && key == "default") {
            continue;
        }
        walk(document, key, key, &entry.spot, is_input, &mut found);
    }
    found
}

fn walk(
    document: &Document,
    key: &str,
    path: &str,
    spot: &Spot,
    is_input: bool,
    found: &mut Vec<Text>,
) {
    match &spot.node {
        Node::Text(value) if value.contains("{{") && !NO_TEMPLATES.contains(&key) => {
            found.push(Text { value: value.clone(), origin: document.content(path, spot) });
        }
        Node::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                walk(document, key, &format!("{path}.{at}"), item, is_input, found);
            }
        }
        Node::Table(table) if !NO_TEMPLATES.contains(&key) => {
            let entries = table.iter().filter(|(key, _)| !(is_input && *key == "default"));
            for (key, entry) in entries {
                walk(document, key, &format!("{path}.{key}"), &entry.spot, is_input, found);
            }
        }
        Node::Text(_) | Node::Table(_) | Node::Integer(_) | Node::Bool(_) | Node::Other(_) => {}
    }
}

pub fn check(config: &AppConfig, reader: &Reader<'_>) {
    for text in reader.undeployed_texts.borrow().iter() {
        text_refers(config, reader, text, Severity::Warning);
    }
    for (name, text) in reader.defaults.borrow().iter() {
        if let Some(input) = config.input(name) {
            default(config, reader, input, text);
        }
    }
}

/// Checks that the template of a default reads only inputs whose defaults are not templates.
fn default(config: &AppConfig, reader: &Reader<'_>, input: &Input, text: &Text) {
    let reads = if input.sensitive {
        // A finding must not contain a sensitive default or its location: output that shows the
        // line would show the value.
        let Ok(reads) = Reads::of_one(text) else {
            let message =
                format!("invalid template in the default of the sensitive input `{}`", input.name);
            let texts = (message, "correct the template");
            reader.about(Severity::Warning, "template", &text.origin.file, texts);
            return;
        };
        reads
    } else {
        let Some(reads) = text_refers(config, reader, text, Severity::Warning) else { return };
        reads
    };
    let is_template_default = |name: &&String| {
        let other = config.input(name).and_then(|other| other.default.as_deref());
        other.is_some_and(is_template)
    };
    let is_sensitive = |name: &&String| config.input(name).is_some_and(|other| other.sensitive);
    if let Some(other) = reads.needed_inputs.iter().find(is_sensitive) {
        let message =
            format!("the default of `{}` reads the sensitive input `{other}`", input.name);
        let remedy = "read the sensitive input where it is used; installs that do not set this input are rejected";
        let finding = Diagnostic::warning("bad_default", message, remedy);
        reader.report(finding.at(&text.origin.file, Location::default()));
    }
    if let Some(other) = reads.needed_inputs.iter().find(is_template_default) {
        let message = format!(
            "the default of `{}` reads `{other}`, whose default is also a template",
            input.name
        );
        let remedy = "read only inputs whose defaults are not templates; installs that set neither input are rejected";
        let finding = Diagnostic::warning("bad_default", message, remedy);
        let place = match input.sensitive {
            true => Location::default(),
            false => text.origin.place(text.value.chars().count()),
        };
        reader.report(finding.at(&text.origin.file, place));
    }
}
