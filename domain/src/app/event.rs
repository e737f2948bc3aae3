//! Events of an app. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::Published;
use crate::{decider::Event, ids::JobId};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AppEvent {
    /// The app was created, without a config version.
    Created { name: String },
    /// A bundle was published as the next config version. Existing versions do not change.
    ConfigPublished(Published),
    /// The server queued a job that resolves a reference of a config version.
    SourceResolveQueued {
        /// Version whose components use the reference.
        config_version: u32,
        /// Address of the repository, as in the config.
        repo: String,
        /// Branch, tag or commit id. `HEAD` is the default branch.
        #[serde(rename = "ref")]
        reference: String,
        /// Job on the build runner.
        job: JobId,
    },
    /// A reference of a config version was resolved. The components of the version are built from
    /// this commit.
    SourceResolved {
        /// Version whose components use the reference.
        config_version: u32,
        /// Address of the repository, as in the config.
        repo: String,
        /// Branch, tag or commit id. `HEAD` is the default branch.
        #[serde(rename = "ref")]
        reference: String,
        /// Id of the commit: 40 hexadecimal digits.
        commit: String,
    },
    /// A reference of a config version cannot be resolved, so the builds of its components fail.
    SourceResolveFailed {
        /// Version whose components use the reference.
        config_version: u32,
        /// Address of the repository, as in the config.
        repo: String,
        /// Branch, tag or commit id. `HEAD` is the default branch.
        #[serde(rename = "ref")]
        reference: String,
        /// Explanation of the failure for users, without credentials.
        detail: String,
    },
}

impl Event for AppEvent {
    fn name(&self) -> &'static str {
        match self {
            AppEvent::Created { .. } => "app.created",
            AppEvent::ConfigPublished(_) => "app.config_published",
            AppEvent::SourceResolveQueued { .. } => "app.source_resolve_queued",
            AppEvent::SourceResolved { .. } => "app.source_resolved",
            AppEvent::SourceResolveFailed { .. } => "app.source_resolve_failed",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
