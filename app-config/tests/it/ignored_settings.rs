//! Settings that this release reads but does not act on are reported with a count and the first
//! line.
use app_config::{Diagnostic, read};

use crate::small;

use small::{COMPONENT, bundle, rejection};

fn ignored_settings(changes: &[(&str, &str)]) -> Vec<Diagnostic> {
    let (_, findings) = read(&bundle(changes)).unwrap();
    findings.into_iter().filter(Diagnostic::is_about_ignored_setting).collect()
}

#[test]
fn one_warning_per_kind_counts_all_files_and_names_the_first() {
    let a = format!("drift_schedule = \"0 3 * * *\"\nrole = \"x\"\n{COMPONENT}");
    let b = format!("\ndrift_schedule = \"0 4 * * *\"\n{}", COMPONENT.replace("\"a\"", "\"b\""));
    let findings = ignored_settings(&[
        ("app/components/a.toml", &a),
        ("app/components/b.toml", &b),
        ("source/b/main.tf", ""),
    ]);
    let found = findings.iter().find(|found| found.message.contains("drift_schedule")).unwrap();
    assert!(found.message.starts_with("2 x `drift_schedule`: "), "{found}");
    assert_eq!((found.file.as_str(), found.line), ("components/a.toml", 1));
    assert!(!found.remedy.is_empty());
    let role = findings.iter().find(|found| found.message.contains("`role`")).unwrap();
    assert!(role.message.contains("the runner assumes no role"), "{role}");
}

#[test]
fn every_setting_without_effect_is_reported() {
    let role = "[provision_role]\nname = \"p\"\n[maintenance_role]\nname = \"m\"\n";
    let named = |file: &str, text: &str| -> Vec<String> {
        ignored_settings(&[(file, text)]).iter().map(|found| found.message.clone()).collect()
    };
    let has = |file: &str, text: &str, message: &str| {
        let named = named(file, text);
        assert!(named.iter().any(|one| one.contains(message)), "{file}: {named:#?}");
    };
    has("app/permissions.toml", role, "2 x role with permissions");
    has("app/break_glass.toml", "[[role]]\nname = \"b\"\n", "1 x break-glass role");
    has("app/stack.toml", "type = \"aws-cloudformation\"\n", "1 x stack.toml");
    has("app/branch.toml", "name = \"main\"\n", "1 x branch");
    has("app/installs/i.toml", "name = \"i\"\n", "1 x install described in the directory");
    let rule = "[[rules]]\nprincipal = \"nuon::sandbox\"\noperation = \"deploy\"\nrole = \"x\"\n";
    has("app/operation_roles.toml", rule, "1 x operation role");
    has("app/policies.toml", "[[policy]]\ntype = \"sandbox\"\ncontents = \"x\"\n", "1 x policy");
    let generated = "[[secret]]\nname = \"s\"\nauto_generate = true\nformat = \"base64\"\n";
    has(
        "app/secrets.toml",
        generated,
        "2 x `auto_generate`, `format` or `kubernetes_…` of a secret",
    );
    assert_eq!(
        named("app/secrets.toml", "[[secret]]\nname = \"s\"\nrequired = true\n"),
        named("x.md", "")
    );
}

#[test]
fn settings_with_effect_and_descriptions_are_not_reported() {
    let text = format!(
        "max_auto_retries = 3\ntoggleable = true\ndefault_enabled = true\nskip_noops = true\n\
         timeout = \"5m\"\ndescription = \"x\"\n{COMPONENT}"
    );
    let quiet = ignored_settings(&[("app/components/a.toml", &text)]);
    let plain = ignored_settings(&[]);
    assert_eq!(quiet, plain);
}

/// A finding with a location would show the value.
#[test]
fn the_address_of_a_channel_is_reported_by_line_only() {
    let text = "version = \"v2\"\nslack_webhook_url = \"https://hooks.example/secret\"\n";
    let findings = ignored_settings(&[("app/metadata.toml", text)]);
    let found = findings.iter().find(|found| found.message.contains("slack")).unwrap();
    assert!(found.message.ends_with("(first in line 2)") && found.line == 0, "{found}");
}

#[test]
fn a_runner_type_of_another_cloud_is_reported() {
    let sandbox = "[public_repo]\nrepo = \"nuonco/azure-aks-sandbox\"\n";
    let runner = "runner_type = \"aws-eks\"\n";
    let files = [("app/sandbox.toml", sandbox), ("app/runner.toml", runner)];
    let (_, findings) = read(&bundle(&files)).unwrap();
    let found = findings.iter().find(|found| found.code == "runner_mismatch").unwrap();
    assert_eq!((found.file.as_str(), found.line, found.column), ("runner.toml", 1, 16));
    let same = [files[0], ("app/runner.toml", "runner_type = \"azure-aks\"\n")];
    let (_, findings) = read(&bundle(&same)).unwrap();
    assert!(findings.iter().all(|found| found.code != "runner_mismatch"));
}

#[test]
fn a_default_component_may_not_require_a_disabled_component() {
    let a = format!("dependencies = [\"b\"]\n{COMPONENT}");
    let b = format!("default_enabled = false\n{}", COMPONENT.replace("\"a\"", "\"b\""));
    let files = [
        ("app/components/a.toml", a.as_str()),
        ("app/components/b.toml", b.as_str()),
        ("source/b/main.tf", ""),
    ];
    let finding = rejection(&files);
    assert_eq!(finding.code, "disabled_dependency");
    assert!(finding.message.contains("`a` requires `b`"), "{finding}");
}

#[test]
fn a_default_component_requires_the_component_that_creates_its_cluster() {
    let cluster = format!("default_enabled = false\n{COMPONENT}");
    let manifest = "name = \"b\"\ntype = \"kubernetes_manifest\"\nkubernetes_context = \"edge\"\n\
                    manifest = \"kind: ConfigMap\"\n";
    let contexts = "[[kubernetes_context]]\nname = \"edge\"\ncomponent = \"a\"\n";
    let files = [
        ("app/components/a.toml", cluster.as_str()),
        ("app/components/b.toml", manifest),
        ("app/kubernetes_contexts.toml", contexts),
    ];
    let finding = rejection(&files);
    assert_eq!(finding.code, "disabled_dependency");
    assert!(finding.message.contains("`b` requires `a`"), "{finding}");
}
