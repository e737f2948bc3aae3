//! Problems that prevent a deploy, or would publish a value by mistake, are found before a sync,
//! with their location.
use std::collections::BTreeMap;

use app_config::{Change, diff, graph, read, resolve_inputs, survey};

use crate::small;

use small::{COMPONENT, bundle, config, rejection};

/// An action without the rest of its step.
const STEP: &str = "name = \"x\"\n[[steps]]\nname = \"s\"\ncommand = \"./s.sh\"\n";

/// A variable may have the name of a content key.
#[test]
fn files_are_read_for_keys_of_the_format_and_not_for_variable_names() {
    let vars = "[vars]\nreadme = \"./README.md\"\nmanifest = \"https://x/a.yaml\"\n[env_vars]\ncontents = \"./no\"\n\
                source = \"git@x:y\"\n[labels]\ninline_contents = \"./no\"\n";
    let action = format!("{STEP}[steps.env_vars]\ncontents = \"./no\"\nmanifest = \"https://x\"\n");
    let component = format!("{COMPONENT}{vars}");
    let files = [("app/components/a.toml", component.as_str()), ("app/actions/x.toml", &action)];
    let (config, findings) = read(&bundle(&files)).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    let module = &config.component("a").unwrap().module;
    assert_eq!(module.vars["readme"].value, "./README.md");
    assert!(module.texts.iter().any(|text| text.value == "./README.md"));
    assert!(config.file_refs.is_empty(), "{:?}", config.file_refs);
}

/// An escape has more characters in the file than in the text, and a newline in the text may be an
/// escape in the file.
#[test]
fn findings_after_escapes_have_the_right_location() {
    let bad = "{{ .nuon.install.id | nosuch }}";
    let unknown = "{{ .nuon.inputs.inputs.nope }}";
    let cases = [
        (format!("\"one\\ntwo {bad}\""), "nosuch"),
        (format!("\"\\\"\\\"\\\" {bad}\""), "nosuch"),
        (format!("\"\\u00e9\\U0001F600\\te {bad}\""), "nosuch"),
        (format!("\"\"\"first \\\n    second {bad}\"\"\""), "nosuch"),
        (format!("\"\"\"\none\\n\ntwo \\\n\n\n  {bad}\n\"\"\""), "nosuch"),
        (format!("\"\"\"\r\none \\\r\n  two\r\n{bad}\"\"\""), "nosuch"),
        (format!("'C:\\new {bad}'"), "nosuch"),
        (format!("\"one\\ntwo {unknown}\""), "nope"),
        (format!("\"\"\"one \\\n  \\t{unknown}\"\"\""), "nope"),
        ("\"a\\nb {{ if .nuon.x }}c\\n\"".to_string(), "\"\nanother"),
    ];
    for (value, at) in cases {
        let text = format!("{COMPONENT}[vars]\nx = {value}\nanother = 1\n");
        let before = &text[..text.find(at).unwrap()];
        let (lines, last) = (before.matches('\n').count(), before.rsplit('\n').next().unwrap());
        let findings = read(&bundle(&[("app/components/a.toml", &text)])).unwrap_err();
        let [found] = findings.as_slice() else { panic!("{value}: {findings:?}") };
        let place = (found.line as usize - 1, found.column as usize - 1);
        assert_eq!(place, (lines, last.chars().count()), "{value}: {found}");
    }
}

/// `survey` reports the findings about local modules that a sync would report.
#[test]
fn a_module_in_the_directory_is_checked_before_a_sync() {
    let of =
        |name: &str, rest: &str| format!("name = \"{name}\"\ntype = \"terraform_module\"\n{rest}");
    let repo =
        |directory: &str| format!("[public_repo]\nrepo = \".\"\ndirectory = \"{directory}\"\n");
    let files = [
        ("app/sandbox.toml", "terraform_version = \"1.11.4\"\n".to_string()),
        ("app/components/a.toml", of("a", &repo("modules/a"))),
        ("app/components/gone.toml", of("gone", &repo("modules/gone"))),
        ("app/components/none.toml", of("none", "")),
        ("app/components/notf.toml", of("notf", &repo("modules/notf"))),
        ("app/components/far.toml", of("far", "[public_repo]\nrepo = \"x/y\"\n")),
        ("app/modules/a/main.tf", String::new()),
        ("app/modules/notf/README.md", String::new()),
        ("app/modules/notf/deep/main.tf", String::new()),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (*a, b.as_str())).collect();
    let findings = survey(&bundle(&files).app(), &[]).diagnostics;
    let found: Vec<(&str, &str)> = findings
        .iter()
        .filter(|found| found.is_error() && found.code == "missing_module")
        .map(|found| (found.file.as_str(), found.message.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("components/gone.toml", "the module of `gone` (modules/gone in .) is missing"),
            ("components/none.toml", "`none` does not name its module"),
            ("components/notf.toml", "the module of `notf` (modules/notf in .) has no .tf file"),
            ("sandbox.toml", "`sandbox` does not name its module"),
        ]
    );
}

