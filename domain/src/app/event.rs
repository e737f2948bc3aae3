//! Events of an app. The log stores their names: add events, never rename them.
use serde::{Deserialize, Serialize};

use super::Published;
use crate::decider::Event;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AppEvent {
    /// The app was created, without a config version.
    Created { name: String },
    /// A bundle was published as the next config version. Existing versions do not change.
    ConfigPublished(Published),
}

impl Event for AppEvent {
    fn name(&self) -> &'static str {
        match self {
            AppEvent::Created { .. } => "app.created",
            AppEvent::ConfigPublished(_) => "app.config_published",
        }
    }

    fn version(&self) -> &'static str {
        "1"
    }
}
