//! Real directories with stand-ins for their modules: which of them this release can publish, and
//! what it says about the others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says no by panicking")]
use std::{collections::BTreeMap, path::Path};

use app_config::{Diagnostic, Tree, read, survey};

mod support;

fn bundle(corpus: &Path, app: &str) -> Tree {
    let directory = support::tree(&corpus.join("apps").join(app));
    let config = survey(&directory, &[]).config;
    let sources: BTreeMap<String, Tree> = config
        .sources()
        .into_iter()
        .map(|(name, source)| {
            let place = corpus.join("repos").join(&source.repo).join(&source.directory);
            let tree = if place.is_dir() { support::tree(&place) } else { Tree::default() };
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

#[test]
fn what_comes_later_is_refused_in_a_sentence_and_nothing_else_is() {
    let Some(corpus) = support::corpus() else { return };
    let facts = support::json(&corpus.join("facts.json"));
    let (mut read_whole, mut codes) = (Vec::new(), BTreeMap::<&str, usize>::new());
    let mut strange: Vec<String> = Vec::new();
    for app in facts.as_object().unwrap().keys() {
        match read(&bundle(&corpus, app)) {
            Ok(_) => read_whole.push(app.as_str()),
            Err(findings) => {
                for finding in findings.iter().filter(|finding| finding.is_error()) {
                    *codes.entry(finding.code).or_default() += 1;
                    if !explained(finding) {
                        strange.push(format!("{app}: {finding}"));
                    }
                }
            }
        }
    }
    println!("published unchanged: {read_whole:?}; refusals: {codes:?}");
    assert!(strange.is_empty(), "{}", strange.join("\n"));
}

/// What the facts also know: other kinds, contents and scripts elsewhere, and modules that have no stand-in because they
/// are remote charts.
fn explained(finding: &Diagnostic) -> bool {
    matches!(finding.code, "no_plugin" | "remote_content" | "missing_module" | "script_elsewhere")
}

#[test]
fn real_directories_are_well_formed_but_for_what_they_fetch_from_elsewhere() {
    let Some(corpus) = support::corpus() else { return };
    let facts = support::json(&corpus.join("facts.json"));
    let mut warnings = BTreeMap::<&str, Vec<String>>::new();
    for (app, facts) in facts.as_object().unwrap() {
        let reading = survey(&support::tree(&corpus.join("apps").join(app)), &[]);
        let (errors, rest): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
            reading.diagnostics.iter().partition(|finding| finding.is_error());
        for finding in rest {
            warnings.entry(finding.code).or_default().push(format!("{app}: {finding}"));
        }
        let known = facts["diagnostics"].as_array().unwrap();
        let remote = known.iter().filter(|finding| finding["code"] == "remote_ref").count();
        assert!(errors.iter().all(|error| error.code == "remote_content"), "{app}: {errors:?}");
        assert_eq!(errors.len(), remote, "{app}: {errors:?}");
        let found = |code: &str| reading.diagnostics.iter().filter(|d| d.code == code).count();
        let wanted = |code: &str| known.iter().filter(|d| d["code"] == code).count();
        assert_eq!(found("empty_file"), wanted("empty_file"), "{app}");
        assert_eq!(found("no_schedule"), wanted("cron_without_cron_schedule"), "{app}");
        assert_eq!(found("missing_file"), wanted("missing_file_ref"), "{app}");
    }
    for (code, all) in &warnings {
        println!("{code}: {}; such as {}", all.len(), all[0]);
    }
}
