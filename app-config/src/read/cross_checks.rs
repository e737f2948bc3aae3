//! Checks across files: references of templates, targets of triggers, and cycles.
use super::{names::Kind, platform, reader::Reader, sensitive, undeployed_texts, yaml_texts};
use crate::{
    diagnostic::{Diagnostic, Location, Severity},
    model::{AppConfig, Secret},
    refs::{Reads, graph},
    template::{is_template, reads::ANY},
    text::{Origin, Text},
};

pub fn check(config: &AppConfig, reader: &Reader<'_>) {
    triggers(config, reader);
    secrets(config, reader);
    platform::check(config, reader);
    references(config, reader);
    cycles(config, reader);
    defaults(config, reader);
    yaml_texts::check(config, reader);
}

/// Reports secrets with the name of an input: an install has one value for a name.
fn secrets(config: &AppConfig, reader: &Reader<'_>) {
    for secret in config.secret_inputs.iter().filter(|one| config.input(&one.name).is_some()) {
        let name = &secret.name;
        let message = format!(
            "the secret `{name}` has the name of an input, so `stead-runner secret set {name}` could mean both"
        );
        let finding = Diagnostic::error("secret_clash", message, "rename one of them");
        reader.report(finding.at(&secret.at.file, secret.at.place(1)));
    }
}

/// Reports components that are enabled in a new install but require a disabled one.
fn defaults(config: &AppConfig, reader: &Reader<'_>) {
    let is_off = |name: &String| {
        config.component(name).is_some_and(|one| one.module.options.default_enabled == Some(false))
    };
    let graph = graph(config);
    for component in config.components.iter().filter(|one| !is_off(&one.name)) {
        for missing in graph.required(component).iter().filter(|name| is_off(name)) {
            let name = &component.name;
            let message = format!(
                "cannot create installs: `{name}` requires `{missing}`, which is disabled in a new install"
            );
            let remedy =
                format!("set default_enabled = false for `{name}` too, or true for `{missing}`");
            let finding = Diagnostic::error("disabled_dependency", message, remedy);
            let names = reader.names.borrow();
            reader.report(match names.place(Kind::Component, name) {
                Some(origin) => finding.at(&origin.file, origin.place(name.chars().count())),
                None => finding,
            });
        }
    }
}

fn cycles(config: &AppConfig, reader: &Reader<'_>) {
    let names = reader.names.borrow();
    for cycle in graph(config).cycles {
        let message = format!("components form a dependency cycle: {}", cycle.join(" → "));
        let remedy = match cycle.as_slice() {
            [one, again] if one == again => {
                "remove the templates that read the component's own outputs, which exist only after its deploy"
            }
            _ => "remove one of these dependencies, or one of the references between them",
        };
        let finding = Diagnostic::error("cycle", message, remedy);
        let first = cycle.first().map(String::as_str).unwrap_or_default();
        reader.report(match names.place(Kind::Component, first) {
            Some(origin) => finding.at(&origin.file, origin.place(first.chars().count())),
            None => finding,
        });
    }
}

/// Reports triggers that never fire, because the app lacks the part that they react to, and
/// triggers that this release does not fire.
fn triggers(config: &AppConfig, reader: &Reader<'_>) {
    for trigger in config.actions.iter().flat_map(|action| &action.triggers) {
        let (kind, word) = (trigger.kind, trigger.kind.name());
        let missing = if kind.is_about_components() && config.components.is_empty() {
            Some("component")
        } else if kind.is_about_the_sandbox() && config.sandbox.is_none() {
            Some("sandbox")
        } else if word.ends_with("-update-inputs") && config.inputs.is_empty() {
            Some("input")
        } else if word.ends_with("-secrets-sync") && config.secrets.is_empty() {
            Some("secret")
        } else if word.ends_with("-secrets-sync") && !config.secrets.iter().any(is_synced) {
            Some("secret that is copied to a cluster")
        } else {
            None
        };
        if let Some(missing) = missing {
            let message = format!("the trigger `{word}` never fires: the app has no {missing}");
            let finding = Diagnostic::warning("never_fires", message, "remove the trigger");
            let Origin { file, .. } = &trigger.origin;
            reader.report(finding.at(file, trigger.origin.place(word.len())));
        }
        if !kind.fires() {
            let Origin { file, .. } = &trigger.origin;
            reader.ignored_setting("trigger", word, file, trigger.origin.place(word.len()));
        }
    }
}

fn is_synced(secret: &Secret) -> bool {
    secret.kubernetes_sync || !secret.sync_targets.is_empty()
}

