//! Tests the component type `container_image` with a real registry: from a tag in an upstream registry
//! to the registry of the install.
mod failures;
mod killed;
mod registries;

use std::{fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use tests::{Customer, Registry, Runner, Server, call, stdout_of, step, succeeded, until};

const TIMEOUT: Duration = Duration::from_secs(60);

/// App with one image, and a consumer of its outputs without a plugin.
struct ImageApp {
    dir: PathBuf,
}

impl ImageApp {
    fn new(server: &Server, name: &str) -> ImageApp {
        let dir = server.dir().join(name);
        fs::create_dir_all(dir.join("components")).unwrap();
        fs::write(dir.join("metadata.toml"), "version = \"v2\"\ndescription = \"images\"\n")
            .unwrap();
        ImageApp { dir }
    }

    fn image(&self, component: &str, image_url: &str, tag: &str, more: &str) -> &ImageApp {
        let text = format!(
            "name = \"{component}\"\ntype = \"container_image\"\n{more}\n[public]\nimage_url = \"{image_url}\"\ntag = \"{tag}\"\n"
        );
        fs::write(self.dir.join("components").join(format!("{component}.toml")), text).unwrap();
        self
    }

    fn sync(&self, server: &Server) -> Value {
        server.cli_json(&["apps", "sync", self.dir.to_str().unwrap(), "--wait"])
    }

    fn name(&self) -> &str {
        self.dir.file_name().unwrap().to_str().unwrap()
    }
}

/// Starts a server whose build runner reads Docker Hub from this registry.
fn server(upstream: &Registry) -> Server {
    let mirror = format!("docker.io={}", upstream.url());
    Server::up_with("127.0.0.1:0", &["--registry-mirror", &mirror])
}

fn install(server: &Server, app: &ImageApp, runner: &[&str]) -> Runner {
    let created = server.cli_json(&["installs", "create", app.name(), "acme", "--auto-approve"]);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let customer = Customer::new(server, "customer").with(runner).start(server, token);
    until("the provision run", Duration::from_secs(60), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    customer
}

/// Returns the output `image` of a component.
fn output(server: &Server, component: &str) -> Value {
    let install = server.cli_json(&["installs", "show", "acme"]);
    let components = install["components"].as_array().unwrap();
    let found = components.iter().find(|one| one["name"] == component);
    found.unwrap_or_else(|| panic!("no {component}: {install:#}"))["outputs"]["image"].clone()
}

/// Returns the log of the step's last job.
fn log(server: &Server, run: &Value, component: &str) -> String {
    let job = step(run, component)["job"].as_str().unwrap();
    stdout_of(server.stead_for_people().args(["jobs", "logs", job]))
}

fn upgrade(server: &Server, version: &str) -> Value {
    server.cli_json(&["installs", "upgrade", "acme", "--to", version, "--reason", "next"]);
    succeeded(server, "acme")
}

#[test]
fn an_image_travels_by_digest_to_the_registry_of_the_install() {
    let Some(upstream) = Registry::start_or_skip() else { return };
    let Some(own) = Registry::start_or_skip() else { return };
    // given a tag of a public image, and an app that uses it
    let shared = vec![7; 3 << 20];
    let first = upstream.push_image("acme/web", "1.0", "linux/amd64", &[&shared, b"one"]);
    let server = server(&upstream);
    let app = ImageApp::new(&server, "images");
    app.image("web", "acme/web", "1.0", "").sync(&server);
    let builds = server.cli_json(&["builds", "list", "--app", "images"]);
    let build = &builds.as_array().unwrap()[0];
    assert_eq!(build["artifact"]["digest"], first.digest.as_str(), "{build:#}");
    assert_eq!(build["artifact"]["upstream"]["repository"], "docker.io/acme/web");
    assert_eq!(build["artifact"]["upstream"]["tag"], "1.0");

    // when the tag moves after the build, and the install is provisioned
    upstream.push_image("acme/web", "1.0", "linux/amd64", &[b"moved"]);
    let registry = format!("oci://{}/shop/acme", own.host());
    let _runner = install(&server, &app, &["--registry", &registry]);
    let run = succeeded(&server, "acme");

    // then the registry of the install has the image of the build under a tag of its own
    let image = output(&server, "web");
    let (repository, tag) = (image["repository"].as_str().unwrap(), image["tag"].as_str().unwrap());
    assert_eq!(repository, format!("{}/shop/acme/web", own.host()));
    assert!(tag.starts_with("1.0-"), "{tag}");
    assert_eq!(image["digest"], first.digest.as_str());
    let manifest = own.manifest("shop/acme/web", tag).unwrap();
    assert_eq!(Some(&manifest), own.manifest("shop/acme/web", &first.digest).as_ref());
    let plan = &step(&run, "web")["plan"];
    assert_eq!((&plan["noop"], &plan["add"]), (&false.into(), &1.into()), "{run:#}");
    let kinds = server.cli_json(&["jobs", "list", "--install", "acme"]);
    let kinds = kinds.as_array().unwrap().iter().filter(|job| job["kind"] == "sync").count();
    assert_eq!(kinds, 1);

    // a repeated deploy changes nothing
    server.cli_json(&["installs", "deploy", "acme", "--reason", "again"]);
    let run = succeeded(&server, "acme");
    let unchanged = run["dag"].as_array().unwrap().iter().all(|step| step["plan"]["noop"] == true);
    assert!(unchanged, "{run:#}");

    // a second version sends only the blobs that the registry lacks
    let second = upstream.push_image("acme/web", "2.0", "linux/amd64", &[&shared, b"two"]);
    app.image("web", "acme/web", "2.0", "").sync(&server);
    let run = upgrade(&server, "2");
    assert_eq!(output(&server, "web")["digest"], second.digest.as_str());
    let log = log(&server, &run, "web");
    assert!(log.contains("copied 2 blobs"), "config and one layer: {log}");
    let (id, step) = (run["id"].as_str().unwrap(), step(&run, "web")["id"].as_str().unwrap());
    let url = format!("{}/v1/runs/{id}/steps/{step}/plan/details", server.control());
    let owner = format!("Bearer {}", server.owner_token());
    let details = call("GET", &url, &[("Authorization", &owner)], b"").body;
    let details: Value = serde_json::from_str(&details).unwrap();
    let changed = &details["details"]["resources"][0]["attributes"];
    let digests = json!([{ "path": "digest", "before": { "value": first.digest },
                           "after": { "value": second.digest } }]);
    assert_eq!(changed, &digests, "{details:#}");

    // and the teardown deletes nothing in it
    server.cli_json(&["installs", "deprovision", "acme", "--reason", "the end"]);
    succeeded(&server, "acme");
    assert!(own.manifest("shop/acme/web", &second.digest).is_some());
}

#[test]
fn without_a_registry_the_outputs_name_the_upstream_image_by_digest() {
    let Some(upstream) = Registry::start_or_skip() else { return };
    let image = upstream.push_image("library/nginx", "1.29", "linux/amd64", &[b"layer"]);
    let server = server(&upstream);
    let app = ImageApp::new(&server, "images");
    let pinned = upstream.push_image("acme/pinned", "x", "linux/amd64", &[b"other"]);
    app.image("web", "nginx", "1.29", "").image("pinned", "acme/pinned", &pinned.digest, "");
    app.sync(&server);
    let _runner = install(&server, &app, &[]);
    let run = succeeded(&server, "acme");
    let output_of_web = output(&server, "web");
    assert_eq!(output_of_web["repository"], "docker.io/library/nginx");
    assert_eq!(output_of_web["tag"], format!("1.29@{}", image.digest));
    assert_eq!(output_of_web["digest"], image.digest);
    let tag = output(&server, "pinned")["tag"].clone();
    assert!(tag.as_str().unwrap().ends_with(&pinned.digest), "{tag}");
    let log = log(&server, &run, "web");
    assert!(
        log.contains("this install has no registry") && log.contains("--registry oci://"),
        "{log}"
    );
}

#[test]
fn only_the_needed_platforms_of_an_index_are_copied() {
    let Some(upstream) = Registry::start_or_skip() else { return };
    let Some(own) = Registry::start_or_skip() else { return };
    let images = ["amd64", "arm64", "s390x"].map(|architecture| {
        let platform = format!("linux/{architecture}");
        let layer = format!("layer for {platform}");
        upstream.push_image("acme/web", architecture, &platform, &[layer.as_bytes()])
    });
    let [amd64, arm64, s390x] = &images;
    let listed = [("linux/amd64", amd64), ("linux/arm64", arm64), ("linux/s390x", s390x)];
    let index = upstream.push_index("acme/web", "1.0", &listed);
    let server = server(&upstream);
    let app = ImageApp::new(&server, "images");
    app.image("one", "acme/web", "1.0", "");
    app.image("two", "acme/web", "1.0", "platforms = [\"linux/arm64\", \"linux/amd64\"]");
    app.sync(&server);
    let _runner = install(&server, &app, &["--registry", &format!("oci://{}/acme", own.host())]);
    succeeded(&server, "acme");

    // An image for one platform is its manifest, and has the digest of upstream.
    assert_eq!(output(&server, "one")["digest"], amd64.digest.as_str());
    let two = output(&server, "two");
    assert_ne!(two["digest"], index.digest.as_str());
    let copied = own.manifest("acme/two", two["tag"].as_str().unwrap()).unwrap();
    let manifests = copied["manifests"].as_array().unwrap();
    let digests: Vec<_> = manifests.iter().map(|one| one["digest"].as_str().unwrap()).collect();
    assert_eq!(digests, [&amd64.digest, &arm64.digest]);
    assert!(own.manifest("acme/two", &arm64.digest).is_some());
    let builds = server.cli_json(&["builds", "list", "--app", "images"]);
    let upstreams = builds.as_array().unwrap().iter().map(|build| &build["artifact"]["upstream"]);
    assert!(upstreams.into_iter().all(|upstream| upstream["digest"] == index.digest.as_str()));
}
