//! Tests `scripts/demo --cluster` as a user runs it, with the programs of the test build.
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tests::{Cluster, helm_or_skip, in_ci, program, terraform_or_skip};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/demo");

/// Runs the demo with an own directory for its files.
fn demo(kubeconfig: &Path, tmp: &Path, without: &[&str]) -> (Output, String) {
    let mut command = Command::new(DEMO);
    command.arg("--programs").arg(program("stead").parent().unwrap());
    command.arg("--cluster").arg(kubeconfig).env("TMPDIR", tmp);
    for name in without {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output, text)
}

/// Returns the number of files in a directory.
fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn the_demo_deploys_an_image_a_manifest_and_a_chart_and_leaves_nothing() {
    if !terraform_or_skip() {
        return;
    }
    let (Some(cluster), Some(_)) = (Cluster::shared_or_skip(), helm_or_skip()) else { return };
    let engines = ["STEAD_TEST_REGISTRY", "STEAD_TEST_KUBERNETES"];
    if engines.iter().any(|name| std::env::var_os(name).is_none()) {
        assert!(!in_ci(), "CI must have {engines:?}");
        return eprintln!("SKIPPED: no registry or no image for it: set {engines:?}");
    }
    let tmp = tempfile::Builder::new().prefix("stead-").tempdir_in("/tmp").unwrap();

    let (output, text) = demo(cluster.kubeconfig(), tmp.path(), &[]);

    assert!(output.status.success(), "{text}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    for expected in ["Deployed by Stead", "Changed by Stead", "1/1", "127.0.0.1:", "for globex on"]
    {
        assert!(stdout.contains(expected), "no {expected}: {text}");
    }
    // No file, process or object of the demo remains.
    assert_eq!(entries(tmp.path()), 0, "{text}");
    let running = Command::new("pgrep").args(["-f", tmp.path().to_str().unwrap()]).output();
    assert_eq!(String::from_utf8_lossy(&running.unwrap().stdout), "");
    let namespace = stdout.split("namespace=").nth(1).unwrap();
    let namespace = namespace.split('"').next().unwrap();
    let get = ["get", "namespace", namespace, "--ignore-not-found", "--output", "name"];
    let left = cluster.kubectl().args(get).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "", "{namespace}");
}

#[test]
fn the_demo_names_a_missing_registry_before_it_starts_anything() {
    let (Some(cluster), Some(_)) = (Cluster::shared_or_skip(), helm_or_skip()) else { return };
    let tmp = tempfile::tempdir().unwrap();
    let (output, text) = demo(cluster.kubeconfig(), tmp.path(), &["STEAD_TEST_REGISTRY"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("use --registry HOST[:PORT]/PREFIX"), "{text}");
    assert_eq!(entries(tmp.path()), 0, "{text}");
}
