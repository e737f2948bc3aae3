//! Adapter between the domain and `cqrs-es`. The stores, snapshots, views and replay of `cqrs-es`
//! are not used.
use cqrs_es::{Aggregate, DomainEvent, event_sink::EventSink};
use domain::decider::{Decider, Event, Timestamp};
use serde::{Deserialize, Serialize};

/// Adapts an [`Event`] to a `cqrs-es` event, with the same JSON and name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct CqrsEvent<E: Event>(pub E);

impl<E: Event> DomainEvent for CqrsEvent<E> {
    fn event_type(&self) -> String {
        self.0.name().into()
    }
    fn event_version(&self) -> String {
        self.0.version().into()
    }
}

/// Adapts a [`Decider`] to a `cqrs-es` aggregate.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Root<D: Decider>(pub D);

impl<D: Decider> Aggregate for Root<D>
where
    D::Event: Unpin + 'static,
    D::Command: Sync + 'static,
{
    const TYPE: &'static str = D::NAME;
    type Command = D::Command;
    type Event = CqrsEvent<D::Event>;
    type Error = D::Error;
    type Services = Now;

    async fn handle(
        &mut self,
        command: D::Command,
        now: &Now,
        sink: &EventSink<Self>,
    ) -> Result<(), D::Error> {
        for event in self.0.decide(command, (now.0)())? {
            sink.write(CqrsEvent(event), self).await;
        }
        Ok(())
    }

    fn apply(&mut self, CqrsEvent(event): CqrsEvent<D::Event>) {
        self.0.evolve(event);
    }
}

/// The only source of time in decisions made through `cqrs-es`.
pub struct Now(pub fn() -> Timestamp);
