//! Tests a registry of the vendor: builds push there, and the server reads artifacts for the runners of
//! customers, which have no access to it.
use std::{fs, path::Path, time::Duration};

use serde_json::Value;
use tests::{
    Fault, InterceptingProxy, Registry, Runner, Server, finish, helm_app, helm_or_skip,
    notes_files, notes_files_v2, program, server_with_plugin, succeeded, until,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the options of a server for a registry of the vendor.
fn location(registry: &Registry) -> String {
    format!("oci://{}/vendor", registry.host())
}

fn sync(server: &Server, app: &Path, more: &[&str]) -> Value {
    let plugin = format!("files={}", program("stead-plugin-files").display());
    let args = ["apps", "sync", app.to_str().unwrap(), "--plugin", &plugin];
    server.cli_json(&[&args[..], more].concat())
}

fn builds(server: &Server) -> Vec<Value> {
    server.cli_json(&["builds", "list", "--app", "notes-files"]).as_array().unwrap().clone()
}

fn install(server: &Server, name: &str) -> Runner {
    install_at(server, server, name)
}

/// Creates an install with a runner that never had an artifact, and that calls another server of the
/// same log.
fn install_at(server: &Server, called: &Server, name: &str) -> Runner {
    let create = ["installs", "create", "notes-files", name, "--input", "company=Acme"];
    let created = server.cli_json(&[&create[..], &["--auto-approve"]].concat());
    let plugins = server.dir().join(format!("plugins-{name}"));
    fs::create_dir(&plugins).unwrap();
    fs::copy(program("stead-plugin-files"), plugins.join("stead-plugin-files")).unwrap();
    let token = created["enrolment"]["token"].as_str().unwrap();
    let plugin_dir = ["--plugin-dir", plugins.to_str().unwrap()];
    let runner = Runner::start_with(called, name, token, &plugin_dir);
    until("the provision run", TIMEOUT, || {
        let runs = server.cli_json(&["runs", "list", "--install", name]);
        !runs.as_array().unwrap().is_empty()
    });
    runner
}

/// Waits until the log of a job contains a text.
fn until_logged(server: &Server, text: &str) {
    until(text, TIMEOUT, || {
        let jobs = server.cli_json(&["jobs", "list"]);
        let mut ids = jobs.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap());
        ids.any(|id| {
            let log = server.stead_for_people().args(["jobs", "logs", id]).output().unwrap();
            String::from_utf8_lossy(&log.stdout).contains(text)
        })
    });
}

/// Returns the repository and the digest of each built artifact.
fn artifacts(server: &Server) -> Vec<(String, String)> {
    let of = |build: &Value| {
        let artifact = &build["artifact"];
        let repository = format!("vendor/{}", artifact["repository"].as_str()?);
        Some((repository, artifact["digest"].as_str()?.to_owned()))
    };
    builds(server).iter().filter_map(of).collect()
}

#[test]
fn artifacts_are_in_the_registry_of_the_vendor() {
    // given a private registry, to which only the vendor's user has credentials
    let Some(registry) = Registry::private_or_skip() else { return };
    let docker = tempfile::tempdir().unwrap();
    fs::write(docker.path().join("config.json"), registry.docker_config()).unwrap();
    let docker = docker.path().to_str().unwrap();
    let location = location(&registry);
    let mut server = Server::up_in(&[("STEAD_REGISTRY", &location), ("DOCKER_CONFIG", docker)]);

    // when an app is built
    sync(&server, &notes_files(server.dir()), &["--wait"]);

    // then each artifact is in the registry under a tag, and none in the directory of the server
    let built = artifacts(&server);
    assert_eq!(built.len(), 6, "{:#?}", builds(&server));
    for (repository, digest) in &built {
        let tag = format!("build-{}", &digest["sha256:".len()..][..12]);
        let manifest = registry.manifest(repository, &tag);
        assert!(manifest.is_some(), "{repository} {tag}");
        assert_eq!(manifest, registry.manifest(repository, digest));
    }
    let directory = server.data().join("registry");
    assert!(!directory.join("notes-files").exists());

    // and a runner without access to the registry deploys them
    let _acme = install(&server, "acme");
    succeeded(&server, "acme");

    // when the server lost its directory, it still serves old and new artifacts
    server.stop();
    fs::remove_dir_all(&directory).unwrap();
    server.restart();
    let _globex = install(&server, "globex");
    succeeded(&server, "globex");
    sync(&server, &notes_files_v2(server.dir()), &["--wait"]);
    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    succeeded(&server, "acme");
    assert!(!directory.join("notes-files").exists());
    assert!(artifacts(&server).len() > built.len());
}

