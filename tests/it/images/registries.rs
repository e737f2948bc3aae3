//! Tests registries of installs: with a credential helper, from an output of the sandbox, and with
//! blobs that another component has.
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::Value;
use tests::{
    Customer, REGISTRY_PASSWORD, REGISTRY_USER, Registry, Server, ended, stdout_of, succeeded,
    terraform_or_skip, until,
};

use super::{ImageApp, TIMEOUT, install, log, output, server, upgrade};

/// Writes a credential helper and Docker's config.json, which uses the helper for one host.
fn credential_helper(dir: &Path, host: &str) {
    let script = format!(
        "#!/bin/sh\nread -r host\necho \"$1 $host\" >>{0}/calls\n\
         echo '{{\"ServerURL\":\"{host}\",\"Username\":\"{REGISTRY_USER}\",\"Secret\":\"{REGISTRY_PASSWORD}\"}}'\n",
        dir.display()
    );
    let helper = dir.join("docker-credential-stead-test");
    fs::write(&helper, script).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let config = format!("{{\"credHelpers\":{{\"{host}\":\"stead-test\"}}}}");
    fs::write(dir.join("config.json"), config).unwrap();
}

#[test]
fn private_registries_are_used_through_a_credential_helper() {
    let Some(private) = Registry::private_or_skip() else { return };
    let image = private.push_image("acme/web", "1.0", "linux/amd64", &[b"layer"]);
    let dir = tempfile::tempdir().unwrap();
    let docker = dir.path().to_str().unwrap();
    let path = format!("{docker}:{}", std::env::var("PATH").unwrap());
    let server = Server::up_in(&[("PATH", &path), ("DOCKER_CONFIG", docker)]);
    let app = ImageApp::new(&server, "images");
    app.image("web", &format!("{}/acme/web", private.host()), "1.0", "");

    // Without a credential, the build fails, and names the registry.
    let (_, message) = server.refused(&["apps", "sync", app.dir.to_str().unwrap(), "--wait"]);
    assert!(message.contains("builds failed: web"), "{message}");
    let builds = server.cli_json(&["builds", "list", "--app", "images"]);
    let detail = builds[0]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains(&private.host()), "{builds:#}");

    // With a helper, the build reads the image, and the runner of the install writes it.
    credential_helper(dir.path(), &private.host());
    server.cli_json(&["builds", "retry", builds[0]["id"].as_str().unwrap()]);
    until("the build", TIMEOUT, || {
        let builds = server.cli_json(&["builds", "list", "--app", "images"]);
        builds.as_array().unwrap().iter().any(|build| build["state"] == "succeeded")
    });
    let created = server.cli_json(&["installs", "create", "images", "acme", "--auto-approve"]);
    let registry = format!("oci://{}/shop/acme", private.host());
    let _runner = Customer::new(&server, "customer")
        .env("PATH", &path)
        .env("DOCKER_CONFIG", docker)
        .with(&["--registry", &registry])
        .start(&server, created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    let run = succeeded(&server, "acme");

    assert!(private.manifest("shop/acme/web", &image.digest).is_some());
    let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
    assert!(calls.lines().all(|call| call == format!("get {}", private.host())), "{calls}");
    let events = stdout_of(server.stead().args(["audit", "export"]));
    for text in [&events, &server.log(), &log(&server, &run, "web")] {
        assert!(!text.contains(REGISTRY_PASSWORD), "{text}");
    }
}

