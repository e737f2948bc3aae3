//! Tests components from git repositories: the build runner resolves each branch and tag once per
//! version, and fetches the files that a component needs.
use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tests::{
    GitServer, Runner, Server, agreed_message, git_lfs_or_skip, kubectl_or_skip, path_without,
    server_with_plugin, stdout_of, succeeded, terraform_or_skip, until,
};

mod failures;
mod locks;
mod moved;
mod retention;
mod scripts;

const MODULE: &str = "output \"text\" { value = \"one\" }\n";

/// Starts a server whose build runner reads `https://github.com/` from a git server.
fn server(git: &GitServer) -> Server {
    let configuration = git.configuration("");
    Server::up_in(&[("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap())])
}

/// Component with its repository, directory and branch.
type Component<'a> = (&'a str, &'a str, &'a str, Option<&'a str>);

/// Writes the app `shop` with Terraform components from git.
fn app(server: &Server, components: &[Component<'_>]) -> PathBuf {
    let dir = server.dir().join("shop");
    let _may_be_missing = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("components")).unwrap();
    fs::write(dir.join("metadata.toml"), "version = \"v2\"\n").unwrap();
    for (name, repo, directory, branch) in components {
        let branch = branch.map(|branch| format!("branch = \"{branch}\"\n")).unwrap_or_default();
        let text = format!(
            "name = \"{name}\"\ntype = \"terraform_module\"\nterraform_version = \"1.11.4\"\n\
             [public_repo]\nrepo = \"{repo}\"\ndirectory = \"{directory}\"\n{branch}"
        );
        fs::write(dir.join(format!("components/{name}.toml")), text).unwrap();
    }
    dir
}

fn sync(server: &Server, app: &Path) -> Value {
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"])
}

/// Returns the newest build of each component.
fn builds(server: &Server) -> BTreeMap<String, Value> {
    let listed = server.cli_json(&["builds", "list", "--app", "shop", "--limit", "200"]);
    let mut newest = BTreeMap::new();
    for build in listed.as_array().unwrap() {
        let name = build["component_name"].as_str().unwrap().to_owned();
        newest.entry(name).or_insert_with(|| build.clone());
    }
    newest
}

fn version(server: &Server) -> Value {
    server.cli_json(&["apps", "versions", "shop"])[0].clone()
}

/// Returns the file of a blob in the server's registry.
fn blob(server: &Server, digest: &Value) -> Vec<u8> {
    let hex = digest.as_str().unwrap().trim_start_matches("sha256:").to_owned();
    let mut open = vec![server.data().join("registry")];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else if entry.file_name().to_str() == Some(&hex) {
                return fs::read(entry.path()).unwrap();
            }
        }
    }
    panic!("the registry has no blob {digest}");
}

/// Returns the files of a build's artifact.
fn files(server: &Server, build: &Value) -> BTreeMap<String, String> {
    let manifest: Value =
        serde_json::from_slice(&blob(server, &build["artifact"]["digest"])).unwrap();
    let layer = blob(server, &manifest["layers"][0]["digest"]);
    let mut archive = tar::Archive::new(layer.as_slice());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (path, text)
    });
    entries.collect()
}

fn events(server: &Server, kind: &str) -> Vec<Value> {
    let events = server.cli_json(&["audit", "events", "--type", kind, "--limit", "200"]);
    events.as_array().unwrap().clone()
}

