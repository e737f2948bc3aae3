//! Syncs all directories of the corpus to one server.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use app_config::{File, Tree, inspect, survey};
use cli::client::ClientError;
use schemas::control::installs::CreateInstall;
use serde_json::Value;

use super::{new_install, owner, rejection, request_body};
use crate::server::testing::Started;

/// Directory of the corpus. Without it, the test is skipped, or fails in CI.
fn corpus() -> Option<PathBuf> {
    let found = std::env::var_os("CORPUS_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI must name the corpus by CORPUS_DIR");
        eprintln!("SKIPPED: no corpus; name its directory by CORPUS_DIR");
    }
    found
}

/// Adds all files below a directory.
fn tree(top: &Path, below: &str, into: &mut Tree) {
    for entry in fs::read_dir(top).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            tree(&entry.path(), &format!("{path}/"), into);
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            into.insert(&path, File { bytes, executable: false }).unwrap();
        }
    }
}

fn directory(top: &Path) -> Tree {
    let mut found = Tree::default();
    tree(top, "", &mut found);
    found
}

/// App directory, and the bundle that a sync makes of it with the repositories of the corpus.
fn bundle(corpus: &Path, app: &str) -> (Tree, Tree) {
    let of = directory(&corpus.join("apps").join(app));
    let surveyed = survey(&of, &[]).config;
    let mut sources = BTreeMap::new();
    for (name, source) in surveyed.sources() {
        let place = corpus.join("repos").join(&source.repo).join(&source.directory);
        if place.is_dir() {
            sources.insert(name.to_owned(), directory(&place));
        } else if surveyed.lacks_plugin(name).is_none() {
            // The corpus lacks the repository with the modules of one app.
            let mut module = Tree::default();
            module.insert("main.tf", File::default()).unwrap();
            sources.insert(name.to_owned(), module);
        }
    }
    let bundle = Tree::bundle(&of, &sources, &[]).unwrap();
    (of, bundle)
}

fn names(of: &Value) -> Vec<&str> {
    of.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_corpus_app_syncs_once_and_matches_inspect() {
    let Some(corpus) = corpus() else { return };
    let started = Started::new().await;
    let owner = owner(&started);
    let facts = fs::read(corpus.join("facts.json")).unwrap();
    let facts: BTreeMap<String, Value> = serde_json::from_slice(&facts).unwrap();
    let mut taken = 0;
    for (app, facts) in &facts {
        let (of, bundle) = bundle(&corpus, app);
        let bytes = request_body(&bundle);
        let first = owner.sync(app, bytes.clone(), false).await;
        let first = first.unwrap_or_else(|error| panic!("{app}: {error}"));
        assert_eq!((first.version, first.unchanged), (1, false), "{app}");
        assert_eq!(first.bundle, bundle.digest().unwrap(), "{app}");
        // The same bytes have the same digest and create no version.
        let again = owner.sync(app, bytes.clone(), false).await.unwrap();
        assert_eq!((again.version, again.unchanged, &again.bundle), (1, true, &first.bundle));
        let would = owner.sync(app, bytes, true).await.unwrap();
        assert!(would.diff.changes.is_empty(), "{app}: {:?}", would.diff);

        let response = owner.version(app, 1).await.unwrap();
        assert_eq!(response.config, inspect(app, &of, &survey(&of, &[])), "{app}");
        assert_eq!(response.config["secrets"], facts["secrets"], "{app}");
        assert_eq!(response.config["inputs"]["sensitive"], facts["inputs"]["sensitive"], "{app}");
        let kinds: BTreeMap<_, _> = response
            .version
            .components
            .iter()
            .map(|c| (c.name.as_str(), c.kind.as_str()))
            .collect();
        for component in facts["components"]["list"].as_array().unwrap() {
            let name = component["name"].as_str().unwrap();
            assert_eq!(kinds[name], component["type"].as_str().unwrap(), "{app}");
        }
        taken += 1;

        // Secrets are declared, but cannot be set as inputs.
        let with = |name: &str| CreateInstall {
            app: app.clone(),
            inputs: BTreeMap::from([(name.to_owned(), "hunter2".to_owned())]),
            ..new_install("acme")
        };
        let secret = names(&facts["secrets"]["names"]);
        for name in names(&facts["inputs"]["sensitive"]).into_iter().chain(secret) {
            let rejection = owner.create_install(&with(name)).await.unwrap_err();
            let ClientError::Problem(problem) = rejection else {
                panic!("{app} {name}: {rejection}")
            };
            let field = format!("inputs.{name}");
            let about = problem.errors.iter().find(|error| error.field.as_ref() == Some(&field));
            assert!(about.is_some(), "{app}: {problem:?}");
            assert!(!format!("{problem:?}").contains("hunter2"), "{app}: {problem:?}");
        }
    }
    assert_eq!(taken, facts.len());
    // An invalid bundle creates neither an app nor a version.
    let (mut broken, of) = (bundle(&corpus, "kitchen-sink").1, "kitchen-sink");
    let typo = b"name = \"other\"\ntype = \"helm_chrat\"\n".to_vec();
    let path = "app/components/other.toml";
    broken.insert(path, File { bytes: typo, executable: false }).unwrap();
    for app in [of, "of-nobody"] {
        assert_eq!(rejection(owner.sync(app, request_body(&broken), false).await).0, 422);
    }
    assert_eq!(owner.app(of).await.unwrap().version, 1);
    assert_eq!(rejection(owner.app("of-nobody").await).0, 404);
}
