//! Tests of the Control API over HTTP, with a server, a Postgres database and the client of the
//! CLI.
mod archived;
mod as_of;
mod bundles;
mod component_states;
mod corpus;
mod dashboard;
mod dead_letters;
mod document;
mod erasure;
mod failed_applies;
mod git_sources;
mod idempotency_keys;
mod impact;
mod install_history;
mod lists;
mod missing_plugins;
mod operations;
mod plugins;
mod principal_names;
mod proofs;
mod reactions;
mod rejections;
mod stack_outputs;
mod toggles;
mod unused_values;
mod version_changes;
mod webhooks;
mod workflows;

use std::collections::BTreeMap;

use app_config::{File, Tree};
use bytes::Bytes;
use cli::client::{Client, ClientError, Target};
use schemas::control::{
    installs::{CreateInstall, InstallCreated},
    tokens::{CreateToken, Role},
};

use crate::server::testing::Started;

fn client(started: &Started, token: &str) -> Client {
    let server = started.server.ready.control.clone();
    Client::new(&Target { server, token: Some(token.into()), ca: None }).unwrap()
}

fn owner(started: &Started) -> Client {
    client(started, &started.owner_token())
}

async fn client_with_role(started: &Started, role: Role) -> Client {
    let request = CreateToken { role, name: None, expires_in_s: None };
    client(started, &owner(started).create_token(&request).await.unwrap().token.unwrap())
}

/// App with two components, the second of which depends on the first. `mark` is part of the source
/// of the first component.
fn bundle(mark: &str) -> Bytes {
    bundle_with(mark, "size", "{{ .nuon.inputs.inputs.size }}")
}

/// Like [`bundle`], with a given name of the required input and a given value of the first
/// component's `size`.
fn bundle_with(mark: &str, input: &str, size: &str) -> Bytes {
    bundle_of(mark, input, Some(size))
}

/// Like [`bundle_with`]. Without a size, the first component does not exist.
fn bundle_of(mark: &str, input: &str, size: Option<&str>) -> Bytes {
    let component = |name: &str, vars: &str| {
        format!(
            "name = \"{name}\"\ntype = \"terraform_module\"\nterraform_version = \"1.11.4\"\n\
             [public_repo]\nrepo = \".\"\ndirectory = \"modules/{name}\"\n[vars]\n{vars}"
        )
    };
    let id = size.map_or("none", |_| "{{ .nuon.components.base.outputs.id }}");
    let mut files = vec![
        ("metadata.toml", "version = \"v2\"\ndisplay_name = \"Shop\"\n".to_owned()),
        ("runner.toml", "runner_type = \"local\"\n".to_owned()),
        (
            "inputs.toml",
            "[[group]]\nname = \"g\"\ndisplay_name = \"G\"\ndescription = \"G\"\n\
             [[input]]\nname = \"INPUT\"\ndisplay_name = \"Size\"\ndescription = \"How large\"\n\
             group = \"g\"\ntype = \"number\"\nrequired = true\n"
                .replace("INPUT", input),
        ),
        ("components/shop.toml", component("shop", &format!("base = \"{id}\"\n"))),
    ];
    if let Some(size) = size {
        let base = component("base", &format!("size = \"{size}\"\n"));
        files.push(("components/base.toml", base));
    }
    let mut app = Tree::default();
    for (path, text) in files {
        app.insert(path, File { bytes: text.into_bytes(), executable: false }).unwrap();
    }
    let module = |text: &str| {
        let mut tree = Tree::default();
        let file = File { bytes: text.as_bytes().to_vec(), executable: false };
        tree.insert("main.tf", file).unwrap();
        tree
    };
    let shop = module("variable \"base\" {}\n");
    let mut sources = BTreeMap::from([("shop".to_owned(), shop)]);
    if size.is_some() {
        let base = module(&format!("variable \"size\" {{}}\n# {mark}\n"));
        sources.insert("base".to_owned(), base);
    }
    request_body(&Tree::bundle(&app, &sources, &[]).unwrap())
}

fn request_body(bundle: &Tree) -> Bytes {
    zstd::encode_all(bundle.encode().unwrap().as_slice(), 1).unwrap().into()
}

/// Bundle of these files: the app below `app/`, modules below `source/NAME/`.
fn bundle_of_files(files: &[(&str, &str)]) -> Bytes {
    let mut bundle = Tree::default();
    for (path, text) in files {
        bundle.insert(path, File { bytes: text.as_bytes().to_vec(), executable: false }).unwrap();
    }
    request_body(&bundle)
}

fn new_install(name: &str) -> CreateInstall {
    CreateInstall {
        app: "shop".into(),
        name: name.into(),
        inputs: BTreeMap::from([("size".to_owned(), "2".to_owned())]),
        auto_approve: false,
        auto_approve_first: false,
        config_version: None,
        stack_outputs: BTreeMap::new(),
    }
}

/// Server with version 1 of the app and one install.
async fn with_install() -> (Started, Client, InstallCreated) {
    let started = Started::new().await;
    let owner = owner(&started);
    owner.sync("shop", bundle("1"), false).await.unwrap();
    let created = owner.create_install(&new_install("acme")).await.unwrap();
    (started, owner, created)
}

fn rejection<T: std::fmt::Debug>(response: Result<T, ClientError>) -> (u16, String) {
    let error = response.unwrap_err();
    let ClientError::Problem(problem) = error else { panic!("{error}") };
    (problem.status, problem.code)
}
