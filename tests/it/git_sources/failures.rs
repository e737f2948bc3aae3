//! Tests sources that cannot be resolved, fetched or built.
use super::*;

/// Publishes the app, whose builds must fail, and returns the newest builds.
fn failed(server: &Server, app: &Path) -> BTreeMap<String, Value> {
    let (code, message) = server.refused(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    assert_eq!(code, 1, "{message}");
    builds(server)
}

fn detail(build: &Value) -> &str {
    build["detail"].as_str().unwrap_or_else(|| panic!("{build:#}"))
}

#[test]
fn an_unreachable_repository_fails_only_its_components_and_can_be_retried() {
    let git = GitServer::start();
    git.repository("acme/web").commit("main", &[("main.tf", MODULE)]);
    let server = server(&git);
    let app = app(
        &server,
        &[
            ("web", "acme/web", ".", None),
            ("db", "acme/missing", ".", None),
            ("cache", "acme/web", ".", Some("no-such-branch")),
        ],
    );

    let builds_before = failed(&server, &app);

    assert_eq!(builds_before["web"]["state"], "succeeded", "{:#}", builds_before["web"]);
    let db = &builds_before["db"];
    assert_eq!((&db["state"], &db["reason"]), (&"failed".into(), &"source_unresolved".into()));
    assert!(detail(db).contains("cannot read acme/missing at HEAD"), "{db:#}");
    let input = ("a repository that does not exist, or is not readable", "resolution");
    agreed_message("repository-unreachable", input, detail(db), &[(&git.url(""), "URL")]);
    let cache = detail(&builds_before["cache"]);
    let input = ("a branch or a tag that does not exist", "resolution");
    agreed_message("reference-missing", input, cache, &[]);
    assert!(cache.contains("acme/web has no branch and no tag no-such-branch"), "{cache}");
    assert_eq!(version(&server)["state"], "unresolved");

    git.repository("acme/missing").commit("main", &[("main.tf", MODULE)]);
    server.cli_json(&["builds", "retry", db["id"].as_str().unwrap()]);
    let is_ended = |build: &Value| build["ended_at"].is_string();
    until("the builds", Duration::from_secs(60), || builds(&server).values().all(is_ended));

    let after = builds(&server);
    assert_eq!(after["db"]["state"], "succeeded", "{:#}", after["db"]);
    assert_eq!(after["cache"]["state"], "failed", "{:#}", after["cache"]);
    assert_eq!(after["web"]["id"], builds_before["web"]["id"]);
    let version = version(&server);
    assert_eq!(version["version"], 2, "{version:#}");
    // The build that version 2 keeps has the commit of version 1.
    assert_eq!(version["components"][2]["name"], "web", "{version:#}");
    assert_eq!(version["components"][2]["commit"], builds_before["web"]["commit"], "{version:#}");
}

#[test]
fn a_broken_source_fails_its_build_with_file_and_line() {
    let git = GitServer::start();
    let modules = git.repository("acme/modules");
    let digest = "0".repeat(64);
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 9\n");
    modules.commit(
        "main",
        &[
            ("outside/main.tf", "\n\nmodule \"x\" {\n  source = \"../../elsewhere\"\n}\n"),
            ("missing/main.tf", "module \"x\" {\n  source = \"../nothing\"\n}\n"),
            ("large/main.tf", MODULE),
            ("large/model.bin", &pointer),
            ("link/main.tf", MODULE),
            ("broken/main.tf", "output \"x\" {\n  value = var.undeclared\n}\n"),
        ],
    );
    symlink("/etc/passwd", modules.dir().join("link/passwd")).unwrap();
    modules.commit_all("main");
    let configuration = git.configuration("");
    let links = tempfile::tempdir().unwrap();
    let path = std::env::join_paths(path_without("git-lfs", links.path())).unwrap();
    let variables =
        [("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap()), ("PATH", path.to_str().unwrap())];
    let server = Server::up_in(&variables);
    let directories = ["outside", "missing", "large", "link", "broken", "absent"];
    let components: Vec<_> =
        directories.iter().map(|name| (*name, "acme/modules", *name, None)).collect();
    let app = app(&server, &components);

    let builds = failed(&server, &app);

    for (name, expected) in [
        (
            "outside",
            "outside/main.tf:4: the module source \"../../elsewhere\" points outside the repository",
        ),
        ("missing", "missing/main.tf:2: the module source \"../nothing\" does not exist"),
        ("large", "large/model.bin:1: "),
        ("link", "link/passwd:1: the link \"/etc/passwd\" points outside the repository"),
        ("absent", "the directory \"absent\" does not exist in acme/modules"),
    ] {
        assert_eq!(builds[name]["state"], "failed", "{name}");
        assert!(detail(&builds[name]).contains(expected), "{}", detail(&builds[name]));
    }
    for (name, input) in
        [("outside", "a module outside its repository"), ("large", "a file in git LFS")]
    {
        let golden = format!("source-{name}");
        agreed_message(&golden, (input, "build"), detail(&builds[name]), &[]);
    }
    if terraform_or_skip() {
        assert!(detail(&builds["broken"]).contains("main.tf:2"), "{:#}", builds["broken"]);
    }
}

/// Kustomization that names this file.
fn kustomization(file: &str) -> String {
    format!("resources: [{file}]\n")
}

#[test]
fn a_broken_kustomization_fails_its_build() {
    let Some(kubectl) = kubectl_or_skip() else { return };
    let git = GitServer::start();
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}\n";
    git.repository("acme/manifests").commit(
        "main",
        &[
            ("base/kustomization.yaml", &kustomization("web.yaml")),
            ("base/web.yaml", object),
            ("broken/kustomization.yaml", &kustomization("missing.yaml")),
        ],
    );
    let configuration = git.configuration("");
    let bin = tempfile::tempdir().unwrap();
    symlink(kubectl, bin.path().join("kubectl")).unwrap();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let variables = [("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap()), ("PATH", &path)];
    let (server, _key) = server_with_plugin("kubernetes_manifest", &variables);
    let dir = app(&server, &[]);
    for (name, path) in [("web", "base"), ("broken", "broken")] {
        let text = format!(
            "name = \"{name}\"\ntype = \"kubernetes_manifest\"\n\
             [kustomize]\npath = \"{path}\"\n\
             [public_repo]\nrepo = \"acme/manifests\"\ndirectory = \".\"\n"
        );
        fs::write(dir.join(format!("components/{name}.toml")), text).unwrap();
    }

    let builds = failed(&server, &dir);

    assert_eq!(builds["web"]["state"], "succeeded", "{:#}", builds["web"]);
    let job = builds["web"]["job"].as_str().unwrap_or_else(|| panic!("{:#}", builds["web"]));
    let log = stdout_of(server.stead_for_people().args(["jobs", "logs", job]));
    assert!(log.contains("the kustomization base contains 1 object"), "{log}");
    let files = files(&server, &builds["web"]);
    let shipped = &files[".stead-kustomization.json"];
    assert!(shipped.contains("kind: ConfigMap"), "{shipped}");
    let broken = detail(&builds["broken"]);
    assert!(broken.contains("cannot build the kustomization: kubectl:"), "{broken}");
    assert!(broken.contains("missing.yaml"), "{broken}");
}

#[test]
fn a_commit_that_is_gone_fails_its_build() {
    let git = GitServer::start();
    let modules = git.repository("acme/modules");
    let first = modules.commit("main", &[("main.tf", MODULE)]);
    modules.git(&["commit", "--quiet", "--amend", "--message", "Replace the commit"]);
    modules.push("main");
    modules.forget_old_commits();
    let server = server(&git);
    let app = app(&server, &[("web", "acme/modules", ".", Some(&first))]);

    let builds = failed(&server, &app);

    let detail = detail(&builds["web"]);
    assert!(
        detail.contains(&format!("cannot fetch {first} from https://github.com/acme/modules")),
        "{detail}"
    );
    assert!(detail.contains("correct `branch`"), "{detail}");
    let input = ("a commit that is gone", "build");
    agreed_message("commit-gone", input, detail, &[(&first, "COMMIT")]);
}

#[test]
fn an_old_git_is_named_with_the_remedy() {
    let git = GitServer::start();
    git.repository("acme/web").commit("main", &[("main.tf", MODULE)]);
    let configuration = git.configuration("");
    let bin = tempfile::tempdir().unwrap();
    let old = bin.path().join("git");
    fs::write(&old, "#!/bin/sh\necho git version 2.20.1\n").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let server =
        Server::up_in(&[("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap()), ("PATH", &path)]);
    let app = app(&server, &[("web", "acme/web", ".", None)]);

    let builds = failed(&server, &app);

    let detail = detail(&builds["web"]);
    let input = ("a build runner with an old git", "resolution");
    agreed_message("old-git", input, detail, &[]);
    let expected =
        "git version 2.20.1 on the PATH of this build runner is too old; install git 2.29";
    assert!(detail.contains(expected), "{detail}");
}

#[test]
fn only_the_configuration_of_the_build_runner_leads_to_other_protocols() {
    let git = GitServer::start();
    let modules = git.repository("acme/modules");
    modules.commit("main", &[("main.tf", MODULE), ("web/main.tf", MODULE)]);
    let secret = git.repository("acme/secret");
    secret.commit("main", &[("main.tf", MODULE)]);
    modules.git(&["submodule", "--quiet", "add", &git.url("acme/secret"), "web/lib"]);
    let local = format!("file://{}", secret.dir().display());
    modules.git(&["config", "--file", ".gitmodules", "submodule.web/lib.url", &local]);
    modules.commit_all("main");
    let mirror = format!(
        "[url \"file://{}\"]\n  insteadOf = https://git.example.com/mirror",
        secret.dir().display()
    );
    let configuration = git.configuration(&mirror);
    let server = Server::up_in(&[("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap())]);

    // The CLI rejects an address of another protocol before it publishes anything.
    for repo in
        [&local, "ext::sh -c touch% /tmp/x", "http://127.0.0.1:1/x", "https://me:pass@host/x"]
    {
        let app = app(&server, &[("web", repo, ".", None)]);
        let (code, message) = server.refused(&["apps", "sync", app.to_str().unwrap()]);
        assert_eq!(code, 2, "{message}");
        assert!(message.contains("cannot fetch from") && !message.contains("pass@"), "{message}");
    }
    // A submodule cannot name another protocol, but the configuration of the build runner can.
    let app = app(
        &server,
        &[
            ("web", "acme/modules", "web", None),
            ("mirror", "https://git.example.com/mirror", ".", None),
        ],
    );
    let builds = failed(&server, &app);
    let web = detail(&builds["web"]);
    assert!(web.contains("cannot fetch the submodule web/lib"), "{web}");
    assert_eq!(builds["mirror"]["state"], "succeeded", "{:#}", builds["mirror"]);
}

#[test]
fn a_credential_of_the_build_runner_appears_nowhere() {
    let git = GitServer::with_password(Some("builder:s3cr3t-t0ken"));
    git.repository("acme/private").commit("main", &[("main.tf", MODULE)]);
    let configuration = git.configuration("");
    let url = git.url("");
    let stored = url.replace("http://", "http://builder:s3cr3t-t0ken@");
    let text = fs::read_to_string(&configuration).unwrap();
    // Without a credential, the build fails, and git does not prompt.
    let server = Server::up_in(&[("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap())]);
    let app = app(&server, &[("web", "acme/private", ".", None)]);
    let builds_before = failed(&server, &app);
    assert!(detail(&builds_before["web"]).contains("acme/private"), "{builds_before:#?}");

    fs::write(&configuration, text.replace(&url, &stored)).unwrap();
    server.cli_json(&["builds", "retry", builds_before["web"]["id"].as_str().unwrap()]);
    until("the build", Duration::from_secs(60), || builds(&server)["web"]["ended_at"].is_string());

    let build = &builds(&server)["web"];
    assert_eq!(build["state"], "succeeded", "{build:#}");
    let job = build["job"].as_str().unwrap();
    let log = tests::stdout_of(server.stead_for_people().args(["jobs", "logs", job]));
    let events = server.cli_json(&["audit", "events", "--limit", "200"]).to_string();
    for text in [&log, &events, &server.log()] {
        assert!(!text.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn a_source_that_no_component_uses_is_refused() {
    let git = GitServer::start();
    git.repository("acme/web").commit("main", &[("main.tf", MODULE)]);
    let server = server(&git);
    let app = app(&server, &[("web", "acme/web", ".", Some("main"))]);
    let empty = server.dir().join("empty");
    fs::create_dir(&empty).unwrap();
    let path = empty.display();
    for (source, expected) in [
        (format!("acme/wbe={path}"), "the components use acme/web@main"),
        (format!("acme/web@mian={path}"), "no component has this repository at this ref"),
        (format!("acme/web@main={path}"), "has no files"),
    ] {
        let sync = ["apps", "sync", app.to_str().unwrap(), "--source", &source];
        let (_, message) = server.refused(&sync);
        assert!(message.contains(expected), "{source}: {message}");
    }
    assert_eq!(server.cli_json(&["apps", "list"]).as_array().unwrap().len(), 0);
}

/// The app has more builds than one page of a list.
#[test]
fn a_sync_waits_for_every_build_of_a_large_app() {
    let git = GitServer::start();
    let server = server(&git);
    let names: Vec<String> = (0..201).map(|n| format!("c{n}")).collect();
    let components: Vec<Component<'_>> =
        names.iter().map(|name| (name.as_str(), "acme/missing", ".", None)).collect();
    let app = app(&server, &components);
    let (code, message) = server.refused(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    assert_eq!((code, message.matches("stead builds show").count()), (1, 201), "{message}");
}
