//! Tests lock files of Terraform modules that builds write.
use tests::provider_config_or_skip;

use super::*;

const AWS: &str = "terraform {\n  required_providers {\n    aws = {\n      source = \"hashicorp/aws\"\n    }\n  }\n}\n";
const LOCK: &str = "web/.terraform.lock.hcl";

/// Terraform whose `providers lock` adds digests as the registry of the provider has them. The other
/// commands run the real one.
const WITH_REGISTRY: &str = r#"#!/bin/sh
if [ "$1 $2" = "providers lock" ]; then
  sed -i 's|  hashes = \[|&\n    "h1:FILL=",\n    "zh:DIGEST",|' .terraform.lock.hcl
  sed -i "s|FILL|$(printf %043d 0)|; s|DIGEST|$(printf %064d 0)|" .terraform.lock.hcl
  exit
fi
exec REAL "$@"
"#;

#[test]
fn a_build_pins_providers_only_with_the_digests_of_their_registry() {
    if !terraform_or_skip() {
        return;
    }
    let git = GitServer::start();
    git.repository("acme/modules").commit("main", &[("web/main.tf", AWS)]);
    let configuration = git.configuration("");
    let dir = tempfile::tempdir().unwrap();
    let Some(mirror) = provider_config_or_skip(dir.path()) else { return };
    let path = std::env::var("PATH").unwrap();
    let mut environment = [
        ("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap()),
        ("TF_CLI_CONFIG_FILE", mirror.to_str().unwrap()),
        ("PATH", path.as_str()),
    ];
    let components = [("web", "acme/modules", "web", None)];
    let options = ["--no-policy", "--pass-env", "PATH", "--pass-env", "TF_CLI_CONFIG_FILE"];
    // The registry is not reachable, so the lock file would have only the digest of the mirror.
    let server = Server::serve_with("127.0.0.1:0", &[]);
    let builder = server.build_runner_in(&options, &environment);
    sync(&server, &app(&server, &components));
    let build = &builds(&server)["web"];
    assert!(!files(&server, build).contains_key(LOCK));
    let log =
        stdout_of(server.stead_for_people().args(["jobs", "logs", build["job"].as_str().unwrap()]));
    assert!(log.contains("the module is unpinned: it has no .terraform.lock.hcl"), "{log}");
    drop((builder, server));

    let real = stdout_of(
        std::process::Command::new("sh").args(["-c", "command -v terraform tofu | head -1"]),
    );
    let tool = dir.path().join("terraform");
    fs::write(&tool, WITH_REGISTRY.replace("REAL", real.trim())).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{path}", dir.path().display());
    environment[2].1 = &path;
    let server = Server::serve_with("127.0.0.1:0", &[]);
    let _builder = server.build_runner_in(&options, &environment);
    sync(&server, &app(&server, &components));
    let files = files(&server, &builds(&server)["web"]);
    let lock = &files[LOCK];
    assert!(lock.starts_with("# Written by a build of Stead\n"), "{lock}");
    assert!(lock.contains("\"zh:0000"), "{lock}");

    // A customer's mirror with one unpacked provider of one platform satisfies that lock file.
    let module = dir.path().join("module");
    fs::create_dir(&module).unwrap();
    fs::write(module.join("main.tf"), &files["web/main.tf"]).unwrap();
    fs::write(module.join(".terraform.lock.hcl"), lock).unwrap();
    let mut init = std::process::Command::new(real.trim());
    init.args(["init", "-backend=false", "-lockfile=readonly", "-no-color"]).current_dir(&module);
    stdout_of(init.env("TF_CLI_CONFIG_FILE", &mirror));
    assert_eq!(fs::read_to_string(module.join(".terraform.lock.hcl")).unwrap(), *lock);
}
