//! Objects that must survive a deploy or a teardown, and changes between a plan and its effects.

use serde_json::json;

use crate::{
    cluster::{IMAGE, Namespace, config_map, deployment},
    plugin::{Component, Plugin, changes},
};

/// Manifest of a ConfigMap with an annotation.
fn annotated(name: &str, annotation: &str) -> String {
    let annotations = format!("  name: {name}\n  annotations: {{{annotation}}}\n");
    config_map(name, "one").replace(&format!("  name: {name}\n"), &annotations)
}

fn own_namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n---\n")
}

/// Manifest of a CustomResourceDefinition with these versions.
fn definition(group: &str, kind: &str, versions: &[&str]) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    let versions = versions.iter().enumerate().map(|(at, version)| {
        format!(
            "  - name: {version}\n    served: true\n    storage: {}\n    schema:\n      \
             openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}\n",
            at == 0
        )
    });
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: {plural}.{group}}}\nspec:\n  group: {group}\n  scope: Namespaced\n  \
         names: {{kind: {kind}, plural: {plural}, singular: {}}}\n  versions:\n{}---\n",
        kind.to_lowercase(),
        versions.collect::<String>()
    )
}

fn job(name: &str, script: &str, spec: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\nspec:\n  \
         backoffLimit: 0\n{spec}  template:\n    spec:\n      restartPolicy: Never\n      \
         terminationGracePeriodSeconds: 0\n      containers:\n      - name: main\n        \
         image: {IMAGE}\n        command: [sh, -c, \"{script}\"]\n---\n"
    )
}

#[test]
fn teardown_keeps_what_contains_kept_objects() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = format!("{}-own", namespace.name);
    let group = format!("{}.example.dev", namespace.name);
    let keep = "helm.sh/resource-policy: keep";
    let widget = format!(
        "apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: kept, annotations: {{{keep}}}}}\n\
         ---\n"
    );
    let manifest = [
        own_namespace(&ns),
        annotated("kept", keep),
        config_map("free", "one"),
        definition(&group, "Widget", &["v1"]),
        widget,
    ];
    let mut web = Component::new(&namespace.kubeconfig, &ns, &manifest.concat());
    web.deploy();
    let plan = web.destroy();
    let stays = "[stays: an object with helm.sh/resource-policy: keep is never deleted]";
    let crd = format!("CustomResourceDefinition.apiextensions.k8s.io widgets.{group}");
    assert_eq!(
        changes(&plan),
        [
            format!("forget Widget.{group} {ns}/kept {stays}"),
            format!("forget ConfigMap {ns}/kept {stays}"),
            format!("delete ConfigMap {ns}/free"),
            format!("forget {crd} [stays: it contains Widget.{group} {ns}/kept]"),
            format!("forget Namespace {ns} [stays: it contains ConfigMap {ns}/kept]"),
        ]
    );
    let get = |kind: &str| namespace.kubectl_ok(&["--namespace", &ns, "get", kind, "kept"]);
    get("configmap");
    get(&format!("widgets.{group}"));
    namespace.kubectl_ok(&["delete", "crd", &format!("widgets.{group}"), "--wait=false"]);
    namespace.kubectl_ok(&["delete", "namespace", &ns, "--wait=false"]);
}

#[test]
fn teardown_is_stale_if_an_object_must_now_stay() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = format!("{}-own", namespace.name);
    let manifest = format!("{}{}", own_namespace(&ns), config_map("a", "one"));
    let mut web = Component::new(&namespace.kubeconfig, &ns, &manifest);
    web.deploy();
    let kubectl = |args: &[&str]| namespace.kubectl_ok(&[&["--namespace", &ns], args].concat());

    web.plan_for("destroy").unwrap();
    kubectl(&["create", "configmap", "database"]);
    let (code, message) = web.execute("destroy").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
    let part =
        format!("Namespace {ns}, and now it would stay: it contains ConfigMap {ns}/database");
    assert!(message.contains(&part), "{message}");
    kubectl(&["delete", "configmap", "database"]);

    web.plan_for("destroy").unwrap();
    kubectl(&["annotate", "configmap", "a", "helm.sh/resource-policy=keep"]);
    let (code, message) = web.execute("destroy").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
    assert!(message.contains("keep is never deleted"), "{message}");

    web.plan_for("destroy").unwrap();
    web.execute("destroy").unwrap();
    kubectl(&["get", "configmap", "a"]);
    kubectl(&["delete", "namespace", &ns, "--wait=false"]);
}

