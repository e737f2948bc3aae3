//! Charts that use every feature of Helm that is hard to plan.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    cluster::{IMAGE, Namespace},
    lifecycle::shown,
    plugin::{Component, changes, helm_or_skip},
};

/// Creates a component for a chart with these files.
pub fn component(files: &[(&str, &str)]) -> Option<(Namespace, Component)> {
    let (helm, namespace) = (helm_or_skip()?, Namespace::create_or_skip()?);
    let component = Component::new(&namespace, helm, files);
    Some((namespace, component))
}

pub fn config_map(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  {data}\n")
}

/// Template of a Pod that is a hook.
pub fn hook(name: &str, event: &str, weight: i32, policy: &str, command: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    \
         helm.sh/hook: {event}\n    helm.sh/hook-weight: \"{weight}\"\n    \
         helm.sh/hook-delete-policy: {policy}\nspec:\n  restartPolicy: Never\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n  - name: a\n    image: {IMAGE}\n    \
         imagePullPolicy: Never\n    command: [\"{command}\"]\n---\n"
    )
}

#[test]
fn hooks_run_in_their_order_and_are_listed() {
    let hooks = [
        hook("before", "pre-install", 5, "hook-succeeded", "true"),
        hook("first", "pre-install,pre-upgrade", -5, "before-hook-creation", "true"),
        hook("after", "post-install,post-upgrade", 0, "hook-succeeded", "true"),
        hook("leaving", "pre-delete", 0, "hook-succeeded", "true"),
        hook("left", "post-delete", 0, "hook-succeeded", "true"),
        hook("check", "test", 0, "before-hook-creation", "false"),
    ];
    let settings = config_map("settings", "a: {{ .Values.a | quote }}");
    let files = [("templates/hooks.yaml", hooks.concat()), ("templates/a.yaml", settings)];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let Some((namespace, mut web)) = component(&files) else { return };
    web.set("values", json!({ "a": "one" }));
    let listed = |plan: &Value| -> Vec<String> {
        let lines = shown(plan, &namespace).into_iter();
        lines.map(|line| line.split(", weight").next().unwrap().to_owned()).collect()
    };
    let plan = web.plan().unwrap();
    assert_eq!(
        listed(&plan),
        [
            "create ConfigMap settings",
            "create Pod first [hook: pre-install",
            "create Pod before [hook: pre-install",
            "create Pod after [hook: post-install",
            "create HelmRelease web",
        ]
    );
    web.execute("apply").unwrap();
    assert!(namespace.get("Pod", "first").is_some(), "only the next hook replaces it");
    for name in ["before", "after", "check"] {
        assert_eq!(namespace.get("Pod", name), None, "{name}");
    }
    assert_eq!(web.plan().unwrap()["noop"], true);

    // a changed hook is a change of the release
    web.write(
        "templates/hooks.yaml",
        &hooks
            .concat()
            .replace("weight: \"0\"", "weight: \"1\"")
            .replace("[\"false\"]", "[\"true\"]"),
    );
    let plan = web.plan().unwrap();
    assert_eq!(
        listed(&plan),
        [
            "replace Pod first [hook: pre-upgrade",
            "create Pod after [hook: post-upgrade",
            "update HelmRelease web [hooks]",
        ]
    );
    web.execute("apply").unwrap();
    let plan = web.destroy();
    assert_eq!(
        listed(&plan),
        [
            "delete ConfigMap settings",
            "forget Pod first [stays: an uninstall does not delete hooks]",
            "create Pod leaving [hook: pre-delete",
            "create Pod left [hook: post-delete",
            "delete HelmRelease web",
        ]
    );
    let left = format!("Pod {}/first stays in the cluster", namespace.name);
    assert!(web.log.iter().any(|line| line.starts_with(&left)), "{:?}", web.log);
    let first = namespace.get("Pod", "first").unwrap()["metadata"]["uid"].clone();
    assert_eq!(web.plan_for("destroy").unwrap()["noop"], true);

    // the next install replaces what stayed
    let plan = web.plan().unwrap();
    let lines = listed(&plan);
    assert!(lines.contains(&"replace Pod first [hook: pre-install".to_owned()), "{lines:?}");
    web.execute("apply").unwrap();
    assert_ne!(namespace.get("Pod", "first").unwrap()["metadata"]["uid"], first);
}

