//! `sandbox.toml`: the base of all components.
use super::{kinds, module, reader::Reader};
use crate::{
    diagnostic::Severity,
    model::{Sandbox, TERRAFORM_MODULE},
};

const FILE: &str = "sandbox.toml";

pub fn read(reader: &Reader<'_>) -> Option<Sandbox> {
    let Some(document) = reader.document(FILE) else {
        if !reader.is_legacy() && reader.app.get(FILE).is_none() {
            let texts = (
                "this app has no sandbox".into(),
                "add a sandbox.toml; an install needs a sandbox",
            );
            reader.about(Severity::Warning, "no_sandbox", "", texts);
        }
        return None;
    };
    let section = reader.section(&document);
    let kind = match section.string("type").as_deref() {
        None | Some("terraform") => TERRAFORM_MODULE.to_string(),
        Some(other) => other.to_string(),
    };
    kinds::check(&section, &kind);
    let module = module::read(&section, kind);
    section.finish();
    Some(Sandbox { module })
}
