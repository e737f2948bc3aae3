//! Tests scripts of action steps from git: built once per version, and run in their directory.
use std::{os::unix::fs::PermissionsExt as _, path::Path};

use tests::{Customer, ended, run_with_logs, step};

use super::*;

const CHECK: &str = "#!/bin/sh\nset -e\necho \"text=$(cat lib/text.txt)\" >> \"$STEAD_OUTPUT_FILE\"\n\
                     echo \"dir=$(basename \"$PWD\")\" >> \"$STEAD_OUTPUT_FILE\"\n";

fn write_script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Adds the action `check` to the app.
fn add_action(app: &Path, steps: &str) {
    let dir = app.join("actions");
    fs::create_dir_all(&dir).unwrap();
    let text = format!(
        "name = \"check\"\ntimeout = \"60s\"\n[[triggers]]\ntype = \"post-provision\"\n\
         [[triggers]]\ntype = \"manual\"\n{steps}"
    );
    fs::write(dir.join("check.toml"), text).unwrap();
}

fn provision(server: &Server) -> (Runner, Value) {
    let created = server.cli_json(&["installs", "create", "shop", "acme", "--auto-approve"]);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = Customer::new(server, "customer").start(server, token);
    until("the provision run", Duration::from_secs(60), || {
        !server.cli_json(&["runs", "list", "--install", "acme"]).as_array().unwrap().is_empty()
    });
    (runner, ended(server, "acme"))
}

/// Returns the outputs of the last run of the action.
fn outputs(server: &Server) -> Value {
    let state = server.cli_json(&["installs", "state", "acme"]);
    state["nuon"]["actions"]["workflows"]["check"]["outputs"].clone()
}

#[test]
fn an_action_runs_scripts_of_its_version_in_their_directory() {
    if !terraform_or_skip() {
        return;
    }
    let git = GitServer::start();
    git.repository("acme/modules").commit("main", &[("web/main.tf", MODULE)]);
    let actions = git.repository("acme/actions");
    write_script(&actions.dir().join("kube/check.sh"), CHECK);
    let first = actions.commit("main", &[("kube/lib/text.txt", "one"), ("other/x", "x")]);
    let server = server(&git);
    let app = app(&server, &[("web", "acme/modules", "web", None)]);
    let source = "repo = \"acme/actions\"\ndirectory = \"kube\"\nbranch = \"main\"\n";
    add_action(
        &app,
        &format!(
            "[[steps]]\nname = \"git\"\ncommand = \"./check.sh\"\n[steps.public_repo]\n{source}\
             [[steps]]\nname = \"inline\"\ninline_contents = 'echo \"inline=$(cat lib/text.txt)\" >> \"$STEAD_OUTPUT_FILE\"'\n\
             [steps.connected_repo]\n{source}\
             [[steps]]\nname = \"local\"\ncommand = \"./local.sh\"\n[steps.public_repo]\nrepo = \".\"\ndirectory = \"scripts\"\n\
             [[steps]]\nname = \"own\"\ncommand = 'echo \"files=$(ls | wc -l)\" >> \"$STEAD_OUTPUT_FILE\"'\n"
        ),
    );
    let local = "#!/bin/sh\necho \"local=yes\" >> \"$STEAD_OUTPUT_FILE\"\n";
    write_script(&app.join("scripts/local.sh"), local);

    sync(&server, &app);

    // Steps with the same directory share a build, which contains only that directory.
    let built = builds(&server);
    let scripts: Vec<_> = built.keys().filter(|name| name.starts_with("scripts-")).collect();
    assert_eq!(scripts.len(), 2, "{built:#?}");
    let of_git = &built[*scripts.iter().find(|name| name.starts_with("scripts-kube-")).unwrap()];
    assert_eq!(of_git["commit"], first.as_str(), "{of_git:#}");
    let packed = files(&server, of_git);
    assert_eq!(packed.keys().collect::<Vec<_>>(), ["kube/check.sh", "kube/lib/text.txt"]);

    let (_runner, run) = provision(&server);
    assert_eq!(run["state"], "succeeded", "{}", run_with_logs(&server, &run));
    let found = outputs(&server);
    for (name, expected) in
        [("text", "one"), ("dir", "kube"), ("inline", "one"), ("local", "yes"), ("files", "0")]
    {
        assert_eq!(found[name], expected, "{name}: {found:#}");
    }

    // A moved branch changes nothing until a version resolves it.
    actions.commit("main", &[("kube/lib/text.txt", "two")]);
    server.cli_json(&["installs", "action", "acme", "check"]);
    succeeded(&server, "acme");
    assert_eq!(outputs(&server)["text"], "one");
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--resolve", "--wait"]);
    server.cli_json(&["installs", "upgrade", "acme", "--to", "2", "--reason", "version 2"]);
    succeeded(&server, "acme");
    server.cli_json(&["installs", "action", "acme", "check"]);
    succeeded(&server, "acme");
    assert_eq!(outputs(&server)["text"], "two");
}

#[test]
fn an_unreachable_repository_fails_only_its_action() {
    if !terraform_or_skip() {
        return;
    }
    let git = GitServer::start();
    git.repository("acme/modules").commit("main", &[("web/main.tf", MODULE)]);
    let server = server(&git);
    let app = app(&server, &[("web", "acme/modules", "web", None)]);
    add_action(
        &app,
        "[[steps]]\nname = \"git\"\ncommand = \"./check.sh\"\n[steps.public_repo]\nrepo = \"acme/none\"\n",
    );
    let sync = ["apps", "sync", app.to_str().unwrap(), "--wait"];
    let output = server.stead().args(sync).output().unwrap();
    assert!(!output.status.success(), "the scripts cannot be built");

    let (_runner, run) = provision(&server);

    assert_eq!(step(&run, "web")["state"], "succeeded", "{run:#}");
    let action = step(&run, "check");
    assert_eq!(action["state"], "failed", "{run:#}");
    let shown = action.to_string();
    assert!(shown.contains("build") && shown.contains("failed"), "{run:#}");
}
