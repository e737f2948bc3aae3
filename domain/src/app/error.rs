use super::{App, PublishedComponent, Resolution};
use crate::ids::{ComponentId, JobId};

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
    #[error(
        "cannot resolve {repo} at {reference}: config version {config_version} does not use it"
    )]
    NoSource { config_version: u32, repo: String, reference: String },
    #[error("cannot queue a job: {job} already resolves {repo} at {reference}; wait for that job")]
    ResolveAlreadyQueued { repo: String, reference: String, job: JobId },
    #[error("cannot change {repo} at {reference}: it is already resolved to {commit}")]
    AlreadyResolved { repo: String, reference: String, commit: String },
    #[error("cannot change {repo} at {reference}: its resolution failed; retry the build")]
    NotResolvable { repo: String, reference: String },
}

impl App {
    pub(super) fn check_source(
        &self,
        config_version: u32,
        repo: &str,
        reference: &str,
    ) -> Result<&Resolution, AppError> {
        match self.source(config_version, (repo, reference)) {
            Some(source) => Ok(&source.resolution),
            None => {
                let (repo, reference) = (repo.into(), reference.into());
                Err(AppError::NoSource { config_version, repo, reference })
            }
        }
    }

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

impl Resolution {
    /// Returns the rejection of a command after the end of the resolution. An open resolution
    /// accepts every command.
    pub(super) fn rejection(&self, repo: String, reference: String) -> AppError {
        match self {
            Resolution::Resolved { commit } => {
                AppError::AlreadyResolved { repo, reference, commit: commit.clone() }
            }
            Resolution::Pending | Resolution::Queued { .. } | Resolution::Failed { .. } => {
                AppError::NotResolvable { repo, reference }
            }
        }
    }
}
