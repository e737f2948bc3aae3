//! Why an app says no, in the words of the business.
use super::{App, PublishedComponent};
use crate::ids::ComponentId;

/// Why an app says no.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AppError {
    /// Nothing was created under this id.
    #[error("app does not exist")]
    NotFound,
    /// The same id for another app.
    #[error("app is already created, as {name}")]
    AlreadyCreated {
        /// Its name.
        name: String,
    },
    /// Names are how templates speak of components.
    #[error("two components are called {name}")]
    SameName {
        /// The name of both.
        name: String,
    },
    /// What was deployed under an id would be somebody else.
    #[error("component {name} is {component} and stays it")]
    AnotherComponent {
        /// Its name.
        name: String,
        /// Its id.
        component: ComponentId,
    },
}

impl App {
    pub(super) fn check(&self, components: &[PublishedComponent]) -> Result<(), AppError> {
        for (at, part) in components.iter().enumerate() {
            let name = || part.name.clone();
            if components[..at].iter().any(|other| other.name == part.name) {
                return Err(AppError::SameName { name: name() });
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
