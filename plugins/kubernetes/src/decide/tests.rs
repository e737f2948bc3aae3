//! Decisions about desired objects and objects of the inventory.

use serde_json::json;

use super::*;

const OWN: &str = "stead:ins_1/web";

fn object(group: &str, kind: &str) -> ObjectRef {
    let api_version = if group.is_empty() { "v1".into() } else { format!("{group}/v1") };
    ObjectRef { api_version, kind: kind.into(), namespace: Some("shop".into()), name: "a".into() }
}

fn live(manager: &str, replicas: u64) -> Value {
    json!({
        "metadata": { "name": "a", "uid": "u1", "managedFields": [{ "manager": manager,
            "operation": "Apply", "fieldsV1": { "f:spec": { "f:replicas": {} } } }] },
        "spec": { "replicas": replicas },
    })
}

fn decided(
    kind: &ObjectRef,
    live: Option<&Value>,
    dry_run: DryRun,
    adopt: bool,
) -> Result<Decision, String> {
    let (manager, is_listed, take_ownership) = (OWN, false, adopt);
    let desired = &json!({});
    let (object, dry_run, chosen) = (kind, &dry_run, &[]);
    decide(&Candidate {
        object,
        desired,
        live,
        dry_run,
        chosen,
        manager,
        is_listed,
        take_ownership,
    })
}

#[test]
fn absent_object_is_created() {
    let web = object("apps", "Deployment");
    let created = decided(&web, None, DryRun::Applied(live(OWN, 1)), false);
    assert_eq!(created, Ok(decision(Change::Create, vec![])));
    let unknown = decided(&web, None, DryRun::Unknown, false).unwrap();
    assert_eq!(unknown.attributes, [KNOWN_AFTER_APPLY]);
}

#[test]
fn own_object_is_updated_only_if_it_differs() {
    let web = object("apps", "Deployment");
    let now = live(OWN, 1);
    let same = decided(&web, Some(&now), DryRun::Applied(live(OWN, 1)), false).unwrap();
    assert_eq!(same.change, Change::None);
    let other = decided(&web, Some(&now), DryRun::Applied(live(OWN, 2)), false).unwrap();
    assert_eq!(other, decision(Change::Update, vec!["spec.replicas".into()]));
    let mut released = live(OWN, 1);
    released["metadata"]["managedFields"][0]["fieldsV1"] = json!({});
    let released = decided(&web, Some(&now), DryRun::Applied(released), false).unwrap();
    assert_eq!(released, decision(Change::Update, vec![OWNERSHIP.into()]));
}

#[test]
fn existing_object_is_adopted_only_on_request() {
    let web = object("apps", "Deployment");
    let now = live("kubectl", 1);
    let refused = decided(&web, Some(&now), DryRun::Applied(live(OWN, 1)), false).unwrap_err();
    assert!(refused.contains("take_ownership"), "{refused}");
    let adopted = decided(&web, Some(&now), DryRun::Applied(live(OWN, 2)), true).unwrap();
    assert_eq!(adopted, decision(Change::Adopt, vec!["spec.replicas".into()]));
}

#[test]
fn object_without_own_fields_is_the_components_if_its_inventory_lists_it() {
    let bare = json!({ "metadata": { "name": "shop", "uid": "u1" } });
    let dry_run = DryRun::Applied(bare.clone());
    let (object, live, dry_run) = (&object("", "Namespace"), Some(&bare), &dry_run);
    let (manager, take_ownership, chosen, desired) = (OWN, false, &[], &json!({}));
    let of = |is_listed| {
        decide(&Candidate {
            object,
            desired,
            live,
            dry_run,
            chosen,
            manager,
            is_listed,
            take_ownership,
        })
    };
    assert_eq!(of(true).unwrap().change, Change::None);
    assert!(of(false).is_err());
}

#[test]
fn object_of_another_component_is_refused_even_with_take_ownership() {
    let now = live("stead:ins_2/web", 1);
    let dry_run = DryRun::Applied(live(OWN, 1));
    let refused = decided(&object("apps", "Deployment"), Some(&now), dry_run, true);
    assert!(refused.unwrap_err().contains("belongs to the Stead component ins_2/web"));
}

