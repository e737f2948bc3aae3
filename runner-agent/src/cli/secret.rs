//! `stead-runner secret`: sensitive values that the customer sets. They never leave the host.
use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use install_keys::Of;
use schemas::secret::{Consumer, MAX_VALUE_BYTES, all_jobs};
use zeroize::Zeroizing;

use crate::{data::Data, enrol, host, seed, show, values::customer};

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Set a secret or the value of a sensitive input, from standard input or a file
    #[command(after_help = "\
Examples:
  stead-runner secret set api_token --data /var/lib/stead-runner < token.txt
  stead-runner secret set api_token --file /run/token --component service

The value stays on this host, encrypted to the keys of the install. The vendor sees the name, the time and the user. \
One newline at the end is not part of the value.")]
    Set {
        /// Name of the secret or input
        name: String,
        /// File with the value; `-` reads standard input
        #[arg(long, value_name = "FILE", default_value = "-")]
        file: PathBuf,
        /// Component whose jobs may use the value, `sandbox`, or action:NAME; may be repeated
        /// [default: every job of this install]
        #[arg(long = "component", value_name = "NAME")]
        components: Vec<String>,
    },
    /// List the values, without their contents
    List,
    /// Remove a secret or the value of an input from this host
    Remove {
        /// Name of the secret or input
        name: String,
    },
}

pub(super) fn run(command: SecretCommand, data: &Data) -> anyhow::Result<ExitCode> {
    match command {
        SecretCommand::Set { name, file, components } => set(data, &name, &file, components),
        SecretCommand::List => show::print(&show::sanitized(&list(data)?)),
        SecretCommand::Remove { name } => {
            check_name(&name)?;
            if !customer::remove(data, &name)? {
                bail!(
                    "cannot remove {name}: this host has no value of it; `stead-runner secret list` lists the values"
                );
            }
            show::print(&format!("Removed {name}. Jobs that need it fail until it is set again\n"))
        }
    }
}

fn check_name(name: &str) -> anyhow::Result<()> {
    if customer::is_name(name) {
        return Ok(());
    }
    bail!(
        "cannot use the name {name:?}: names of inputs have up to 128 letters, digits, `-` and `_`"
    )
}

fn set(data: &Data, name: &str, file: &Path, components: Vec<String>) -> anyhow::Result<ExitCode> {
    check_name(name)?;
    let missing = "cannot encrypt the value: the runner is not enrolled, or has not started since the update; start it";
    let identity = enrol::stored_identity(data)?.context(missing)?;
    let Some(install) = identity.install else {
        bail!("cannot set {name}: a build runner has no install");
    };
    host::make_undumpable();
    let keys = seed::open(data)?.context(missing)?;
    let text = read(file).with_context(|| format!("cannot set {name}"))?;
    let consumers = match components.is_empty() {
        true => all_jobs(),
        false => {
            let all_kinds = |component| Consumer { component, job_kind: "*".into() };
            components.into_iter().map(all_kinds).collect()
        }
    };
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    let user = user.map_or_else(|| nix::unistd::getuid().to_string(), |user| user.name);
    let of = Of { log_id: &identity.log_id, install };
    let by = (user, host::now());
    customer::set(data, (&keys, of), (name, &text), consumers, by)
        .with_context(|| format!("cannot store the value of {name}"))?;
    show::print(&format!(
        "Set {name}. The value stays on this host; the vendor sees its name, the time and the user\n"
    ))
}

fn read(file: &Path) -> anyhow::Result<Zeroizing<String>> {
    let limit = MAX_VALUE_BYTES as u64 + 2;
    let mut text = Zeroizing::new(String::new());
    if file.as_os_str() == "-" {
        io::stdin().take(limit).read_to_string(&mut text)?;
    } else {
        let opened =
            fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        opened.take(limit).read_to_string(&mut text)?;
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() {
        bail!("the value is empty; write it to standard input, or pass --file FILE");
    }
    if text.len() > MAX_VALUE_BYTES {
        bail!("the value is larger than 64 KiB");
    }
    Ok(text)
}

fn list(data: &Data) -> anyhow::Result<String> {
    let values = customer::list(data)?;
    if values.is_empty() {
        return Ok("This host has no values: `stead-runner secret set NAME` sets one\n".into());
    }
    let line = |value: schemas::runner::CustomerValue| {
        let mut jobs: Vec<&str> =
            value.consumers.iter().map(|one| one.component.as_str()).collect();
        jobs.dedup();
        let jobs = if jobs == ["*"] { "every job".to_owned() } else { jobs.join(", ") };
        let at = value.set_at.format("%Y-%m-%d %H:%M:%S UTC");
        format!("{}  set {at} by {}  for {jobs}\n", value.input, value.set_by)
    };
    Ok(values.into_iter().map(line).collect())
}
