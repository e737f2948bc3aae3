//! A minimal aggregate with a command that may change nothing.
use domain::decider::{Decider, Event, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Default, PartialEq, Serialize, Deserialize, bincode::Encode, bincode::Decode,
)]
pub struct Counter {
    pub value: u64,
    pub closed: bool,
}

pub enum CounterCommand {
    Add(u64),
    Close,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CounterEvent {
    Added { by: u64 },
    Closed,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CounterError {
    #[error("the counter is closed")]
    Closed,
}

impl Event for CounterEvent {
    fn name(&self) -> &'static str {
        match self {
            CounterEvent::Added { .. } => "counter.added",
            CounterEvent::Closed => "counter.closed",
        }
    }
    fn version(&self) -> &'static str {
        "1"
    }
}

impl Decider for Counter {
    const NAME: &'static str = "counter";
    type Command = CounterCommand;
    type Event = CounterEvent;
    type Error = CounterError;

    fn decide(
        &self,
        command: CounterCommand,
        _: Timestamp,
    ) -> Result<Vec<CounterEvent>, CounterError> {
        match command {
            CounterCommand::Add(_) if self.closed => Err(CounterError::Closed),
            CounterCommand::Add(by) => Ok(vec![CounterEvent::Added { by }]),
            CounterCommand::Close if self.closed => Ok(Vec::new()),
            CounterCommand::Close => Ok(vec![CounterEvent::Closed]),
        }
    }

    fn evolve(&mut self, event: CounterEvent) {
        match event {
            CounterEvent::Added { by } => self.value += by,
            CounterEvent::Closed => self.closed = true,
        }
    }
}
