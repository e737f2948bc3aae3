//! `stead apps init`, `validate` and `inspect` on the command line, without a server or a token.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"))
}

/// Directory of the corpus of real app directories. Without it, a test is skipped, or fails in CI.
fn corpus() -> Option<PathBuf> {
    let set = std::env::var_os("CORPUS_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    if set.is_none() {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "CORPUS_DIR is not a directory: CI requires it");
        eprintln!("SKIPPED: CORPUS_DIR is not a directory, so no real app directory was read");
    }
    set
}

#[test]
fn init_writes_a_valid_app_and_never_overwrites() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("shop");
    let app = app.to_str().unwrap();
    assert!(stead(&["apps", "init", app]).status.success());
    let valid = stead(&["apps", "validate", app, "--strict"]);
    let stdout = String::from_utf8(valid.stdout).unwrap();
    assert_eq!(stdout, "shop is valid: 2 components, 1 action, 2 inputs.\n");
    assert!(valid.status.success());
    let second = stead(&["apps", "init", app]);
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("already exists"));
}

#[test]
fn invalid_app_exits_with_2_and_shows_all_findings() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("shop");
    fs::create_dir_all(app.join("components")).unwrap();
    fs::write(app.join("metadata.toml"), "version = \"v2\"\nreadmee = \"x\"\n").unwrap();
    fs::write(app.join("components/a.toml"), "name = \"a\"\ntype = \"helm\"\n").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", app.join("README.md")).unwrap();
    let app = app.to_str().unwrap();

    let output = stead(&["apps", "validate", app]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["error[path_escape]", "error[unknown_kind]", "warning[unknown_key]", "╭▸", "`readme`?"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(output.stderr.is_empty());

    let report = json(&stead(&["apps", "validate", app, "--output", "json"]));
    assert_eq!((&report["valid"], &report["errors"]), (&false.into(), &2.into()), "{report:#}");
    let sarif = json(&stead(&["apps", "validate", app, "--output", "sarif"]));
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "path_escape", "{sarif:#}");
    let unsupported = stead(&["apps", "list", "--output", "sarif"]);
    assert_eq!(unsupported.status.code(), Some(2));
}

#[test]
fn corpus_apps_are_inspected_and_validated_by_the_program() {
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
        let diagnostics = json(&valid)["diagnostics"].as_array().unwrap().clone();
        assert_eq!(diagnostics.iter().any(|one| one["code"] == "remote_content"), remote, "{name}");
        inspected(name, Path::new(app), facts);
    }
}

fn inspected(name: &str, app: &Path, facts: &Value) {
    let config = json(&stead(&["apps", "inspect", app.to_str().unwrap(), "--output", "json"]));
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
        assert_eq!(config[key], facts[key], "{name} {key}");
    }
    for part in ["toml", "files"] {
        let variables = |value: &Value| value["templates"][part]["variables"].clone();
        assert_eq!(variables(&config), variables(facts), "{name} {part}");
    }
}
