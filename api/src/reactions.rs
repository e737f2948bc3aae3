//! Reactions to events and to elapsed time. A loop that processes events owns one consumer row.
mod commit;
mod concurrent;
pub(crate) mod dead_letters;
pub(crate) mod erasure;
mod failure_class;
mod failures;
#[cfg(feature = "fault-injection")]
mod fault_injection;
pub(crate) mod liveness;
pub(crate) mod policies;
pub(crate) mod principals;
pub(crate) mod timers;
pub(crate) mod webhooks;
