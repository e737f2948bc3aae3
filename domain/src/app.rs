//! An app is a product that a vendor installs at customers. An app has a name and config versions
//! 1, 2, 3 and so on. A published version never changes, and a component keeps its id in all
//! versions.
use crate::decider::{Decider, Timestamp};

mod command;
mod error;
mod event;
mod state;
#[cfg(test)]
mod tests;
pub use command::AppCommand;
pub use error::AppError;
pub use event::AppEvent;
pub use state::{App, Published, PublishedComponent, Resolution, VersionSource};

impl Decider for App {
    const NAME: &'static str = "app";
    type Command = AppCommand;
    type Event = AppEvent;
    type Error = AppError;

    fn decide(&self, command: AppCommand, _now: Timestamp) -> Result<Vec<AppEvent>, AppError> {
        match command {
            AppCommand::Create { name } => match &self.name {
                None => Ok(vec![AppEvent::Created { name }]),
                Some(existing) if *existing == name => Ok(vec![]),
                Some(existing) => Err(AppError::AlreadyCreated { name: existing.clone() }),
            },
            AppCommand::Publish { .. } if self.name.is_none() => Err(AppError::NotFound),
            AppCommand::Publish { bundle, components, plugins } => {
                // The same bundle with new builds or plugins is a new version, because a version
                // refers to them.
                let same = |latest: &Published| {
                    latest.bundle == bundle
                        && latest.components == components
                        && latest.plugins == plugins
                };
                if self.latest().is_some_and(same) {
                    return Ok(vec![]);
                }
                self.check(&components)?;
                let config_version = self.version() + 1;
                let published = Published { config_version, bundle, components, plugins };
                Ok(vec![AppEvent::ConfigPublished(published)])
            }
            AppCommand::QueueResolve { config_version, repo, reference, job } => {
                match self.check_source(config_version, &repo, &reference)? {
                    Resolution::Pending => Ok(vec![AppEvent::SourceResolveQueued {
                        config_version,
                        repo,
                        reference,
                        job,
                    }]),
                    Resolution::Queued { job: existing } if *existing == job => Ok(vec![]),
                    Resolution::Queued { job } => {
                        Err(AppError::ResolveAlreadyQueued { repo, reference, job: *job })
                    }
                    ended @ (Resolution::Resolved { .. } | Resolution::Failed { .. }) => {
                        Err(ended.rejection(repo, reference))
                    }
                }
            }
            AppCommand::Resolve { config_version, repo, reference, commit } => {
                match self.check_source(config_version, &repo, &reference)? {
                    Resolution::Pending | Resolution::Queued { .. } => {
                        Ok(vec![AppEvent::SourceResolved {
                            config_version,
                            repo,
                            reference,
                            commit,
                        }])
                    }
                    Resolution::Resolved { commit: existing } if *existing == commit => Ok(vec![]),
                    ended @ (Resolution::Resolved { .. } | Resolution::Failed { .. }) => {
                        Err(ended.rejection(repo, reference))
                    }
                }
            }
            AppCommand::FailResolve { config_version, repo, reference, detail } => {
                match self.check_source(config_version, &repo, &reference)? {
                    Resolution::Pending | Resolution::Queued { .. } => {
                        Ok(vec![AppEvent::SourceResolveFailed {
                            config_version,
                            repo,
                            reference,
                            detail,
                        }])
                    }
                    Resolution::Failed { .. } => Ok(vec![]),
                    ended @ Resolution::Resolved { .. } => Err(ended.rejection(repo, reference)),
                }
            }
        }
    }

    fn evolve(&mut self, event: AppEvent) {
        match event {
            AppEvent::Created { name } => self.name = Some(name),
            AppEvent::ConfigPublished(published) => {
                for component in &published.components {
                    self.components.insert(component.name.clone(), component.component);
                }
                let sources = published.sources();
                if !sources.is_empty() {
                    self.sources.insert(published.config_version, sources);
                }
                self.versions.insert(published.config_version, published);
            }
            AppEvent::SourceResolveQueued { config_version, repo, reference, job } => {
                let resolution = Resolution::Queued { job };
                self.set_resolution(config_version, (&repo, &reference), resolution);
            }
            AppEvent::SourceResolved { config_version, repo, reference, commit } => {
                if let Some(version) = self.versions.get_mut(&config_version) {
                    version.resolve(&repo, &reference, &commit);
                }
                let resolution = Resolution::Resolved { commit };
                self.set_resolution(config_version, (&repo, &reference), resolution);
            }
            AppEvent::SourceResolveFailed { config_version, repo, reference, detail } => {
                let resolution = Resolution::Failed { detail };
                self.set_resolution(config_version, (&repo, &reference), resolution);
            }
        }
    }
}
