//! Bundles of real app directories with stand-ins for their modules. This release publishes all of
//! them, and reports the parts that it cannot deploy.
use std::{collections::BTreeMap, path::Path};

use app_config::{File, Tree, model::Component, read, survey};

use crate::support;

fn bundle(corpus: &Path, app: &str) -> Tree {
    let directory = support::tree(&corpus.join("apps").join(app));
    let config = survey(&directory, &[]).config;
    let sources: BTreeMap<String, Tree> = config
        .sources()
        .into_iter()
        .map(|(name, source)| {
            let place = corpus.join("repos").join(&source.repo).join(&source.directory);
            let mut tree = if place.is_dir() { support::tree(&place) } else { Tree::default() };
            if tree.is_empty() && config.lacks_plugin(name).is_none() {
                // The modules of one app are in a repository that the corpus does not contain.
                tree.insert("main.tf", File::default()).unwrap();
            }
            (name.to_string(), tree)
        })
        .collect();
    let bundle = Tree::bundle(&directory, &sources, &[]).unwrap();
    Tree::decode(&bundle.encode().unwrap(), Default::default()).unwrap()
}

#[test]
fn terraform_only_directories_are_read_unchanged() {
    let Some(corpus) = support::corpus() else { return };
    for app in ["httpbin", "aws-lambda"] {
        let (config, warnings) = read(&bundle(&corpus, app)).unwrap();
        assert!(config.components.iter().all(|c| c.module.source_digest.is_some()), "{app}");
        for warning in warnings {
            println!("{app}: {warning}");
        }
    }
}

/// Types that the runner implements.
const BUILT_IN: [&str; 3] = ["terraform_module", "container_image", "external_image"];

/// Covers every component type, even with absent modules. Parts that this release cannot deploy are
/// warnings.
#[test]
fn every_real_directory_is_published_and_unsupported_parts_are_reported() {
    let Some(corpus) = support::corpus() else { return };
    let facts = support::json(&corpus.join("facts.json"));
    for (app, facts) in facts.as_object().unwrap() {
        let (config, findings) = read(&bundle(&corpus, app)).unwrap_or_else(|all| {
            let errors: Vec<_> = all.iter().filter(|finding| finding.is_error()).collect();
            panic!("{app}: {errors:#?}")
        });
        let kinds = facts["components"]["by_type"].as_object().unwrap();
        let expected = kinds.iter().filter(|(kind, _)| !BUILT_IN.contains(&kind.as_str()));
        let expected: u64 = expected.map(|(_, count)| count.as_u64().unwrap()).sum();
        let missing_plugins: Vec<String> =
            config.components.iter().filter_map(|c| config.lacks_plugin(&c.name)).collect();
        assert_eq!(missing_plugins.len() as u64, expected, "{app}: {missing_plugins:?}");
        let needs_plugin = |c: &&Component| !BUILT_IN.contains(&c.module.kind.as_str());
        for component in config.components.iter().filter(needs_plugin) {
            let kind = format!("the plugin `{}`", component.module.kind);
            assert!(
                missing_plugins.iter().any(|message| message.contains(&kind)),
                "{app}: {missing_plugins:?}"
            );
            let kind = format!("type `{}`", component.module.kind);
            let finding =
                findings.iter().find(|f| f.code == "no_plugin" && f.message.contains(&kind));
            assert!(finding.is_some_and(|finding| finding.line > 0), "{app}: {kind}");
        }
    }
}

#[test]
fn real_directories_are_well_formed() {
    let Some(corpus) = support::corpus() else { return };
    let facts = support::json(&corpus.join("facts.json"));
    let mut warnings = BTreeMap::<&str, Vec<String>>::new();
    for (app, facts) in facts.as_object().unwrap() {
        let reading = survey(&support::tree(&corpus.join("apps").join(app)), &[]);
        for finding in &reading.diagnostics {
            assert!(!finding.is_error(), "{app}: {finding}");
            warnings.entry(finding.code).or_default().push(format!("{app}: {finding}"));
        }
        let known = facts["diagnostics"].as_array().unwrap();
        let found = |code: &str| reading.diagnostics.iter().filter(|d| d.code == code).count();
        let expected_count = |code: &str| known.iter().filter(|d| d["code"] == code).count();
        assert_eq!(found("remote_content"), expected_count("remote_ref"), "{app}");
        assert_eq!(found("empty_file"), expected_count("empty_file"), "{app}");
        assert_eq!(found("no_schedule"), expected_count("cron_without_cron_schedule"), "{app}");
        assert_eq!(found("missing_file"), expected_count("missing_file_ref"), "{app}");
    }
    for (code, all) in &warnings {
        println!("{code}: {}; such as {}", all.len(), all[0]);
    }
}
