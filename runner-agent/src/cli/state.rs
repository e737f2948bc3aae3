//! `stead-runner state`: lists the state of components, and resolves the state after a failed
//! apply.
use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use crate::{
    data::Data,
    enrol,
    journal::{Journal, JournalEvent},
    seed, show,
    state::{Cipher, Decision, StateKeys, StateMark, StateStore, overview},
};

const RESOLVE: &str = "\
When Terraform cannot write the state of a component, the runner rescues the state, encrypted, to
errored-<execution>.encrypted. The runner refuses plans of this component until you choose its state. No state is
deleted: replaced files get names that begin with `resolved-`, in the same directory. --restore also takes a state in
clear. A restored state of the known lineage gets the next serial.

Examples:
  stead-runner state list
  stead-runner state resolve database \\
    --restore /var/lib/stead-runner/state/database/errored-exe_01….encrypted \\
    --reason 'the disk was full'
  stead-runner state resolve database --keep-current --reason 'written by terraform state push'
  stead-runner state resolve database --nothing-exists --reason 'removed manually'";

#[derive(Debug, Subcommand)]
pub(super) enum StateCommand {
    /// List the components with the lineage and serial of their state, and the reason that blocks
    /// their plans
    List,
    /// Print the state of a component in clear, from the copy on this host
    Pull {
        /// Name from `stead-runner state list`
        component: String,
    },
    /// Choose the state of a component after an apply that could not write it
    #[command(after_help = RESOLVE)]
    Resolve(Resolve),
}

#[derive(Debug, Args)]
pub(super) struct Resolve {
    /// Name from `stead-runner state list`
    component: String,
    #[command(flatten)]
    choice: Choice,
    /// Reason, recorded in the journal
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Choice {
    /// Use this file as the state, for example the rescued one
    #[arg(long, value_name = "FILE")]
    restore: Option<PathBuf>,
    /// Keep the current state
    #[arg(long)]
    keep_current: bool,
    /// The component has no resources; the next apply creates all of them
    #[arg(long)]
    nothing_exists: bool,
}

pub(super) fn run(command: StateCommand, data: &Data) -> anyhow::Result<ExitCode> {
    match command {
        StateCommand::List => show::print(&list(data)?),
        StateCommand::Pull { component } => show::print(&pull(data, &component)?),
        StateCommand::Resolve(resolve) => show::print(&resolve_state(data, resolve)?),
    }
}

fn list(data: &Data) -> anyhow::Result<String> {
    let mut rows = vec![["COMPONENT", "STATE", "BLOCKED BY"].map(String::from)];
    for state in overview(&data.path("state"))? {
        let mark = state.mark.map_or_else(|error| error.to_string(), |mark| display(&mark));
        rows.push([state.component, mark, state.blocked.unwrap_or_else(|| "-".into())]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [name, mark] = [0, 1].map(|column| width(column).unwrap_or_default());
    let row = |row: &[String; 3]| format!("{:<name$}  {:<mark$}  {}\n", row[0], row[1], row[2]);
    Ok(rows.iter().map(row).collect())
}

fn require_name(component: &str) -> anyhow::Result<()> {
    if component.contains('/') || component.starts_with('.') {
        bail!(
            "cannot use {component:?}: it is not the name of a component; `stead-runner state list` shows all names"
        );
    }
    Ok(())
}

fn pull(data: &Data, component: &str) -> anyhow::Result<String> {
    require_name(component)?;
    let store = StateStore::new(&data.path("state"), component);
    let state = store.with_cipher(cipher(data, component)?).read();
    let state = state.with_context(|| format!("cannot read the state of {component}"))?;
    let state = state.with_context(|| {
        format!("cannot print the state of {component}: it is not on this host; the next job of the component reads it from the server")
    })?;
    Ok(String::from_utf8(state.to_vec())?)
}

fn resolve_state(
    data: &Data,
    Resolve { component, choice, reason }: Resolve,
) -> anyhow::Result<String> {
    require_name(&component)?;
    let decision = match choice {
        Choice { restore: Some(file), .. } => Decision::Restore(file),
        Choice { keep_current: true, .. } => Decision::KeepCurrent,
        Choice { .. } => Decision::NothingExists,
    };
    let blocked = overview(&data.path("state"))?
        .iter()
        .any(|one| one.component == component && one.blocked.is_some());
    let keeps = decision == Decision::KeepCurrent;
    let store = StateStore::new(&data.path("state"), &component);
    let resolution = store.with_cipher(cipher(data, &component)?).decide(decision)?;
    let now = display(resolution.mark());
    let StateMark { lineage, serial } = resolution.mark().clone();
    let journal = Journal::open(data)?;
    let (name, why) = (component.clone(), reason.clone());
    let resolving = JournalEvent::StateResolving {
        component: name,
        lineage: lineage.clone(),
        serial,
        reason: why,
    };
    journal.write(resolving).context("cannot record the decision in the journal")?;
    resolution.carry_out()?;
    // Write this entry last: if the process stops earlier, the runner still refuses plans.
    let resolved =
        JournalEvent::StateResolved { component: component.clone(), lineage, serial, reason };
    journal.write(resolved).with_context(|| {
        let again = if resolution.mark().lineage.is_some() { "keep-current" } else { "nothing-exists" };
        format!(
            "cannot record the resolution of {component} in the journal, although its state files are replaced; run `stead-runner state resolve \
             {component} --{again} --reason TEXT`"
        )
    })?;
    // A decision that changes nothing was also recorded, because the journal may have contained
    // only the start of an earlier resolution.
    Ok(match keeps && !blocked {
        true => format!("No change: the state of {component} did not block plans: {now}\n"),
        false => format!("Resolved the state of {component}: {now}\n"),
    })
}

/// Returns the keys of a component. `None` before the runner is enrolled.
fn cipher(data: &Data, component: &str) -> anyhow::Result<Option<Cipher>> {
    let (keys, identity) = (seed::open(data)?, enrol::stored_identity(data)?);
    let (Some(keys), Some(identity)) = (keys, identity) else { return Ok(None) };
    let Some(install) = identity.install else { return Ok(None) };
    let keys = StateKeys::derive(&keys, &identity.log_id, install, [component]);
    Ok(keys.component(component))
}

fn display(mark: &StateMark) -> String {
    match &mark.lineage {
        Some(lineage) => format!("lineage {lineage} serial {}", mark.serial),
        None => "none".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn nothing_exists() -> Resolve {
        let choice = Choice { restore: None, keep_current: false, nothing_exists: true };
        Resolve { component: "web".into(), choice, reason: "removed by hand".into() }
    }

    fn journal_events(data: &Data) -> Vec<JournalEvent> {
        let entries = Journal::open(data).unwrap().read().unwrap();
        entries.into_iter().skip(1).map(|entry| entry.event).collect()
    }

    #[test]
    fn a_failed_decision_is_not_recorded_as_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let web = data.path("state/web");
        // A directory at the path of the marker file makes the decision fail.
        fs::create_dir_all(web.join("no-prior-state")).unwrap();
        resolve_state(&data, nothing_exists()).unwrap_err();
        let begun = journal_events(&data);
        assert!(matches!(&begun[..], [JournalEvent::StateResolving { .. }]), "{begun:?}");

        fs::remove_dir(web.join("no-prior-state")).unwrap();
        resolve_state(&data, nothing_exists()).unwrap();
        let all = journal_events(&data);
        assert!(matches!(&all[2], JournalEvent::StateResolved { lineage: None, .. }), "{all:?}");
        assert!(web.join("no-prior-state").is_file());
    }
}