#[test]
fn conflict_blocks_and_names_manager_and_field() {
    let conflict = Conflict { manager: "hpa".into(), field: "spec.replicas".into() };
    let now = live(OWN, 1);
    let web = object("apps", "Deployment");
    let refused = decided(&web, Some(&now), DryRun::Conflict(vec![conflict]), true);
    assert!(refused.unwrap_err().contains("spec.replicas (hpa)"));
}

#[test]
fn immutable_fields_replace_an_object_unless_it_is_protected() {
    let immutable = || DryRun::Immutable(vec!["spec.selector".into()]);
    let now = live(OWN, 1);
    let job = decided(&object("batch", "Job"), Some(&now), immutable(), false).unwrap();
    assert_eq!(job, decision(Change::Replace, vec!["spec.selector".into()]));
    for (group, kind) in PROTECTED {
        let refused = decided(&object(group, kind), Some(&now), immutable(), false);
        assert!(refused.unwrap_err().contains(&format!("a {kind} is never replaced")));
    }
    let foreign = live("kubectl", 1);
    assert!(decided(&object("batch", "Job"), Some(&foreign), immutable(), true).is_err());
    let mut kept = live(OWN, 1);
    kept["metadata"]["annotations"] = json!({ "helm.sh/resource-policy": "keep" });
    assert!(decided(&object("batch", "Job"), Some(&kept), immutable(), false).is_err());
}

#[test]
fn manifest_that_adds_keep_does_not_replace_the_object() {
    let (object, live) = (&object("batch", "Job"), Some(&live(OWN, 1)));
    let dry_run = &DryRun::Immutable(vec!["spec.template".into()]);
    let desired = &json!({ "metadata": { "annotations": { "helm.sh/resource-policy": "keep" } } });
    let (manager, is_listed, take_ownership, chosen) = (OWN, true, false, &[]);
    let decided = decide(&Candidate {
        object,
        desired,
        live,
        dry_run,
        chosen,
        manager,
        is_listed,
        take_ownership,
    });
    assert!(decided.unwrap_err().contains("keep is never replaced"));
}

#[test]
fn fields_of_others_and_chosen_values_are_no_change() {
    let web = object("apps", "Deployment");
    let now = live(OWN, 1);
    let mut stamped = live(OWN, 1);
    stamped["metadata"]["annotations"] = json!({ "injected-at": "now" });
    let same = decided(&web, Some(&now), DryRun::Applied(stamped), false).unwrap();
    assert_eq!(same.change, Change::None);
    let (object, live, dry_run) = (&web, Some(&now), &DryRun::Applied(live(OWN, 2)));
    let (manager, is_listed, take_ownership, desired) = (OWN, false, false, &json!({}));
    let chosen = &["spec.replicas".to_owned()];
    let decided = decide(&Candidate {
        object,
        desired,
        live,
        dry_run,
        chosen,
        manager,
        is_listed,
        take_ownership,
    });
    assert_eq!(decided.unwrap().change, Change::None);
}

#[test]
fn failed_job_is_replaced_unless_it_is_kept() {
    let job = object("batch", "Job");
    let mut failed = live(OWN, 1);
    failed["status"] = json!({ "conditions": [{ "type": "Failed", "status": "True" }] });
    let of = |live: &Value| decided(&job, Some(live), DryRun::Applied(live.clone()), false);
    assert_eq!(of(&failed), Ok(decision(Change::Replace, vec![FAILED.into()])));
    failed["metadata"]["annotations"] = json!({ "helm.sh/resource-policy": "keep" });
    assert_eq!(of(&failed).unwrap().change, Change::None);
    failed["status"]["conditions"][0]["status"] = json!("False");
    assert_eq!(of(&failed).unwrap().change, Change::None);
}

