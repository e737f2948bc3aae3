#![allow(dead_code, reason = "each test file uses a part of it")]
//! A small app without findings, with optional changes.
use std::collections::BTreeMap;

use app_config::{AppConfig, Diagnostic, File, Tree, read};

pub const COMPONENT: &str =
    "name = \"a\"\ntype = \"terraform_module\"\n[public_repo]\nrepo = \"x/y\"\n";

/// A small app without findings, with changed files. The content `-` removes a file.
pub fn bundle(changes: &[(&str, &str)]) -> Tree {
    let sandbox = "terraform_version = \"1.11.4\"\n[public_repo]\nrepo = \"x/y\"\n";
    let mut files = BTreeMap::from([
        ("app/metadata.toml", "version = \"v2\""),
        ("app/sandbox.toml", sandbox),
        ("app/components/a.toml", COMPONENT),
        ("source/sandbox/main.tf", ""),
        ("source/a/main.tf", ""),
    ]);
    files.extend(changes.iter().copied());
    let mut tree = Tree::default();
    for (path, text) in files.into_iter().filter(|(_, text)| *text != "-") {
        tree.insert(path, File { bytes: text.into(), executable: false }).unwrap();
    }
    tree
}

pub fn config(changes: &[(&str, &str)]) -> AppConfig {
    read(&bundle(changes)).unwrap().0
}

pub fn rejection(changes: &[(&str, &str)]) -> Diagnostic {
    let findings = read(&bundle(changes)).unwrap_err();
    let errors: Vec<Diagnostic> = findings.into_iter().filter(Diagnostic::is_error).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.into_iter().next().unwrap()
}

/// A file and its text, with the code, location and text of the finding.
pub type Case = (&'static str, String, &'static str, (u32, u32), &'static str);
