//! Annotation of objects that Helm must not delete.

use kube::{
    api::{Patch, PatchParams},
    core::Request,
};
use serde_json::json;
use stead_plugin_kubernetes::{
    cluster::Cluster, failure::Outcome, kinds::Kind, object::ObjectRef, report,
};

/// Adds the annotation that Helm respects to a live object.
pub async fn mark(cluster: &Cluster, kind: &Kind, reference: &ObjectRef) -> Outcome<()> {
    let patch = json!({ "metadata": { "annotations": { "helm.sh/resource-policy": "keep" } } });
    let parameters =
        PatchParams { field_manager: Some(cluster.manager.clone()), ..PatchParams::default() };
    let request = Request::new(kind.path(reference.namespace.as_deref()));
    let request = request.patch(&reference.name, &parameters, &Patch::Merge(&patch));
    match cluster.send(request).await {
        Ok(_) => report::log(format!("marked {reference} as kept")),
        Err(error) if error.has_code(404) => {}
        Err(error) => return Err(error.during(&format!("mark {reference} as kept"))),
    }
    Ok(())
}
