//! Test cluster as one app's cluster: its preparation, and the objects that remain after the app.
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tests::Cluster;

use crate::{
    api_proxy::{ApiProxy, PODS},
    caretaker::Caretaker,
    journey::Journey,
    manifests,
    pods::{Pods, WEBHOOK},
    session::{Failure, Outcome, short},
};

/// Objects that Kubernetes itself creates and changes.
const NOISE: [&str; 8] = [
    "events",
    "events.events.k8s.io",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "leases.coordination.k8s.io",
    "apiservices.apiregistration.k8s.io",
    "componentstatuses",
    "controllerrevisions.apps",
];

/// Cluster with the objects that it had before the app.
pub(crate) struct TestCluster {
    cluster: Cluster,
    before: BTreeSet<Object>,
    /// Programs that complete the cluster while the app runs.
    _pods: Pods,
    _caretaker: Caretaker,
    /// API for the app.
    api: ApiProxy,
}

/// Cleans the cluster, also after a panic.
impl Drop for TestCluster {
    fn drop(&mut self) {
        self.clean();
        let _best_effort = self.delete_webhook();
    }
}

/// Identity of an object: resource, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    resource: String,
    namespace: String,
    name: String,
}

impl TestCluster {
    /// Returns the cluster, completed for an app with this working directory.
    pub(crate) fn find(work: &Path) -> Outcome<TestCluster> {
        let (Some(cluster), Some(second)) = (Cluster::shared_or_skip(), Cluster::shared_or_skip())
        else {
            return Err(Failure::new("no test cluster: set STEAD_TEST_KUBECONFIG"));
        };
        let (pods, caretaker) = (Pods::start(work.join(PODS)), Caretaker::start(second));
        let webhook = pods.configuration();
        let api = ApiProxy::start(&cluster, work)?;
        let before = BTreeSet::new();
        let mut found = TestCluster { cluster, before, _pods: pods, _caretaker: caretaker, api };
        // An app whose process was killed leaves its webhook.
        found.delete_webhook()?;
        found.create(&webhook)?;
        // The webhook stays between the two installs of the app.
        found.before = found.objects()?.into_keys().collect();
        Ok(found)
    }