#[test]
fn random_values_are_named_and_no_drift() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: tls}\ndata:\n  \
                  {{- $ca := genCA \"shop\" 1 }}\n  ca: {{ $ca.Cert | b64enc }}\n  \
                  password: {{ randAlphaNum 20 | b64enc }}\n  fixed: {{ .Values.fixed | b64enc }}\n";
    let Some((namespace, mut web)) = component(&[("templates/secret.yaml", secret)]) else {
        return;
    };
    web.set("values", json!({ "fixed": "one" }));
    let read = |key: &str| {
        let secret = namespace.get("Secret", "tls").unwrap();
        secret["data"][key].as_str().unwrap().to_owned()
    };
    web.deploy();
    let first = (read("password"), read("ca"));
    assert_eq!(web.plan().unwrap()["noop"], true);
    assert!(
        web.log.iter().any(|line| line.contains("data.password (changes at every render)")),
        "{:?}",
        web.log
    );

    // when another field changes, then the new random values are those of the plan
    web.set("values", json!({ "fixed": "two" }));
    let plan = web.plan().unwrap();
    assert_eq!(
        shown(&plan, &namespace)[0],
        "update Secret tls [data.ca (changes at every render), data.fixed, data.password (changes \
         at every render)]"
    );
    let text = std::fs::read_to_string(web.plan_file()).unwrap();
    web.execute("apply").unwrap();
    assert_ne!((read("password"), read("ca")), first);
    assert!(text.contains(&read("password")) && text.contains(&read("ca")), "other values");
}

#[test]
fn lookup_sees_the_cluster_at_the_plan_only() {
    let template = "{{- $found := lookup \"v1\" \"ConfigMap\" .Release.Namespace \"source\" }}\n\
                    apiVersion: v1\nkind: ConfigMap\nmetadata: {name: copy}\ndata:\n  \
                    key: {{ if $found }}{{ $found.data.key }}{{ else }}none{{ end }}\n  \
                    policy: {{ .Capabilities.APIVersions.Has \"apps/v1\" | quote }}\n";
    let Some((namespace, mut web)) = component(&[("templates/copy.yaml", template)]) else {
        return;
    };
    let copied = || namespace.get("ConfigMap", "copy").unwrap()["data"].clone();
    namespace.apply_as("test", &config_map("source", "key: one"));
    web.plan().unwrap();
    namespace.apply_as("test", &config_map("source", "key: two"));
    web.execute("apply").unwrap();
    assert_eq!(copied(), json!({ "key": "one", "policy": "true" }), "not the approved text");
    assert_eq!(shown(&web.plan().unwrap(), &namespace)[0], "update ConfigMap copy [data.key]");
}

#[test]
fn changes_of_live_objects_make_a_plan_stale() {
    let Some((namespace, mut web)) =
        component(&[("templates/a.yaml", &config_map("a", "key: {{ .Values.v }}"))])
    else {
        return;
    };
    web.set("values", json!({ "v": "one" }));
    web.deploy();
    web.set("values", json!({ "v": "two" }));
    web.plan().unwrap();
    namespace.kubectl_ok(&["delete", "configmap", "a"]);
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
    assert!(message.contains("changed since the plan"), "{message}");
    assert_eq!(namespace.get("ConfigMap", "a"), None);
    // Another program can change its own fields at any time.
    web.plan().unwrap();
    web.execute("apply").unwrap();
    web.set("values", json!({ "v": "three" }));
    web.plan().unwrap();
    namespace.kubectl_ok(&["annotate", "configmap", "a", "other=1"]);
    web.execute("apply").unwrap();
    assert_eq!(namespace.get("ConfigMap", "a").unwrap()["data"]["key"], "three");
    // A plan runs at most once.
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "plan_stale", "{message}");
}

