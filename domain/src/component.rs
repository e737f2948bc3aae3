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
            (ComponentCommand::Publish(asked), None) => Ok(vec![ComponentEvent::Defined(asked)]),
            (ComponentCommand::Publish(asked), Some(known)) => {
                if (asked.app, &asked.name) != (known.app, &known.name) {
                    return Err(ComponentError::AnotherComponent { name: known.name.clone() });
                }
                let same = (&asked.definition, &asked.kind) == (&known.definition, &known.kind);
                if same && !self.retired {
                    return Ok(vec![]);
                }
                known.comes_before(asked.config_version)?;
                let Definition { kind, definition, config_version, .. } = asked;
                Ok(vec![if self.retired {
                    ComponentEvent::Restored { definition, kind, config_version }
                } else {
                    ComponentEvent::Changed { definition, kind, config_version }
                }])
            }
            (ComponentCommand::Retire { .. }, None) => Err(ComponentError::NotFound),
            (ComponentCommand::Retire { .. }, Some(_)) if self.retired => Ok(vec![]),
            (ComponentCommand::Retire { config_version }, Some(known)) => {
                known.comes_before(config_version)?;
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
                if let Some(known) = &mut self.definition {
                    *known = Definition { definition, kind, config_version, ..known.clone() };
                }
            }
            ComponentEvent::Retired { config_version } => {
                self.retired = true;
                if let Some(known) = &mut self.definition {
                    known.config_version = config_version;
                }
            }
        }
    }
}