#[test]
fn objects_of_every_version_and_with_any_owner_are_found() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = format!("{}-own", namespace.name);
    let group = format!("{}.example.dev", namespace.name);
    // Only an older version of the group serves Routes.
    let others =
        definition(&group, "Gateway", &["v1"]) + &definition(&group, "Route", &["v1alpha1"]);
    namespace.apply_as("customer", &others);
    let widgets = definition(&group, "Widget", &["v1"]);
    let manifest = format!("{}{widgets}", own_namespace(&ns));
    let mut web = Component::new(&namespace.kubeconfig, &ns, &manifest);
    web.deploy();
    let [gateways, routes] = ["gateways", "routes"].map(|name| format!("crd/{name}.{group}"));
    namespace.kubectl_ok(&["wait", "--for=condition=Established", &gateways, &routes]);
    // The widget of another namespace has an owner.
    let owner = namespace.get("serviceaccount", "default").unwrap();
    let uid = owner["metadata"]["uid"].as_str().unwrap();
    namespace.apply_as(
        "customer",
        &format!(
            "apiVersion: {group}/v1\nkind: Widget\nmetadata:\n  name: w\n  ownerReferences:\n  \
             - {{apiVersion: v1, kind: ServiceAccount, name: default, uid: {uid}}}\n"
        ),
    );
    let route = json!({ "apiVersion": format!("{group}/v1alpha1"), "kind": "Route",
                        "metadata": { "name": "r" } });
    let file = web.dir.path().join("route.json");
    std::fs::write(&file, route.to_string()).unwrap();
    namespace.kubectl_ok(&["--namespace", &ns, "create", "--filename", file.to_str().unwrap()]);
    let plan = web.destroy();
    let (other, crd) = (&namespace.name, "CustomResourceDefinition.apiextensions.k8s.io");
    assert_eq!(
        changes(&plan),
        [
            format!("forget {crd} widgets.{group} [stays: it contains Widget.{group} {other}/w]"),
            format!("forget Namespace {ns} [stays: it contains Route.{group} {ns}/r]"),
        ]
    );
    for plural in ["gateways", "routes", "widgets"] {
        let name = format!("{plural}.{group}");
        namespace.kubectl_ok(&["delete", "crd", &name, "--wait=false"]);
    }
    namespace.kubectl_ok(&["delete", "namespace", &ns, "--wait=false"]);
}

#[test]
fn object_after_many_generated_ones_is_found() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = format!("{}-own", namespace.name);
    let manifest = format!("{}{}", own_namespace(&ns), config_map("a", "one"));
    let mut web = Component::new(&namespace.kubeconfig, &ns, &manifest);
    web.deploy();
    let own = namespace.kubectl_ok(&["--namespace", &ns, "get", "configmap", "a", "-o", "json"]);
    let own: serde_json::Value = serde_json::from_str(&own).unwrap();
    let owner = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a",
                         "uid": own["metadata"]["uid"] }]);
    let generated = (0..510).map(|at| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": ns,
            "name": format!("generated-{at}"), "ownerReferences": owner } })
    });
    let last = json!({ "apiVersion": "v1", "kind": "ConfigMap",
                       "metadata": { "name": "zzz", "namespace": ns } });
    let items: Vec<_> = generated.chain([last]).collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let file = web.dir.path().join("list.json");
    std::fs::write(&file, list.to_string()).unwrap();
    namespace.kubectl_ok(&["--namespace", &ns, "create", "--filename", file.to_str().unwrap()]);
    let plan = web.plan_for("destroy").unwrap();
    let stays = format!("forget Namespace {ns} [stays: it contains ConfigMap {ns}/zzz]");
    assert!(changes(&plan).contains(&stays), "{plan}");
    namespace.kubectl_ok(&["delete", "namespace", &ns, "--wait=false"]);
}

