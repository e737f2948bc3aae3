//! Settings of the component types that Stead's Kubernetes plugins deploy.
use std::collections::BTreeMap;

use app_config::{
    Origin,
    model::{HelmChart, KubernetesManifest, OutputField},
};
use serde_json::{Map, Value, json};

use super::StepContext;

/// Longest name of a namespace.
const MAX_NAMESPACE: usize = 63;

impl StepContext {
    /// Renders the settings of a `kubernetes_manifest`: its texts instead of the names of their files.
    pub(super) fn kubernetes_manifest(
        &self,
        spec: &KubernetesManifest,
        deadline_ms: u64,
    ) -> Result<Value, String> {
        if spec.manifest.is_none() && spec.kustomize.is_none() {
            return Err("the manifest is a remote file that was not fetched; save it in the app \
                        directory and refer to it as ./file, or sync with --allow-remote"
                .to_owned());
        }
        let mut settings = json!({
            "take_ownership": spec.take_ownership,
            "ready_timeout_ms": ready_timeout(deadline_ms),
        });
        if let Some(namespace) = &spec.namespace {
            settings["namespace"] = json!(namespace_name(&self.text(namespace)?)?);
        }
        if let Some(manifest) = &spec.manifest {
            let Origin { file, key, .. } = &manifest.origin;
            let separator = if key.is_empty() { "" } else { ", " };
            settings["manifest"] = json!(self.text(manifest)?);
            settings["manifest_file"] = json!(format!("{file}{separator}{key}"));
        }
        if let Some(kustomize) = &spec.kustomize {
            let patches = Value::from(kustomize.patches.clone());
            settings["kustomize"] = json!({
                "path": kustomize.path,
                "patches": self.rendered(&patches)?,
                "enable_helm": kustomize.enable_helm,
                "files": self.texts(&kustomize.files)?,
            });
        }
        settings["outputs"] = self.output_fields(&spec.outputs)?;
        Ok(settings)
    }

    /// Renders the settings of a `helm_chart`. The build has used those of its repository.
    pub(super) fn helm_chart(&self, spec: &HelmChart, deadline_ms: u64) -> Result<Value, String> {
        let namespace = match &spec.namespace {
            Some(namespace) => self.text(namespace)?,
            None => self.install.to_string(),
        };
        let files = spec.values_files.iter().map(|text| {
            let Origin { file, key, .. } = &text.origin;
            let separator = if key.is_empty() { "" } else { ", " };
            Ok(json!({ "name": format!("{file}{separator}{key}"), "text": self.text(text)? }))
        });
        let mut settings = json!({
            "release": spec.chart_name,
            "namespace": namespace_name(&namespace)?,
            "values": self.texts(&spec.values)?,
            "values_files": files.collect::<Result<Vec<Value>, String>>()?,
            "take_ownership": spec.take_ownership,
            "ready_timeout_ms": ready_timeout(deadline_ms),
            "outputs": self.output_fields(&spec.outputs)?,
        });
        if let Some(driver) = &spec.storage_driver {
            settings["storage_driver"] = json!(self.text(driver)?);
        }
        Ok(settings)
    }

    fn output_fields(&self, outputs: &BTreeMap<String, OutputField>) -> Result<Value, String> {
        let mut fields = Map::new();
        for (name, output) in outputs {
            let mut field = json!({
                "kind": output.kind,
                "name": self.text(&output.name)?,
                "field": output.field,
            });
            if let Some(namespace) = &output.namespace {
                field["namespace"] = json!(namespace_name(&self.text(namespace)?)?);
            }
            fields.insert(name.clone(), field);
        }
        Ok(Value::Object(fields))
    }
}

/// Limit of all waits. The plugin names the objects that are not ready before the job's deadline
/// kills it.
fn ready_timeout(deadline_ms: u64) -> u64 {
    deadline_ms / 10 * 9
}

/// Returns the namespace for a rendered text: in lower case, with `-` for `_`. The id of an install
/// (`ins_01JD…`) is otherwise no valid name.
fn namespace_name(text: &str) -> Result<String, String> {
    let name = text.trim().to_lowercase().replace('_', "-");
    let is_valid = (1..=MAX_NAMESPACE).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    match is_valid {
        true => Ok(name),
        false => Err(format!(
            "the namespace {text:?} is not valid: use at most {MAX_NAMESPACE} letters, digits and \
             `-`, and a letter or digit at both ends"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::namespace_name;

    #[test]
    fn a_namespace_is_a_valid_name_for_every_install() {
        let of = |text: &str| namespace_name(text).unwrap();
        assert_eq!(of("ins_01ARZ3NDEKTSV4RRFFQ69G5FAV"), "ins-01arz3ndektsv4rrffq69g5fav");
        assert_eq!(of("ins_01ARZ3-web"), "ins-01arz3-web");
        assert_eq!(of("shop"), "shop");
        for text in ["", "a b", "-a", "a_", "a/b", &"a".repeat(64)] {
            let error = namespace_name(text).unwrap_err();
            assert!(error.contains("is not valid"), "{error}");
        }
    }
}
