//! `stead keys`: the signing keys in the data directory of the server.
use std::path::PathBuf;

use api::keys::{self, PublicKey};
use chrono::{SubsecRound as _, TimeDelta};
use clap::{Args, Subcommand, ValueEnum};
use cli::{
    failure::Failure,
    render::{Screen, Table, moment, moment_or_dash},
};
use schemas::{duration::parse_seconds, keys::KeyUse};

use crate::serve::data_directory;

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// List the current keys, and the replaced keys that are still trusted
    #[command(after_help = "\
The command prints checkpoint keys as verifier keys for `stead audit check --key`, and other keys as fingerprints. \
--output json prints the fingerprint of every key. Only checkpoint keys also have a verifier key.

Example:
  stead keys list --data /var/lib/stead")]
    List(DataDirArgs),
    /// Replace a key with a new one
    #[command(after_help = "\
The replaced key stays trusted during the overlap. Runners that call the server in that time get the new key.

Run the command as the server's user. A running server loads the new key within seconds. If several servers share one \
database, copy the `keys` directory to all of them.

Examples:
  stead keys rotate --use manifests
  stead keys rotate --use tokens --overlap 1d
  stead keys rotate --use manifests --no-overlap")]
    Rotate(Rotate),
}

#[derive(Debug, Args)]
pub(crate) struct DataDirArgs {
    /// The server's data directory [default: as for `stead serve`]
    #[arg(long, env = "STEAD_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    data_dir: DataDirArgs,
    /// Use of the key
    #[arg(long = "use", value_enum)]
    usage: Use,
    /// Time for which the replaced key stays trusted: 12h, 30d
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "30d")]
    overlap: u64,
    /// Stop trusting the replaced key and all earlier keys immediately, for example after a leak
    #[arg(long, conflicts_with = "overlap")]
    no_overlap: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Use {
    /// Access tokens of runners and jobs
    Tokens,
    /// Job manifests for runners; the enrolment command contains the fingerprint of this key
    Manifests,
    /// Checkpoints of the log
    Checkpoints,
}

impl From<Use> for KeyUse {
    fn from(usage: Use) -> KeyUse {
        match usage {
            Use::Tokens => KeyUse::Tokens,
            Use::Manifests => KeyUse::Manifests,
            Use::Checkpoints => KeyUse::Checkpoints,
        }
    }
}

pub(crate) fn run(verb: Keys, screen: Screen) -> Result<(), Failure> {
    match verb {
        Keys::List(data_dir) => list(&keys::read(&data_dir.keys()?).map_err(unusable)?, &screen),
        Keys::Rotate(args) => rotate(args, &screen),
    }
}

fn rotate(args: Rotate, screen: &Screen) -> Result<(), Failure> {
    // The key files store whole seconds.
    #[expect(
        clippy::disallowed_methods,
        reason = "the operator's clock determines the validity of keys"
    )]
    let now = chrono::Utc::now().trunc_subsecs(0);
    let overlap = if args.no_overlap { 0 } else { args.overlap };
    let too_long = || {
        Failure::Usage("cannot rotate the key: the overlap ends after the latest supported time\n  try: a shorter --overlap".into())
    };
    let overlap = i64::try_from(overlap).ok().and_then(TimeDelta::try_seconds);
    let until = overlap.and_then(|overlap| now.checked_add_signed(overlap)).ok_or_else(too_long)?;
    let usage = KeyUse::from(args.usage);
    let mut keys = keys::rotate(&args.data_dir.keys()?, usage, until, now).map_err(unusable)?;
    keys.retain(|key| key.usage == usage);
    list(&keys, screen)?;
    screen
        .remark("A running server loads the new key within seconds. Back up its `keys` directory.");
    Ok(())
}

fn list(keys: &[PublicKey], screen: &Screen) -> Result<(), Failure> {
    screen.print_list(keys, "No keys.", |_| {
        let mut table = Table::new(["USE", "KEY", "SINCE", "TRUSTED UNTIL"]);
        for key in keys {
            let usage = match key.usage {
                KeyUse::Tokens => "tokens",
                KeyUse::Manifests => "manifests",
                KeyUse::Checkpoints => "checkpoints",
                KeyUse::Other => "other",
            };
            let (since, until) = (moment(&key.not_before), moment_or_dash(key.not_after.as_ref()));
            // `stead audit check` takes the complete checkpoint key. Users only compare the other
            // keys, by fingerprint.
            let identity = key.verifier_key.as_ref().unwrap_or(&key.fingerprint);
            table.row([usage.into(), identity.clone(), since, until]);
        }
        table
    })
}

impl DataDirArgs {
    fn keys(&self) -> Result<PathBuf, Failure> {
        let data = data_directory(self.data.as_ref());
        Ok(data.map_err(|error| Failure::Usage(error.to_string()))?.join("keys"))
    }
}

fn unusable(error: keys::KeyError) -> Failure {
    Failure::Usage(error.to_string())
}
