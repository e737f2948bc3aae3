use serde_json::json;
use stead_plugin_kubernetes::managed::Conflict;

use super::*;
use crate::settings::StorageDriver;

fn release() -> ReleaseRef {
    let driver = StorageDriver::Secret;
    ReleaseRef { namespace: "shop".into(), name: "web".into(), driver }
}

fn object(kind: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: Some("shop".into()),
        name: "a".into(),
    }
}

/// Live object of a release, with further metadata.
fn live(name: &str, data: Value) -> Value {
    json!({ "metadata": { "annotations": { RELEASE_NAME: name, RELEASE_NAMESPACE: "shop" } },
            "data": data })
}

fn decided(
    live: Option<&Value>,
    dry_run: &DryRun,
    random: &[&str],
    take_ownership: bool,
) -> Result<Decision, String> {
    let random: Vec<String> = random.iter().map(|path| (*path).to_owned()).collect();
    let (object, release) = (object("ConfigMap"), release());
    let (object, release, random) = (&object, &release, random.as_slice());
    decide(&Candidate { object, live, dry_run, release, random, take_ownership })
}

#[test]
fn only_a_change_of_a_stable_field_is_a_change() {
    let before = live("web", json!({ "a": "1", "key": "x" }));
    let after = DryRun::Applied(live("web", json!({ "a": "1", "key": "y" })));
    let stable = decided(Some(&before), &after, &[], false).unwrap();
    assert_eq!((stable.change, stable.attributes), (Change::Update, vec!["data.key".into()]));
    let random = decided(Some(&before), &after, &["data.key"], false).unwrap();
    assert_eq!(random.change, Change::None);
    assert_eq!(random.attributes, ["data.key (changes at every render)"]);
    let created = decided(None, &after, &["data.key"], false).unwrap();
    assert_eq!(created.change, Change::Create);
}

#[test]
fn objects_of_others_block_the_plan() {
    let after = DryRun::Applied(live("web", json!({})));
    let other = live("api", json!({}));
    let error = decided(Some(&other), &after, &[], true).unwrap_err();
    assert!(error.contains("belongs to the Helm release shop/api"), "{error}");
    let stead = json!({ "metadata": { "managedFields": [
        { "manager": "stead:ins_1/web", "operation": "Apply", "fieldsV1": {} }] } });
    let error = decided(Some(&stead), &after, &[], true).unwrap_err();
    assert!(error.contains("belongs to the Stead component ins_1/web"), "{error}");
    let unowned = json!({ "metadata": {} });
    let error = decided(Some(&unowned), &after, &[], false).unwrap_err();
    assert!(error.contains("take_ownership = true"), "{error}");
    let adopted = decided(Some(&unowned), &after, &[], true).unwrap();
    assert_eq!(adopted.change, Change::Adopt);
    let leaving = json!({ "metadata": { "deletionTimestamp": "x" } });
    assert!(decided(Some(&leaving), &after, &[], true).unwrap_err().contains("being deleted"));
}

#[test]
fn conflicts_and_immutable_fields_block_the_plan() {
    let own = live("web", json!({}));
    let conflict = Conflict { manager: "hpa".into(), field: "spec.replicas".into() };
    let error = decided(Some(&own), &DryRun::Conflict(vec![conflict]), &[], false).unwrap_err();
    assert!(error.contains("spec.replicas (hpa)"), "{error}");
    let immutable = DryRun::Immutable(vec!["spec.selector".into()]);
    let error = decided(Some(&own), &immutable, &[], false).unwrap_err();
    assert!(error.contains("(spec.selector)") && error.contains("manually"), "{error}");
}

#[test]
fn an_upgrade_never_deletes_protected_objects() {
    let own = live("web", json!({}));
    let pruned = |kind: &str, live: &Value| prune(&object(kind), Some(live), &release());
    assert_eq!(pruned("ConfigMap", &own), Ok(Pruned::Removal(Removal::Delete)));
    let claim = pruned("PersistentVolumeClaim", &own);
    assert_eq!(claim, Ok(Pruned::Keep("a PersistentVolumeClaim is never pruned".into())));
    let mut kept = own.clone();
    kept["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    assert!(matches!(pruned("ConfigMap", &kept), Ok(Pruned::Removal(Removal::Forget(_)))));
    let other = live("api", json!({}));
    assert!(pruned("ConfigMap", &other).unwrap_err().contains("Helm would delete it"));
    let unowned = json!({ "metadata": {} });
    assert!(matches!(pruned("ConfigMap", &unowned), Ok(Pruned::Keep(_))));
    let gone = prune(&object("ConfigMap"), None, &release());
    assert_eq!(gone, Ok(Pruned::Removal(Removal::Gone)));
}

#[test]
fn an_uninstall_keeps_what_the_manifest_keeps() {
    let own = live("web", json!({}));
    let of =
        |live: Option<&Value>, listed| uninstall(&object("ConfigMap"), live, &release(), listed);
    assert_eq!(of(Some(&own), Listed::Deleted), Ok(Removal::Delete));
    assert!(matches!(of(Some(&own), Listed::Kept), Ok(Removal::Forget(_))));
    assert_eq!(of(None, Listed::Deleted), Ok(Removal::Gone));
    let mut kept = own.clone();
    kept["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    assert!(matches!(of(Some(&kept), Listed::No), Ok(Removal::Forget(_))));
}

#[test]
fn an_uninstall_takes_no_object_of_others() {
    let of = |live: Value, listed| uninstall(&object("ConfigMap"), Some(&live), &release(), listed);
    let (other, unowned) = (live("api", json!({})), json!({ "metadata": {} }));
    for (live, part) in [(other, "the Helm release shop/api"), (unowned, "no marks of HelmRelease")]
    {
        let error = of(live.clone(), Listed::Deleted).unwrap_err();
        assert!(error.contains(part) && error.contains("Helm would delete it"), "{error}");
        // What Helm does not know stays.
        let Ok(Removal::Forget(reason)) = of(live, Listed::No) else { panic!("deleted") };
        assert!(reason.contains(part), "{reason}");
    }
}