/// Returns the message of the preflight's check of registries.
#[track_caller]
fn registry_check(run: &Value, status: &str) -> String {
    let checks = run["preflight"]["checks"].as_array().unwrap();
    let mut found = checks.iter().filter(|check| check["check"] == "registry");
    let (check, other) = (found.next().unwrap_or_else(|| panic!("{run:#}")), found.next());
    assert!(other.is_none() && check["status"] == status, "{run:#}");
    check["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_preflight_finds_a_registry_that_refuses_the_runner() {
    let Some(upstream) = Registry::start_or_skip() else { return };
    let Some(private) = Registry::private_or_skip() else { return };
    for name in ["acme/api", "acme/web"] {
        upstream.push_image(name, "1.0", "linux/amd64", &[name.as_bytes()]);
    }
    let server = server(&upstream);
    let app = ImageApp::new(&server, "images");
    app.image("api", "acme/api", "1.0", "").image("web", "acme/web", "1.0", "").sync(&server);
    let docker = tempfile::tempdir().unwrap();
    let config = docker.path().to_str().unwrap();
    let path = format!("{config}:{}", std::env::var("PATH").unwrap());
    let created = server.cli_json(&["installs", "create", "images", "acme", "--auto-approve"]);
    let registry = format!("oci://{}/shop/acme", private.host());
    let _runner = Customer::new(&server, "customer")
        .env("PATH", &path)
        .env("DOCKER_CONFIG", config)
        .with(&["--registry", &registry])
        .start(&server, created["enrolment"]["token"].as_str().unwrap());
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });

    // Without credentials for the registry, the run fails before its first change.
    let run = ended(&server, "acme");
    assert_eq!(run["preflight"]["state"], "failed", "{run:#}");
    let check = registry_check(&run, "failed");
    let expected = format!("run `docker login {}`", private.host());
    assert!(check.contains(&expected) && check.contains("(for api, web)"), "{check}");
    let jobs = server.cli_json(&["jobs", "list", "--install", "acme"]);
    assert!(jobs.as_array().unwrap().iter().all(|job| job["kind"] != "sync"), "{jobs:#}");

    // With credentials, the same deploy succeeds.
    credential_helper(docker.path(), &private.host());
    server.cli_json(&["installs", "deploy", "acme", "--reason", "with a login"]);
    let run = succeeded(&server, "acme");
    let check = registry_check(&run, "ok");
    assert!(check.contains("accepts the credentials"), "{check}");
}

#[test]
fn the_registry_of_the_sandbox_receives_the_images() {
    if !terraform_or_skip() {
        return;
    }
    let Some(upstream) = Registry::start_or_skip() else { return };
    let Some(own) = Registry::start_or_skip() else { return };
    let image = upstream.push_image("acme/web", "1.0", "linux/amd64", &[b"layer"]);
    let server = server(&upstream);
    let app = ImageApp::new(&server, "images");
    let sandbox =
        "terraform_version = \"1.11.4\"\n[public_repo]\nrepo = \".\"\ndirectory = \"sandbox\"\n";
    fs::write(app.dir.join("sandbox.toml"), sandbox).unwrap();
    fs::create_dir(app.dir.join("sandbox")).unwrap();
    let module = format!(
        "output \"ecr\" {{\n  value = {{ repository_url = \"{}/acme/all\" }}\n}}\n",
        own.host()
    );
    fs::write(app.dir.join("sandbox/main.tf"), module).unwrap();
    app.image("web", "acme/web", "1.0", "").sync(&server);

    let _runner = install(&server, &app, &[]);
    succeeded(&server, "acme");

    // A repository of ECR has the images of all components, so their tags name the component.
    let found = output(&server, "web");
    assert_eq!(found["repository"], format!("{}/acme/all", own.host()));
    let tag = found["tag"].as_str().unwrap();
    assert!(tag.starts_with("web-1.0-"), "{tag}");
    let manifest = own.manifest("acme/all", tag).unwrap();
    assert_eq!(Some(manifest), own.manifest("acme/all", &image.digest));
}

#[test]
fn blobs_of_another_component_are_mounted() {
    let Some(upstream) = Registry::start_or_skip() else { return };
    let Some(own) = Registry::start_or_skip() else { return };
    let layers: [&[u8]; 2] = [b"one", b"two"];
    upstream.push_image("acme/web", "1.0", "linux/amd64", &layers);
    let copy = upstream.push_image("acme/api", "1.0", "linux/amd64", &layers);
    let server = server(&upstream);
    let app = ImageApp::new(&server, "images");
    app.image("web", "acme/web", "1.0", "").sync(&server);
    let _runner = install(&server, &app, &["--registry", &format!("oci://{}/acme", own.host())]);
    succeeded(&server, "acme");

    app.image("api", "acme/api", "1.0", "").sync(&server);
    let run = upgrade(&server, "2");

    let log = log(&server, &run, "api");
    assert!(log.contains("copied 0 blobs, 0 bytes; mounted 3 blobs"), "{log}");
    assert!(own.manifest("acme/api", &copy.digest).is_some());
}