#[test]
fn object_that_a_failed_apply_did_not_reach_belongs_to_its_creator() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let seed = annotated("seed", "stead.dev/wave: \"1\"");
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default}\n---\n";
    let manifest = format!("{}{seed}", deployment("web", 1, false));
    let mut web = Component::new(&namespace.kubeconfig, ns, &manifest);
    web.set("ready_timeout_ms", 1000);
    web.plan().unwrap();
    assert_eq!(web.execute("apply").unwrap_err().0, "failed");
    namespace.kubectl_ok(&["create", "configmap", "seed", "--from-literal=key=theirs"]);
    let refusal = web.refusal();
    assert!(refusal.contains("seed exists, and this component does not own it"), "{refusal}");

    // An object with only a name shows its owner, too.
    web.set("ready_timeout_ms", 60_000);
    web.set("manifest", account);
    let refusal = web.refusal();
    assert!(refusal.contains("default exists, and this component does not own it"), "{refusal}");
    web.set("manifest", account.replace("default", "own"));
    web.plan().unwrap();
    web.execute("apply").unwrap();
    assert_eq!(web.plan().unwrap()["noop"], true);
    let live = namespace.get("serviceaccount", "own").unwrap();
    let owner = format!("stead:{}/web", web.install);
    assert_eq!(live["metadata"]["annotations"]["stead.dev/component"], owner.as_str());
}

#[test]
fn object_that_appears_during_the_apply_is_not_changed() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let slow = deployment("web", 1, true)
        .replace("spec:\n  replicas", "spec:\n  minReadySeconds: 5\n  replicas");
    let late = annotated("late", "stead.dev/wave: \"1\"");
    let mut web = Component::new(&namespace.kubeconfig, ns, &format!("{slow}{late}"));
    web.plan().unwrap();
    let call = web.execute_call("apply");
    let mut plugin = Plugin::start(Some(&namespace.kubeconfig));
    let id = plugin.send(call);
    plugin.until_log("waiting for Deployment.apps");
    namespace.kubectl_ok(&["create", "configmap", "late", "--from-literal=other=theirs"]);
    let (code, message) = plugin.result(id).unwrap_err();
    assert_eq!(code, "failed");
    assert!(message.contains("late was created after the plan; plan again"), "{message}");
    let live = namespace.get("configmap", "late").unwrap();
    assert_eq!(live["data"], json!({ "other": "theirs" }));
}

#[test]
fn autoscaled_deployment_is_not_stale() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let web = |version: &str| {
        deployment("web", 1, true)
            .replace("  replicas: 1\n", "")
            .replace("  name: web\nspec", &format!("  name: web\n  labels: {{v: {version}}}\nspec"))
    };
    let mut component = Component::new(&namespace.kubeconfig, &namespace.name, &web("one"));
    component.deploy();
    component.set("manifest", web("two"));
    component.plan().unwrap();
    namespace.kubectl_ok(&["scale", "deployment", "web", "--replicas=2"]);
    component.execute("apply").unwrap();
    let live = namespace.get("deployment", "web").unwrap();
    assert_eq!(
        (&live["metadata"]["labels"]["v"], &live["spec"]["replicas"]),
        (&json!("two"), &json!(2))
    );
    assert_eq!(component.plan().unwrap()["noop"], true);
}

#[test]
fn next_wave_starts_after_the_end_of_a_job() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let after = annotated("after", "stead.dev/wave: \"1\"");
    let manifest = format!("{}{after}", job("seed", "sleep 2", ""));
    let mut web = Component::new(&namespace.kubeconfig, ns, &manifest);
    web.deploy();
    let at = |part: &str| web.log.iter().position(|line| line.contains(part));
    let (ready, created) = (at(&format!("Job.batch {ns}/seed is ready")), at("created ConfigMap"));
    assert!(ready.is_some() && ready < created, "{:?}", web.log);
}

#[test]
fn failed_job_is_replaced_by_the_next_apply() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let after = annotated("after", "stead.dev/wave: \"1\"");
    let manifest = format!("{}{after}", job("seed", "exit 1", ""));
    let mut web = Component::new(&namespace.kubeconfig, ns, &manifest);
    web.plan().unwrap();
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "failed");
    assert!(message.contains(&format!("Job.batch {ns}/seed: ")), "{message}");
    assert!(namespace.get("configmap", "after").is_none());
    let plan = web.plan().unwrap();
    let replaced = format!("replace Job.batch {ns}/seed [it failed]");
    assert!(changes(&plan).contains(&replaced), "{plan}");
    let uid = namespace.get("job", "seed").unwrap()["metadata"]["uid"].clone();
    web.execute("apply").unwrap_err();
    assert_ne!(namespace.get("job", "seed").unwrap()["metadata"]["uid"], uid);
}

