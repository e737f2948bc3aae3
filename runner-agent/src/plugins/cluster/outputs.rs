//! Outputs of a component that describe its cluster, from its Terraform state.

use std::collections::BTreeMap;

use schemas::cluster::ClusterOutput;
use serde_json::Value;
use zeroize::Zeroizing;

/// Outputs of one component. The sensitive ones are only in its state.
#[derive(Default)]
pub(super) struct ClusterOutputs {
    /// Text of the output `kubeconfig`: YAML or JSON.
    pub kubeconfig: Option<Zeroizing<String>>,
    /// Output `cluster`.
    pub cluster: Option<ClusterOutput>,
}

impl ClusterOutputs {
    /// Reads the outputs of a state. `None` if there are none: a destroyed component keeps an empty
    /// state.
    pub(super) fn of(mut outputs: BTreeMap<String, Value>) -> Option<Self> {
        if outputs.is_empty() {
            return None;
        }
        let mut take = |name: &str| outputs.remove(name);
        let kubeconfig = match take(super::OUTPUT) {
            Some(Value::String(text)) if !text.trim().is_empty() => Some(Zeroizing::new(text)),
            Some(object @ Value::Object(_)) => Some(Zeroizing::new(object.to_string())),
            Some(_) | None => None,
        };
        let cluster = take("cluster").and_then(|value| serde_json::from_value(value).ok());
        Some(ClusterOutputs { kubeconfig, cluster })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state;

    fn read(text: &str) -> Option<ClusterOutputs> {
        ClusterOutputs::of(state::outputs(Some(text.as_bytes())).unwrap())
    }

    #[test]
    fn outputs_are_read_also_if_they_are_sensitive() {
        let state = json!({"version": 4, "lineage": "a", "outputs": {
            "kubeconfig": {"value": "apiVersion: v1", "type": "string", "sensitive": true},
            "cluster": {"value": {"name": "n", "endpoint": "https://c", "tags": {"a": "b"}}},
        }});
        let outputs = read(&state.to_string()).unwrap();
        assert_eq!(outputs.kubeconfig.unwrap().as_str(), "apiVersion: v1");
        assert_eq!(outputs.cluster.unwrap().endpoint.as_deref(), Some("https://c"));
    }

    #[test]
    fn a_component_without_outputs_has_no_cluster() {
        assert!(ClusterOutputs::of(state::outputs(None).unwrap()).is_none());
        assert!(read(r#"{"version": 4, "outputs": {}}"#).is_none());
        let other = read(r#"{"outputs": {"region": {"value": "eu"}}}"#).unwrap();
        assert!(other.kubeconfig.is_none() && other.cluster.is_none());
        let empty = read(r#"{"outputs": {"kubeconfig": {"value": " "}, "cluster": {"value": 1}}}"#);
        let empty = empty.unwrap();
        assert!(empty.kubeconfig.is_none() && empty.cluster.is_none());
    }
}
