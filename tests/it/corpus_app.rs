//! Tests unchanged third-party apps of the same format, with stubs for the modules that they name.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tests::{
    Customer, Registry, Server, in_ci, program, step, succeeded, terraform_or_skip, until,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the corpus directory. Without it, the test prints a note and passes; in CI it fails.
fn corpus_or_skip() -> Option<PathBuf> {
    let found = std::env::var_os("CORPUS_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    if found.is_none() {
        assert!(!in_ci(), "CI must name the corpus by CORPUS_DIR");
        eprintln!("SKIPPED: no corpus; name its directory by CORPUS_DIR");
    }
    found
}

/// Returns the `--source` option for a repository of the corpus.
fn at(name: &str, dir: &Path) -> [String; 2] {
    ["--source".into(), format!("{name}={}", dir.display())]
}

/// Publishes an app with its repositories, and waits for its builds.
fn published(server: &Server, app: &Path, repos: &[[String; 2]]) -> Value {
    let mut args = vec!["apps", "sync", app.to_str().unwrap()];
    args.extend(repos.as_flattened().iter().map(String::as_str));
    args.push("--wait");
    server.cli_json(&args)
}

/// Runs `corpus` for these apps, and returns its output with its exit code.
fn run(apps: &Path, repos: &Path, names: &[&str]) -> (String, Option<i32>) {
    let dir = tempfile::tempdir().unwrap();
    let mut corpus = Command::new(program("corpus"));
    corpus.arg("--apps").arg(apps).arg("--repos").arg(repos).arg("--logs").arg(dir.path());
    let output = corpus.args(names).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text + &String::from_utf8_lossy(&output.stderr), output.status.code())
}

#[test]
fn apps_of_the_corpus_live_through_their_whole_life() {
    let Some(corpus) = corpus_or_skip().filter(|_| terraform_or_skip()) else { return };
    let names = ["httpbin", "aws-lambda"];
    let (output, code) = run(&corpus.join("apps"), &corpus.join("repos"), &names);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("2 apps: 2 up, 0 wait, 0 failed"), "{output}");
    // The program of the customer answers the request of the action.
    let line = output.lines().find(|line| line.starts_with("aws-lambda")).unwrap();
    assert!(line.contains("trigger post-deploy-component by hand"), "{line}");
    assert!(line.contains("programs curl"), "{line}");
}

#[test]
fn an_app_that_cannot_be_built_fails_with_its_step_and_reason() {
    if !terraform_or_skip() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (app, module) = (dir.path().join("apps/shop"), dir.path().join("repos/acme/modules/web"));
    fs::create_dir_all(app.join("components")).unwrap();
    fs::create_dir_all(&module).unwrap();
    fs::write(app.join("metadata.toml"), "version = \"v2\"\n").unwrap();
    let component = "name = \"web\"\ntype = \"terraform_module\"\nterraform_version = \"1.11.4\"\n\
                     [public_repo]\nrepo = \"acme/modules\"\ndirectory = \"web\"\n";
    fs::write(app.join("components/web.toml"), component).unwrap();
    fs::write(module.join("main.tf"), "output \"text\" { value = local.missing }\n").unwrap();
    let (output, code) = run(&dir.path().join("apps"), &dir.path().join("repos"), &[]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("FAILED: publish: build of \"web\""), "{output}");
    assert!(output.contains("1 apps: 0 up, 0 wait, 1 failed"), "{output}");

    let (output, code) = run(&dir.path().join("apps"), &dir.path().join("repos"), &["missing"]);
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("has no app missing"), "{output}");
}

#[test]
fn an_app_with_a_container_image_is_deployed() {
    let Some(corpus) = corpus_or_skip().filter(|_| terraform_or_skip()) else { return };
    let Some(hub) = Registry::start_or_skip() else { return };
    let whoami = hub.push_image("containous/whoami", "v1.5.0", "linux/amd64", &[b"whoami"]);
    let mirror = format!("docker.io={}", hub.url());
    let server = Server::up_with("127.0.0.1:0", &["--registry-mirror", &mirror]);
    let app = corpus.join("apps/ecs-simple");
    let repo = |name: &str| at(name, &corpus.join("repos").join(name));
    let repos = ["nuonco/aws-min-sandbox", "nuonco/example-app-configs", "nuonco/components"];
    published(&server, &app, &repos.map(repo));
    let vpc = server.dir().join("stack.json");
    fs::write(&vpc, "{\"vpc_id\": \"vpc-0a1b\", \"region\": \"eu-1\"}").unwrap();
    let mut args = vec!["installs", "create", "ecs-simple", "acme", "--auto-approve"];
    args.extend(["--stack-outputs-file", vpc.to_str().unwrap()]);
    args.extend(["--stack-output", "region=eu-central-1"]);
    let created = server.cli_json(&args);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let _runner = Customer::new(&server, "customer").start(&server, token);
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    let run = succeeded(&server, "acme");
    for name in ["sandbox", "certificate", "cluster", "alb", "img_whoami", "whoami"] {
        assert_eq!(step(&run, name)["state"], "succeeded", "{run:#}");
    }
    let state = server.cli_json(&["installs", "state", "acme"]);
    let image = &state["nuon"]["components"]["img_whoami"]["outputs"]["image"];
    assert_eq!(image["repository"], "docker.io/containous/whoami", "{image:#}");
    assert_eq!(image["tag"], format!("v1.5.0@{}", whoami.digest), "{image:#}");
}