#[test]
fn every_cycle_is_found_at_once() {
    let part = |name: &str, on: &str| {
        format!("dependencies = [\"{on}\"]\n{}", COMPONENT.replace("\"a\"", &format!("{name:?}")))
    };
    let parts = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("e", "a")];
    let files: Vec<[String; 2]> = parts
        .iter()
        .map(|(name, on)| [format!("app/components/{name}.toml"), part(name, on)])
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|[a, b]| (a.as_str(), b.as_str())).collect();
    let findings = survey(&bundle(&files).app(), &[]).diagnostics;
    let found: Vec<(&str, &str)> = findings
        .iter()
        .filter(|found| found.code == "cycle")
        .map(|found| (found.file.as_str(), found.message.rsplit(": ").next().unwrap()))
        .collect();
    let expected = [("components/a.toml", "a → b → a"), ("components/c.toml", "c → d → c")];
    assert_eq!(found, expected);
}

/// A component that requires its own outputs can never be deployed: the outputs exist only after
/// the deploy.
#[test]
fn requiring_own_outputs_is_a_cycle_and_reading_optional_ones_is_not() {
    let reads = |text: &str| format!("{COMPONENT}[vars]\nx = '{text}'\n");
    let required = reads("{{ .nuon.components.a.outputs.y }}");
    let found = rejection(&[("app/components/a.toml", &required)]);
    assert_eq!((found.code, found.line), ("cycle", 1));
    assert!(found.message.ends_with(": a → a"), "{found}");
    let optional = reads("{{ dig \"a\" \"outputs\" \"y\" \"\" .nuon.components }}");
    let config = config(&[("app/components/a.toml", &optional)]);
    assert!(graph(&config).dependencies("a").is_empty());
}

const SENSITIVE: &str = "[[input]]\nname = \"pin\"\nsensitive = true\ntype = \"number\"\n";

#[test]
fn a_sensitive_input_has_no_value_in_an_install_of_the_directory() {
    let inputs = format!("{SENSITIVE}[[input]]\nname = \"n\"\ntype = \"number\"\n");
    let install = "name = \"one\"\n[[inputs]]\nn = \"no number\"\n[[inputs]]\npin = \"s3cret\"\n";
    let files = [("app/inputs.toml", inputs.as_str()), ("app/installs/one.toml", install)];
    let reading = survey(&bundle(&files).app(), &[]);
    let errors: Vec<_> = reading.diagnostics.iter().filter(|found| found.is_error()).collect();
    let [found] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!((found.code, found.file.as_str()), ("sensitive_value", "installs/one.toml"));
    assert!(found.message.contains("line 5") && found.message.contains("`pin`"), "{found}");
    let output = app_config::diagnostic::format_findings(
        &reading.diagnostics,
        &bundle(&files).app(),
        false,
        true,
    );
    assert!(!output.contains("s3cret"), "{output}");
    assert!(!format!("{:?}", reading.config.installs).contains("s3cret"));
    let typed = reading.diagnostics.iter().find(|found| found.code == "bad_value").unwrap();
    assert_eq!((typed.line, typed.column), (3, 6), "{typed}");
    assert!(typed.message.contains("`n`: must be a number"), "{typed}");
}

#[test]
fn the_default_of_a_sensitive_input_is_never_shown() {
    let vars = format!("{COMPONENT}[vars]\nx = \"{{{{ .nuon.inputs.inputs.pin }}}}\"\n");
    let with = |default: &str| {
        let inputs = format!("{SENSITIVE}default = \"{default}\"\n");
        bundle(&[("app/inputs.toml", &inputs), ("app/components/a.toml", &vars)])
    };
    let (first, findings) = read(&with("hunter2")).unwrap();
    let finding = findings.iter().find(|found| found.code == "bad_default").unwrap();
    assert!(finding.message.contains("sensitive input `pin`: must be of type number"), "{finding}");
    let output =
        app_config::diagnostic::format_findings(&findings, &with("hunter2").app(), false, true);
    let (second, _) = read(&with("hunter3")).unwrap();
    let difference = diff(&first, &second);
    assert_eq!(difference.components[0].change, Change::Changed);
    assert_eq!(difference.inputs[0].change, Change::Changed);
    let problems = resolve_inputs(&first, &BTreeMap::new()).unwrap_err();
    let all = [
        output,
        format!("{findings:?}"),
        difference.to_string(),
        serde_json::to_string(&difference).unwrap(),
        format!("{problems:?}"),
    ];
    for text in all {
        assert!(!text.contains("hunter"), "{text}");
    }
}
