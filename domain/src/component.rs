//! A component is one deployable part of an app, across config versions.
//!
//! ```text
//! undefined ─publish─▶ defined ─retire─▶ retired
//!                       │  ▲               │
//!                       └──┘ changed       └─ publish ─▶ defined
//! ```
use crate::decider::{Decider, Timestamp};

mod command;
mod error;
mod event;
mod state;
#[cfg(test)]
mod tests;
pub use command::ComponentCommand;
pub use error::ComponentError;
pub use event::ComponentEvent;
pub use state::{Component, Definition};

impl Decider for Component {
    const NAME: &'static str = "component";
    type Command = ComponentCommand;
    type Event = ComponentEvent;
    type Error = ComponentError;

    fn decide(
        &self,
        command: ComponentCommand,
        _now: Timestamp,
    ) -> Result<Vec<ComponentEvent>, ComponentError> {
        match (command, &self.definition) {
            (ComponentCommand::Publish(new), None) => Ok(vec![ComponentEvent::Defined(new)]),
            (ComponentCommand::Publish(new), Some(current)) => {
                if (new.app, &new.name) != (current.app, &current.name) {
                    return Err(ComponentError::AnotherComponent { name: current.name.clone() });
                }
                let same = (&new.definition, &new.kind) == (&current.definition, &current.kind);
                if same && !self.retired {
                    return Ok(vec![]);
                }
                current.check_is_earlier_than(new.config_version)?;
                let Definition { kind, definition, config_version, .. } = new;
                Ok(vec![if self.retired {
                    ComponentEvent::Restored { definition, kind, config_version }
                } else {
                    ComponentEvent::Changed { definition, kind, config_version }
                }])
            }
            (ComponentCommand::Retire { .. }, None) => Err(ComponentError::NotFound),
            (ComponentCommand::Retire { .. }, Some(_)) if self.retired => Ok(vec![]),
            (ComponentCommand::Retire { config_version }, Some(current)) => {
                current.check_is_earlier_than(config_version)?;
                Ok(vec![ComponentEvent::Retired { config_version }])
            }
        }
    }

    fn evolve(&mut self, event: ComponentEvent) {
        match event {
            ComponentEvent::Defined(definition) => self.definition = Some(definition),
            ComponentEvent::Changed { definition, kind, config_version }
            | ComponentEvent::Restored { definition, kind, config_version } => {
                self.retired = false;
                if let Some(current) = &mut self.definition {
                    *current = Definition { definition, kind, config_version, ..current.clone() };
                }
            }
            ComponentEvent::Retired { config_version } => {
                self.retired = true;
                if let Some(current) = &mut self.definition {
                    current.config_version = config_version;
                }
            }
        }
    }
}
