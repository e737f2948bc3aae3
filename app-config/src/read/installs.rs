//! `installs/*.toml`: installs that the directory itself describes.
use std::collections::BTreeMap;

use super::{names::Kind, reader::Reader, section::Section};
use crate::{diagnostic::Severity, model::InstallFile};

/// Tables that name the account, and the key in them that names the place.
const ACCOUNTS: [(&str, &str); 3] =
    [("aws_account", "region"), ("azure_account", "location"), ("gcp_account", "region")];

pub fn read(reader: &Reader<'_>) -> Vec<InstallFile> {
    let documents = reader.documents("installs");
    let mut installs: Vec<InstallFile> =
        documents.iter().map(|document| install(reader.section(document))).collect();
    installs.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    installs
}

fn install(section: Section<'_>) -> InstallFile {
    let mut region = None;
    for (table, key) in ACCOUNTS {
        if let Some(account) = section.section(table) {
            region = account.string(key).or(region);
            account.ignore(&["region", "location"]);
            account.ignore(&["iam_role_arn", "project_id", "subscription_id", "account_id"]);
            account.finish();
        }
    }
    let mut inputs = BTreeMap::new();
    for group in section.sections("inputs") {
        for (name, text) in group.scalars() {
            let origin = group.origin(&name);
            let mut names = section.reader.names.borrow_mut();
            names.mention(Kind::Input, &name, Severity::Warning, origin);
            inputs.insert(name, text.value);
        }
    }
    let approval_option = section.string("approval_option");
    if let Some(word) = approval_option.as_deref()
        && !["prompt", "approve-all"].contains(&word)
    {
        let message = format!("there is no approval option `{word}`");
        section.warning("approval_option", "bad_value", message, "use prompt or approve-all");
    }
    section.ignore(&["labels"]);
    let (name, file) = (section.declared(Kind::Install), section.file().to_string());
    let at = section.place();
    section.finish();
    InstallFile { at, name, file, approval_option, region, inputs }
}
