//! Templates that inspect a sensitive input or a secret. The server does not know its value, so such a template
//! can never be rendered.
use super::reader::Reader;
use crate::{
    diagnostic::{Diagnostic, Location, Severity},
    model::AppConfig,
    template::{Template, is_template, reads, secret},
    text::Text,
};

/// Reports each sensitive input and secret that a text inspects.
pub fn check(config: &AppConfig, reader: &Reader<'_>, text: &Text, severity: Severity) {
    if !is_template(&text.value) || config.install_values().all(|input| !input.sensitive) {
        return;
    }
    // The caller reports a text that cannot be parsed.
    let Ok(template) = Template::parse(&text.value, &text.origin) else { return };
    for (path, (at, what)) in reads::inspected(template.parsed()) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let (what_it_is, name) = match path.as_slice() {
            ["inputs", "inputs", name, ..] | ["install", "inputs", name, ..]
                if config.input(name).is_some_and(|input| input.sensitive) =>
            {
                ("sensitive input", name)
            }
            ["install", "secrets", name, ..] if config.secret_input(name).is_some() => {
                ("secret", name)
            }
            _ => continue,
        };
        let message = format!(
            "the template cannot be rendered with the {what_it_is} `{name}`: {}",
            secret::inspected(&what)
        );
        let remedy = "insert the value without a decision; for a decision, declare a second input that is \
             not sensitive, for example a boolean";
        let (line, column) = text.origin.locate(&text.value, at);
        let finding = Diagnostic::new(severity, "inspects_sensitive", message, remedy);
        let place = Location { line, column, length: 1 };
        reader.report(finding.at(&text.origin.file, place));
    }
}
