//! YAML of manifests and values files is checked before a sync, as far as it has no templates.
use app_config::{Diagnostic, survey, tree::PluginPin};
use domain::digest::Digest;

use crate::small::bundle;

const PUBLIC: &str = "[public_repo]\nrepo = \".\"\ndirectory = \"chart\"\n";

fn manifest(name: &str, more: &str, yaml: &str) -> String {
    format!(
        "name = \"{name}\"\ntype = \"kubernetes_manifest\"\nnamespace = \"shop\"\n{more}manifest = \
         '''\n{yaml}'''\n"
    )
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
}

fn chart(more: &str) -> String {
    format!("name = \"a\"\ntype = \"helm_chart\"\nchart_name = \"a\"\n{PUBLIC}{more}")
}

/// Returns the errors that the changed files cause.
fn errors(changes: &[(&str, &str)]) -> Vec<Diagnostic> {
    let names = ["helm_chart", "kubernetes_manifest"];
    let digest: Digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
    let pin =
        |name: &str| PluginPin { name: name.into(), version: "1".into(), digest: digest.clone() };
    let pins = names.map(pin);
    let findings = survey(&bundle(changes).app(), &pins).diagnostics;
    findings.into_iter().filter(Diagnostic::is_error).collect()
}

#[test]
fn broken_yaml_has_its_line() {
    let chart_file = ("app/chart/Chart.yaml", "name: a\nversion: 1.0.0\n");
    let values = chart("[[values_file]]\ncontents = \"./values.yaml\"\n");
    let inline = chart("[[values_file]]\ncontents = \"\"\"\n- a\n\"\"\"\n");
    let two = format!("{}---\n- a\n", config_map("a"));
    let broken = format!("{}---\n\nkind: [\n", config_map("a"));
    let by_file = "name = \"a\"\ntype = \"kubernetes_manifest\"\nmanifest = \"./m.yaml\"\n";
    for (files, code, place, message) in [
        (
            vec![("values.yaml", "a: 1\n- b\n")],
            "bad_values",
            ("components/values.yaml", 2),
            "not valid YAML",
        ),
        (
            vec![("values.yaml", "[a]\n")],
            "bad_values",
            ("components/values.yaml", 1),
            "the values are no map",
        ),
        (vec![("a.toml", inline.as_str())], "bad_values", ("components/a.toml", 9), "no map"),
        (
            vec![("a.toml", by_file), ("m.yaml", &two)],
            "bad_manifest",
            ("components/m.yaml", 5),
            "no object",
        ),
        (
            vec![("a.toml", by_file), ("m.yaml", &broken)],
            "bad_manifest",
            ("components/m.yaml", 6),
            "not valid YAML",
        ),
    ] {
        let mut changes = vec![chart_file, ("app/components/a.toml", values.as_str())];
        let paths: Vec<String> =
            files.iter().map(|(path, _)| format!("app/components/{path}")).collect();
        changes.extend(paths.iter().map(String::as_str).zip(files.iter().map(|(_, text)| *text)));
        let found = errors(&changes);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].code, (found[0].file.as_str(), found[0].line)),
            (code, place),
            "{}",
            found[0]
        );
        assert!(found[0].message.contains(message), "{}", found[0]);
    }
}

#[test]
fn templates_are_checked_after_their_rendering() {
    let template = "a: {{ .nuon.install.id }}\nb: [\n";
    let values = chart(&format!("[[values_file]]\ncontents = '''\n{template}'''\n"));
    let chart_file = ("app/chart/Chart.yaml", "name: a\nversion: 1.0.0\n");
    assert_eq!(errors(&[chart_file, ("app/components/a.toml", &values)]), []);
    let mixed = format!("x: {{{{ .nuon.install.id }}}}\n---\n{}---\nkind: [\n", config_map("a"));
    let found = errors(&[("app/components/a.toml", &manifest("a", "", &mixed))]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].code, found[0].line), ("bad_manifest", 11), "{}", found[0]);
}

#[test]
fn a_chart_has_a_chart_file() {
    let found =
        errors(&[("app/components/a.toml", &chart("")), ("app/chart/values.yaml", "a: 1\n")]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].code, found[0].line), ("missing_chart", 6), "{}", found[0]);
    assert!(found[0].message.contains("chart in .) has no Chart.yaml"), "{}", found[0]);
}

#[test]
fn an_object_belongs_to_one_component() {
    let of = |first: &str, second: &str| {
        errors(&[("app/components/a.toml", first), ("app/components/b.toml", second)])
    };
    let both = format!("{}---\n{}", config_map("other"), config_map("web"));
    let first = manifest("a", "", &config_map("web"));
    let found = of(&first, &manifest("b", "", &both));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].code, found[0].file.as_str(), found[0].line),
        ("duplicate_object", "components/b.toml", 9)
    );
    let message = "ConfigMap web is also in the component `a` (components/a.toml:5)";
    assert_eq!(found[0].message, message);
    // Other objects, and components that an install may have one at a time.
    let elsewhere = manifest("b", "", &config_map("web")).replace("\"shop\"", "\"other\"");
    for second in [
        elsewhere,
        manifest("b", "", &config_map("web2")),
        manifest("b", "toggleable = true\n", &config_map("web")),
        manifest("b", "", &config_map("web").replace("ConfigMap", "Secret")),
    ] {
        assert_eq!(of(&first, &second), [], "{second}");
    }
}

#[test]
fn a_release_belongs_to_one_component() {
    let files = ("app/chart/Chart.yaml", "name: a\nversion: 1.0.0\n");
    let first = chart("").replace(PUBLIC, &format!("namespace = \"shop\"\n{PUBLIC}"));
    let second = first.replace("name = \"a\"\ntype", "name = \"b\"\ntype");
    let of = |second: &str| {
        errors(&[files, ("app/components/a.toml", &first), ("app/components/b.toml", second)])
    };
    let found = of(&second);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].code, found[0].file.as_str(), found[0].line),
        ("duplicate_release", "components/b.toml", 3)
    );
    assert_eq!(found[0].message, "the release a is also that of the component `a`");
    for other in [
        second.replace("\"shop\"", "\"other\""),
        second.replace("chart_name = \"a\"", "chart_name = \"b\""),
        second.replace("namespace = \"shop\"", "namespace = \"shop\"\ntoggleable = true"),
    ] {
        assert_eq!(of(&other), [], "{other}");
    }
}