fn references(config: &AppConfig, reader: &Reader<'_>) {
    for component in &config.components {
        for text in &component.module.texts {
            text_refers(config, reader, text, Severity::Error);
        }
    }
    let sandbox = config.sandbox.iter().flat_map(|sandbox| &sandbox.module.texts);
    for text in sandbox {
        let reads = text_refers(config, reader, text, Severity::Error);
        for name in reads.iter().flat_map(|reads| reads.components.keys()) {
            let message =
                format!("the sandbox reads the component `{name}`, which is deployed after it");
            let remedy = "move the template to a component or an action";
            at(reader, Severity::Error, "sandbox_first", text, name, message, remedy);
        }
    }
    for text in config.actions.iter().flat_map(|action| &action.texts) {
        text_refers(config, reader, text, Severity::Error);
    }
    for text in config.runner.iter().flat_map(|runner| runner.env_vars.values()) {
        text_refers(config, reader, text, Severity::Error);
    }
    // These parts are not deployed, so they cannot prevent publishing. `undeployed_texts` checks
    // their texts in the TOML files.
    let readme = config.metadata.readme.iter();
    let runbooks = config.runbooks.iter().flat_map(|runbook| {
        let steps = runbook.steps.iter().filter_map(|step| step.inline_contents.as_ref());
        runbook.readme.iter().chain(steps)
    });
    let roles = config.roles.iter().flat_map(|role| {
        let policies = role.policies.iter().filter_map(|policy| policy.contents.as_ref());
        role.permissions_boundary.iter().chain(policies)
    });
    let policies = config.policies.iter().filter_map(|policy| policy.contents.as_ref());
    let files = readme.chain(runbooks).chain(roles).chain(policies);
    for text in files.filter(|text| text.origin.key.is_empty()) {
        text_refers(config, reader, text, Severity::Warning);
    }
    undeployed_texts::check(config, reader);
}

pub fn text_refers(
    config: &AppConfig,
    reader: &Reader<'_>,
    text: &Text,
    severity: Severity,
) -> Option<Reads> {
    if !is_template(&text.value) && lacks_its_dot(&text.value) {
        let message =
            "this text is not rendered: templates begin with a dot, as in {{ .nuon.install.id }}";
        let finding = Diagnostic::warning("no_template", message, "add the dot");
        let place = text.origin.within(&text.value, 0..text.value.len());
        reader.report(finding.at(&text.origin.file, place));
    }
    let reads = match Reads::of_one(text) {
        Ok(reads) => reads,
        Err(error) => {
            let message = format!("invalid template: {}", error.message);
            let finding = Diagnostic::new(severity, "template", message, "correct the template");
            let place = Location { line: error.line, column: error.column, length: 1 };
            reader.report(finding.at(&text.origin.file, place));
            return None;
        }
    };
    sensitive::check(config, reader, text, severity);
    let unknown = |kind: Kind, code, severity, name: &str, word: &str| {
        let message = format!("a template reads the {word} `{name}`, which does not exist");
        let remedy = reader.names.borrow().remedy(kind, name);
        at(reader, severity, code, text, name, message, &remedy);
    };
    for name in reads.needed_components.iter().filter(|name| config.component(name).is_none()) {
        unknown(Kind::Component, "unknown_component", severity, name, "component");
    }
    for name in reads.needed_inputs.iter().filter(|name| config.input(name).is_none()) {
        unknown(Kind::Input, "unknown_input", severity, name, "input");
    }
    let named = |name: &&String| *name != ANY;
    for name in reads.secrets.iter().filter(named) {
        if config.secrets.iter().all(|secret| secret.name != *name) {
            unknown(Kind::Secret, "unknown_secret", Severity::Warning, name, "secret");
        }
    }
    for name in reads.actions.iter().filter(named) {
        if config.action(name).is_none() {
            unknown(Kind::Action, "unknown_action", Severity::Warning, name, "action");
        }
    }
    Some(reads)
}

/// True for `{{nuon.x}}`, which looks like a template but is plain text.
fn lacks_its_dot(text: &str) -> bool {
    let inside = text.split("{{").skip(1);
    let mut starts = inside.map(|action| action.trim_start_matches('-').trim_start());
    starts.any(|start| start.starts_with("nuon.") || start.starts_with("stead."))
}

/// Reports a finding at the first occurrence of `name` in a text.
fn at(
    reader: &Reader<'_>,
    severity: Severity,
    code: &'static str,
    text: &Text,
    name: &str,
    message: String,
    remedy: &str,
) {
    let Text { value, origin } = text;
    let dotted = value.find(&format!(".{name}")).map(|at| at + 1);
    let start = dotted.or_else(|| value.find(name)).unwrap_or_default();
    let mut place = origin.within(value, start..start);
    place.length = name.chars().count() as u32;
    reader.report(Diagnostic::new(severity, code, message, remedy).at(&origin.file, place));
}
