//! `stead-runner state`: lists the state of components, and resolves the state after a failed
//! apply.
use std::{fmt::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use tokio::time::timeout;

use crate::{
    client::{Client, Tokens},
    data::Data,
    enrol,
    journal::{Entry, Journal, JournalEvent},
    keys::Keys,
    seed, show,
    state::{Basis, Cipher, Decision, Online, Remote, StateKeys, StateMark, StateStore, overview},
};

/// Longest wait of a user for a server that does not respond.
const PATIENCE: Duration = Duration::from_secs(30);

const RESOLVE: &str = "\
When Terraform cannot write the state of a component, the runner rescues the state, encrypted, to
errored-<execution>.encrypted. The runner refuses plans of this component until you choose its state. It also refuses
them if this host and the server have states that exclude each other. The command reads the newest version of the
server and stores your choice there first, with the serial after the highest known one. No state is deleted: the replaced
versions of this host and the server get names that begin with `resolved-`, in the same directory. --restore takes a
rescued file, another encrypted copy, or a state in clear.

Examples:
  stead-runner state list
  stead-runner state resolve database \\
    --restore /var/lib/stead-runner/state/database/errored-exe_01….encrypted \\
    --reason 'the disk was full'
  stead-runner state resolve database --keep-current --reason 'the other host was removed'
  stead-runner state pull database > database.json   # edit it with other tools, then use it
  stead-runner state resolve database --restore database.json --reason 'removed a deleted bucket'
  stead-runner state resolve database --nothing-exists --reason 'removed manually'";

#[derive(Debug, Subcommand)]
pub(super) enum StateCommand {
    /// List the components with the lineage and serial of their state, and the reason that blocks
    /// their plans
    List,
    /// Print the newest state of a component in clear
    Pull {
        /// Name from `stead-runner state list`
        component: String,
        /// Print the copy on this host without asking the server, which may have a newer one
        #[arg(long)]
        local: bool,
    },
    /// Choose the state of a component after an apply that could not write it, or if this host and
    /// the server differ
    #[command(after_help = RESOLVE)]
    Resolve(Resolve),
}

#[derive(Debug, Args)]
pub(super) struct Resolve {
    /// Name from `stead-runner state list`
    component: String,
    #[command(flatten)]
    choice: Choice,
    /// Allow a state although a newer one is known
    #[arg(long)]
    older: bool,
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
    /// Keep the newest state of this host
    #[arg(long)]
    keep_current: bool,
    /// Use the newest state of the server
    #[arg(long)]
    from_server: bool,
    /// The component has no resources; the next apply creates all of them
    #[arg(long)]
    nothing_exists: bool,
}

pub(super) async fn run(command: StateCommand, data: &Data) -> anyhow::Result<ExitCode> {
    match command {
        StateCommand::List => show::print(&list(data)?),
        StateCommand::Pull { component, local } => {
            show::print(&pull(data, &component, local).await?)
        }
        StateCommand::Resolve(resolve) => show::print(&resolve_state(data, resolve).await?),
    }
}

fn list(data: &Data) -> anyhow::Result<String> {
    let mut rows = vec![["COMPONENT", "STATE", "UPLOAD", "BLOCKED BY"].map(String::from)];
    for state in overview(&data.path("state"))? {
        let mark = state.mark.map_or_else(|error| error.to_string(), |mark| display(&mark));
        let upload = if state.is_pending { "pending" } else { "-" }.to_owned();
        rows.push([state.component, mark, upload, state.blocked.unwrap_or_else(|| "-".into())]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [name, mark, upload] = [0, 1, 2].map(|column| width(column).unwrap_or_default());
    let row = |row: &[String; 4]| {
        format!("{:<name$}  {:<mark$}  {:<upload$}  {}\n", row[0], row[1], row[2], row[3])
    };
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

async fn pull(data: &Data, component: &str, local: bool) -> anyhow::Result<String> {
    require_name(component)?;
    let store = StateStore::new(&data.path("state"), component);
    let store = store.with_cipher(cipher(data, component)?);
    let newest = async || -> anyhow::Result<_> {
        let entries = Journal::open(data)?.read()?;
        match online(data, component, &entries).await? {
            Some(online) => Ok(online.read(&store, &entries).await?),
            None => Ok(store.read()?),
        }
    };
    let state = match local {
        true => store.read().with_context(|| format!("cannot read the state of {component}"))?,
        false => newest().await.with_context(|| {
            format!(
                "cannot read the newest state of {component}; --local prints the copy on this host"
            )
        })?,
    };
    let state = state.with_context(|| {
        let place =
            if local { "this host has none" } else { "neither this host nor the server has one" };
        format!("cannot print the state of {component}: {place}")
    })?;
    Ok(String::from_utf8(state.to_vec())?)
}

async fn resolve_state(
    data: &Data,
    Resolve { component, choice, older, reason }: Resolve,
) -> anyhow::Result<String> {
    require_name(&component)?;
    let decision = match choice {
        Choice { restore: Some(file), .. } => Decision::Restore(file),
        Choice { keep_current: true, .. } => Decision::KeepCurrent,
        Choice { from_server: true, .. } => Decision::FromServer,
        Choice { .. } => Decision::NothingExists,
    };
    let blocked = overview(&data.path("state"))?
        .iter()
        .any(|one| one.component == component && one.blocked.is_some());
    let keeps = decision == Decision::KeepCurrent;
    let store = StateStore::new(&data.path("state"), &component);
    let store = store.with_cipher(cipher(data, &component)?);
    let journal = Journal::open(data)?;
    let entries = journal.read()?;
    let online = online(data, &component, &entries).await?;
    let basis = match &online {
        Some(online) => online.basis(&entries).await?,
        None => Basis::offline(&entries, &component),
    };
    let resolution = store.decide(decision, &basis.with_older(older))?;
    let now = display(resolution.mark());
    let StateMark { lineage, serial } = resolution.mark().clone();
    let (name, why) = (component.clone(), reason.clone());
    let resolving = JournalEvent::StateResolving {
        component: name,
        lineage: lineage.clone(),
        serial,
        reason: why,
    };
    journal.write(resolving).context("cannot record the decision in the journal")?;
    match &online {
        Some(online) => online.carry_out(&resolution).await?,
        None => resolution.carry_out()?,
    }
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
    Ok(match keeps && !blocked && !resolution.changes() {
        true => format!("No change: the state of {component} did not block plans: {now}\n"),
        false => {
            let mut text = format!("Resolved the state of {component}: {now}\n");
            for replaced in resolution.replaced() {
                let _infallible =
                    writeln!(text, "  replaced {replaced}, which is kept as `resolved-…`");
            }
            if let Some(lineage) = resolution.other_recorded_lineage() {
                let StateMark { lineage: new, serial } = resolution.mark();
                let _infallible = writeln!(
                    text,
                    "  the vendor's log has lineage {lineage}: jobs are refused until a user of the vendor runs `stead installs \
                     accept-state INSTALL {component} --lineage {} --serial {serial} --reason TEXT`",
                    new.as_deref().unwrap_or_default()
                );
            }
            text
        }
    })
}

/// Returns the server of a decision, in the newest session of the agent. `None` before the runner is
/// enrolled.
async fn online(data: &Data, component: &str, entries: &[Entry]) -> anyhow::Result<Option<Online>> {
    let Some(identity) = enrol::stored_identity(data)? else { return Ok(None) };
    let opened = entries.iter().rev().find_map(|entry| {
        let JournalEvent::SessionOpened { generation, .. } = entry.event else { return None };
        Some(generation)
    });
    let generation = opened.context(
        "cannot ask the server for its newest state: the journal has no session; start the runner first",
    )?;
    let keys = Keys::open(data)?;
    let client = Client::new(&identity.server, &identity.trust)?;
    let tokens = Tokens::of_session(identity.runner, keys.identity, generation);
    let token = timeout(PATIENCE, tokens.current(&client)).await.with_context(|| {
        format!(
            "cannot ask {} for its newest state of {component}: the server did not respond; retry when it responds",
            identity.server
        )
    })?;
    let token = token.context("cannot ask the server for its newest state")?;
    let remote = Remote::new(client.http(), client.base(), &token, component);
    Ok(Some(Online::new(remote.with_patience(PATIENCE), component)))
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
        let (restore, keep_current, from_server) = (None, false, false);
        let choice = Choice { restore, keep_current, from_server, nothing_exists: true };
        let reason = "removed by hand".into();
        Resolve { component: "web".into(), choice, older: false, reason }
    }

    fn journal_events(data: &Data) -> Vec<JournalEvent> {
        let entries = Journal::open(data).unwrap().read().unwrap();
        entries.into_iter().skip(1).map(|entry| entry.event).collect()
    }

    #[tokio::test]
    async fn a_failed_decision_is_not_recorded_as_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let web = data.path("state/web");
        // A directory at the path of the marker file makes the decision fail.
        fs::create_dir_all(web.join("no-prior-state")).unwrap();
        resolve_state(&data, nothing_exists()).await.unwrap_err();
        let begun = journal_events(&data);
        assert!(matches!(&begun[..], [JournalEvent::StateResolving { .. }]), "{begun:?}");

        fs::remove_dir(web.join("no-prior-state")).unwrap();
        resolve_state(&data, nothing_exists()).await.unwrap();
        let all = journal_events(&data);
        assert!(matches!(&all[2], JournalEvent::StateResolved { lineage: None, .. }), "{all:?}");
        assert!(web.join("no-prior-state").is_file());
    }
}
