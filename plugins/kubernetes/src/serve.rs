//! Loop over the calls of the runner.

use std::{io, time::Duration};

use schemas::plugin::{Call, CallContext, Described, Operation, Request};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    apply,
    cluster::Cluster,
    failure::{Failure, Outcome},
    inventory::Inventory,
    kubeconfig, manifest, outputs, plan, preflight, report,
    settings::Component,
};

/// Protocol versions that the plugin supports.
const PROTOCOLS: [u32; 2] = [1, 2];
/// Timeout of an open call after the end of standard input.
const EXIT_TIMEOUT: Duration = Duration::from_secs(4);
/// Component type.
const NAME: &str = "kubernetes_manifest";

/// Responds to calls until standard input ends.
///
/// A cancel and the end of standard input stop the open call. After the end of standard input, no
/// effect may start, because no runner reads its result.
pub async fn serve() -> io::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    // From version 2, a runner reads long values from files.
    let mut reads_files = false;
    while let Some(line) = lines.next_line().await? {
        let request = match parse(&line) {
            Ok(Request { call: Call::Cancel { .. }, .. }) => continue,
            Ok(request) => request,
            Err(failure) => {
                report::answer(0, Err(failure), None)?;
                continue;
            }
        };
        let stop = CancellationToken::new();
        let response = respond(&request.call, &stop);
        tokio::pin!(response);
        let mut exit_at: Option<Instant> = None;
        let result = loop {
            let exit = exit_at.unwrap_or_else(|| Instant::now() + EXIT_TIMEOUT);
            tokio::select! {
                result = &mut response => break result,
                line = lines.next_line(), if exit_at.is_none() => match line? {
                    Some(line) => {
                        if matches!(parse(&line), Ok(Request { call: Call::Cancel { .. }, .. })) {
                            stop.cancel();
                        }
                    }
                    None => {
                        exit_at = Some(exit);
                        stop.cancel();
                    }
                },
                () = sleep_until(exit), if exit_at.is_some() => break Err(Failure::cancelled()),
            }
        };
        if let (Call::Describe { .. }, Ok(described)) = (&request.call, &result) {
            reads_files = described["protocol"] != 1;
        }
        let work_dir = context_of(&request.call).map(|context| context.work_dir.as_path());
        report::answer(request.id, result, work_dir.filter(|_| reads_files))?;
        if exit_at.is_some() {
            break;
        }
    }
    Ok(())
}

fn context_of(call: &Call) -> Option<&CallContext> {
    match call {
        Call::Health(context)
        | Call::Preflight(context)
        | Call::Build(context)
        | Call::State(context)
        | Call::Outputs(context)
        | Call::Plan { context, .. }
        | Call::Apply { context, .. }
        | Call::Destroy { context, .. } => Some(context),
        Call::Describe { .. } | Call::Cancel { .. } | Call::Unknown => None,
    }
}

fn parse(line: &str) -> Outcome<Request> {
    serde_json::from_str(line).map_err(|e| Failure::refused(format!("invalid call: {e}")))
}

async fn respond(call: &Call, stop: &CancellationToken) -> Outcome<Value> {
    match call {
        Call::Describe { protocol, protocols } => describe(*protocol, protocols),
        Call::Health(context) => health(context),
        Call::Preflight(context) => Ok(json!(preflight::checks(context).await)),
        // The runner packs the source unchanged. A build has no settings.
        Call::Build(_) => Ok(json!({})),
        Call::State(context) => {
            let component = Component::read(context)?;
            let cluster = Cluster::connect(&component).await?;
            Ok(json!(Inventory::load(&cluster, &component).await?.mark()))
        }
        Call::Plan { context, plan_file } => {
            let component = Component::read(context)?;
            let changes = tokio::select! {
                changes = plan::make(&component, plan_file) => changes?,
                () = stop.cancelled() => return Err(Failure::cancelled()),
            };
            Ok(json!(changes))
        }
        Call::Apply { context, plan_file, state } | Call::Destroy { context, plan_file, state } => {
            let component = Component::read(context)?;
            apply::run(&component, plan_file, state, stop).await?;
            Ok(json!({}))
        }
        Call::Outputs(context) => Ok(json!(outputs::read(&Component::read(context)?).await?)),
        Call::Cancel { .. } => Ok(json!({})),
        Call::Unknown => Err(Failure {
            code: schemas::plugin::ErrorCode::Unsupported,
            message: "the plugin does not implement this call".into(),
        }),
    }
}

fn describe(protocol: u32, protocols: &[u32]) -> Outcome<Value> {
    let common = schemas::plugin::highest_common(protocol, protocols, &PROTOCOLS);
    let protocol = common.ok_or_else(|| {
        Failure::refused(format!(
            "the runner offers protocol {protocol}, and the plugin supports {PROTOCOLS:?}; install \
             a matching version of the plugin"
        ))
    })?;
    let (name, version) = (NAME.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let kinds = ["build", "plan", "apply"].map(str::to_owned).to_vec();
    Ok(json!(Described { protocol, name, version, kinds }))
}

/// Checks settings, manifest and kubeconfig without a connection.
fn health(context: &CallContext) -> Outcome<Value> {
    let is_build = context.inputs.as_ref().is_some_and(|inputs| inputs.get("settings").is_none());
    if is_build && context.inputs_file.is_none() {
        return Ok(json!({}));
    }
    let component = Component::read(context)?;
    match component.operation {
        Operation::Apply => manifest::check(&component.settings)?,
        // A destroy reads the inventory. An invalid manifest must not prevent it.
        Operation::Destroy => {}
    }
    kubeconfig::load()?;
    Ok(json!({}))
}
