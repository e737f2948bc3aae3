//! The example apps match their README. Their only findings are about settings that this release
//! does not act on.
use std::{collections::BTreeMap, path::PathBuf};

use app_config::{
    AppConfig, Change, Tree, diff, read,
    refs::graph,
    resolve_inputs, survey, template,
    tree::{PluginPin, SANDBOX},
};
use serde_json::{Value, json};

use crate::support;

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

fn files_plugin() -> Vec<PluginPin> {
    let digest = format!("sha256:{:064}", 0).parse().unwrap();
    vec![PluginPin { name: "files".into(), version: "0.1.0".into(), digest }]
}

/// Builds a bundle as the CLI does for an app with its own modules.
fn bundle(app: &Tree, plugins: &[PluginPin]) -> Tree {
    let config = survey(app, plugins).config;
    let local = |(name, source): (&str, &app_config::model::Source)| {
        assert_eq!(source.repo, ".");
        (name.to_string(), app.subtree(&source.directory))
    };
    let sources: BTreeMap<String, Tree> = config.sources().into_iter().map(local).collect();
    let bundle = Tree::bundle(app, &sources, plugins).unwrap();
    Tree::decode(&bundle.encode().unwrap(), Default::default()).unwrap()
}

fn versions(name: &str, plugins: &[PluginPin]) -> (AppConfig, AppConfig) {
    let app = support::tree(&directory(name));
    let mut second = app.clone();
    for (path, file) in support::tree(&directory(&format!("{name}.v2"))).iter() {
        assert!(app.get(path).is_some(), "{path} is in version 2 only");
        second.insert(path, file.clone()).unwrap();
    }
    let config = |app: &Tree| {
        let (config, mut findings) = read(&bundle(app, plugins)).unwrap();
        findings.retain(|found| !found.is_about_ignored_setting());
        assert!(findings.is_empty(), "{findings:?}");
        config
    };
    (config(&app), config(&second))
}

fn layers(config: &AppConfig) -> Vec<Vec<String>> {
    graph(config).layers
}

#[test]
fn edge_api_is_a_diamond_in_four_layers() {
    let (config, _) = versions("edge-api", &[]);
    let expected: [&[&str]; 4] = [&["network"], &["cache", "database"], &["api"], &["edge"]];
    assert_eq!(layers(&config), expected);
    let graph = graph(&config);
    assert_eq!(graph.readers_of_inputs(&["replicas".into()].into()), ["api".to_string()].into());
    let reached = graph.with_dependents(&["database".into()].into());
    assert_eq!(reached, ["api", "database", "edge"].map(String::from).into());
}

#[test]
fn version_2_of_edge_api_builds_one_component_and_plans_two() {
    let (first, second) = versions("edge-api", &[]);
    let difference = diff(&first, &second);
    assert_eq!(difference.to_build(), ["cache".to_string()].into());
    assert_eq!(difference.to_plan(), ["api", "cache"].map(String::from).into());
    assert_eq!(difference.sandbox.as_ref().unwrap().change, Change::Unchanged);
    let shown = "components\n    network\n";
    assert!(!difference.to_string().starts_with(shown), "{difference}");
    assert_eq!(
        difference.to_string(),
        "components\n  ~ api\n      the default of input replicas: \"2\" -> \"3\"\n  ~ cache\n      \
         its source\n    database\n    edge\n    network\ninputs\n    company\n    domain\n    \
         pace_seconds\n  ~ replicas\n      default: \"2\" -> \"3\"\n    tls"
    );
    assert!(diff(&second, &second).is_empty());
}

#[test]
fn version_2_of_notes_files_builds_one_component_and_plans_two() {
    let (first, second) = versions("notes-files", &files_plugin());
    let difference = diff(&first, &second);
    assert_eq!(difference.to_build(), ["letters".to_string()].into());
    assert_eq!(difference.to_plan(), ["archive", "letters"].map(String::from).into());
    let expected: [&[&str]; 4] =
        [&["settings"], &["accounts", "letters"], &["archive"], &["front_page"]];
    assert_eq!(layers(&first), expected);
}

#[test]
fn an_app_without_its_plugin_is_rejected_with_a_remedy() {
    let app = support::tree(&directory("notes-files"));
    let findings = read(&bundle(&app, &[])).unwrap_err();
    let error = findings.iter().find(|finding| finding.file == "components/archive.toml").unwrap();
    assert_eq!(error.message, "unknown component type `files`");
    assert_eq!(
        error.remedy,
        "use `terraform_module`, or publish a plugin of this name: stead plugins push stead-plugin-files"
    );
}

#[test]
fn aws_bucket_is_read() {
    let app = support::tree(&directory("aws-bucket"));
    let (config, mut findings) = read(&bundle(&app, &[])).unwrap();
    findings.retain(|found| !found.is_about_ignored_setting());
    assert!(findings.is_empty(), "{findings:?}");
    assert!(config.sources().contains_key(SANDBOX));
}

/// Renders every text of an example over a state with everything deployed.
#[test]
fn every_text_of_the_examples_is_rendered() {
    let outputs = json!({
        "network": {"id": "n", "subnets": ["a", "b"]}, "database": {"url": "d"},
        "cache": {"url": "c"}, "api": {"endpoint": "e"}, "edge": {"address": "https://x"},
        "settings": {"root": "/s", "files": {"settings.ini": format!("sha256:{:064}", 0)}},
        "letters": {"root": "/l", "files": {"a.txt": "x"}}, "archive": {"root": "/a"},
        "accounts": {"root": "/c", "files": {}},
    });
    for (name, plugins) in
        [("edge-api", vec![]), ("notes-files", files_plugin()), ("aws-bucket", vec![])]
    {
        let app = support::tree(&directory(name));
        let (config, _) = read(&bundle(&app, &plugins)).unwrap();
        let given = BTreeMap::from([("company".to_string(), json!("Acme"))]);
        let given = given.into_iter().filter(|(name, _)| config.input(name).is_some()).collect();
        let inputs = resolve_inputs(&config, &given).unwrap();
        let wrap = |(name, outputs): (&String, &Value)| (name.clone(), json!({"outputs": outputs}));
        let components: Value = outputs.as_object().unwrap().iter().map(wrap).collect();
        let state = json!({"nuon": {
            "install": {"id": "ins_1", "name": "acme"},
            "inputs": {"inputs": inputs},
            "install_stack": {"outputs": {"region": "eu-1"}},
            "sandbox": {"outputs": {"root": "/b", "prefix": "p", "zones": ["a", "b"],
                "account": {"region": "eu-1"}}},
            "components": components,
        }});
        let modules = config.components.iter().map(|c| &c.module);
        let modules = modules.chain(config.sandbox.iter().map(|s| &s.module));
        let texts =
            modules.flat_map(|m| &m.texts).chain(config.actions.iter().flat_map(|a| &a.texts));
        for text in texts.chain(&config.metadata.readme) {
            let rendered = template::render_text(text, &state).unwrap();
            assert!(!rendered.contains("{{"), "{rendered}");
            assert!(!rendered.contains("<no value>"), "{rendered}");
        }
    }
}
