//! Sensitive inputs: their values, and templates that inspect them.
use std::collections::BTreeMap;

use app_config::{awaited_inputs, choose_inputs, read, resolve_inputs};
use serde_json::{Value, json};

use crate::small::{COMPONENT, bundle, config};

#[test]
fn a_sensitive_input_has_an_encrypted_value_or_its_default() {
    let id = "encrypted:val_00000000000000000000000001";
    let inputs = |more: &str| {
        config(&[(
            "app/inputs.toml",
            &format!("[[input]]\nname = \"key\"\nsensitive = true\n{more}"),
        )])
    };
    let given = |given: Value| given.as_object().unwrap().clone().into_iter().collect();
    for value in [json!("s3cret"), json!(7), json!("encrypted:x"), json!({"a": 1})] {
        let problems = resolve_inputs(&inputs(""), &given(json!({"key": value}))).unwrap_err();
        let messages: Vec<_> = problems.iter().map(|p| format!("{p}; {}", p.remedy())).collect();
        let [message] = messages.as_slice() else { panic!("{messages:?}") };
        assert!(message.contains("must be encrypted to the keys of the install"), "{message}");
        assert!(message.contains("--secret key=FILE") && !message.contains("s3cret"), "{message}");
    }
    let set = given(json!({"key": id}));
    // The value of a number cannot be checked.
    for more in ["", "required = true", "type = \"number\"", "default = \"x\""] {
        assert_eq!(resolve_inputs(&inputs(more), &set).unwrap()["key"], id, "{more}");
    }
    let none = BTreeMap::new();
    assert_eq!(resolve_inputs(&inputs(""), &none).unwrap()["key"], "");
    assert_eq!(resolve_inputs(&inputs("default = \"x\""), &none).unwrap()["key"], "x");
    // A required one may be given later.
    let required = inputs("required = true");
    assert_eq!(choose_inputs(&required, &none).unwrap()["key"], "");
    assert_eq!(awaited_inputs(&required, &none), ["key"]);
    assert!(awaited_inputs(&required, &set).is_empty());
    let problems = resolve_inputs(&required, &none).unwrap_err();
    assert_eq!(problems[0].to_string(), "the install waits for the sensitive input `key`");
    let derived = inputs("[[input]]\nname = \"b\"\ndefault = \"{{ .nuon.inputs.inputs.key }}\"");
    let problems = choose_inputs(&derived, &set).unwrap_err();
    assert_eq!(problems[0].name(), "b", "{problems:?}");
}

#[test]
fn a_template_that_inspects_a_sensitive_input_is_an_error_at_its_place() {
    let inputs = "[[input]]\nname = \"key\"\nsensitive = true\n[[input]]\nname = \"n\"\n";
    let found = |text: &str| {
        let vars = format!("{COMPONENT}[vars]\nx = '{text}'\n");
        let tree = bundle(&[("app/inputs.toml", inputs), ("app/components/a.toml", &vars)]);
        let findings = match read(&tree) {
            Ok((_, findings)) => findings,
            Err(findings) => findings,
        };
        let all = findings.into_iter().filter(|finding| finding.code == "inspects_sensitive");
        all.collect::<Vec<_>>()
    };
    for text in [
        "{{ if .nuon.inputs.inputs.key }}a{{ end }}",
        "{{ with .nuon.install.inputs.key }}a{{ end }}",
        "{{ $k := .nuon.inputs.inputs.key }}{{ len $k }}",
        "{{ eq .nuon.inputs.inputs.key \"a\" }}",
        "{{ .stead.inputs.inputs.key | lower }}",
        "{{ index .nuon.inputs.inputs \"key\" | not }}",
        "{{ or .nuon.inputs.inputs.key \"x\" }}",
    ] {
        let findings = found(text);
        let [finding] = findings.as_slice() else { panic!("{text}: {findings:?}") };
        assert!(finding.is_error() && finding.line > 1 && finding.column > 1, "{finding}");
        assert_eq!(finding.file, "components/a.toml");
        assert!(finding.message.contains("sensitive input `key`"), "{finding}");
        assert!(finding.remedy.contains("a second input"), "{}", finding.remedy);
    }
    for text in [
        "{{ .nuon.inputs.inputs.key | b64enc | quote }}",
        "{{ printf \"%s:%s\" .nuon.inputs.inputs.n .nuon.inputs.inputs.key }}",
        "{{ .nuon.inputs.inputs.key | default \"x\" }}",
        "{{ if .nuon.inputs.inputs.n }}{{ toJson .nuon.inputs.inputs.key }}{{ end }}",
        "{{ index .nuon.inputs.inputs \"key\" }}",
        "{{ or .nuon.inputs.inputs.n .nuon.inputs.inputs.key }}",
    ] {
        assert!(found(text).is_empty(), "{text}");
    }
}
