//! Calls of the runner about a component of the type `helm_chart`.

use schemas::plugin::{
    Call, CallContext, CheckStatus, Operation, OutputValues, Preflight, PreflightCheck,
};
use serde_json::{Value, json};
use stead_plugin_kubernetes::{
    failure::{Failure, Outcome},
    inventory::Inventory,
    kubeconfig, outputs, serve,
};
use tokio_util::sync::CancellationToken;

use crate::{
    access::Access, apply, build, current::Details, destroy, distinct::Checked, plan, release,
    settings::Component, values, version,
};

const COMPONENT_TYPE: &str = "helm_chart";

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
        Call::Preflight(context) => preflight(context).await,
        Call::Build(context) => tokio::select! {
            built = build::run(context, stop) => Ok(json!(built?)),
            () = stop.cancelled() => Err(Failure::cancelled()),
        },
        Call::State(context) => {
            let component: Component = Component::read(context)?;
            let access = Access::open(&component).await?;
            Ok(json!(Inventory::load(&access.cluster, &component).await?.mark()))
        }
        Call::Plan { context, plan_file } => {
            let component: Component = Component::read(context)?;
            let planned = async {
                match component.operation {
                    Operation::Apply => plan::make(&component, plan_file).await,
                    Operation::Destroy => destroy::make(&component, plan_file).await,
                }
            };
            let changes = tokio::select! {
                changes = planned => changes?,
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
            Ok(json!(read_outputs(&component).await?))
        }
        Call::Cancel { .. } => Ok(json!({})),
        Call::Unknown => Err(serve::unsupported()),
    }
}

/// Checks settings, values and kubeconfig without a connection.
fn health(context: &CallContext, checked: &Checked) -> Outcome<Value> {
    let is_build = context.inputs.as_ref().is_some_and(|inputs| inputs.get("settings").is_none());
    if is_build && context.inputs_file.is_none() {
        return Ok(json!({}));
    }
    let component: Component = Component::read(context)?;
    let release = component.settings.release()?;
    match component.operation {
        Operation::Apply => {
            values::check_all(&component.settings)?;
            checked.add(&component.name, &release)?;
        }
        // A destroy reads the inventory. Invalid values must not prevent it.
        Operation::Destroy => {}
    }
    kubeconfig::load()?;
    Ok(json!({}))
}

/// Checks Helm, the cluster, and that the credentials can write the inventory and read the releases.
async fn preflight(context: &CallContext) -> Outcome<Value> {
    let component: Component = Component::read(context)?;
    let release = component.settings.release()?;
    let access = Access::open(&component).await?;
    let tool = async { version::of(&access.helm).await.map(drop) };
    let connected = async {
        access.cluster.identity().await?;
        let inventory = Inventory::load(&access.cluster, &component).await?;
        let release = Details::of(&inventory).release.unwrap_or(release);
        release::records(&access.cluster, &release).await?;
        Ok::<_, Failure>(inventory)
    };
    let (tool, connected) = tokio::join!(tool, connected);
    let (connected, inventory) = match connected {
        Ok(inventory) => (Ok(()), Some(inventory.check_write(&access.cluster).await)),
        Err(failure) => (Err(failure), None),
    };
    let check = |name: &str, result: Outcome<()>| {
        let (status, message) = match result {
            Ok(()) => (CheckStatus::Ok, String::new()),
            Err(failure) => (CheckStatus::Failed, failure.message),
        };
        PreflightCheck { check: name.into(), status, message }
    };
    let mut checks = vec![check("helm", tool), check("cluster", connected)];
    checks.extend(inventory.map(|written| check("inventory", written)));
    Ok(json!(Preflight { checks }))
}

/// Returns the outputs: the release, and fields of its objects.
async fn read_outputs(component: &Component) -> Outcome<OutputValues> {
    match component.operation {
        Operation::Apply => {}
        Operation::Destroy => return Ok(OutputValues::default()),
    }
    let release = component.settings.release()?;
    let mut values = outputs::read(component, &component.settings.outputs).await?;
    let access = Access::open(component).await?;
    let records = release::records(&access.cluster, &release).await?;
    let own = [
        ("release", json!(release.name)),
        ("namespace", json!(release.namespace)),
        ("revision", json!(records.last().map_or(0, |record| record.version))),
    ];
    for (name, value) in own {
        // A field that the component names has precedence.
        values.outputs.entry(name).or_insert(value);
    }
    Ok(values)
}
