//! `stead-runner recovery` and `stead-runner recover`: the install's keys on another host.
use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use domain::ids::InstallId;
use install_keys::{Fingerprint, InstallKeys, Of, Recipient, RecoveryIdentity};
use zeroize::Zeroizing;

use super::Run;
use crate::{
    data::Data,
    enrol::{self, Identity},
    host,
    recovery::{
        self,
        successor::{AcceptedHead, LostState, Request},
    },
    seed, show, start,
};

/// Maximum size in bytes of a file with an identity.
const MAX_FILE: usize = 64 * 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum RecoveryCommand {
    /// Wrap the seed of the install for a recipient
    Add {
        /// Public key of an age identity whose private key you keep offline: age1…
        recipient: Recipient,
    },
    /// List the recipients
    List,
    /// Print the wrapped seed of a recipient, to store it outside this host
    Export {
        /// Recipient, from `stead-runner recovery list`
        recipient: Recipient,
    },
    /// Remove a recipient from this host and from the server. Copies elsewhere stay usable
    Remove {
        /// Recipient, from `stead-runner recovery list`
        recipient: Recipient,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// File with the private key of a recovery recipient, as age-keygen writes it
    #[arg(long, value_name = "FILE")]
    identity: PathBuf,
    /// Fingerprint that the lost host printed (`stead-runner fingerprint`), from your own records
    #[arg(long)]
    fingerprint: Fingerprint,
    /// State that you accept as the newest one of a component, although nothing proves it; may be
    /// repeated. Without it, the command lists the states of the server
    #[arg(long, value_name = "COMPONENT=LINEAGE/SERIAL/DIGEST")]
    accept_head: Vec<AcceptedHead>,
    /// State that the lost host reported and never sent, and that you give up; may be repeated
    #[arg(long, value_name = "COMPONENT=LINEAGE/SERIAL")]
    give_up_state: Vec<LostState>,
    #[command(flatten)]
    run: Run,
}

pub(super) fn run(command: RecoveryCommand, data: &Data) -> anyhow::Result<ExitCode> {
    match command {
        RecoveryCommand::Add { recipient } => {
            let (keys, identity, install) = keys(data)?;
            let of = Of { log_id: &identity.log_id, install };
            let path = recovery::add(data, &keys, &of, &recipient)?;
            eprintln!(
                "The running agent sends the wrapped seed to the server. Keep the fingerprint outside this host: stead-runner \
                 fingerprint"
            );
            show::print(&format!("{}\n", path.display()))
        }
        RecoveryCommand::List => show::print(&show::sanitized(&list(data)?)),
        RecoveryCommand::Export { recipient } => {
            let missing = || unknown("export", &recipient);
            let wrapped = recovery::find(data, &recipient)?.with_context(missing)?;
            show::print(&(serde_json::to_string_pretty(&wrapped)? + "\n"))
        }
        RecoveryCommand::Remove { recipient } => {
            if !recovery::remove(data, &recipient)? {
                bail!(unknown("remove", &recipient));
            }
            show::print(&format!("Removed {recipient}. Exported copies stay usable\n"))
        }
    }
}

fn unknown(verb: &str, recipient: &Recipient) -> String {
    format!(
        "cannot {verb} {recipient}: it is no recipient of this runner; `stead-runner recovery list` lists them"
    )
}

fn keys(data: &Data) -> anyhow::Result<(InstallKeys, Identity, InstallId)> {
    let missing = "cannot find the keys of the install: the runner is not enrolled, or has not started \
                   since the update; start it";
    let identity = enrol::stored_identity(data)?.context(missing)?;
    let install = identity.install.context("a build runner has no keys of an install")?;
    Ok((seed::open(data)?.context(missing)?, identity, install))
}

fn list(data: &Data) -> anyhow::Result<String> {
    let (keys, identity, install) = keys(data)?;
    let of = Of { log_id: &identity.log_id, install };
    let recipients = recovery::list(data)?;
    if recipients.is_empty() {
        return Ok("No recipients: `stead-runner recovery add age1…` adds one\n".into());
    }
    let line = |wrapped: &install_keys::WrappedSeed| {
        let is_current = wrapped.is_current(&of, &keys);
        let state = if is_current { "current" } else { "outdated: add the recipient again" };
        format!("{}  {state}\n", wrapped.recipient())
    };
    Ok(recipients.iter().map(line).collect())
}

/// Recovers the keys into a new data directory, and enrols it as the successor of the lost host.
pub(super) async fn recover(
    args: &RecoverArgs,
    data: (bool, impl Fn() -> anyhow::Result<Data>),
) -> anyhow::Result<ExitCode> {
    host::make_undumpable();
    let identity = RecoveryIdentity::parse(&read(&args.identity)?)
        .with_context(|| format!("cannot read {}", args.identity.display()))?;
    let (fingerprint, accepted) = (args.fingerprint, args.accept_head.clone());
    let lost = args.give_up_state.clone();
    let request = Request { identity, fingerprint, accepted, lost };
    let (identity, keys) = start::recover(&args.run, &request, data).await?;
    let fingerprint = seed::fingerprint(&keys, &identity).context("a build runner has no keys")?;
    eprintln!(
        "The server rejects the former runner from now on. Keep the new fingerprint in your records, and send it to the \
         vendor. This runner is disabled until you run `stead-runner enable`"
    );
    show::print(&format!("{}\n{fingerprint}\n", identity.runner))
}

fn read(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let reading = || format!("cannot read {}", path.display());
    // A string that grows leaves copies of the private key in memory.
    let mut text = Zeroizing::new(String::with_capacity(2 * MAX_FILE));
    let file = fs::File::open(path).with_context(reading)?;
    file.take(MAX_FILE as u64 + 1).read_to_string(&mut text).with_context(reading)?;
    if text.len() > MAX_FILE {
        bail!("cannot read {}: the file is larger than 64 KiB", path.display());
    }
    Ok(text)
}
