//! Events of an app. Their names and payloads are stored: from the first release on, add and never rename.
use serde::{Deserialize, Serialize};

use super::Published;
use crate::decider::Event;

/// An event of an app.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AppEvent {
    /// The app was created.
    Created {
        /// Name of the app, unique.
        name: String,
    },
    /// A config version was published.
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
