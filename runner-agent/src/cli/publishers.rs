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
    let lines = recorded.iter().map(|key| format!("{key}  recorded\n"));
    let policy = of_policy(data)?;
    let lines = lines.chain(policy.iter().map(|key| format!("{key}  policy\n")));
    let text: String = lines.collect();
    match text.is_empty() {
        true => Ok("No publisher is trusted: the runner refuses every published plugin\n".into()),
        false => Ok(text),
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
