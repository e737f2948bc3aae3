//! `runbooks/*.toml`: ordered actions and deploys.
use super::reader::Reader;
use crate::model::{Runbook, RunbookStep};

pub fn read(reader: &Reader<'_>) -> Vec<Runbook> {
    let mut runbooks = Vec::new();
    for document in &reader.documents("runbooks") {
        let section = reader.section(document);
        let step = |inner: super::section::Section<'_>| RunbookStep {
            name: inner.string("name").unwrap_or_default(),
            kind: inner.required("type"),
        };
        runbooks.push(Runbook {
            name: section.required("name"),
            file: section.file().to_string(),
            description: section.string("description").unwrap_or_default(),
            readme: section.content("readme"),
            steps: section.sections("steps").into_iter().map(step).collect(),
        });
    }
    runbooks.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    runbooks
}
