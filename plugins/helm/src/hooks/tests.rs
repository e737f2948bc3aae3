use serde_json::json;

use super::*;
use crate::settings::StorageDriver;

fn release() -> ReleaseRef {
    let driver = StorageDriver::Secret;
    ReleaseRef { namespace: "shop".into(), name: "web".into(), driver }
}

fn object(kind: &str) -> ObjectRef {
    let api_version =
        if kind == "CustomResourceDefinition" { "apiextensions.k8s.io/v1" } else { "v1" };
    ObjectRef {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: Some("shop".into()),
        name: "a".into(),
    }
}

fn decided(kind: &str, live: &Value, policy: &str, is_own: bool) -> Result<Effect, String> {
    let (reference, policies) = (&object(kind), &[policy.to_owned()]);
    Subject { reference, policies, release: &release(), is_own }.decide(live, true)
}

fn former() -> Value {
    json!({ "metadata": { "uid": "u1", "annotations": { ANNOTATION: "pre-install" } } })
}

#[test]
fn hook_replaces_only_the_object_of_a_former_run() {
    let of = |live: &Value, is_own| decided("Pod", live, BEFORE_CREATION, is_own);
    assert_eq!(of(&former(), true), Ok(Effect::Replace));
    assert!(of(&former(), false).unwrap_err().contains("this component did not create it"));
    let plain = json!({ "metadata": {} });
    assert!(of(&plain, true).unwrap_err().contains("it has no annotation helm.sh/hook"));
    for (metadata, owner) in [
        (json!({ "annotations": { (objects::RELEASE_NAME): "api" } }), "the Helm release api"),
        (json!({ "labels": { "applyset.kubernetes.io/part-of": "x" } }), "the ApplySet x"),
        (
            json!({ "managedFields": [{ "manager": "stead:ins_1/api", "operation": "Apply" }] }),
            "the Stead component ins_1/api",
        ),
    ] {
        let error = of(&json!({ "metadata": metadata }), true).unwrap_err();
        assert!(error.contains(&format!("it belongs to {owner}")), "{error}");
    }
    let own = json!({ "metadata": { "annotations": {
        (objects::RELEASE_NAME): "web", (objects::RELEASE_NAMESPACE): "shop" } } });
    assert_eq!(of(&own, false), Ok(Effect::Replace), "an object of the release becomes a hook");
}

#[test]
fn hook_never_deletes_a_protected_object() {
    for kind in ["PersistentVolumeClaim", "PersistentVolume", "Namespace"] {
        for policy in [BEFORE_CREATION, SUCCEEDED, "hook-failed"] {
            let error = decided(kind, &former(), policy, true).unwrap_err();
            assert!(error.contains(&format!("a {kind} is never deleted")), "{error}");
        }
    }
    let mut kept = former();
    kept["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    assert!(decided("Pod", &kept, BEFORE_CREATION, true).unwrap_err().contains("never deleted"));
    let definition = decided("CustomResourceDefinition", &former(), BEFORE_CREATION, true);
    assert_eq!(definition, Ok(Effect::Update), "Helm never deletes a definition");
}

#[test]
fn hook_without_a_deletion_before_it_is_applied_to_the_object() {
    assert_eq!(decided("Pod", &former(), SUCCEEDED, true), Ok(Effect::Update));
    let (reference, policies) = (&object("Pod"), &[SUCCEEDED.to_owned()]);
    let subject = Subject { reference, policies, release: &release(), is_own: true };
    assert!(subject.decide(&former(), false).unwrap_err().contains("add before-hook-creation"));
}

#[test]
fn another_object_than_in_the_plan_makes_it_stale() {
    let planned = |uid: Option<&str>| PlannedHook {
        reference: object("Pod"),
        policies: vec![BEFORE_CREATION.into()],
        effect: if uid.is_some() { Effect::Replace } else { Effect::Create },
        uid: uid.map(str::to_owned),
    };
    let stale = |uid, live: Option<&Value>| stale_reason(&planned(uid), live, &release(), true);
    assert_eq!(stale(None, None), None);
    assert_eq!(stale(Some("u1"), None), None, "it was removed");
    assert_eq!(stale(Some("u1"), Some(&former())), None);
    assert!(stale(None, Some(&former())).unwrap().contains("was created"));
    assert!(stale(Some("u0"), Some(&former())).unwrap().contains("was created"));
    let mut taken = former();
    taken["metadata"]["annotations"][objects::RELEASE_NAME] = json!("api");
    assert!(stale(Some("u1"), Some(&taken)).unwrap().contains("belongs to the Helm release api"));
}
