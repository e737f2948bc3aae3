//! Server with one of Stead's plugins, published under a new key.

use std::process::Command;

use serde_json::Value;

use crate::{Server, program, stdout_of};

/// Starts a server with these variables, and publishes the plugin of a component type. The build
/// runner trusts the key of its publisher, which is the second value.
pub fn server_with_plugin(kind: &str, variables: &[(&str, &str)]) -> (Server, String) {
    let keys = tempfile::tempdir().unwrap();
    let file = keys.path().join("publisher.key").display().to_string();
    let mut keygen = Command::new(program("stead"));
    let created = stdout_of(keygen.args(["--output", "json", "plugins", "keygen", &file]));
    let created: Value = serde_json::from_str(&created).unwrap();
    let key = created["publisher"].as_str().unwrap().to_owned();
    let trusted = [("STEAD_PLUGIN_PUBLISHER", key.as_str())];
    let server = Server::up_in(&[variables, &trusted].concat());
    let plugin = program(&format!("stead-plugin-{kind}"));
    server.cli_json(&["plugins", "push", "--key", &file, plugin.to_str().unwrap()]);
    (server, key)
}
