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

/// What the facts also know: other kinds, contents elsewhere, two files that are not there, and
/// modules that have no stand-in because they are remote charts.
fn explained(finding: &Diagnostic) -> bool {
    matches!(finding.code, "not_yet" | "remote_content" | "missing_file" | "missing_module")
}
