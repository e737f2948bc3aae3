//! Owners of an object and of its fields, from `metadata.managedFields` and labels.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::fields;

/// Prefix of the field managers of Stead components.
const STEAD: &str = "stead:";

/// Returns the fields that a manager applied, in the format `FieldsV1`. `None` if the manager
/// never applied the object.
pub fn applied_fields<'v>(object: &'v Value, manager: &str) -> Option<&'v Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let mut applied = entries.iter().filter(|entry| entry["operation"] == "Apply");
    applied.find(|entry| entry["manager"] == manager).map(|entry| &entry["fieldsV1"])
}

/// Owner whose objects a component must not take over.
#[derive(Debug, PartialEq)]
pub enum ForeignOwner {
    HelmRelease(String),
    ApplySet(String),
    SteadComponent(String),
}

impl std::fmt::Display for ForeignOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ForeignOwner::HelmRelease(name) => write!(f, "the Helm release {name}"),
            ForeignOwner::ApplySet(id) => write!(f, "the ApplySet {id}"),
            ForeignOwner::SteadComponent(manager) => write!(f, "the Stead component {manager}"),
        }
    }
}

/// Returns the owner of an object, if it is not `manager`.
pub fn foreign_owner(object: &Value, manager: &str) -> Option<ForeignOwner> {
    let (labels, annotations) = (&object["metadata"]["labels"], &object["metadata"]["annotations"]);
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if let Some(release) = text(&annotations["meta.helm.sh/release-name"]) {
        let namespace = text(&annotations["meta.helm.sh/release-namespace"]);
        let namespace = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        return Some(ForeignOwner::HelmRelease(format!("{namespace}{release}")));
    }
    if let Some(set) = text(&labels["applyset.kubernetes.io/part-of"]) {
        return Some(ForeignOwner::ApplySet(set));
    }
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let applied = entries.filter(|entry| entry["operation"] == "Apply");
    let mut managers = applied.filter_map(|entry| entry["manager"].as_str());
    let other = managers.find(|other| other.starts_with(STEAD) && *other != manager)?;
    Some(ForeignOwner::SteadComponent(other[STEAD.len()..].to_owned()))
}

/// Returns the part of an object that `owned` lists. An item of a list with keys becomes a member
/// with its key as the name, so that the order of items does not matter.
pub fn project(owned: &Value, value: &Value) -> Value {
    let Some(children) = owned.as_object().filter(|children| !children.is_empty()) else {
        return value.clone();
    };
    let mut projected = Map::new();
    for (name, child) in children {
        if let Some(field) = name.strip_prefix("f:") {
            if let Some(inner) = value.get(field) {
                projected.insert(field.to_owned(), project(child, inner));
            }
        } else if let Some(key) = name.strip_prefix("k:") {
            let keys: Value = serde_json::from_str(key).unwrap_or_default();
            let items = value.as_array().into_iter().flatten();
            let mut matching = items.filter(|item| has_keys(item, &keys));
            if let Some(item) = matching.next() {
                projected.insert(fields::item_name(&keys), project(child, item));
            }
        } else if let Some(text) = name.strip_prefix("v:") {
            let item: Value = serde_json::from_str(text).unwrap_or_default();
            if value.as_array().is_some_and(|items| items.contains(&item)) {
                projected.insert(format!("[{text}]"), Value::Bool(true));
            }
        }
        // `.` stands for the field itself.
    }
    Value::Object(projected)
}

/// Returns the paths of the manager's fields that an apply changes, sets or removes. Fields of
/// other managers, defaults and chosen values do not count.
pub fn changes(live: &Value, after: &Value, manager: &str, chosen: &[String]) -> BTreeSet<String> {
    let owned = [live, after].map(|object| applied_fields(object, manager));
    let (live, after) = (fields::normalize(live), fields::normalize(after));
    let mut found = BTreeSet::new();
    for owned in owned.into_iter().flatten().filter(|owned| has_fields(owned)) {
        found.extend(fields::differences(&project(owned, &live), &project(owned, &after)));
    }
    found.retain(|path| !fields::is_below(path, chosen));
    found
}

fn has_fields(owned: &Value) -> bool {
    owned.as_object().is_some_and(|fields| !fields.is_empty())
}

fn has_keys(item: &Value, keys: &Value) -> bool {
    let keys = keys.as_object().into_iter().flatten();
    // A key with a default value can be absent, as in `protocol: TCP`.
    keys.into_iter().all(|(name, value)| item.get(name).is_none_or(|own| own == value))
}

