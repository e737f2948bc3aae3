//! `components/**/*.toml`: one component per file, named by its `name` and not by its file.
use super::{kinds, module, reader::Reader, section::Section};
use crate::{diagnostic::Severity, model::Component, tree::SANDBOX};

pub fn read(reader: &Reader<'_>) -> Vec<Component> {
    let documents = reader.documents("components");
    let mut components: Vec<Component> =
        documents.iter().map(|document| component(reader.section(document))).collect();
    components.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    legacy(reader);
    components
}

fn component(section: Section<'_>) -> Component {
    let name = section.required("name");
    let kind = section.required("type");
    if !name.is_empty() && !is_name(&name) {
        let message = format!("{name:?} is no name for a component");
        let remedy = "use letters, digits and `_`, so that templates can name it";
        section.error("name", "bad_name", message, remedy);
    }
    if !kind.is_empty()
        && let Err((code, message, remedy)) = kinds::check(&kind, section.reader.plugins)
    {
        section.error("type", code, message, &remedy);
    }
    let component = Component {
        file: section.file().to_string(),
        var_name: section.string("var_name"),
        dependencies: section.strings("dependencies"),
        module: module::read(&section, kind),
        name,
    };
    section.finish();
    component
}

/// Names become path parts, keys of the state and field names of templates.
fn is_name(name: &str) -> bool {
    let start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    start && rest && name.len() <= 64 && name != SANDBOX
}

/// The older format had everything in one file; it is recognised, not read.
fn legacy(reader: &Reader<'_>) {
    let tops = reader.app.iter().map(|(path, _)| path).filter(|path| !path.contains('/'));
    for path in tops.filter(|path| path.starts_with("nuon.") && path.ends_with(".toml")) {
        let message = "this is the older one-file format, which is not read".to_string();
        let remedy = "split it into metadata.toml, inputs.toml, sandbox.toml and components/*.toml";
        reader.about(Severity::Error, "legacy_format", path, (message, remedy));
    }
}
