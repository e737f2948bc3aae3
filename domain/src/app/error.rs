use super::{App, PublishedComponent};
use crate::ids::ComponentId;

/// Reason to reject an app command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AppError {
    #[error("app does not exist")]
    NotFound,
    #[error("cannot create the app: the id belongs to the app {name}; use a new id")]
    AlreadyCreated {
        /// Name of the app that has the id.
        name: String,
    },
    /// Templates refer to components by name, so each name must be unique.
    #[error("cannot publish the bundle: two components are named {name}; rename one")]
    DuplicateName { name: String },
    /// A component with another id has this name, and installs may have deployed that component.
    #[error("cannot publish the bundle: component {name} has the id {component}; use this id")]
    AnotherComponent { name: String, component: ComponentId },
}

impl App {
    pub(super) fn check(&self, components: &[PublishedComponent]) -> Result<(), AppError> {
        for (index, component) in components.iter().enumerate() {
            let name = || component.name.clone();
            if components[..index].iter().any(|other| other.name == component.name) {
                return Err(AppError::DuplicateName { name: name() });
            }
            match self.components.get(&component.name) {
                Some(id) if *id != component.component => {
                    return Err(AppError::AnotherComponent { name: name(), component: *id });
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }
}