#[test]
fn a_branch_a_tag_and_a_commit_of_one_repository_are_built() {
    let git = GitServer::start();
    let modules = git.repository("acme/modules");
    let first = modules.commit("main", &[("web/main.tf", MODULE), ("db/main.tf", MODULE)]);
    modules.git(&["tag", "--annotate", "--message", "one", "v1"]);
    modules.push("v1");
    let second = modules.commit("main", &[("web/main.tf", &MODULE.replace("one", "two"))]);
    let third = modules.commit("feature/x", &[("web/main.tf", &MODULE.replace("one", "three"))]);
    let server = server(&git);
    let app = app(
        &server,
        &[
            ("default", "acme/modules", "web", None),
            ("branch", "https://github.com/acme/modules", "web", Some("feature/x")),
            ("tag", "acme/modules", "web", Some("v1")),
            ("commit", "acme/modules", "db", Some(&second)),
        ],
    );

    sync(&server, &app);

    let builds = builds(&server);
    for (name, commit, file, text) in [
        ("default", &second, "web/main.tf", "two"),
        ("branch", &third, "web/main.tf", "three"),
        ("tag", &first, "web/main.tf", "one"),
        ("commit", &second, "db/main.tf", "one"),
    ] {
        let build = &builds[name];
        assert_eq!(build["commit"], commit.as_str(), "{build:#}");
        let files = files(&server, build);
        assert_eq!(files.keys().collect::<Vec<_>>(), [file], "{name}");
        assert!(files[file].contains(text), "{name}: {files:?}");
    }
    // The build runner resolves each reference once, even if several components use it.
    assert_eq!(events(&server, "app.source_resolved").len(), 4);
    let version = version(&server);
    assert_eq!(version["state"], "resolved", "{version:#}");
    assert_eq!(version["sources"].as_array().unwrap().len(), 4, "{version:#}");
    assert_eq!(sync(&server, &app)["unchanged"], true);
}

#[test]
fn an_artifact_holds_what_its_directory_references() {
    if !terraform_or_skip() {
        return;
    }
    let git = GitServer::start();
    let modules = git.repository("acme/modules");
    let library = git.repository("acme/library");
    library.commit("main", &[("names/main.tf", "output \"name\" { value = \"library\" }\n")]);
    let module = "module \"shared\" {\n  source = \"../../shared/text\"\n}\nmodule \"library\" {\n  \
                  source = \"../../library/names\"\n}\noutput \"text\" {\n  value = \
                  \"${module.shared.text} ${module.library.name} ${file(\"${path.module}/link.txt\")}\"\n}\n";
    modules.commit(
        "main",
        &[
            ("app/web/main.tf", module),
            ("shared/text/main.tf", MODULE),
            ("shared/link.txt", "linked"),
            ("unrelated/large.txt", "x"),
        ],
    );
    symlink("../../shared/link.txt", modules.dir().join("app/web/link.txt")).unwrap();
    modules.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        &git.url("acme/library"),
        "library",
    ]);
    modules.git(&["config", "--file", ".gitmodules", "submodule.library.url", "../library"]);
    modules.commit_all("main");
    let server = server(&git);
    let app = app(&server, &[("web", "acme/modules", "app/web", Some("main"))]);

    sync(&server, &app);

    let built = files(&server, &builds(&server)["web"]);
    let expected =
        ["app/web/link.txt", "app/web/main.tf", "library/names/main.tf", "shared/text/main.tf"];
    assert_eq!(built.keys().collect::<Vec<_>>(), expected);
    let created = server.cli_json(&["installs", "create", "shop", "acme", "--auto-approve"]);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let _runner = Runner::start(&server, "customer", token);
    until("the provision run", Duration::from_secs(60), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    succeeded(&server, "acme");
    let state = server.cli_json(&["installs", "state", "acme"]);
    assert_eq!(
        state["nuon"]["components"]["web"]["outputs"]["text"], "one library linked",
        "{state:#}"
    );
}

#[test]
fn files_in_git_lfs_are_fetched_and_verified() {
    if !git_lfs_or_skip() {
        return;
    }
    let git = GitServer::start();
    let modules = git.repository("acme/modules");
    let pointer = modules.lfs("the content of a large file");
    let digest = "0".repeat(64);
    let lost = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 9\n");
    modules.commit(
        "main",
        &[
            ("web/main.tf", MODULE),
            ("web/model.bin", &pointer),
            ("lost/main.tf", MODULE),
            ("lost/model.bin", &lost),
        ],
    );
    let server = server(&git);
    let components = ["web", "lost"].map(|name| (name, "acme/modules", name, None));
    let app = app(&server, &components);
    let (code, message) = server.refused(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    assert_eq!(code, 1, "{message}");

    let builds = builds(&server);

    let web = files(&server, &builds["web"]);
    assert_eq!(web["web/model.bin"], "the content of a large file", "{web:?}");
    let detail = builds["lost"]["detail"].as_str().unwrap();
    let expected = "lost/model.bin:1: cannot fetch the content of the file from git LFS: ";
    assert!(detail.contains(expected), "{detail}");
}
