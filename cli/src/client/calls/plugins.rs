//! Calls of `/v1/plugins`.
use bytes::Bytes;
use domain::digest::Digest;
use reqwest::Method;
use schemas::control::{
    Page, PageQuery,
    plugins::{Plugin, PluginPublished, PublishPlugin},
};

use super::CallResult;
use crate::client::Client;

impl Client {
    /// Plugins by name.
    pub async fn plugins(&self, listing: &PageQuery) -> CallResult<Page<Plugin>> {
        self.fresh("/v1/plugins", listing).await
    }

    /// Plugin with its versions.
    pub async fn plugin(&self, name: &str) -> CallResult<Plugin> {
        self.fresh(&format!("/v1/plugins/{name}"), &()).await
    }

    /// Stores a blob of a plugin's artifact. A publication requires all blobs of the artifact.
    pub async fn store_plugin_blob(
        &self,
        name: &str,
        digest: &Digest,
        bytes: Bytes,
    ) -> CallResult<()> {
        self.store(&format!("/v1/plugins/{name}/blobs/{digest}"), bytes).await
    }

    /// Publishes a stored artifact as a version of a plugin.
    pub async fn publish_plugin(
        &self,
        name: &str,
        body: &PublishPlugin,
    ) -> CallResult<PluginPublished> {
        self.change(Method::POST, &format!("/v1/plugins/{name}"), body).await
    }
}
