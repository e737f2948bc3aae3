//! Tests that the crates depend on each other only as the architecture allows.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use serde_json::Value;
use tests::stdout_of;

/// Workspace crates that each crate may depend on. The domain depends on none.
const ALLOWED: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("proof", &[]),
    ("install-keys", &["domain"]),
    ("postgres-supervisor", &[]),
    ("app-config", &["domain"]),
    ("oci-layout", &["domain"]),
    ("schemas", &["domain", "proof"]),
    ("event-log", &["domain", "postgres-supervisor", "proof"]),
    ("projections", &["domain", "event-log"]),
    ("measure", &["domain", "event-log", "proof"]),
    ("oci-registry", &["domain", "oci-layout", "schemas"]),
    ("runner-agent", &["domain", "install-keys", "oci-layout", "oci-registry", "proof", "schemas"]),
    (
        "api",
        &[
            "app-config",
            "dashboard",
            "domain",
            "event-log",
            "postgres-supervisor",
            "oci-layout",
            "oci-registry",
            "projections",
            "proof",
            "schemas",
        ],
    ),
    ("dashboard", &["schemas"]),
    ("cli", &["app-config", "domain", "install-keys", "oci-layout", "proof", "schemas"]),
    ("stead", &["api", "cli", "event-log", "schemas", "domain"]),
    (
        "bench",
        &[
            "api",
            "app-config",
            "domain",
            "event-log",
            "measure",
            "projections",
            "proof",
            "schemas",
            "tests",
        ],
    ),
    ("stead-plugin-files", &[]),
    ("frozen-plugin-v1", &[]),
    ("stead-plugin-kubernetes", &["proof", "schemas"]),
    ("stead-plugin-helm", &["proof", "schemas", "stead-plugin-kubernetes"]),
];

/// Forbidden direct dependencies of each crate.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("domain", &["sqlx", "axum", "tokio", "cqrs-es"]),
    ("proof", &["sqlx", "axum", "tokio", "cqrs-es"]),
    ("install-keys", &["sqlx", "axum", "tokio", "cqrs-es"]),
    ("app-config", &["sqlx", "axum", "tokio", "cqrs-es"]),
    ("oci-layout", &["sqlx", "axum", "tokio", "cqrs-es"]),
    ("oci-registry", &["sqlx", "axum", "cqrs-es", "kube", "k8s-openapi"]),
    ("runner-agent", &["sqlx", "axum", "cqrs-es", "kube", "k8s-openapi"]),
    ("projections", &["cqrs-es", "axum"]),
    ("schemas", &["sqlx", "axum", "tokio", "cqrs-es"]),
    ("dashboard", &["sqlx", "axum", "tokio", "cqrs-es"]),
    ("api", &["cqrs-es", "clap"]),
    ("cli", &["cqrs-es", "axum", "sqlx"]),
    ("stead", &["cqrs-es", "axum"]),
    ("stead-plugin-kubernetes", &["sqlx", "axum", "cqrs-es"]),
    ("stead-plugin-helm", &["sqlx", "axum", "cqrs-es"]),
];

fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).current_dir(root);
    let metadata: Value = serde_json::from_str(&stdout_of(&mut command)).unwrap();
    let direct = |package: &Value| {
        let is_normal = |dependency: &&Value| dependency["kind"].is_null();
        let all = package["dependencies"].as_array().unwrap().iter().filter(is_normal);
        all.map(|dependency| dependency["name"].as_str().unwrap().to_string()).collect()
    };
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().map(|p| (p["name"].as_str().unwrap().to_string(), direct(p))).collect()
}

#[test]
fn crates_have_only_allowed_dependencies() {
    let crates = dependencies();
    let workspace_crates: BTreeSet<&String> = crates.keys().collect();
    for (name, direct) in crates.iter().filter(|(name, _)| *name != "tests") {
        let allowed = ALLOWED.iter().find(|(listed, _)| listed == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("ALLOWED does not list {name}"));
        for other in direct.iter().filter(|other| workspace_crates.contains(other)) {
            assert!(allowed.contains(&other.as_str()), "{name} must not depend on {other}");
        }
    }
}

/// Fault injection is for tests that enable it. A default build must not contain it.
#[test]
fn a_default_build_has_no_fault_injection() {
    let tree = |of: &[&str]| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut command = Command::new(env!("CARGO"));
        command.args(["tree", "--offline", "--locked", "--prefix", "none"]).args(of);
        command.args(["-e", "no-dev", "--format", "{p} {f}"]);
        stdout_of(command.current_dir(root))
    };
    assert!(!tree(&["--workspace"]).contains("fault-injection"));
    assert!(tree(&["-p", "api", "--features", "fault-injection"]).contains("fault-injection"));
}

#[test]
fn no_crate_has_a_forbidden_dependency() {
    let crates = dependencies();
    for (name, forbidden) in FORBIDDEN {
        for other in forbidden.iter() {
            assert!(!crates[*name].contains(*other), "{name} must not depend on {other}");
        }
    }
}

/// bincode is unmaintained, so its use is confined to one module: docs/adr/0019.
#[test]
fn only_the_snapshot_module_uses_bincode() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut grep = Command::new("git");
    grep.args(["grep", "-lE", r"bincode::(en|de)code_|encode_into_|decode_from_", "--", "*.rs"]);
    let files = stdout_of(grep.current_dir(&root));
    let uses_bincode = |file: &&str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        let uses = shipped.contains("decode_from_") || shipped.contains("encode_into_");
        !file.contains("tests/") && shipped.contains("bincode::") && uses
    };
    let found: Vec<_> = files.lines().filter(uses_bincode).collect();
    assert_eq!(found, ["event-log/src/snapshot.rs"]);
}
