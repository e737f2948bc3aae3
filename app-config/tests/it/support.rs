#![allow(dead_code, reason = "each test file uses a part of it")]
//! Reads real directories for the tests. The crate itself opens no files.

use std::{fs, path::Path, path::PathBuf};

use app_config::{File, Tree};
use serde_json::Value;

/// Corpus of real app directories. It is not part of this repository. Without it these tests are
/// skipped with a message, and fail in CI.
pub fn corpus() -> Option<PathBuf> {
    let set = std::env::var_os("CORPUS_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    if set.is_none() {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "CORPUS_DIR is not a directory: CI requires it");
        eprintln!("SKIPPED: CORPUS_DIR is not a directory, so no real app directory was read");
    }
    set
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

pub fn tree(top: &Path) -> Tree {
    let mut tree = Tree::default();
    add(&mut tree, top, "");
    tree
}

fn add(tree: &mut Tree, directory: &Path, prefix: &str) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            add(tree, &entry.path(), &format!("{path}/"));
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            tree.insert(&path, File { bytes, executable: false }).unwrap();
        }
    }
}
