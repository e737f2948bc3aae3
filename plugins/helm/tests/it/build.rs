//! Builds: charts become artifacts of Helm, and invalid charts fail with file and line.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::{Value, json};

use crate::plugin::{CallError, Plugin, helm_or_skip};

/// Runs a build of a source with these files.
fn built(helm: &Path, files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Value, CallError>) {
    built_in(helm, files, &[])
}

/// Runs a build with further environment variables of the plugin.
fn built_in(
    helm: &Path,
    files: &[(&str, &str)],
    variables: &[(&str, &Path)],
) -> (tempfile::TempDir, Result<Value, CallError>) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join("source").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut plugin = Plugin::start_in(helm, None, variables);
    plugin.call(json!({ "call": "describe", "protocol": 1, "protocols": [1, 2] })).unwrap();
    let result = plugin.call(json!({
        "call": "build", "component": "web", "operation": "apply",
        "inputs": { "component": "web" }, "source_dir": dir.path().join("source"),
        "state_dir": dir.path(), "work_dir": dir.path(),
    }));
    (dir, result)
}

const CHART: (&str, &str) = ("Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n");

#[test]
fn a_chart_becomes_an_artifact_of_helm() {
    let Some(helm) = helm_or_skip() else { return };
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let (_dir, result) = built(&helm, &[CHART, ("templates/a.yaml", template)]);
    let image = &result.unwrap()["image"];
    assert_eq!(image["config"]["media_type"], "application/vnd.cncf.helm.config.v1+json");
    let layer = &image["layers"][0];
    assert_eq!(layer["media_type"], "application/vnd.cncf.helm.chart.content.v1.tar+gzip");
    assert!(layer["path"].as_str().unwrap().ends_with("shop-1.0.0.tgz"), "{layer}");
    let config = fs::read(image["config"]["path"].as_str().unwrap()).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    assert_eq!((&config["name"], &config["version"]), (&"shop".into(), &"1.0.0".into()));
}

#[test]
fn invalid_charts_fail_with_file_and_line() {
    let Some(helm) = helm_or_skip() else { return };
    let broken = "a: 1\nb: {{ .Values.x\n";
    for (files, expected) in [
        (&[("a.txt", "")][..], "no Chart.yaml"),
        (&[("Chart.yaml", "name: a\nversion: [\n")], "Chart.yaml:"),
        (&[CHART, ("values.yaml", "- a\n")], "values.yaml:1"),
        (&[CHART, ("templates/b.yaml", broken)], "templates/b.yaml:2"),
    ] {
        let (_dir, result) = built(&helm, files);
        let (code, message) = result.unwrap_err();
        assert_eq!(code, "refused", "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

/// The engine of the tests has no repositories. This double answers `pull` and `dependency`, and
/// records its arguments.
#[test]
fn charts_and_dependencies_of_repositories_are_requested() {
    let dir = tempfile::tempdir().unwrap();
    let helm = dir.path().join("helm");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>{0}/calls\ncase $1 in\nversion) echo v4.3.0 ;;\n\
         pull|dependency) echo 'Error: no network' >&2; exit 1 ;;\nesac\n",
        dir.path().display()
    );
    fs::write(&helm, script).unwrap();
    fs::set_permissions(&helm, fs::Permissions::from_mode(0o755)).unwrap();
    let calls = || fs::read_to_string(dir.path().join("calls")).unwrap();
    for (reference, expected) in [
        (
            r#"{"repo_url":"https://charts.example.com","chart":"web","version":"1.2.0"}"#,
            "pull web --repo https://charts.example.com --version 1.2.0 --destination",
        ),
        (
            r#"{"repo_url":"oci://registry.example.com/charts/","chart":"web","version":null}"#,
            "pull oci://registry.example.com/charts/web --destination",
        ),
    ] {
        let (_dir, result) = built(&helm, &[("helm-repo.json", reference)]);
        assert!(result.unwrap_err().1.contains("no network"));
        assert!(calls().contains(expected), "{}", calls());
    }
    let plain = r#"{"repo_url":"http://charts.example.com","chart":"web"}"#;
    let (_dir, result) = built(&helm, &[("helm-repo.json", plain)]);
    assert!(result.unwrap_err().1.contains("use https:// or oci://"));

    let chart = ("Chart.yaml", "name: a\nversion: 1.0.0\ndependencies: [{name: db, version: 1}]\n");
    let (_dir, result) = built(&helm, &[chart]);
    assert!(result.unwrap_err().1.contains("cannot fetch the dependencies db"));
    assert!(calls().contains("dependency update"), "{}", calls());
    let (_dir, _) = built(&helm, &[chart, ("Chart.lock", "dependencies: []\n")]);
    assert!(calls().contains("dependency build"), "{}", calls());
}

/// This double of Helm records its arguments and the variables that locate credentials. The engine of
/// the tests cannot pull from private repositories.
#[test]
fn private_charts_are_pulled_with_the_configuration_of_the_build_runner() {
    let dir = tempfile::tempdir().unwrap();
    let helm = dir.path().join("helm");
    let script = format!(
        "#!/bin/sh\necho \"$* $HELM_REGISTRY_CONFIG $DOCKER_CONFIG\" >>{0}/calls\ncase $1 in\n\
         version) echo v4.3.0 ;;\npull) echo 'Error: no network' >&2; exit 1 ;;\nesac\n",
        dir.path().display()
    );
    fs::write(&helm, script).unwrap();
    fs::set_permissions(&helm, fs::Permissions::from_mode(0o755)).unwrap();
    let repositories = dir.path().join("repositories.yaml");
    let text =
        "repositories:\n- name: private\n  url: https://charts.example.com\n  password: s3cret\n";
    fs::write(&repositories, text).unwrap();
    let variables = [
        ("HELM_REPOSITORY_CONFIG", repositories.as_path()),
        ("HELM_REGISTRY_CONFIG", Path::new("/etc/helm/registry.json")),
        ("DOCKER_CONFIG", Path::new("/etc/docker")),
    ];
    for (url, expected) in [
        (
            "https://charts.example.com",
            ["repo update private ", "pull private/web --version 1.0.0 "],
        ),
        ("oci://registry.example.com/x", ["version", "pull oci://registry.example.com/x/web "]),
    ] {
        let reference = format!(r#"{{"repo_url":"{url}","chart":"web","version":"1.0.0"}}"#);
        let (_dir, result) = built_in(&helm, &[("helm-repo.json", &reference)], &variables);
        let (_, message) = result.unwrap_err();
        assert!(message.contains("no network") && !message.contains("s3cret"), "{message}");
        let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
        for call in expected {
            assert!(calls.lines().any(|line| line.starts_with(call)), "{call}: {calls}");
        }
        assert!(calls.contains("/etc/helm/registry.json /etc/docker"), "{calls}");
        assert!(!calls.contains("s3cret"));
    }
}
