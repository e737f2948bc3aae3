//! Objects of a rendered release, as Helm applies them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stead_plugin_kubernetes::{
    failure::{Failure, Outcome, listed},
    fields, inventory,
    kinds::{self, Kind, Kinds},
    manifest::{self, Booleans, Desired},
    object::ObjectRef,
};

use crate::{
    chart,
    release::{Hook, Release},
    settings::ReleaseRef,
};

pub const RELEASE_NAME: &str = "meta.helm.sh/release-name";
pub const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Object of a release with its namespace.
pub struct Resolved {
    pub reference: ObjectRef,
    pub object: Value,
    /// `None` if the release itself creates the kind.
    pub kind: Option<Kind>,
    /// Paths that change at every render.
    pub random: Vec<String>,
}

/// Parses the objects of a manifest.
///
/// # Errors
/// Names every invalid object with its template.
pub fn parse(manifest: &str) -> Outcome<Vec<Desired>> {
    let (mut desired, mut errors) = (vec![], vec![]);
    for text in chart::documents(manifest) {
        let template = text.lines().find_map(|line| line.strip_prefix("# Source: "));
        let template = template.unwrap_or("the chart").trim();
        for document in manifest::documents(text) {
            match manifest::parse_document(&document, template, Booleans::Legacy) {
                Ok(objects) => desired.extend(objects),
                Err(error) => errors.push(error),
            }
        }
    }
    match errors.is_empty() {
        true => Ok(desired),
        false => Err(Failure::refused(listed("the chart renders invalid objects", &errors))),
    }
}

/// Resolves kind and namespace of the objects of a release.
///
/// # Errors
/// Names every object whose kind does not exist, and every object that the chart has twice.
pub fn resolve(
    release: &ReleaseRef,
    kinds: &Kinds,
    rendered: (&Release, &Release),
    crds: &[String],
) -> Outcome<Vec<Resolved>> {
    let definitions = parse(&crds.iter().map(|crd| format!("---\n{crd}\n")).collect::<String>())?;
    let definitions: Vec<Value> = definitions.into_iter().map(|one| one.object).collect();
    let second = parse(&rendered.1.manifest)?;
    let second: BTreeMap<_, _> =
        second.iter().map(|one| (one.reference.key(), &one.object)).collect();
    let (mut resolved, mut errors) = (vec![], vec![]);
    for mut desired in parse(&rendered.0.manifest)? {
        let other = second.get(&desired.reference.key());
        let random = match other {
            Some(other) => fields::differences(&desired.object, other).into_iter().collect(),
            None => vec!["metadata.name".to_owned()],
        };
        let kind = kinds.get(&desired.reference).cloned();
        let defined =
            || definitions.iter().find_map(|one| kinds::defined_by(one, &desired.reference));
        let is_namespaced = kind.as_ref().map(|kind| kind.is_namespaced).or_else(defined);
        let Some(is_namespaced) = is_namespaced else {
            errors.push(kinds::unknown(&desired));
            continue;
        };
        place(&mut desired, release, is_namespaced);
        let Desired { reference, object, place } = desired;
        if inventory::is_reserved(&reference) {
            errors.push(format!(
                "{place}: {reference} is in the namespace {}, where Stead stores its inventories; \
                 use another namespace",
                inventory::NAMESPACE
            ));
            continue;
        }
        resolved.push(Resolved { reference, object, kind, random });
    }
    if !errors.is_empty() {
        return Err(Failure::refused(listed("cannot plan the chart", &errors)));
    }
    manifest::check_unique(resolved.iter().map(|one| (&one.reference, "the chart")))?;
    Ok(resolved)
}

/// Adds what Helm adds to each object: the default namespace, and the labels and annotations of the
/// release.
fn place(desired: &mut Desired, release: &ReleaseRef, is_namespaced: bool) {
    set_namespace(desired, release, is_namespaced);
    for (part, key, value) in [
        ("labels", MANAGED_BY, "Helm"),
        ("annotations", RELEASE_NAME, &release.name),
        ("annotations", RELEASE_NAMESPACE, &release.namespace),
    ] {
        let part = &mut desired.object["metadata"][part];
        if !part.is_object() {
            *part = json!({});
        }
        part[key] = json!(value);
    }
}

/// Sets the namespace of an object: its own one, or that of the release.
pub fn set_namespace(desired: &mut Desired, release: &ReleaseRef, is_namespaced: bool) {
    let namespace = desired.reference.namespace.take().filter(|_| is_namespaced);
    let namespace = namespace.or_else(|| is_namespaced.then(|| release.namespace.clone()));
    let object = &mut desired.object;
    match &namespace {
        Some(namespace) => object["metadata"]["namespace"] = json!(namespace),
        None => {
            let metadata = object["metadata"].as_object_mut();
            metadata.and_then(|metadata| metadata.remove("namespace"));
        }
    }
    desired.reference.namespace = namespace;
}