#[test]
fn builds_and_deploys_wait_for_a_registry_that_is_down() {
    let Some(mut registry) = Registry::start_or_skip() else { return };
    let server = Server::up_with("127.0.0.1:0", &["--registry", &location(&registry)]);
    registry.stop();
    sync(&server, &notes_files(server.dir()), &[]);
    until_logged(&server, "retrying: cannot reach the registry 127.0.0.1:");
    registry.resume();
    until("the builds", TIMEOUT, || {
        let builds = builds(&server);
        builds.len() == 6 && builds.iter().all(|build| build["state"] == "succeeded")
    });

    registry.stop();
    let _runner = install(&server, "acme");
    until_logged(&server, "the vendor's registry does not respond");
    registry.resume();
    succeeded(&server, "acme");
}

#[test]
fn a_runner_gets_no_tampered_blob() {
    let Some(registry) = Registry::start_or_skip() else { return };
    let server = Server::up_with("127.0.0.1:0", &["--registry", &location(&registry)]);
    sync(&server, &notes_files(server.dir()), &["--wait"]);
    for (repository, digest) in artifacts(&server) {
        let manifest = registry.manifest(&repository, &digest).unwrap();
        registry.tamper(manifest["layers"][0]["digest"].as_str().unwrap());
    }
    let runner = install(&server, "acme");
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");
    assert!(run.to_string().contains("has other bytes for its digest"), "{run:#}");
    assert!(runner.ledger().is_empty());
    assert!(server.log().contains("Blob in the registry has another digest"));
}

#[test]
fn a_build_runner_pushes_only_to_the_registry_of_its_own_option() {
    let Some(registry) = Registry::start_or_skip() else { return };
    let location = location(&registry);
    let server = Server::serve_with("127.0.0.1:0", &["--registry", &location]);
    let builder = server.build_runner(&["--no-policy"]);
    let plugin = format!("files={}", program("stead-plugin-files").display());
    let app = notes_files(server.dir());
    let app = app.to_str().unwrap();
    server.refused(&["apps", "sync", app, "--plugin", &plugin, "--wait"]);
    let failed = builds(&server);
    assert_eq!(failed.len(), 6, "{failed:#?}");
    for build in &failed {
        let detail = build["detail"].as_str().unwrap_or_default();
        let expected = format!("does not allow it; start it with --registry {location}");
        assert!(detail.contains(&expected), "{build:#}");
    }
    assert_eq!(registry.uploads(), 0);
    drop(builder);

    // A server without a shared directory serves what this build runner pushes.
    let _builder = server.build_runner(&["--no-policy", "--registry", &location]);
    server.cli_json(&["builds", "retry", failed[0]["id"].as_str().unwrap()]);
    until("the builds", TIMEOUT, || artifacts(&server).len() == failed.len());
    let registry_option = ["--registry", location.as_str()];
    let mut second = Server::beside(Some(&server), server.database_url(), &registry_option, &[]);
    second.stop();
    fs::remove_file(second.data().join("registry")).unwrap();
    second.restart();
    let _runner = install_at(&server, &second, "acme");
    succeeded(&server, "acme");
    assert!(!second.data().join("registry/notes-files").exists());
}

