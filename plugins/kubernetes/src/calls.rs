//! Calls of the runner about a component of the type `kubernetes_manifest`.

use schemas::plugin::{Call, CallContext, Operation};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    apply, build,
    cluster::Cluster,
    distinct::Checked,
    failure::{Failure, Outcome},
    inventory::Inventory,
    kubeconfig, manifest, outputs, plan, preflight, serve,
    settings::Component,
};

const COMPONENT_TYPE: &str = "kubernetes_manifest";

/// Answers the calls of the runner until standard input ends.
pub fn serve() -> std::io::Result<()> {
    let checked = Checked::default();
    serve::run(async |call: &Call, stop: &CancellationToken| respond(call, stop, &checked).await)
}

async fn respond(call: &Call, stop: &CancellationToken, checked: &Checked) -> Outcome<Value> {
    match call {
        Call::Describe { protocol, protocols } => {
            serve::describe((COMPONENT_TYPE, env!("CARGO_PKG_VERSION")), *protocol, protocols)
        }
        Call::Health(context) => health(context, checked),
        Call::Preflight(context) => Ok(json!(preflight::checks(context).await)),
        Call::Build(context) => tokio::select! {
            built = build::run(context) => built.map(|()| json!({})),
            () = stop.cancelled() => Err(Failure::cancelled()),
        },
        Call::State(context) => {
            let component: Component = Component::read(context)?;
            let cluster = Cluster::connect(&component).await?;
            Ok(json!(Inventory::load(&cluster, &component).await?.mark()))
        }
        Call::Plan { context, plan_file } => {
            let component: Component = Component::read(context)?;
            let changes = tokio::select! {
                changes = plan::make(&component, plan_file) => changes?,
                () = stop.cancelled() => return Err(Failure::cancelled()),
            };
            Ok(json!(changes))
        }
        Call::Apply { context, plan_file, state } | Call::Destroy { context, plan_file, state } => {
            let component: Component = Component::read(context)?;
            apply::run(&component, plan_file, state, stop).await?;
            Ok(json!({}))
        }
        Call::Outputs(context) => {
            let component: Component = Component::read(context)?;
            Ok(json!(outputs::read(&component, &component.settings.outputs).await?))
        }
        Call::Cancel { .. } => Ok(json!({})),
        Call::Unknown => Err(serve::unsupported()),
    }
}

/// Checks settings, manifest and kubeconfig without a connection.
fn health(context: &CallContext, checked: &Checked) -> Outcome<Value> {
    let is_build = context.inputs.as_ref().is_some_and(|inputs| inputs.get("settings").is_none());
    if is_build && context.inputs_file.is_none() {
        return Ok(json!({}));
    }
    let component: Component = Component::read(context)?;
    match component.operation {
        Operation::Apply => {
            manifest::check(&component.settings)?;
            checked.add(&component)?;
        }
        // A destroy reads the inventory. An invalid manifest must not prevent it.
        Operation::Destroy => {}
    }
    kubeconfig::load()?;
    Ok(json!({}))
}