#[test]
fn effect_stops_at_another_object_and_at_another_owner() {
    let job = object("batch", "Job");
    let own = live(OWN, 1);
    let reason = |change, uid, live: Option<&Value>| reason_to_stop(change, uid, live, OWN, &job);
    for (change, uid, live) in [
        (Change::Create, None, None),
        (Change::Update, Some("u1"), Some(&own)),
        (Change::Replace, Some("u1"), Some(&own)),
        (Change::None, Some("u1"), Some(&own)),
    ] {
        assert_eq!(reason(change, uid, live), None);
    }
    for (change, uid, live, part) in [
        (Change::Create, None, Some(&own), "was created after the plan"),
        (Change::Update, Some("u1"), None, "was deleted after the plan"),
        (Change::Replace, Some("u0"), Some(&own), "created again"),
    ] {
        let reason = reason(change, uid, live).unwrap_or_default();
        assert!(reason.contains(part), "{reason}");
    }
    let mut moved = own.clone();
    moved["metadata"]["annotations"] = json!({ "meta.helm.sh/release-name": "shop" });
    assert!(reason(Change::Update, Some("u1"), Some(&moved)).unwrap().contains("release shop"));
    let mut kept = own.clone();
    kept["metadata"]["annotations"] = json!({ "helm.sh/resource-policy": "keep" });
    assert!(reason(Change::Replace, Some("u1"), Some(&kept)).unwrap().contains("never replaced"));
    assert_eq!(reason(Change::Update, Some("u1"), Some(&kept)), None);
}

#[test]
fn object_in_deletion_blocks_with_its_finalizers() {
    let mut now = live(OWN, 1);
    now["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    now["metadata"]["finalizers"] = json!(["example.dev/hold", "foregroundDeletion"]);
    let dry_run = DryRun::Applied(live(OWN, 1));
    let refused = decided(&object("", "ConfigMap"), Some(&now), dry_run, false).unwrap_err();
    assert!(refused.contains("(finalizers: example.dev/hold)"), "{refused}");
}

fn removed(kind: &ObjectRef, live: Option<&Value>, purpose: Purpose) -> Removal {
    let (uid, manager, content) = (Some("u1"), OWN, None);
    remove(&Obsolete { object: kind, uid, live, manager, purpose, content })
}

#[test]
fn prune_keeps_protected_and_foreign_objects() {
    let now = live(OWN, 1);
    assert_eq!(removed(&object("", "ConfigMap"), Some(&now), Purpose::Prune), Removal::Delete);
    assert_eq!(removed(&object("", "ConfigMap"), None, Purpose::Prune), Removal::Gone);
    for (group, kind) in PROTECTED {
        let kept = removed(&object(group, kind), Some(&now), Purpose::Prune);
        assert_eq!(kept, Removal::Forget(format!("a {kind} is never pruned")));
        let destroyed = removed(&object(group, kind), Some(&now), Purpose::Destroy);
        assert_eq!(destroyed, Removal::Delete);
    }
    let mut other = live("kubectl", 1);
    other["metadata"]["uid"] = json!("u2");
    let kept = removed(&object("", "ConfigMap"), Some(&other), Purpose::Destroy);
    assert_eq!(kept, Removal::Forget("another object now has its name".into()));
    let mut moved = live("stead:ins_1/api", 1);
    moved["metadata"]["uid"] = json!("u1");
    let kept = removed(&object("", "ConfigMap"), Some(&moved), Purpose::Prune);
    assert!(matches!(kept, Removal::Forget(reason) if reason.contains("ins_1/api")));
}

#[test]
fn destroy_keeps_what_the_manifest_keeps_and_what_contains_others() {
    let mut now = live(OWN, 1);
    let (uid, manager, purpose) = (Some("u1"), OWN, Purpose::Destroy);
    let namespace = object("", "Namespace");
    let content = Some("it contains Secret shop/other");
    let live = Some(&now);
    let kept = remove(&Obsolete { object: &namespace, uid, live, manager, purpose, content });
    assert_eq!(kept, Removal::Forget("it contains Secret shop/other".into()));
    now["metadata"]["annotations"] = json!({ "helm.sh/resource-policy": "keep" });
    let kept = removed(&object("", "ConfigMap"), Some(&now), Purpose::Destroy);
    assert!(matches!(kept, Removal::Forget(reason) if reason.contains("never deleted")));
}
