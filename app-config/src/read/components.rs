//! `components/**/*.toml`: one component per file. The `name` key, not the file name, is the name
//! of the component.
use super::{kinds, module, names::Kind, reader::Reader, section::Section};
use crate::{
    diagnostic::Severity,
    model::{Component, Module, is_built_in},
    tree::SANDBOX,
};

pub fn read(reader: &Reader<'_>) -> Vec<Component> {
    let documents = reader.documents("components");
    let mut components: Vec<Component> =
        documents.iter().map(|document| component(reader.section(document))).collect();
    components.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    components
}

fn component(section: Section<'_>) -> Component {
    let name = section.declared(Kind::Component);
    let kind = section.required("type");
    if !name.is_empty() && !is_name(&name) {
        let message = format!("{name:?} is not a valid name for a component");
        let remedy = "use up to 64 letters, digits and `_`, without a digit at the start; `sandbox` is reserved";
        section.error("name", "bad_name", message, remedy);
    }
    kinds::check(&section, &kind);
    let component = Component {
        file: section.file().to_string(),
        var_name: section.string("var_name"),
        dependencies: section.mentions("dependencies", Kind::Component, Severity::Error),
        module: module::read(&section, kind),
        name,
    };
    let Module { kind, options, .. } = &component.module;
    if options.kubernetes_context.is_some() && is_built_in(kind) {
        let message = format!("`kubernetes_context` has no effect: a `{kind}` uses no cluster");
        section.warning("kubernetes_context", "no_effect", message, "remove the key");
    }
    section.finish();
    component
}

/// Names become path parts, keys of the state and field names in templates.
fn is_name(name: &str) -> bool {
    let start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    start && rest && name.len() <= 64 && name != SANDBOX
}