/// Returns whether a reference of a stored manifest, which can omit the namespace of the release,
/// names an object.
pub fn names(stored: &ObjectRef, object: &ObjectRef, release: &ReleaseRef) -> bool {
    let namespace = stored.namespace.as_deref().unwrap_or(&release.namespace);
    (stored.group(), &stored.kind, &stored.name) == (object.group(), &object.kind, &object.name)
        && object.namespace.as_deref().is_none_or(|of| of == namespace)
}

/// Identity of a hook with its object, for comparisons.
pub fn hook_objects(hooks: &[Hook]) -> Outcome<Vec<(ObjectRef, Value)>> {
    let mut objects = vec![];
    for hook in hooks {
        objects.extend(parse(&hook.manifest)?.into_iter().map(|one| (one.reference, one.object)));
    }
    objects.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(objects)
}

/// Returns whether two lists of hooks differ in fields that do not change at every render.
pub fn hooks_differ(before: &[Hook], after: (&[Hook], &[Hook])) -> Outcome<bool> {
    let (before, first) = (hook_objects(before)?, hook_objects(after.0)?);
    let second = hook_objects(after.1)?;
    if before.len() != first.len() {
        return Ok(true);
    }
    Ok(before.iter().zip(&first).enumerate().any(|(at, (before, after))| {
        let random = second.get(at).filter(|second| second.0 == after.0);
        let random = random.map(|second| fields::differences(&after.1, &second.1));
        let random: Vec<String> = random.unwrap_or_default().into_iter().collect();
        before.0 != after.0
            || fields::differences(&before.1, &after.1).iter().any(|path| !is_random(path, &random))
    }))
}

/// Returns whether a path changes at every render.
pub fn is_random(path: &str, random: &[String]) -> bool {
    let is_below = |outer: &str, inner: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    random.iter().any(|one| is_below(one, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::StorageDriver;

    fn release() -> ReleaseRef {
        let driver = StorageDriver::Secret;
        ReleaseRef { namespace: "shop".into(), name: "web".into(), driver }
    }

    #[test]
    fn objects_get_namespace_and_marks_of_their_release() {
        let text = "---\n# Source: web/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\n\
                    metadata: {name: a, labels: {x: \"1\"}}\ndata: {on: yes}\n";
        let mut desired = parse(text).unwrap().remove(0);
        assert_eq!(desired.object["data"]["on"], Value::Bool(true), "as Helm reads it");
        assert!(desired.place.starts_with("web/templates/a.yaml:"));
        place(&mut desired, &release(), true);
        assert_eq!(desired.reference.to_string(), "ConfigMap shop/a");
        let metadata = &desired.object["metadata"];
        assert_eq!(metadata["namespace"], "shop");
        assert_eq!(metadata["labels"], json!({ "x": "1", MANAGED_BY: "Helm" }));
        assert_eq!(metadata["annotations"][RELEASE_NAME], "web");
        place(&mut desired, &release(), false);
        assert_eq!(desired.object["metadata"].get("namespace"), None);
    }

    #[test]
    fn hooks_differ_in_what_does_not_change_at_every_render() {
        let hook = |data: &str| {
            let manifest =
                format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {data}\n");
            let (path, events) = (String::new(), vec![]);
            [Hook { path, manifest, events, weight: 0, delete_policies: None }]
        };
        let differ = |before: &str, first: &str, second: &str| {
            hooks_differ(&hook(before), (&hook(first), &hook(second))).unwrap()
        };
        assert!(!differ("{a: x}", "{a: x}", "{a: x}"));
        assert!(differ("{a: x}", "{a: z}", "{a: z}"));
        assert!(!differ("{a: x}", "{a: y}", "{a: z}"), "changes at every render");
        assert!(hooks_differ(&[], (&hook("{}"), &hook("{}"))).unwrap());
    }

    #[test]
    fn children_of_random_paths_are_random() {
        let random = ["data[tls.crt]".to_owned(), "spec.template".to_owned()];
        for path in ["data[tls.crt]", "spec.template.metadata.annotations[a]"] {
            assert!(is_random(path, &random), "{path}");
        }
        for path in ["data[tls.crt2]", "data", "spec.templates", "metadata"] {
            assert!(!is_random(path, &random), "{path}");
        }
    }
}
