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
fn an_install_waits_for_the_secrets_that_it_needs() {
    let vars = "[vars]\nx = '{{ .nuon.install.secrets.read }}'\n";
    let secrets = "[[secret]]\nname = \"read\"\n[[secret]]\nname = \"unread\"\n\
                   [[secret]]\nname = \"required\"\nrequired = true\n\
                   [[secret]]\nname = \"with_default\"\ndefault = \"d\"\n";
    let component = format!("{COMPONENT}{vars}");
    let config = config(&[("app/secrets.toml", secrets), ("app/components/a.toml", &component)]);
    let none = BTreeMap::new();
    assert_eq!(awaited_inputs(&config, &none), ["read", "required"]);
    let problems = resolve_inputs(&config, &none).unwrap_err();
    let message = format!("{}; {}", problems[0], problems[0].remedy());
    let expected = "the install waits for the secret `read` of the customer; the customer sets it with \
                    `stead-runner secret set read`";
    assert_eq!(message, expected);
    let id = json!("encrypted:val_00000000000000000000000001");
    let set: BTreeMap<String, Value> =
        ["read", "required"].map(|name| (name.to_owned(), id.clone())).into();
    let resolved = resolve_inputs(&config, &set).unwrap();
    assert_eq!((resolved["with_default"].as_str(), resolved["unread"].as_str()), ("d", ""));
    let typed = [("read".to_owned(), json!("typed"))].into();
    let problems = choose_inputs(&config, &typed).unwrap_err();
    assert_eq!(problems[0].to_string(), "the secret `read` can only be set by the customer");
}

#[test]
fn a_secret_with_the_name_of_an_input_is_an_error() {
    let tree = bundle(&[
        ("app/secrets.toml", "[[secret]]\nname = \"key\"\n"),
        ("app/inputs.toml", "[[input]]\nname = \"key\"\n"),
    ]);
    let found = read(&tree).unwrap_err();
    let clash = found.iter().find(|finding| finding.code == "secret_clash").unwrap();
    assert_eq!((clash.file.as_str(), clash.line), ("secrets.toml", 1));
    assert!(clash.message.contains("has the name of an input"), "{clash}");
}

#[test]
fn a_template_that_inspects_a_secret_is_an_error() {
    let vars =
        format!("{COMPONENT}[vars]\nx = '{{{{ if .nuon.install.secrets.key }}}}a{{{{ end }}}}'\n");
    let secrets = "[[secret]]\nname = \"key\"\n";
    let found = read(&bundle(&[("app/secrets.toml", secrets), ("app/components/a.toml", &vars)]));
    let found = found.map_or_else(|findings| findings, |(_, findings)| findings);
    let found = found.iter().find(|finding| finding.code == "inspects_sensitive").unwrap();
    assert!(found.message.contains("with the secret `key`"), "{found}");
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