#[test]
fn a_download_continues_where_the_registry_cut_it() {
    let Some(registry) = Registry::start_or_skip() else { return };
    let proxy = InterceptingProxy::before(&registry.url(), |call| {
        let is_whole = call.method == "GET" && call.header("range").is_empty();
        let is_cut = is_whole && call.path.contains("/blobs/sha256:") && call.response.len() > 100;
        is_cut.then(|| call.response[..call.response.len() / 2].to_vec())
    });
    let location = format!("oci://{}/vendor", proxy.host());
    let server = Server::up_with("127.0.0.1:0", &["--registry", &location]);
    sync(&server, &notes_files(server.dir()), &["--wait"]);
    let _runner = install(&server, "acme");
    succeeded(&server, "acme");
    assert!(proxy.count(|call| !call.header("range").is_empty()) > 0);
}

#[test]
fn the_server_follows_a_redirect_to_a_private_network_only_with_an_option() {
    let Some(registry) = Registry::start_or_skip() else { return };
    let storage = registry.url();
    let proxy = InterceptingProxy::failing(&registry.url(), move |call| {
        let is_download = call.method == "GET" && call.path.contains("/blobs/sha256:");
        is_download.then(|| Fault::Redirect(format!("{storage}{}", call.path)))
    });
    let location = format!("oci://{}/vendor", proxy.host());
    let mut server = Server::serve_with("127.0.0.1:0", &["--registry", &location]);
    let _builder = server.build_runner(&["--no-policy", "--registry", &location]);
    sync(&server, &notes_files(server.dir()), &["--wait"]);
    let _refused = install(&server, "acme");
    until_logged(&server, "the vendor's registry sent an unusable response");
    assert!(server.log().contains("redirects it to an address that is not allowed"));
    server.restart_with(&["--registry", &location, "--registry-to-private-networks"]);
    let _permitted = install(&server, "globex");
    succeeded(&server, "globex");
}

#[test]
fn a_server_without_credentials_waits_for_them() {
    let Some(registry) = Registry::private_or_skip() else { return };
    let docker = tempfile::tempdir().unwrap();
    let file = docker.path().join("config.json");
    fs::write(&file, registry.docker_config()).unwrap();
    let location = location(&registry);
    let docker = docker.path().to_str().unwrap();
    let mut server = Server::up_in(&[("STEAD_REGISTRY", &location), ("DOCKER_CONFIG", docker)]);
    sync(&server, &notes_files(server.dir()), &["--wait"]);
    server.stop();
    fs::write(&file, "{}").unwrap();
    server.restart();
    let _runner = install(&server, "acme");
    until_logged(&server, "refused the credentials of the server");
    fs::write(&file, registry.docker_config()).unwrap();
    succeeded(&server, "acme");
}

#[test]
fn a_server_names_a_former_registry_whose_artifacts_it_cannot_read() {
    let Some(registry) = Registry::start_or_skip() else { return };
    let location = location(&registry);
    let mut server = Server::serve_with("127.0.0.1:0", &["--registry", &location]);
    let builder = server.build_runner(&["--no-policy", "--registry", &location]);
    sync(&server, &notes_files(server.dir()), &["--wait"]);
    drop(builder);

    server.restart_with(&[]);
    let warning = format!("Earlier builds pushed to {location}, but --registry is not set");
    assert!(server.log().contains(&warning), "{}", server.log());
    let _acme = install(&server, "acme");
    let run = finish(&server, "acme");
    assert_eq!(run["state"], "failed", "{run:#}");

    let other = format!("{location}/other");
    server.restart_with(&["--registry", &other]);
    let warning = format!("Earlier builds pushed to {location}, but --registry is {other}");
    assert!(server.log().contains(&warning), "{}", server.log());
    let _globex = install(&server, "globex");
    let run = finish(&server, "globex");
    assert_eq!(run["state"], "failed", "{run:#}");

    // The artifacts are still in the former registry.
    server.restart_with(&["--registry", &location]);
    let _initech = install(&server, "initech");
    succeeded(&server, "initech");
}

