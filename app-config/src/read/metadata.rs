//! `metadata.toml`: the file that every app directory has.
use super::reader::Reader;
use crate::{diagnostic::Severity, model::Metadata};

const FILE: &str = "metadata.toml";

pub fn read(reader: &Reader<'_>) -> Metadata {
    let Some(document) = reader.document(FILE) else {
        if reader.app.get(FILE).is_none() && !reader.is_legacy() {
            let texts = (
                "this directory has no metadata.toml".into(),
                "check the path of the directory, or add the file",
            );
            reader.about(Severity::Error, "no_metadata", "", texts);
        }
        return Metadata::default();
    };
    let section = reader.section(&document);
    let metadata = Metadata {
        at: section.place(),
        version: section.required("version"),
        display_name: section.string("display_name"),
        description: section.string("description"),
        readme: section.content("readme"),
    };
    section.one_of("version", "format version", &["v1", "v2"]);
    section.ignore(&["slack_webhook_url", "onboarding", "labels"]);
    section.finish();
    metadata
}
