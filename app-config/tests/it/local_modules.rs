//! Modules in the app directory: variables, outputs, and HCL that cannot be parsed.
use app_config::{Diagnostic, File, Severity, Tree, survey};

/// Findings of an app with these changed files. It has the local modules `web` and `db`, and `web`
/// reads `db`.
fn findings(changes: &[(&str, &str)]) -> Vec<Diagnostic> {
    let component = |name: &str, vars: &str| {
        format!(
            "name = \"{name}\"\ntype = \"terraform_module\"\n[public_repo]\nrepo = \".\"\n\
             directory = \"modules/{name}\"\n[vars]\n{vars}\n"
        )
    };
    let web = component("web", "url = \"{{ .nuon.components.db.outputs.url }}\"");
    let mut app = Tree::default();
    let files = [
        ("metadata.toml", "version = \"v2\""),
        ("components/web.toml", &web),
        ("components/db.toml", &component("db", "size = \"2\"")),
        ("modules/web/main.tf", "variable \"url\" {}\n"),
        ("modules/db/main.tf", "variable \"size\" {}\noutput \"url\" {\n  value = \"x\"\n}\n"),
    ];
    let unchanged = files.iter().filter(|(path, _)| changes.iter().all(|(other, _)| other != path));
    for (path, text) in unchanged.chain(changes) {
        app.insert(path, File { bytes: text.as_bytes().to_vec(), executable: false }).unwrap();
    }
    let mut findings = survey(&app, &[]).diagnostics;
    findings.retain(|found| found.code != "no_sandbox");
    findings
}

#[track_caller]
fn only(changes: &[(&str, &str)]) -> Diagnostic {
    let findings = findings(changes);
    let [found] = findings.as_slice() else { panic!("{findings:#?}") };
    found.clone()
}

#[test]
fn modules_that_match_their_components_have_no_finding() {
    assert_eq!(findings(&[]), []);
    // JSON and override files behave like HCL.
    let json = "{\"variable\": {\"size\": {}}, \"output\": [{\"url\": {\"value\": \"x\"}}]}";
    let same = [("modules/db/main.tf", "# nothing\n"), ("modules/db/main.tf.json", json)];
    assert_eq!(findings(&same), []);
}

#[test]
fn broken_hcl_is_an_error_with_file_and_line() {
    let found =
        only(&[("modules/db/main.tf", "variable \"size\" {}\noutput \"url\" {\n  value = \n")]);
    assert_eq!((found.severity, found.code), (Severity::Error, "bad_module"), "{found}");
    assert_eq!((found.file.as_str(), found.line), ("modules/db/main.tf", 3), "{found}");
    let found = only(&[("modules/db/more.tf.json", "{\n  \"variable\": \n}")]);
    assert_eq!((found.code, found.line), ("bad_module", 3), "{found}");
}

#[test]
fn a_misspelled_output_is_an_error_with_a_suggestion() {
    let module = "variable \"size\" {}\noutput \"uri\" {\n  value = \"x\"\n}\n";
    let found = only(&[("modules/db/main.tf", module)]);
    assert_eq!((found.severity, found.code), (Severity::Error, "unknown_output"), "{found}");
    assert_eq!((found.file.as_str(), found.line, found.column), ("components/web.toml", 7, 39));
    assert_eq!(found.remedy, "did you mean `uri`?");
}

#[test]
fn a_misspelled_variable_is_an_error_with_a_suggestion() {
    let findings = findings(&[("modules/db/main.tf", "variable \"sise\" {}\noutput \"url\" {}\n")]);
    let found = findings.iter().find(|found| found.code == "unknown_variable").unwrap();
    assert!(found.is_error() && found.remedy == "did you mean `sise`?", "{found}");
    assert_eq!((found.file.as_str(), found.line), ("components/db.toml", 7));
    // The similarly named variable has no value either.
    assert!(findings.iter().any(|found| found.code == "missing_variable"), "{findings:#?}");
}

#[test]
fn a_variable_that_resembles_none_or_has_no_value_is_a_warning() {
    let module = "variable \"zones\" { default = [] }\noutput \"url\" {}\n";
    let found = only(&[("modules/db/main.tf", module)]);
    assert_eq!((found.severity, found.code), (Severity::Warning, "unknown_variable"), "{found}");
    let module = "variable \"size\" {}\nvariable \"owner\" {}\noutput \"url\" {}\n";
    let found = only(&[("modules/db/main.tf", module)]);
    assert_eq!((found.severity, found.code), (Severity::Warning, "missing_variable"), "{found}");
    assert!(found.message.contains("`owner`") && found.file == "components/db.toml", "{found}");
}

#[test]
fn an_output_that_is_read_with_dig_may_be_missing() {
    let web = "name = \"web\"\ntype = \"terraform_module\"\n[public_repo]\nrepo = \".\"\n\
               directory = \"modules/web\"\n[vars]\n\
               url = '{{ dig \"outputs\" \"other\" \"-\" .nuon.components.db }}'\n";
    assert_eq!(findings(&[("components/web.toml", web)]), []);
}
