//! `installs/*.toml`: installs that the directory itself describes.
use std::collections::BTreeMap;

use super::reader::Reader;
use crate::model::InstallFile;

pub fn read(reader: &Reader<'_>) -> Vec<InstallFile> {
    let mut installs = Vec::new();
    for document in &reader.documents("installs") {
        let section = reader.section(document);
        let account = section.section("aws_account");
        let mut inputs = BTreeMap::new();
        for group in section.sections("inputs") {
            inputs.extend(group.scalars().into_iter().map(|(name, text)| (name, text.value)));
        }
        installs.push(InstallFile {
            name: section.required("name"),
            file: section.file().to_string(),
            approval_option: section.string("approval_option"),
            region: account.and_then(|account| account.string("region")),
            inputs,
        });
    }
    installs.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    installs
}
