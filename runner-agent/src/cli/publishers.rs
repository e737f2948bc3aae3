//! `stead-runner publishers`: lists and removes the trusted publishers of plugins.
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use super::args::PublishersCommand;
use crate::{
    data::Data,
    policy::{Policy, publishers},
    show,
};

pub(super) fn run(command: PublishersCommand, data: &Data) -> anyhow::Result<ExitCode> {
    match command {
        PublishersCommand::List => show::print(&list(data)?),
        PublishersCommand::Remove { key } => show::print(&remove(data, &key)?),
    }
}

/// Returns the keys of the policy.
fn of_policy(data: &Data) -> anyhow::Result<Vec<String>> {
    Ok(Policy::current(data)?.plugin_publishers().to_vec())
}

fn list(data: &Data) -> anyhow::Result<String> {
    let recorded = publishers::recorded(data).context("cannot read the recorded keys")?;
    let policy = Policy::current(data)?;
    Ok(table(publishers::RELEASE, &recorded, &policy))
}

fn table(release: Option<&str>, recorded: &[String], policy: &Policy) -> String {
    let source = match policy.denies_release_publisher() {
        true => "release, denied by the policy",
        false => "release",
    };
    let lines = release.iter().map(|key| format!("{key}  {source}\n"));
    let lines = lines.chain(recorded.iter().map(|key| format!("{key}  recorded\n")));
    let of_policy = policy.plugin_publishers().iter();
    let text: String = lines.chain(of_policy.map(|key| format!("{key}  policy\n"))).collect();
    match text.is_empty() {
        true => "No publisher is trusted: the runner refuses every published plugin\n".into(),
        false => text,
    }
}

fn remove(data: &Data, key: &str) -> anyhow::Result<String> {
    let removed = publishers::remove(data, key).context("cannot remove the key")?;
    let is_in_policy = of_policy(data)?.iter().any(|known| known == key);
    if !removed && is_in_policy {
        bail!(
            "cannot remove the publisher {key}: it is not recorded, but the policy trusts it; remove it from \
             plugin_publishers of the policy"
        );
    }
    if !removed && publishers::RELEASE == Some(key) {
        bail!(
            "cannot remove the publisher {key}: this release of the runner contains it; set `deny_release_publisher = \
             true` in the policy"
        );
    }
    if !removed {
        bail!(
            "cannot remove the publisher {key}: it is not recorded; `stead-runner publishers list` lists the keys"
        );
    }
    Ok(match is_in_policy {
        true => format!(
            "Removed publisher {key}\nThe policy still trusts it: remove it from plugin_publishers of the policy\n"
        ),
        false => format!("Removed publisher {key}\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_the_source_of_each_key() {
        let policy = Policy::without_rules();
        let recorded = ["b".to_owned()];
        assert_eq!(table(Some("a"), &recorded, &policy), "a  release\nb  recorded\n");
        assert_eq!(table(None, &recorded, &policy), "b  recorded\n");
        assert!(table(None, &[], &policy).starts_with("No publisher is trusted"));
    }
}