#[test]
fn a_build_from_before_the_option_pushes_to_the_server() {
    let Some(registry) = Registry::start_or_skip() else { return };
    let mut server = Server::serve_with("127.0.0.1:0", &[]);
    sync(&server, &notes_files(server.dir()), &[]);
    until("the orders", TIMEOUT, || builds(&server).len() == 6);
    let location = location(&registry);
    server.restart_with(&["--registry", &location]);
    let _builder = server.build_runner(&["--no-policy", "--registry", &location]);
    until("the builds", TIMEOUT, || artifacts(&server).len() == 6);
    assert_eq!(registry.uploads(), 0);
    let _acme = install(&server, "acme");
    succeeded(&server, "acme");
}

#[test]
fn a_chart_is_found_by_its_version() {
    let Some(helm) = helm_or_skip() else { return };
    let Some(registry) = Registry::start_or_skip() else { return };
    let path = format!("{}:{}", helm.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let location = location(&registry);
    let environment = [("PATH", path.as_str()), ("STEAD_REGISTRY", location.as_str())];
    let (server, _key) = server_with_plugin("helm_chart", &environment);
    server.cli_json(&["apps", "sync", helm_app(server.dir()).to_str().unwrap(), "--wait"]);
    let builds = server.cli_json(&["builds", "list", "--app", "helm"]);
    let builds = builds.as_array().unwrap();
    let web = builds.iter().find(|build| build["component_name"] == "web").unwrap();
    let digest = web["artifact"]["digest"].as_str().unwrap();
    let chart = registry.manifest("vendor/helm/web", "1.0.0").unwrap();
    assert_eq!(chart["config"]["mediaType"], "application/vnd.cncf.helm.config.v1+json");
    let layers = chart["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 1, "{chart:#}");
    let layer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    assert_eq!(layers[0]["mediaType"], layer, "helm pull accepts no other layer");
    assert_eq!(Some(chart), registry.manifest("vendor/helm/web", digest));
}

#[test]
fn immutable_tags_do_not_fail_the_second_build_of_a_chart_version() {
    let Some(helm) = helm_or_skip() else { return };
    let Some(registry) = Registry::start_or_skip() else { return };
    let puts = std::sync::atomic::AtomicUsize::new(0);
    let proxy = InterceptingProxy::failing(&registry.url(), move |call| {
        let moves = call.method == "PUT" && call.path.ends_with("/helm/web/manifests/1.0.0");
        let is_second = moves && puts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0;
        is_second.then_some(Fault::Status(412))
    });
    let path = format!("{}:{}", helm.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let location = format!("oci://{}/vendor", proxy.host());
    let environment = [("PATH", path.as_str()), ("STEAD_REGISTRY", location.as_str())];
    let (server, _key) = server_with_plugin("helm_chart", &environment);
    let app = helm_app(server.dir());
    let build = || -> Vec<String> {
        server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
        let builds = server.cli_json(&["builds", "list", "--app", "helm"]);
        let of_web = |build: &&Value| build["component_name"] == "web";
        let digests = builds.as_array().unwrap().iter().filter(of_web);
        digests.map(|build| build["artifact"]["digest"].as_str().unwrap().to_owned()).collect()
    };
    let first = build();
    assert_eq!(first.len(), 1);
    fs::write(app.join("charts/web/README.md"), "changed\n").unwrap();
    let both = build();
    assert_eq!(both.len(), 2, "{both:?}");
    let second = both.iter().find(|digest| **digest != first[0]).unwrap();
    assert!(registry.manifest("vendor/helm/web", second).is_some());
    let tagged = registry.manifest("vendor/helm/web", "1.0.0");
    assert_eq!(tagged, registry.manifest("vendor/helm/web", &first[0]));
    until_logged(&server, "warning: the tag 1.0.0 does not name this artifact");
}
