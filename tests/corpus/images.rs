//! Registries of one app: one with the images that the app names, and one of the install.
use std::{collections::BTreeSet, path::PathBuf, process::Command};

use tests::Registry;
use toml::Table;

use crate::{
    app::{App, text},
    rules::Rules,
    session::{Failure, Outcome},
};

/// Running registries, until their drop.
pub(crate) struct Images {
    upstream: Registry,
    own: Registry,
    /// Hosts of the images that the app names.
    hosts: BTreeSet<String>,
}

impl Images {
    /// Starts the registries, and pushes a small image under each name. Returns none for an app
    /// without images.
    pub(crate) fn of(app: &App, rules: &Rules) -> Outcome<Option<Images>> {
        let images: BTreeSet<_> =
            app.components.iter().filter_map(|one| image(&one.settings)).collect();
        if images.is_empty() {
            return Ok(None);
        }
        let (Some(upstream), Some(own)) = (Registry::start_or_skip(), Registry::start_or_skip())
        else {
            return Err(Failure::new("no registry: set STEAD_TEST_REGISTRY"));
        };
        let layer = layer();
        let mut hosts = BTreeSet::new();
        for (host, name, tag) in images {
            upstream.push_image(&name, &tag, "linux/amd64", &[&layer]);
            rules.note(format!("a small image for {name}"));
            hosts.insert(host);
        }
        Ok(Some(Images { upstream, own, hosts }))
    }

    /// Returns the options of the server, whose build runner reads every host from the registry.
    pub(crate) fn server_options(&self) -> Vec<String> {
        let mirrors = self.hosts.iter().map(|host| format!("{host}={}", self.upstream.url()));
        mirrors.flat_map(|mirror| ["--registry-mirror".into(), mirror]).collect()
    }

    /// Returns the options of the customer's runner: its registry, with its own prefix.
    pub(crate) fn runner_options(&self, install: &str) -> [String; 2] {
        ["--registry".into(), format!("oci://{}/{install}", self.own.host())]
    }
}

/// Returns host, repository and tag of a component's image.
fn image(settings: &Table) -> Option<(String, String, String)> {
    let source = ["public", "aws_ecr"].iter().find_map(|key| settings.get(*key)?.as_table())?;
    let url = text(source, "image_url")?;
    let tag = text(source, "tag").unwrap_or_else(|| "latest".into());
    if url.contains("{{") || tag.contains("{{") {
        return None;
    }
    let is_host = |first: &str| first.contains(['.', ':']) || first == "localhost";
    match url.split_once('/') {
        Some((host, name)) if is_host(host) => {
            let host = if host == "index.docker.io" { "docker.io" } else { host };
            Some((host.into(), name.into(), tag))
        }
        Some(_) => Some(("docker.io".into(), url, tag)),
        None => Some(("docker.io".into(), format!("library/{url}"), tag)),
    }
}

/// Returns the layer of the image that is on the node: a static BusyBox. Without a cluster, nothing
/// runs the image.
fn layer() -> Vec<u8> {
    let Some(dir) = std::env::var_os("STEAD_TEST_KUBERNETES").map(PathBuf::from) else {
        return vec![0; 1024];
    };
    let mut unpack = Command::new("tar");
    unpack.arg("-xOf").arg(dir.join("images.tar")).arg("layer.tar");
    let output = unpack.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
