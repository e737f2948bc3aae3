//! Kind and namespace of each desired object. An object whose kind or namespace the component
//! itself creates is known only after the apply.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use crate::{
    cluster::{CONCURRENCY, Cluster},
    failure::{Failure, Outcome, listed},
    inventory,
    kinds::{self, Kind, Kinds},
    manifest::{self, Desired},
    object::ObjectRef,
    order, report,
};

/// Annotation of an object that has only a name in the manifest.
const COMPONENT_ANNOTATION: &str = "stead.dev/component";

/// Desired object with its namespace.
pub struct Resolved {
    pub reference: ObjectRef,
    pub object: Value,
    pub place: String,
    /// `None` if the component itself creates the kind or the namespace.
    pub kind: Option<Kind>,
}

/// Resolves the objects of a manifest.
///
/// # Errors
/// Names every object with an unknown kind, or with a missing or contradictory namespace.
pub async fn resolve(
    cluster: &Cluster,
    kinds: &Kinds,
    desired: Vec<Desired>,
    namespace: Option<&str>,
) -> Outcome<Vec<Resolved>> {
    if let Some(namespace) = namespace.filter(|namespace| !manifest::is_name(namespace)) {
        return Err(Failure::refused(format!(
            "invalid namespace {namespace:?} of the component; correct `namespace`"
        )));
    }
    let definitions: Vec<Value> =
        desired.iter().filter(|one| one.reference.is_crd()).map(|one| one.object.clone()).collect();
    let own_namespaces: Vec<String> = desired
        .iter()
        .filter(|one| one.reference.is_namespace())
        .map(|one| one.reference.name.clone())
        .collect();
    let (mut resolved, mut errors) = (vec![], vec![]);
    for one in desired {
        match resolve_one(one, kinds, &definitions, namespace, &cluster.manager) {
            Ok(one) => resolved.push(one),
            Err(error) => errors.push(error),
        }
    }
    let exist = existing_namespaces(cluster, &resolved).await?;
    for one in &mut resolved {
        let Some(namespace) = &one.reference.namespace else { continue };
        if exist.get(namespace.as_str()).copied().unwrap_or_default() {
            continue;
        }
        one.kind = None;
        if !own_namespaces.contains(namespace) {
            errors.push(format!(
                "{}: {}: the namespace {namespace} does not exist; create it in a component that \
                 this one depends on, or add the Namespace to the manifest",
                one.place, one.reference
            ));
        }
    }
    if !errors.is_empty() {
        return Err(Failure::refused(listed("cannot plan the manifest", &errors)));
    }
    // The namespaces of all objects are known only now.
    manifest::check_unique(resolved.iter().map(|one| (&one.reference, one.place.as_str())))?;
    resolved.sort_by_key(|one| order::rank(&one.reference, &one.object));
    Ok(resolved)
}

fn resolve_one(
    desired: Desired,
    kinds: &Kinds,
    definitions: &[Value],
    default: Option<&str>,
    manager: &str,
) -> Result<Resolved, String> {
    let kind = kinds.get(&desired.reference).cloned();
    let defined = || definitions.iter().find_map(|one| kinds::defined_by(one, &desired.reference));
    let is_namespaced = kind.as_ref().map(|kind| kind.is_namespaced).or_else(defined);
    let Some(is_namespaced) = is_namespaced else { return Err(kinds::unknown(&desired)) };
    let Desired { mut reference, mut object, place } = desired;
    let fail = |why: String| format!("{place}: {why}");
    if let Err(found) = order::wave(&object) {
        return Err(fail(format!(
            "{reference} has an invalid wave {found}; set {} to an integer",
            order::WAVE_ANNOTATION
        )));
    }
    let own = reference.namespace.take();
    if is_namespaced {
        let namespace = match (own, default) {
            (Some(own), Some(default)) if own != default => {
                return Err(fail(format!(
                    "{reference} is in the namespace {own}, but the component's namespace is \
                     {default}; use one namespace for each component"
                )));
            }
            (Some(own), _) => own,
            (None, Some(default)) => default.to_owned(),
            (None, None) => {
                return Err(fail(format!(
                    "{reference} has no namespace; set `namespace` of the component"
                )));
            }
        };
        object["metadata"]["namespace"] = Value::String(namespace.clone());
        reference.namespace = Some(namespace);
    } else if own.is_some() {
        report::log(format!(
            "{place}: ignored the namespace of {reference}, because its kind is cluster-scoped"
        ));
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
    }
    if inventory::is_reserved(&reference) {
        return Err(fail(format!(
            "{reference} is in the namespace {}, where Stead stores its inventories; use another \
             namespace",
            inventory::NAMESPACE
        )));
    }
    if is_bare(&object) {
        let metadata = object["metadata"].as_object_mut();
        metadata.into_iter().for_each(|metadata| {
            metadata.insert("annotations".into(), json!({ COMPONENT_ANNOTATION: manager }));
        });
    }
    Ok(Resolved { reference, object, place, kind })
}

/// Returns whether an object has only a name. The field manager of such an object would own no
/// field, so nothing in the cluster would show its owner.
fn is_bare(object: &Value) -> bool {
    const IDENTITY: [&str; 5] = ["apiVersion", "kind", "metadata", "name", "namespace"];
    fn has_content(value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => members.values().any(has_content),
        }
    }
    let members = object.as_object().into_iter().flatten();
    let metadata = object["metadata"].as_object().into_iter().flatten();
    let mut other = members.chain(metadata).filter(|(name, _)| !IDENTITY.contains(&name.as_str()));
    other.all(|(_, value)| !has_content(value))
}

async fn existing_namespaces(
    cluster: &Cluster,
    resolved: &[Resolved],
) -> Outcome<BTreeMap<String, bool>> {
    let mut names: Vec<&String> =
        resolved.iter().filter_map(|one| one.reference.namespace.as_ref()).collect();
    names.sort();
    names.dedup();
    stream::iter(names)
        .map(|name| async move {
            Ok::<_, Failure>((name.clone(), cluster.namespace(name).await?.is_some()))
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_with_only_a_name_is_bare() {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace",
                                "metadata": { "name": "shop", "labels": {} }, "spec": {} });
        assert!(is_bare(&namespace));
        for (path, value) in [
            ("/metadata/labels", json!({ "team": "shop" })),
            ("/spec", json!({ "finalizers": ["kubernetes"] })),
        ] {
            let mut object = namespace.clone();
            *object.pointer_mut(path).unwrap() = value;
            assert!(!is_bare(&object), "{path}");
        }
    }
}
