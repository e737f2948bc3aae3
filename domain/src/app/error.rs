//! Reasons to reject an app command.
use super::{App, PublishedComponent};
use crate::ids::ComponentId;

/// Reason to reject an app command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AppError {
    /// No app has this id.
    #[error("app does not exist")]
    NotFound,
    /// The id belongs to another app.
    #[error("app already exists as {name}")]
    AlreadyCreated {
        /// Name that already belongs to the id.
        name: String,
    },
    /// Templates refer to components by name, so two components cannot share one.
    #[error("two components are named {name}: rename one")]
    DuplicateName {
        /// Name that both have.
        name: String,
    },
    /// The name belongs to a component with another id, which installs may have deployed.
    #[error("component {name} already has the id {component}")]
    AnotherComponent {
        /// Name of the component.
        name: String,
        /// Id of the existing component.
        component: ComponentId,
    },
}

impl App {
    pub(super) fn check(&self, components: &[PublishedComponent]) -> Result<(), AppError> {
        for (at, part) in components.iter().enumerate() {
            let name = || part.name.clone();
            if components[..at].iter().any(|other| other.name == part.name) {
                return Err(AppError::DuplicateName { name: name() });
            }
            match self.components.get(&part.name) {
                Some(known) if *known != part.component => {
                    return Err(AppError::AnotherComponent { name: name(), component: *known });
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }
}