#[test]
fn subcharts_follow_their_conditions_and_braces_stay_braces() {
    let metadata = "{apiVersion: v2, name: shop, version: 1.0.0, dependencies: [\
                    {name: db, version: 1.0.0, condition: db.enabled}, \
                    {name: cache, version: 1.0.0, condition: cache.enabled}]}";
    let sub = |name: &str| format!("{{apiVersion: v2, name: {name}, version: 1.0.0}}");
    let text = config_map("{{ .Chart.Name }}", "note: '{{ \"{{ x }} {{{\" }} {{ .Values.text }}'");
    let (db, cache) = (sub("db"), sub("cache"));
    let files = [
        ("Chart.yaml", metadata),
        ("values.yaml", "db: {enabled: true, text: a}\ncache: {enabled: false}\n"),
        ("charts/db/Chart.yaml", &db),
        ("charts/db/templates/a.yaml", &text),
        ("charts/cache/Chart.yaml", &cache),
        ("charts/cache/templates/a.yaml", &text),
    ];
    let Some((namespace, mut web)) = component(&files) else { return };
    web.set("values", json!({ "db.text": "{{ .Values.secret }}" }));
    let plan = web.plan().unwrap();
    assert_eq!(shown(&plan, &namespace), ["create ConfigMap db", "create HelmRelease web"]);
    web.execute("apply").unwrap();
    let note = namespace.get("ConfigMap", "db").unwrap()["data"]["note"].clone();
    assert_eq!(note, "{{ x }} {{{ {{ .Values.secret }}");
    assert_eq!(web.plan().unwrap()["noop"], true);
}

#[test]
fn kept_objects_and_claims_stay() {
    let kept = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kept\n  annotations:\n    \
                helm.sh/resource-policy: keep\n";
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n  \
                 accessModes: [ReadWriteOnce]\n  storageClassName: none\n  \
                 resources: {requests: {storage: 1Mi}}\n";
    let files = [
        ("templates/kept.yaml", kept),
        ("templates/claim.yaml", claim),
        ("templates/a.yaml", &config_map("a", "key: x")),
    ];
    let Some((namespace, mut web)) = component(&files) else { return };
    // Helm waits for the claim, which no volume satisfies.
    web.set("ready_timeout_ms", 8_000);
    web.plan().unwrap();
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "failed", "{message}");
    assert!(message.contains("deploy again"), "{message}");

    // when the claim leaves the chart, then it stays, and the failed install is repaired
    web.remove("templates/claim.yaml");
    web.set("ready_timeout_ms", 60_000);
    let plan = web.plan().unwrap();
    let lines = shown(&plan, &namespace);
    assert_eq!(
        lines[0],
        "forget PersistentVolumeClaim data [stays: a PersistentVolumeClaim is never pruned]"
    );
    assert!(lines[1].contains("revision 1 is failed"), "{lines:?}");
    web.execute("apply").unwrap();
    assert!(namespace.get("PersistentVolumeClaim", "data").is_some());
    let plan = web.destroy();
    let lines = shown(&plan, &namespace);
    assert!(
        lines.contains(
            &"forget ConfigMap kept [stays: it has helm.sh/resource-policy: keep]".to_owned()
        ),
        "{lines:?}"
    );
    assert!(namespace.get("ConfigMap", "kept").is_some());
    assert_eq!(namespace.get("ConfigMap", "a"), None);
}

#[test]
fn an_upgrade_that_fails_stays_failed_until_the_next_plan() {
    let pod = |command: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  \
             progressDeadlineSeconds: 600\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    \
             metadata: {{labels: {{app: web}}}}\n    spec:\n      terminationGracePeriodSeconds: 1\n      \
             containers:\n      - name: web\n        image: {IMAGE}\n        imagePullPolicy: Never\n        \
             command: [sleep, \"3600\"]\n        readinessProbe: {{exec: {{command: [\"{command}\"]}}, \
             periodSeconds: 1}}\n"
        )
    };
    let Some((namespace, mut web)) = component(&[("templates/web.yaml", &pod("true"))]) else {
        return;
    };
    web.deploy();
    web.write("templates/web.yaml", &pod("false"));
    web.set("ready_timeout_ms", 6_000);
    web.plan().unwrap();
    let (code, message) = web.execute("apply").unwrap_err();
    assert_eq!(code, "failed", "{message}");
    assert!(
        web.log.iter().any(|line| line.contains("waiting for Deployment.apps")),
        "{:?}",
        web.log
    );
    // The release is not rolled back.
    let statuses = ["get", "secrets", "--selector=owner=helm", "--output"];
    let statuses = [&statuses[..], &["jsonpath={.items[*].metadata.labels.status}"]].concat();
    assert_eq!(namespace.kubectl_ok(&statuses), "deployed failed");
    web.write("templates/web.yaml", &pod("true"));
    web.set("ready_timeout_ms", 60_000);
    let plan = web.plan().unwrap();
    assert!(changes(&plan).last().unwrap().contains("revision 2 is failed"), "{plan:#}");
    web.execute("apply").unwrap();
    assert_eq!(web.plan().unwrap()["noop"], true);
}