/// Field managers of a user of kubectl without server-side apply. An adoption can release
/// their fields.
const KUBECTL: [&str; 8] = [
    "kubectl-annotate",
    "kubectl-client-side-apply",
    "kubectl-create",
    "kubectl-edit",
    "kubectl-label",
    "kubectl-patch",
    "kubectl-replace",
    "kubectl-set",
];

/// Returns whether an adoption can resolve all conflicts.
pub fn are_of_kubectl(conflicts: &[Conflict]) -> bool {
    conflicts.iter().all(|conflict| KUBECTL.contains(&conflict.manager.as_str()))
}

/// Managers and fields of an object after the release of fields.
#[derive(Debug, Default, PartialEq)]
pub struct Release {
    /// Value of `metadata.managedFields`.
    pub managed_fields: Vec<Value>,
    /// Managers of kubectl that lose fields.
    pub managers: BTreeSet<String>,
}

/// Moves the fields that `manager` applies in `after` from the managers of kubectl to `manager`.
/// Their other fields remain theirs.
pub fn release(live: &Value, after: &Value, manager: &str) -> Release {
    let mut release = Release::default();
    let entries = |object: &Value| object["metadata"]["managedFields"].as_array().cloned();
    let is_own = |entry: &Value| entry["operation"] == "Apply" && entry["manager"] == manager;
    let after = entries(after).unwrap_or_default();
    let Some(own) = after.iter().find(|entry| is_own(entry)) else { return release };
    for mut entry in entries(live).unwrap_or_default().into_iter().filter(|entry| !is_own(entry)) {
        let name = entry["manager"].as_str().unwrap_or_default().to_owned();
        let is_released = entry["operation"] == "Update"
            && entry["subresource"].is_null()
            && KUBECTL.contains(&name.as_str());
        if is_released {
            let rest = without(&entry["fieldsV1"], &own["fieldsV1"]);
            if rest.as_ref() != Some(&entry["fieldsV1"]) {
                release.managers.insert(name);
            }
            let Some(rest) = rest else { continue };
            entry["fieldsV1"] = rest;
        }
        release.managed_fields.push(entry);
    }
    release.managed_fields.push(own.clone());
    release
}

/// Returns the fields that `removed` does not list, in the format `FieldsV1`. `None` if no field
/// remains.
fn without(fields: &Value, removed: &Value) -> Option<Value> {
    let (Some(fields), Some(removed)) = (fields.as_object(), removed.as_object()) else {
        return None;
    };
    let has_children = |fields: &Map<String, Value>| fields.keys().any(|name| name != ".");
    if !has_children(removed) {
        return None;
    }
    let rest: Map<String, Value> = fields
        .iter()
        .filter_map(|(name, child)| match removed.get(name) {
            None => Some((name.clone(), child.clone())),
            Some(removed) => Some((name.clone(), without(child, removed)?)),
        })
        .collect();
    has_children(&rest).then_some(Value::Object(rest))
}

/// Conflict of a field with another manager.
#[derive(Debug, PartialEq)]
pub struct Conflict {
    pub manager: String,
    pub field: String,
}