    /// Returns the kubeconfig for the app.
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.api.kubeconfig()
    }

    /// Creates the objects that the sandbox's real module would create: namespaces, and kinds of
    /// operators.
    pub(crate) fn prepare(&self, journey: &Journey<'_>, install: &str) -> Outcome {
        let state = journey.session.stead(&["installs", "state", install])?;
        let texts = manifests::of(&journey.app, &journey.sources);
        let own = manifests::namespaces(&texts);
        for component in &journey.app.components {
            let Some(namespace) = component.namespace() else { continue };
            let namespace = manifests::rendered(&namespace, &state);
            // Stead writes a namespace in the alphabet of Kubernetes.
            let namespace = namespace.to_lowercase().replace('_', "-");
            if component.kind != "kubernetes_manifest" || own.contains(&namespace) {
                continue;
            }
            let object = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
            });
            if self.create(&object)? {
                journey.rules.note(format!("namespace {namespace}"));
            }
        }
        let mut kinds = BTreeMap::new();
        for (group, version, kind) in manifests::kinds(&texts) {
            let is_served = self.serves(&group, &version, &kind)
                || self.api.converts(&group, &version, &kind)
                || manifests::defines(&texts, &group, &kind);
            if is_served {
                continue;
            }
            kinds.entry((group, kind)).or_insert_with(BTreeSet::new).insert(version);
        }
        for ((group, kind), versions) in kinds {
            self.create(&manifests::definition(&group, &kind, &versions))?;
            journey.rules.note(format!("definition of {kind}.{group}"));
            let name = manifests::definition_name(&group, &kind);
            let wait = ["wait", "--for=condition=Established", "--timeout=30s", "crd", &name];
            self.kubectl(&wait, None)?;
        }
        Ok(())
    }

    /// Returns the objects of the app that remain. Fails if one of them is not in this text.
    pub(crate) fn require_only(&self, printed: &str) -> Outcome<Vec<String>> {
        let left = self.objects()?.into_iter().filter(|(object, owned)| {
            let is_inventory = object.namespace == "stead" || object.name == "stead";
            *owned && !is_inventory && !self.before.contains(object)
        });
        let (named, unnamed): (Vec<_>, Vec<_>) =
            left.partition(|(object, _)| printed.contains(object.name.as_str()));
        let texts = |objects: Vec<(Object, bool)>| -> Vec<String> {
            objects.iter().map(|(object, _)| object.text()).collect()
        };
        let unnamed = texts(unnamed);
        match unnamed.is_empty() {
            true => Ok(texts(named)),
            false => Err(Failure::new(format!("left behind, not printed: {}", unnamed.join(", ")))),
        }
    }

    /// Deletes an object of a component, if there is one that its controller does not recreate.
    pub(crate) fn delete_one_object(&self) -> Outcome<Option<String>> {
        let simple = ["configmaps", "services", "ingresses.networking.k8s.io", "deployments.apps"];
        let owned = self.objects()?.into_iter().filter(|(_, owned)| *owned);
        let mut owned: Vec<Object> = owned.map(|(object, _)| object).collect();
        owned.retain(|object| object.namespace != "stead" && !self.before.contains(object));
        let rank = |object: &Object| {
            simple.iter().position(|one| *one == object.resource).unwrap_or(simple.len())
        };
        let never = ["customresourcedefinitions.apiextensions.k8s.io", "namespaces"];
        owned.retain(|object| !never.contains(&object.resource.as_str()));
        owned.sort_by_key(rank);
        let Some(object) = owned.first() else { return Ok(None) };
        self.delete(object)?;
        Ok(Some(object.text()))
    }

    /// Deletes everything that was created since the start.
    pub(crate) fn clean(&self) {
        for _ in 0..3 {
            let Ok(objects) = self.objects() else { return };
            let mut new: Vec<_> =
                objects.into_keys().filter(|object| !self.before.contains(object)).collect();
            let in_new = |object: &Object, new: &[Object]| {
                new.iter().any(|one| one.resource == "namespaces" && one.name == object.namespace)
            };
            let all = new.clone();
            new.retain(|object| !in_new(object, &all));
            if new.is_empty() {
                return;
            }
            for object in &new {
                let _best_effort = self.delete(object);
            }
        }
    }

    fn delete_webhook(&self) -> Outcome {
        let delete = ["delete", "mutatingwebhookconfiguration", WEBHOOK, "--ignore-not-found"];
        self.kubectl(&delete, None).map(drop)
    }

    fn delete(&self, object: &Object) -> Outcome {
        let mut args = vec!["delete", &object.resource, &object.name, "--timeout=60s"];
        if !object.namespace.is_empty() {
            args.extend(["--namespace", &object.namespace]);
        }
        self.kubectl(&args, None).map(drop)
    }

    /// Returns all objects, and whether a component owns each: Stead or Helm manages its fields.
    fn objects(&self) -> Outcome<BTreeMap<Object, bool>> {
        let listed =
            self.kubectl(&["api-resources", "--verbs=list,delete", "--output=name"], None)?;
        let resources: Vec<&str> = listed.lines().filter(|name| !NOISE.contains(name)).collect();
        let mut objects = BTreeMap::new();
        let get = ["get", &resources.join(","), "--all-namespaces", "--show-managed-fields"];
        let get = [&get[..], &["--ignore-not-found", "--output=json"]].concat();
        let list: Value = serde_json::from_str(&self.kubectl(&get, None)?).unwrap_or_default();
        for item in list["items"].as_array().into_iter().flatten() {
            let (metadata, kind) = (&item["metadata"], item["kind"].as_str().unwrap_or_default());
            let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
            let has_owner = metadata["ownerReferences"].is_array();
            let is_history = text("name").starts_with("sh.helm.release.");
            let is_made_in_each = ["default", "kube-root-ca.crt"].contains(&text("name").as_str())
                || text("name").starts_with("default-token-");
            if has_owner
                || (is_made_in_each && ["ServiceAccount", "ConfigMap", "Secret"].contains(&kind))
            {
                continue;
            }
            let managers = metadata["managedFields"].as_array().into_iter().flatten();
            let is_owned = managers
                .filter_map(|entry| entry["manager"].as_str())
                .any(|manager| manager.starts_with("stead") || manager.starts_with("helm"));
            let is_release = metadata["annotations"]["meta.helm.sh/release-name"].is_string();
            let group = item["apiVersion"].as_str().unwrap_or_default();
            let resource = manifests::resource(&resources, group, kind);
            let object = Object { resource, namespace: text("namespace"), name: text("name") };
            objects.insert(object, (is_owned || is_release) && !is_history);
        }
        Ok(objects)
    }

    /// Creates an object. Returns false if it exists.
    fn create(&self, object: &Value) -> Outcome<bool> {
        match self.kubectl(&["create", "--filename=-"], Some(&object.to_string())) {
            Ok(_) => Ok(true),
            Err(Failure(reasons)) if reasons.concat().contains("AlreadyExists") => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn serves(&self, group: &str, version: &str, kind: &str) -> bool {
        let path = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let Ok(text) = self.kubectl(&["get", "--raw", &path], None) else { return false };
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        list["resources"].as_array().into_iter().flatten().any(|one| one["kind"] == kind)
    }

    fn kubectl(&self, args: &[&str], input: Option<&str>) -> Outcome<String> {
        let mut command: Command = self.cluster.kubectl();
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.unwrap_or_default().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let message = short(&String::from_utf8_lossy(&output.stderr));
                Err(Failure::new(format!("kubectl {}: {message}", args.join(" "))))
            }
        }
    }
}

impl Object {
    fn text(&self) -> String {
        match self.namespace.is_empty() {
            true => format!("{}/{}", self.resource, self.name),
            false => format!("{}/{} in {}", self.resource, self.name, self.namespace),
        }
    }
}