#[test]
fn definitions_and_their_objects_are_in_one_chart() {
    let group = format!("t{}.example.dev", ulid::Ulid::new().to_string().to_lowercase());
    let definition = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  \
         name: widgets.{group}\nspec:\n  group: {group}\n  scope: Namespaced\n  \
         names: {{plural: widgets, singular: widget, kind: Widget}}\n  versions:\n  - name: v1\n    \
         served: true\n    storage: true\n    schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}\n"
    );
    let widget = format!("apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: a}}\nsize: 1\n");
    let files = [("crds/widget.yaml", definition.as_str()), ("templates/a.yaml", &widget)];
    let Some((namespace, mut web)) = component(&files) else { return };
    let plan = web.plan().unwrap();
    let lines = shown(&plan, &namespace);
    assert_eq!(lines[0], format!("create Widget.{group} a [known after apply]"), "{lines:?}");
    assert!(lines[1].starts_with("create CustomResourceDefinition"), "{lines:?}");
    web.execute("apply").unwrap();
    assert!(namespace.get(&format!("widgets.{group}"), "a").is_some());
    assert_eq!(web.plan().unwrap()["noop"], true);
    let plan = web.destroy();
    let kept = shown(&plan, &namespace).into_iter().find(|line| line.starts_with("forget"));
    assert!(kept.unwrap().contains("Helm never deletes definitions of crds/"));
    let name = format!("widgets.{group}");
    assert!(namespace.get("CustomResourceDefinition", &name).is_some());
    namespace.kubectl_ok(&["delete", "customresourcedefinition", &name]);
}

#[test]
fn large_charts_are_planned_and_applied() {
    // 2 MiB of rendered output, and a file of more than a megabyte that is no template
    let mut objects = String::new();
    for at in 0..8 {
        let text = format!("line of the object {at} ").repeat(12_000);
        writeln!(objects, "{}---", config_map(&format!("large-{at}"), &format!("a: \"{text}\"")))
            .unwrap();
    }
    let file = "0123456789abcdef".repeat(80_000);
    let files = [("templates/large.yaml", objects.as_str()), ("files/large.txt", &file)];
    let Some((namespace, mut web)) = component(&files) else { return };
    let plan = web.plan().unwrap();
    assert_eq!(plan["add"], 9, "8 objects and the release");
    web.execute("apply").unwrap();
    assert_eq!(web.plan().unwrap()["noop"], true);
    assert!(namespace.get("ConfigMap", "large-7").is_some());
}

#[test]
fn a_set_with_claims_is_upgraded_in_place() {
    let set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  \
               replicas: 0\n  serviceName: db\n  selector: {matchLabels: {app: db}}\n  \
               template:\n    metadata: {labels: {app: db, v: \"{{ .Values.v }}\"}}\n    spec:\n      \
               containers: [{name: a, image: \"localhost/busybox:1\"}]\n  volumeClaimTemplates:\n  \
               - metadata: {name: data}\n    spec:\n      accessModes: [ReadWriteOnce]\n      \
               resources: {requests: {storage: {{ .Values.size }}}}\n";
    let Some((namespace, mut web)) = component(&[("templates/set.yaml", set)]) else { return };
    web.set("values", json!({ "v": "1", "size": "1Mi" }));
    web.deploy();
    web.set("values", json!({ "v": "2", "size": "1Mi" }));
    let plan = web.plan().unwrap();
    assert_eq!(
        shown(&plan, &namespace)[0],
        "update StatefulSet.apps db [spec.template.metadata.labels.v]"
    );
    web.execute("apply").unwrap();
    web.set("values", json!({ "v": "2", "size": "2Mi" }));
    let refused = web.refusal();
    assert!(refused.contains("cannot change immutable fields of StatefulSet.apps"), "{refused}");
}
