//! `stead installs accept-state`: accepts a component state that the runner refuses.
use clap::Args;
use schemas::control::installs::AcceptState;

use crate::{failure::Failure, settings::CommandContext};

#[derive(Debug, Args)]
pub(crate) struct AcceptStateArgs {
    /// Name or id of the install
    install: String,
    /// Name of the component, or `sandbox`
    component: String,
    /// Lineage of the state, from the runner's refusal
    #[arg(long)]
    lineage: String,
    /// Serial of the state, from the runner's refusal
    #[arg(long)]
    serial: u64,
    /// Accept another state than the newest one of the server
    #[arg(long)]
    force: bool,
    /// Reason, recorded in the log
    #[arg(long)]
    reason: String,
}

pub(crate) async fn run(context: &CommandContext, args: AcceptStateArgs) -> Result<(), Failure> {
    let AcceptStateArgs { install, component, lineage, serial, force, reason } = args;
    let request = AcceptState { lineage, serial, force, reason };
    let done = context.client.accept_state(&install, &component, &request).await?;
    context.screen.print_one(&done, |_| {
        let (serial, lineage) = (request.serial, &request.lineage);
        format!("Accepted serial {serial} of lineage {lineage} as the state of {component} in {install}\n")
    })
}
