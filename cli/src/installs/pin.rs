//! `stead installs pin`: pins the public keys of an install.
use clap::Args;
use install_keys::Fingerprint;
use schemas::control::installs::Install;

use crate::{
    failure::Failure,
    pins::{PinStatus, Pins, check_named, fingerprint},
    settings::CommandContext,
};

#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// Name or id of the install
    install: String,
    /// Fingerprint that the customer sent, from `stead-runner fingerprint`
    fingerprint: Fingerprint,
    /// Replace another pinned fingerprint
    #[arg(long)]
    replace: bool,
}

pub(crate) async fn run(context: &CommandContext, args: PinArgs) -> Result<(), Failure> {
    let install = context.client.install(&args.install).await?;
    check_named(&install, &args.install)?;
    let mut pins = Pins::read()?;
    check(&install, &pins, &args)?;
    pins.pin(&install, args.fingerprint);
    let path = pins.write()?;
    let (name, fingerprint) = (&install.name, args.fingerprint);
    let pinned = serde_json::json!({"install": install.id, "fingerprint": fingerprint.to_string()});
    context.screen.print_one(&pinned, |_| {
        format!("Pinned the keys of {name}: {fingerprint}\nPins file: {}\n", path.display())
    })
}

/// Rejects a fingerprint that differs from the keys that the server returned, or from the pinned
/// one.
fn check(install: &Install, pins: &Pins, args: &PinArgs) -> Result<(), Failure> {
    let name = &install.name;
    let Some(shown) = fingerprint(install) else {
        return Err(Failure::Outcome(format!(
            "cannot pin the keys of {name}: its runner has not reported valid keys\n  try: start the runner of {name}"
        )));
    };
    if shown != args.fingerprint {
        return Err(Failure::Outcome(format!(
            "cannot pin the keys of {name}: the server returned keys with the fingerprint {shown}, not {}\n  \
             try: ask the customer to run `stead-runner fingerprint` again; if it prints what you passed, the server \
             returned keys of another party",
            args.fingerprint
        )));
    }
    match pins.status(install) {
        PinStatus::NotPinned | PinStatus::Pinned => Ok(()),
        PinStatus::Differs { .. } if args.replace => Ok(()),
        PinStatus::Differs { pinned } => Err(Failure::Outcome(format!(
            "cannot pin the keys of {name}: {pinned} is pinned already\n  \
             try: --replace, after the customer has confirmed that the keys were replaced"
        ))),
    }
}
