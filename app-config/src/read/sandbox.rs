//! `sandbox.toml`: the base under all components.
use super::{kinds, module, reader::Reader};
use crate::{
    diagnostic::Severity,
    model::{Sandbox, TERRAFORM_MODULE},
};

const FILE: &str = "sandbox.toml";

pub fn read(reader: &Reader<'_>) -> Option<Sandbox> {
    let Some(document) = reader.document(FILE) else {
        let says = ("there is no sandbox".into(), "add a sandbox.toml; an install starts with it");
        reader.about(Severity::Warning, "no_sandbox", FILE, says);
        return None;
    };
    let section = reader.section(&document);
    let written = section.string("type").or_else(|| section.string("runtime"));
    let kind = match written.as_deref() {
        None | Some("terraform") => TERRAFORM_MODULE.to_string(),
        Some(other) => other.to_string(),
    };
    if let Err((code, message, remedy)) = kinds::check(&kind, reader.plugins) {
        let message = message.replace("components of type", "a sandbox of type");
        section.error("type", code, message, &remedy);
    }
    let module = module::read(&section, kind);
    section.finish();
    Some(Sandbox { module })
}
