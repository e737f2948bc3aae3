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
pub use state::{App, Published, PublishedComponent};

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
        }
    }

    fn evolve(&mut self, event: AppEvent) {
        match event {
            AppEvent::Created { name } => self.name = Some(name),
            AppEvent::ConfigPublished(published) => {
                for component in &published.components {
                    self.components.insert(component.name.clone(), component.component);
                }
                self.versions.insert(published.config_version, published);
            }
        }
    }
}
