//! `stead apps init`, `validate` and `inspect` on the command line, without a server or a token.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says no by panicking")]
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

fn stead(arguments: &[&str]) -> Output {
    let home = std::env::temp_dir();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
    let alone = command.args(arguments).env_remove("STEAD_SERVER").env_remove("STEAD_TOKEN");
    alone.env("XDG_CONFIG_HOME", home).env("LANG", "C.UTF-8").env_remove("LC_ALL").output().unwrap()
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// Directory of the corpus of real app directories. Without it, a test is skipped, or fails in CI.
fn corpus() -> Option<PathBuf> {
    let set = std::env::var_os("CORPUS_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    if set.is_none() {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "CORPUS_DIR names no directory, and CI=true");
        eprintln!("SKIPPED: CORPUS_DIR names no directory, so no real app directory was read");
    }
    set
}

#[test]
fn what_init_writes_is_well_formed_and_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("shop");
    let app = app.to_str().unwrap();
    assert!(stead(&["apps", "init", app]).status.success());
    let valid = stead(&["apps", "validate", app, "--strict"]);
    let said = String::from_utf8(valid.stdout).unwrap();
    assert_eq!(said, "shop is valid: 2 components, 1 action, 2 inputs.\n");
    assert!(valid.status.success());
    let again = stead(&["apps", "init", app]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("already exists"));
}

#[test]
fn mistakes_and_links_out_of_the_repository_end_with_2_and_are_all_shown() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("shop");
    fs::create_dir_all(app.join("components")).unwrap();
    fs::write(app.join("metadata.toml"), "version = \"v2\"\nreadmee = \"x\"\n").unwrap();
    fs::write(app.join("components/a.toml"), "name = \"a\"\ntype = \"helm\"\n").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", app.join("README.md")).unwrap();
    let app = app.to_str().unwrap();

    let shown = stead(&["apps", "validate", app]);
    assert_eq!(shown.status.code(), Some(2));
    let text = String::from_utf8(shown.stdout).unwrap();
    for part in
        ["error[path_escape]", "error[unknown_kind]", "warning[unknown_key]", "╭▸", "`readme`?"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(shown.stderr.is_empty());

    let said = json(&stead(&["apps", "validate", app, "--output", "json"]));
    assert_eq!((&said["valid"], &said["errors"]), (&false.into(), &2.into()), "{said:#}");
    let sarif = json(&stead(&["apps", "validate", app, "--output", "sarif"]));
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "path_escape", "{sarif:#}");
    let other = stead(&["apps", "list", "--output", "sarif"]);
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn real_directories_are_inspected_and_validated_by_the_program_too() {
    let Some(corpus) = corpus() else { return };
    let facts: Value =
        serde_json::from_slice(&fs::read(corpus.join("facts.json")).unwrap()).unwrap();
    for (name, facts) in facts.as_object().unwrap() {
        let app = corpus.join("apps").join(name);
        let app = app.to_str().unwrap();
        let known = facts["diagnostics"].as_array().unwrap();
        let remote = known.iter().any(|finding| finding["code"] == "remote_ref");
        let valid = stead(&["apps", "validate", app, "--output", "json"]);
        // Validation reports remote content as a finding, and does not fail.
        assert_eq!(valid.status.code(), Some(0), "{:#}", json(&valid));
        let said = json(&valid)["diagnostics"].as_array().unwrap().clone();
        assert_eq!(said.iter().any(|one| one["code"] == "remote_content"), remote, "{name}");
        inspected(name, Path::new(app), facts);
    }
}

fn inspected(name: &str, app: &Path, facts: &Value) {
    let said = json(&stead(&["apps", "inspect", app.to_str().unwrap(), "--output", "json"]));
    for key in [
        "name",
        "metadata",
        "sandbox",
        "runner",
        "stack",
        "components",
        "edges",
        "layers",
        "cycle",
        "inputs",
        "secrets",
        "actions",
        "runbooks",
        "policies",
        "permissions",
        "break_glass_roles",
        "installs",
    ] {
        assert_eq!(said[key], facts[key], "{name} {key}");
    }
    for part in ["toml", "files"] {
        let variables = |value: &Value| value["templates"][part]["variables"].clone();
        assert_eq!(variables(&said), variables(facts), "{name} {part}");
    }
}
