//! Order of an apply: namespaces, CRDs, and then the rest by wave and kind. A destroy uses the
//! reverse order.

use serde_json::Value;

use crate::object::ObjectRef;

/// Annotation with the wave of an object; the default is 0. Objects of a wave are ready before the
/// next wave starts.
pub const WAVE_ANNOTATION: &str = "stead.dev/wave";

/// Kinds in the order of their creation. Other kinds follow, and webhooks are last: they intercept
/// the creation of everything after them.
const KINDS: [&str; 36] = [
    "PriorityClass",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "Endpoints",
    "EndpointSlice",
    "RuntimeClass",
    "CSIDriver",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "VerticalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "Gateway",
    "HTTPRoute",
    "APIService",
];
const WEBHOOKS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Position of an object in the order. Objects with an equal rank have no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    phase: Phase,
    pub wave: i32,
    kind: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Namespaces,
    Definitions,
    Rest,
}

impl Rank {
    /// Returns whether all objects of this rank must be ready before one of `next` starts.
    pub fn is_barrier_before(&self, next: &Rank) -> bool {
        (self.phase, self.wave) != (next.phase, next.wave)
    }
}

/// Returns the rank of an object. A wave that is not a number counts as 0; see [`wave`].
pub fn rank(reference: &ObjectRef, object: &Value) -> Rank {
    let wave = wave(object).ok().flatten().unwrap_or_default();
    let (phase, wave) = match () {
        () if reference.is_namespace() => (Phase::Namespaces, 0),
        () if reference.is_crd() => (Phase::Definitions, 0),
        () => (Phase::Rest, wave),
    };
    Rank { phase, wave, kind: kind_rank(&reference.kind) }
}

/// Returns the rank of an object of an inventory, which has no annotations.
pub fn rank_of_kind(reference: &ObjectRef, wave: i32) -> Rank {
    Rank { wave, ..rank(reference, &Value::Null) }
}

fn kind_rank(kind: &str) -> usize {
    if WEBHOOKS.contains(&kind) {
        return KINDS.len() + 1;
    }
    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len())
}

/// Returns the wave of an object.
///
/// # Errors
/// Returns the value of an annotation that is not an integer.
pub fn wave(object: &Value) -> Result<Option<i32>, String> {
    match object["metadata"]["annotations"].get(WAVE_ANNOTATION) {
        None => Ok(None),
        Some(value) => {
            let wave = value.as_str().and_then(|text| text.parse().ok());
            wave.map(Some).ok_or_else(|| value.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(api_version: &str, kind: &str, wave: Option<&str>) -> Rank {
        let reference = ObjectRef {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: None,
            name: "a".into(),
        };
        let object = match wave {
            Some(wave) => json!({ "metadata": { "annotations": { WAVE_ANNOTATION: wave } } }),
            None => json!({}),
        };
        rank(&reference, &object)
    }

    #[test]
    fn namespaces_and_definitions_precede_waves_and_kinds() {
        let mut ranks = [
            of("v1", "Service", Some("1")),
            of("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", None),
            of("example.dev/v1", "Widget", None),
            of("apps/v1", "Deployment", None),
            of("v1", "ConfigMap", Some("-1")),
            of("v1", "ConfigMap", None),
            of("apiextensions.k8s.io/v1", "CustomResourceDefinition", Some("9")),
            of("v1", "Namespace", None),
        ];
        let expected = ranks;
        ranks.sort();
        let reversed: Vec<_> = ranks.into_iter().rev().collect();
        let order = [0, 1, 2, 3, 5, 4, 6, 7].map(|at: usize| expected[at]);
        assert_eq!(reversed, order);
    }

    #[test]
    fn waves_are_barriers_and_kinds_are_not() {
        let (config, web) = (of("v1", "ConfigMap", None), of("apps/v1", "Deployment", None));
        assert!(!config.is_barrier_before(&web));
        assert!(config.is_barrier_before(&of("v1", "ConfigMap", Some("1"))));
        assert!(of("v1", "Namespace", None).is_barrier_before(&config));
    }

    #[test]
    fn wave_must_be_a_number() {
        let object = json!({ "metadata": { "annotations": { WAVE_ANNOTATION: "soon" } } });
        assert_eq!(wave(&object), Err("\"soon\"".into()));
    }
}
