//! App with required, optional and defaulted sensitive inputs, and sensitive outputs that another
//! component and an action read.
use std::{fs, path::PathBuf};

use tests::{Server, edge_api};

const INPUTS: &str = r#"
[[input]]
name         = "api_token"
display_name = "Token"
description  = "Token of the API"
group        = "customer"
sensitive    = true
required     = true

[[input]]
name         = "license"
display_name = "License"
description  = "License key"
group        = "customer"
sensitive    = true

[[input]]
name         = "pepper"
display_name = "Pepper"
description  = "Pepper of hashes"
group        = "customer"
sensitive    = true
default      = "pepper-per-default"
"#;

const SECRETS: &str = r#"
[[secret]]
name        = "signing_key"
description = "Key that signs the reports"
"#;

const STORE: &str = r#"
variable "signing_key" { type = string }
variable "token" { type = string }
variable "license" { type = string }
variable "pepper" { type = string }
variable "header" { type = string }

resource "terraform_data" "store" {
  input = { header = var.header, token = var.token }
}

output "password" {
  value     = sensitive(join("-", ["password", "5e1f77aa+03bc/91"]))
  sensitive = true
}
output "keys" {
  value     = sensitive([join("-", ["password", "5e1f77aa+03bc/91"]), "second"])
  sensitive = true
}
output "port" {
  value     = sensitive(5432)
  sensitive = true
}
output "signing_key_sha256" { value = sha256(var.signing_key) }
output "token_sha256" { value = sha256(var.token) }
output "license_sha256" { value = sha256(var.license) }
output "pepper_sha256" { value = sha256(var.pepper) }
output "header_sha256" { value = sha256(var.header) }
# Terraform does not know that this is sensitive.
output "leaked" { value = "the token is ${var.token}" }
"#;

const STORE_TOML: &str = r#"name              = "store"
type              = "terraform_module"
terraform_version = "1.11.4"

[public_repo]
repo      = "."
directory = "modules/store"

[vars]
signing_key = "{{ .nuon.install.secrets.signing_key }}"
token   = "{{ .nuon.inputs.inputs.api_token }}"
license = "{{ .nuon.inputs.inputs.license | default \"none\" }}"
pepper  = "{{ .nuon.inputs.inputs.pepper }}"
header  = "{{ printf \"user:%s\" .nuon.install.inputs.api_token | b64enc }}"
"#;

const READER: &str = r#"
variable "password" { type = string }
variable "url" { type = string }
variable "keys" { type = string }

output "password_sha256" { value = sha256(var.password) }
output "url_sha256" { value = sha256(var.url) }
output "second" { value = jsondecode(var.keys)[1] }
"#;

const READER_TOML: &str = r#"name              = "reader"
type              = "terraform_module"
terraform_version = "1.11.4"

[public_repo]
repo      = "."
directory = "modules/reader"

[vars]
password = "{{ .nuon.components.store.outputs.password }}"
url      = "postgres://app:{{ urlquery .nuon.components.store.outputs.password }}@db:{{ .nuon.components.store.outputs.port }}"
keys     = "{{ toJson .nuon.components.store.outputs.keys }}"
"#;

const ACTION: &str = r#"name    = "show"
timeout = "2m"

[[triggers]]
type = "manual"

[[steps]]
name            = "print"
inline_contents = "./show.sh"

[steps.env_vars]
TOKEN    = "{{ .nuon.inputs.inputs.api_token }}"
PASSWORD = "{{ .nuon.components.store.outputs.password }}"
"#;

const SCRIPT: &str = r#"#!/bin/sh
echo "plain: $TOKEN $PASSWORD"
echo "in base64: $(printf %s "$TOKEN" | base64)"
echo "in hexadecimal: $(printf %s "$PASSWORD" | od -An -tx1 | tr -d ' \n')"
echo "length: ${#TOKEN} ${#PASSWORD}"
"#;

/// Writes an app with these components, inputs and action.
pub(super) fn app(server: &Server) -> PathBuf {
    let app = edge_api(server.dir());
    for name in ["api", "cache", "database", "edge", "network"] {
        fs::remove_file(app.join("components").join(name).with_extension("toml")).unwrap();
        fs::remove_dir_all(app.join("modules").join(name)).unwrap();
    }
    fs::remove_file(app.join("components/api.tfvars")).unwrap();
    fs::remove_file(app.join("actions/smoke_test.toml")).unwrap();
    fs::remove_file(app.join("actions/smoke_test.sh")).unwrap();
    let write = |file: &str, text: &str| {
        let file = app.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let inputs = fs::read_to_string(app.join("inputs.toml")).unwrap();
    write("inputs.toml", &(inputs + INPUTS));
    write("secrets.toml", SECRETS);
    write("modules/store/main.tf", STORE);
    write("modules/reader/main.tf", READER);
    write("components/store.toml", STORE_TOML);
    write("components/reader.toml", READER_TOML);
    write("actions/show.toml", ACTION);
    write("actions/show.sh", SCRIPT);
    app
}
