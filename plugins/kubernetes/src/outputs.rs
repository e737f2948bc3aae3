//! Outputs: fields of live objects that the component names.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use schemas::plugin::{Operation, OutputValues};
use serde_json::Value;

use crate::{
    cluster::{CONCURRENCY, Cluster},
    failure::{Failure, Outcome},
    fields,
    inventory::Inventory,
    kinds::Kinds,
    settings::{Component, OutputField},
};

/// Reads the outputs. Fields of Secrets are withheld.
pub async fn read<S>(
    component: &Component<S>,
    outputs: &BTreeMap<String, OutputField>,
) -> Outcome<OutputValues> {
    if outputs.is_empty() || component.operation == Operation::Destroy {
        return Ok(OutputValues::default());
    }
    let cluster = Cluster::connect(component).await?;
    let inventory = Inventory::load(&cluster, component).await?;
    let recorded = inventory.entries().iter().map(|entry| &entry.reference);
    let kinds = Kinds::load_recorded(&cluster, recorded).await?;
    let values: Vec<(String, Option<Value>)> = stream::iter(outputs)
        .map(|(name, field)| read_field(&cluster, &inventory, &kinds, name, field))
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    let mut read = OutputValues::default();
    for (name, value) in values {
        match value {
            Some(value) => {
                read.outputs.insert(name, value);
            }
            None => read.withheld.push(name),
        }
    }
    Ok(read)
}

/// Reads one output. `None` for a field of a Secret.
async fn read_field(
    cluster: &Cluster,
    inventory: &Inventory,
    kinds: &Kinds,
    name: &str,
    output: &OutputField,
) -> Outcome<(String, Option<Value>)> {
    let fail = |why: String| Failure::failed(format!("cannot read the output {name}: {why}"));
    let entries = inventory.entries().iter().map(|entry| &entry.reference);
    let mut matching = entries.filter(|object| {
        object.kind == output.kind
            && object.name == output.name
            && (output.namespace.is_none() || object.namespace == output.namespace)
    });
    let Some(object) = matching.next() else {
        let (kind, object) = (&output.kind, &output.name);
        return Err(fail(format!("the component has no {kind} {object}; correct the output")));
    };
    if object.is_secret() {
        return Ok((name.to_owned(), None));
    }
    let Some(kind) = kinds.recorded(object) else {
        return Err(fail(format!("the cluster no longer serves {object}")));
    };
    let live = cluster.live(kind, object).await?;
    let live = live.ok_or_else(|| fail(format!("{object} does not exist; deploy again")))?;
    let value = fields::at(&live, &output.field).cloned();
    let value = value
        .ok_or_else(|| fail(format!("{object} has no field {}; correct the path", output.field)))?;
    Ok((name.to_owned(), Some(value)))
}
