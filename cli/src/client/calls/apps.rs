//! Apps and their config versions.
use bytes::Bytes;
use schemas::control::{Page, PageQuery, apps};

use super::{BUNDLE, CallResult};
use crate::client::Client;

impl Client {
    /// Publishes a bundle as the next config version of an app. With `dry_run`, only compares the
    /// bundle with the newest version.
    pub async fn sync(
        &self,
        app: &str,
        bundle: Bytes,
        dry_run: bool,
    ) -> CallResult<apps::SyncReport> {
        let query = apps::SyncQuery { dry_run, ..apps::SyncQuery::default() };
        self.upload(&format!("/v1/apps/{app}/sync"), &query, BUNDLE, bundle).await
    }

    /// Publishes a bundle, and resolves its git references again even if the newest version has the
    /// same bundle.
    pub async fn sync_and_resolve(&self, app: &str, bundle: Bytes) -> CallResult<apps::SyncReport> {
        let query = apps::SyncQuery { resolve: true, ..apps::SyncQuery::default() };
        self.upload(&format!("/v1/apps/{app}/sync"), &query, BUNDLE, bundle).await
    }

    /// Compares a bundle with a published version, or with the newest one.
    pub async fn sync_against(
        &self,
        app: &str,
        bundle: Bytes,
        against: Option<u32>,
    ) -> CallResult<apps::SyncReport> {
        let query = apps::SyncQuery { dry_run: true, against, resolve: false };
        self.upload(&format!("/v1/apps/{app}/sync"), &query, BUNDLE, bundle).await
    }

    /// Returns one config version with its whole config.
    pub async fn version(&self, app: &str, version: u32) -> CallResult<apps::ConfigVersionDetail> {
        self.fresh(&format!("/v1/apps/{app}/versions/{version}"), &()).await
    }

    pub async fn apps(&self, listing: &PageQuery) -> CallResult<Page<apps::App>> {
        self.fresh("/v1/apps", listing).await
    }

    /// One app, by name or id.
    pub async fn app(&self, app: &str) -> CallResult<apps::App> {
        self.fresh(&format!("/v1/apps/{app}"), &()).await
    }

    /// The config versions of an app, the newest first.
    pub async fn versions(
        &self,
        app: &str,
        part: &PageQuery,
    ) -> CallResult<Page<apps::ConfigVersion>> {
        self.fresh(&format!("/v1/apps/{app}/versions"), part).await
    }

    /// Returns the differences of two config versions.
    pub async fn diff(&self, app: &str, query: &apps::DiffQuery) -> CallResult<apps::Diff> {
        self.fresh(&format!("/v1/apps/{app}/diff"), query).await
    }
}
