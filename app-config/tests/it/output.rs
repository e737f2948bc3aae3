//! Goldens of the findings of a directory with mistakes, as text, JSON and SARIF.
use std::{fs, path::Path};

use app_config::{
    File, Tree,
    diagnostic::{format_findings, sarif},
    survey,
};

const COMPONENT: &str = r#"name = "api"
type = "helm_chart"
chart_name = "api"
dependencies = ["databse"]
drift_schedule = "61 * * * *"
[public_repo]
repo = "acme/shop"
directroy = "charts/api"
[values]
url = "{{ .nuon.components.database.outputs.url }}"
"höhe" = "{{ .nuon.inputs.inputs.hoehe }}"
[[values_file]]
contents = "./values.yaml"
"#;

const FILES: [(&str, &str); 6] = [
    ("metadata.toml", "version = \"v2\"\n"),
    ("sandbox.toml", "\n"),
    (
        "actions/backup.toml",
        "name = \"backup\"\n[[triggers]]\ntype = \"cron\"\nschedule = \"0 3 * * *\"\n[[steps]]\n\
         name = \"dump\"\ncommand = \"./dump.sh\"\n",
    ),
    ("components/api.toml", COMPONENT),
    ("components/database.toml", "name = \"database\"\ntype = \"terraform_modul\"\n"),
    ("components/worker.toml", "name = \"worker\"\ntype =\n"),
];

fn app() -> Tree {
    let mut tree = Tree::default();
    for (path, text) in FILES {
        tree.insert(path, File { bytes: text.into(), executable: false }).unwrap();
    }
    tree
}

/// `UPDATE_GOLDEN=1` writes the current output. Review the diff as a vendor would read it.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/cli-output").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "{}", path.display());
}

#[test]
fn findings_are_shown_with_their_source_lines() {
    let (app, findings) = (app(), survey(&app(), &[]).diagnostics);
    golden("apps-validate.txt", &format_findings(&findings, &app, false, true));
    golden("apps-validate-ascii.txt", &format_findings(&findings, &app, false, false));
    golden("apps-validate-colour.txt", &format_findings(&findings, &app, true, true));
}

#[test]
fn texts_of_a_directory_cannot_control_the_terminal() {
    let kind = "terraform_module\\u001b]0;owned\\u0007\\u202e";
    let component = format!("name = \"x\"\ntype = \"{kind}\"\n\"\\u001b[2Jk\" = 1\n");
    let mut app = app();
    app.insert("components/x.toml", File { bytes: component.into(), executable: false }).unwrap();
    let findings = survey(&app, &[]).diagnostics;
    let mut shown = format_findings(&findings, &app, false, true);
    findings.iter().for_each(|finding| shown += &finding.to_string());
    assert!(shown.contains("owned"), "{shown}");
    let acts = shown.find(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}');
    assert_eq!(acts, None, "{shown:?}");
}

#[test]
fn findings_are_printed_as_sarif_and_json() {
    let findings = survey(&app(), &[]).diagnostics;
    let pretty = |value: &serde_json::Value| format!("{value:#}\n");
    // A code host rejects a result without a location, and expects paths from the root of the
    // repository.
    for result in sarif(&findings, "0.0.0", "apps/shop")["runs"][0]["results"].as_array().unwrap() {
        let place = &result["locations"][0]["physicalLocation"];
        let path = place["artifactLocation"]["uri"].as_str().unwrap();
        assert!(
            path.starts_with("apps/shop/") && place["region"]["startLine"].is_u64(),
            "{result}"
        );
    }
    golden("apps-validate.sarif.json", &pretty(&sarif(&findings, "0.0.0", "apps/shop")));
    golden("apps-validate.json", &pretty(&serde_json::to_value(&findings).unwrap()));
}
