//! What can have happened to an app. The names are on disk: add, never rename.
use serde::{Deserialize, Serialize};

use super::Published;
use crate::decider::Event;

/// A fact about an app.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AppEvent {
    /// It is there.
    Created {
        /// By which people call it.
        name: String,
    },
    /// It has another config version.
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
