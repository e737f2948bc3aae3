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
    object::ObjectRef,
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
    let object = select(entries, output).map_err(&fail)?;
    if object.is_secret() {
        return Ok((name.to_owned(), None));
    }
    let Some(kind) = kinds.recorded(object) else {
        return Err(fail(format!(
            "the cluster no longer serves the kind of {object}; install its \
             CustomResourceDefinition"
        )));
    };
    let live = cluster.live(kind, object).await?;
    let live = live.ok_or_else(|| fail(format!("{object} does not exist; deploy again")))?;
    let value = fields::at(&live, &output.field).cloned();
    let value = value
        .ok_or_else(|| fail(format!("{object} has no field {}; correct the path", output.field)))?;
    Ok((name.to_owned(), Some(value)))
}

/// Returns the only object that an output names. Its kind can include the group, as in
/// `Service.serving.knative.dev`.
fn select<'o>(
    objects: impl Iterator<Item = &'o ObjectRef>,
    output: &OutputField,
) -> Result<&'o ObjectRef, String> {
    let is_kind = |object: &ObjectRef| {
        let (kind, group) = (output.kind.as_str(), object.group());
        object.kind == kind
            || kind.split_once('.').is_some_and(|parts| parts == (object.kind.as_str(), group))
    };
    let matching: Vec<&ObjectRef> = objects
        .filter(|object| is_kind(object) && object.name == output.name)
        .filter(|object| output.namespace.is_none() || object.namespace == output.namespace)
        .collect();
    match *matching.as_slice() {
        [object] => Ok(object),
        [] => {
            let (kind, object) = (&output.kind, &output.name);
            Err(format!("the component has no {kind} {object}; correct the output"))
        }
        [first, second, ..] => Err(format!(
            "it matches {first} and {second}; add the group to `kind`, as in Kind.group, or set \
             `namespace`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_names_exactly_one_object() {
        let object = |api_version: &str, namespace: &str| ObjectRef {
            api_version: api_version.into(),
            kind: "Service".into(),
            namespace: Some(namespace.into()),
            name: "web".into(),
        };
        let objects =
            [object("serving.knative.dev/v1", "shop"), object("v1", "shop"), object("v1", "admin")];
        let of = |kind: &str, namespace: Option<&str>| {
            let (kind, namespace) = (kind.to_owned(), namespace.map(str::to_owned));
            let output = OutputField { kind, name: "web".into(), namespace, field: "spec".into() };
            select(objects.iter(), &output)
        };
        assert_eq!(of("Service.serving.knative.dev", None), Ok(&objects[0]));
        assert_eq!(of("Service", Some("admin")), Ok(&objects[2]));
        let message = of("Service", Some("shop")).unwrap_err();
        assert!(message.contains("Service.serving.knative.dev shop/web and Service"), "{message}");
        assert!(of("Ingress", None).unwrap_err().contains("has no Ingress web"));
    }
}
