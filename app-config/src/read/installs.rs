//! `installs/*.toml`: installs that the directory describes.
use std::collections::BTreeMap;

use super::{names::Kind, reader::Reader, section::Section};
use crate::{
    diagnostic::{Diagnostic, Location, Severity},
    inputs::check_value,
    model::{AppConfig, InstallFile},
    text::Origin,
};

/// Account tables, each with the key of its region.
const ACCOUNTS: [(&str, &str); 3] =
    [("aws_account", "region"), ("azure_account", "location"), ("gcp_account", "region")];

pub fn read(reader: &Reader<'_>) -> Vec<InstallFile> {
    let documents = reader.documents("installs");
    let mut installs: Vec<InstallFile> =
        documents.iter().map(|document| install(reader.section(document))).collect();
    installs.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    installs
}

/// Checks the inputs of the installs against the inputs that the app declares.
pub fn check(config: &mut AppConfig, reader: &Reader<'_>) {
    let AppConfig { inputs, installs, .. } = config;
    for install in installs {
        for input in inputs.iter() {
            let Some(text) = install.inputs.get(&input.name) else { continue };
            let at = reader
                .install_inputs
                .borrow()
                .get(&(install.file.clone(), input.name.clone()))
                .cloned();
            let at = at.unwrap_or_else(|| Origin::file(&install.file));
            if input.sensitive {
                let message = format!(
                    "line {} sets the sensitive input `{}`, which would publish its value in clear text",
                    at.line, input.name
                );
                let remedy = "remove the value from the file and from the history of the repository; set it \
                              with `stead installs set-inputs`, which encrypts it for the install's runner";
                // No location: output that shows the line would show the value.
                let finding = Diagnostic::error("sensitive_value", message, remedy);
                reader.report(finding.at(&install.file, Location::default()));
                install.inputs.remove(&input.name);
            } else if let Err(problem) = check_value(input, text) {
                let remedy = format!("set a value of type {}", input.kind.name());
                let finding = Diagnostic::warning("bad_value", problem.to_string(), remedy);
                reader.report(finding.at(&install.file, at.place(text.chars().count())));
            }
        }
    }
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
            names.mention(Kind::Input, &name, Severity::Warning, origin.clone());
            let key = (section.file().to_string(), name.clone());
            section.reader.install_inputs.borrow_mut().insert(key, origin);
            inputs.insert(name, text.value);
        }
    }
    let approval_option = section.string("approval_option");
    if let Some(word) = approval_option.as_deref()
        && !["prompt", "approve-all"].contains(&word)
    {
        let message = format!("unknown approval option `{word}`");
        section.warning("approval_option", "bad_value", message, "use prompt or approve-all");
    }
    section.ignore(&["labels"]);
    let (name, file) = (section.declared(Kind::Install), section.file().to_string());
    let at = section.place();
    section.finish();
    InstallFile { at, name, file, approval_option, region, inputs }
}