#[test]
fn job_that_ends_by_its_time_to_live_is_no_failure() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let slow = deployment("web", 1, true)
        .replace("spec:\n  replicas", "spec:\n  minReadySeconds: 5\n  replicas");
    let manifest = format!("{slow}{}", job("seed", "true", "  ttlSecondsAfterFinished: 1\n"));
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &manifest);
    web.plan().unwrap();
    let call = web.execute_call("apply");
    let mut plugin = Plugin::start(Some(&namespace.kubeconfig));
    let id = plugin.send(call);
    plugin.until_log("created Job.batch");
    plugin.until_log("waiting for Deployment.apps");
    // The test cluster does not delete finished Jobs itself.
    namespace.kubectl_ok(&["wait", "--for=condition=Complete", "job/seed", "--timeout=60s"]);
    namespace.kubectl_ok(&["delete", "job", "seed"]);
    plugin.result(id).unwrap();
}

#[test]
fn definition_that_gains_a_version_is_applied_with_its_object() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    let group = format!("{ns}.example.dev");
    let manifest = |versions: &[&str], version: &str, size: u32| {
        let definition = definition(&group, "Widget", versions);
        format!(
            "{definition}apiVersion: {group}/{version}\nkind: Widget\nmetadata: {{name: a}}\n\
             size: {size}\n---\n"
        )
    };
    let mut web = Component::new(&namespace.kubeconfig, ns, &manifest(&["v1"], "v1", 1));
    web.deploy();
    web.set("manifest", manifest(&["v1", "v2"], "v2", 2));
    let plan = web.plan().unwrap();
    let updated = format!("update Widget.{group} {ns}/a [known after apply]");
    assert!(changes(&plan).contains(&updated), "{plan}");
    web.execute("apply").unwrap();
    let widgets = format!("widgets.{group}");
    assert_eq!(namespace.get(&widgets, "a").unwrap()["size"], 2);
    web.destroy();
    assert!(namespace.get("crd", &widgets).is_none());
}

#[test]
fn webhook_of_the_cluster_that_is_down_fails_the_plan() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let ns = &namespace.name;
    namespace.kubectl_ok(&["label", "namespace", ns, &format!("test={ns}")]);
    namespace.apply_as(
        "customer",
        &format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
             metadata: {{name: {ns}}}\nwebhooks:\n- name: check.example.dev\n  sideEffects: None\n  \
             admissionReviewVersions: [v1]\n  failurePolicy: Fail\n  \
             namespaceSelector: {{matchLabels: {{test: {ns}}}}}\n  \
             clientConfig: {{service: {{name: hooks, namespace: {ns}}}}}\n  rules:\n  \
             - {{apiGroups: [\"\"], apiVersions: [v1], operations: [\"*\"], \
             resources: [configmaps]}}\n"
        ),
    );
    let mut web = Component::new(&namespace.kubeconfig, ns, &config_map("a", "one"));
    let plan = web.plan();
    // A component that contains the Service of the webhook can be planned.
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: hooks}\nspec:\n  \
                   selector: {app: hooks}\n  ports: [{port: 443}]\n---\n";
    web.set("manifest", format!("{service}{}", config_map("a", "one")));
    let own = web.plan();
    namespace.kubectl_ok(&["delete", "validatingwebhookconfiguration", ns]);
    let (code, message) = plan.unwrap_err();
    assert_eq!(code, "failed");
    assert!(message.contains("the webhook check.example.dev does not respond"), "{message}");
    let created = format!("create ConfigMap {ns}/a [known after apply]");
    assert!(changes(&own.unwrap()).contains(&created));
}

#[test]
fn cancel_stops_between_two_effects() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let manifest: String = (0..300).map(|at| config_map(&format!("c{at}"), "one")).collect();
    let mut web = Component::new(&namespace.kubeconfig, &namespace.name, &manifest);
    web.plan().unwrap();
    let call = web.execute_call("apply");
    let mut plugin = Plugin::start(Some(&namespace.kubeconfig));
    let id = plugin.send(call);
    plugin.until_log("created ConfigMap");
    plugin.send(json!({ "call": "cancel", "of": id }));
    let (code, _) = plugin.result(id).unwrap_err();
    assert_eq!(code, "cancelled");
    assert!(namespace.get("configmap", "c299").is_none(), "the cancel came too late");
    // The next plan and apply complete the work.
    web.plan().unwrap();
    web.execute("apply").unwrap();
    assert!(namespace.get("configmap", "c299").is_some());
    assert_eq!(web.plan().unwrap()["noop"], true);
}