/// Returns the conflicts in the response to an apply.
pub fn conflicts(status: &kube::core::Status) -> Vec<Conflict> {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice());
    let causes = causes.unwrap_or_default().iter();
    let conflicts = causes.filter(|cause| cause.reason == "FieldManagerConflict");
    conflicts
        .map(|cause| {
            // The message is `conflict with "MANAGER" using v1`.
            let manager = cause.message.split('"').nth(1).unwrap_or(&cause.message).to_owned();
            Conflict { manager, field: cause.field.trim_start_matches('.').to_owned() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OWN: &str = "stead:ins_1/web";

    fn managed(manager: &str, operation: &str) -> Value {
        json!({ "metadata": { "managedFields": [
            { "manager": manager, "operation": operation, "fieldsV1": { "f:data": {} } },
        ] } })
    }

    #[test]
    fn only_an_apply_makes_an_object_the_components_own() {
        assert!(applied_fields(&managed(OWN, "Apply"), OWN).is_some());
        assert!(applied_fields(&managed(OWN, "Update"), OWN).is_none());
        assert!(applied_fields(&managed("kubectl", "Apply"), OWN).is_none());
        assert!(applied_fields(&json!({ "metadata": {} }), OWN).is_none());
    }

    #[test]
    fn foreign_owners_are_helm_applysets_and_other_components() {
        let helm = json!({ "metadata": { "annotations": {
            "meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "prod" } } });
        assert_eq!(foreign_owner(&helm, OWN).unwrap().to_string(), "the Helm release prod/shop");
        let set = json!({ "metadata": { "labels": { "applyset.kubernetes.io/part-of": "x" } } });
        assert_eq!(foreign_owner(&set, OWN).unwrap().to_string(), "the ApplySet x");
        let other = managed("stead:ins_2/web", "Apply");
        let owner = foreign_owner(&other, OWN).unwrap().to_string();
        assert_eq!(owner, "the Stead component ins_2/web");
        assert_eq!(foreign_owner(&managed(OWN, "Apply"), OWN), None);
        assert_eq!(foreign_owner(&managed("kubectl", "Apply"), OWN), None);
    }

    #[test]
    fn projection_has_only_owned_fields() {
        let owned = json!({ "f:spec": {
            "f:replicas": {},
            "f:containers": { "k:{\"name\":\"web\"}": { ".": {}, "f:name": {}, "f:image": {} } },
            "f:finalizers": { "v:\"a\"": {} },
        } });
        let object = |items: Value| {
            json!({ "spec": { "replicas": 2, "paused": true, "containers": items,
                              "finalizers": ["b", "a"] } })
        };
        let web = json!({ "name": "web", "image": "web:1", "tty": true });
        let side = json!({ "name": "side", "image": "side:1" });
        let first = project(&owned, &object(json!([web, side])));
        assert_eq!(first, project(&owned, &object(json!([side, web]))));
        assert_eq!(
            first,
            json!({ "spec": { "replicas": 2, "finalizers": { "[\"a\"]": true },
                              "containers": { "[name=web]": { "name": "web", "image": "web:1" } } } })
        );
    }

    #[test]
    fn release_moves_only_the_fields_that_the_component_applies() {
        let entry = |manager: &str, operation: &str, fields: Value| json!({ "manager": manager, "operation": operation, "fieldsV1": fields });
        let object = |entries: Value| json!({ "metadata": { "managedFields": entries } });
        let data = |keys: &[&str]| {
            let keys = keys.iter().map(|key| (format!("f:{key}"), json!({})));
            json!({ "f:data": Value::Object(keys.collect()) })
        };
        let own = entry(OWN, "Apply", data(&["key"]));
        let operator = entry("operator", "Update", data(&["key"]));
        let live = object(json!([
            entry("kubectl-create", "Update", data(&["key", "other"])),
            entry("kubectl-edit", "Update", data(&["key"])),
            operator,
        ]));
        let released = release(&live, &object(json!([own])), OWN);
        let create = entry("kubectl-create", "Update", data(&["other"]));
        assert_eq!(released.managed_fields, [create, operator, own]);
        assert!(released.managers.iter().eq(["kubectl-create", "kubectl-edit"]));
        let conflict = |manager: &str| Conflict { manager: manager.into(), field: "data".into() };
        assert!(are_of_kubectl(&[conflict("kubectl-edit")]));
        // `kubectl apply --server-side` and controllers keep their fields.
        assert!(!are_of_kubectl(&[conflict("kubectl-edit"), conflict("kubectl")]));
    }

    #[test]
    fn only_own_fields_are_changes() {
        let object = |fields: Value, replicas: u32, image: &str| {
            json!({ "metadata": { "managedFields": [
                { "manager": OWN, "operation": "Apply", "fieldsV1": { "f:spec": fields } } ] },
                "spec": { "replicas": replicas, "image": image } })
        };
        let image = || json!({ "f:image": {} });
        let found = |live: &Value, after: &Value, chosen: &[String]| {
            changes(live, after, OWN, chosen).into_iter().collect::<Vec<_>>()
        };
        // An autoscaler changed the number of replicas, which the manifest does not set.
        let live = object(image(), 3, "web:1");
        assert!(found(&live, &object(image(), 5, "web:1"), &[]).is_empty());
        assert_eq!(found(&live, &object(image(), 5, "web:2"), &[]), ["spec.image"]);
        let chosen = ["spec.image".to_owned()];
        assert!(found(&live, &object(image(), 5, "web:2"), &chosen).is_empty());
        // The manifest no longer sets a field.
        let both = json!({ "f:image": {}, "f:replicas": {} });
        let removed = found(&object(both, 3, "web:1"), &object(image(), 1, "web:1"), &[]);
        assert_eq!(removed, ["spec.replicas"]);
    }

    #[test]
    fn conflicts_name_manager_and_field() {
        let status: kube::core::Status = serde_json::from_value(json!({
            "code": 409, "details": { "causes": [{
                "reason": "FieldManagerConflict", "field": ".spec.replicas",
                "message": "conflict with \"hpa\" with subresource \"scale\" using apps/v1",
            }] },
        }))
        .unwrap();
        let expected = Conflict { manager: "hpa".into(), field: "spec.replicas".into() };
        assert_eq!(conflicts(&status), [expected]);
    }
}
