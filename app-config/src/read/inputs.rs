//! `inputs.toml`, or `inputs/**` with `input_groups/**`: inputs that each install provides.
use super::{names::Kind, reader::Reader, section::Section};
use crate::{
    diagnostic::Severity,
    inputs::accepts,
    model::{Input, InputGroup, InputKind},
    template::is_template,
};

pub fn read(reader: &Reader<'_>) -> (Vec<InputGroup>, Vec<Input>) {
    let (single, many) = reader.either("inputs");
    let (mut groups, mut inputs) = (Vec::new(), Vec::new());
    if let Some(document) = single {
        let section = reader.section(&document);
        groups.extend(section.sections("group").into_iter().map(group));
        inputs.extend(section.sections("input").into_iter().map(input));
        section.finish();
    }
    inputs.extend(many.iter().map(|document| input(reader.section(document))));
    let more = reader.documents("input_groups");
    groups.extend(more.iter().map(|document| group(reader.section(document))));
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    inputs.sort_by(|a, b| a.name.cmp(&b.name));
    (groups, inputs)
}

fn group(section: Section<'_>) -> InputGroup {
    let group = InputGroup {
        at: section.place(),
        name: section.declared(Kind::Group),
        display_name: section.string("display_name").unwrap_or_default(),
        description: section.string("description").unwrap_or_default(),
    };
    section.ignore(&["index", "labels"]);
    section.finish();
    group
}

fn input(section: Section<'_>) -> Input {
    let word = section.string("type").unwrap_or_else(|| "string".into());
    let kind = InputKind::parse(&word).unwrap_or_else(|| {
        let message = format!("unknown input type `{word}`");
        section.error(
            "type",
            "unknown_input_type",
            message,
            "use string, number, list, json or bool",
        );
        InputKind::String
    });
    let input = Input {
        at: section.place(),
        name: section.declared(Kind::Input),
        display_name: section.string("display_name").unwrap_or_default(),
        description: section.string("description").unwrap_or_default(),
        group: section.mentioned("group", Kind::Group, Severity::Warning),
        kind,
        required: section.flag("required").unwrap_or_default(),
        default: section.scalar("default").map(|text| text.value),
        sensitive: section.flag("sensitive").unwrap_or_default(),
        internal: section.flag("internal").unwrap_or_default(),
        user_configurable: section.flag("user_configurable").unwrap_or_default(),
    };
    if !input.name.is_empty() && !is_name(&input.name) {
        let message = format!("{:?} is not a valid name for an input", input.name);
        section.error(
            "name",
            "bad_name",
            message,
            "use up to 128 letters, digits, `-` and `_`; begin with a letter or `_`",
        );
    }
    if let Some(text) = section.scalar("default").filter(|text| is_template(&text.value)) {
        section.reader.defaults.borrow_mut().push((input.name.clone(), text));
    }
    if let Some(default) = input.default.as_deref().filter(|text| !text.is_empty())
        && !is_template(default)
        && !accepts(kind, default)
    {
        let remedy = "correct the default or the type; installs without this input are rejected";
        let (name, kind) = (&input.name, kind.name());
        if input.sensitive {
            // No value and no location: output that shows the line would show the sensitive value.
            let file = section.file();
            let message =
                format!("invalid default of the sensitive input `{name}`: must be of type {kind}");
            section.reader.about(Severity::Warning, "bad_default", file, (message, remedy));
        } else {
            let message =
                format!("invalid default {default:?} of `{name}`: must be of type {kind}");
            section.warning("default", "bad_default", message, remedy);
        }
    }
    section.ignore(&["index", "labels"]);
    section.finish();
    input
}

fn is_name(name: &str) -> bool {
    let start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    start && rest && name.len() <= 128
}
