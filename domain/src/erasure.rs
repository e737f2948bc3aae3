//! Which words of an event are somebody's: kept under the key of whose they are, and read as [`ERASED`] once that key
//! is shredded. Every place holds a text, or any JSON value; nothing that a rule needs after the subject is gone.
//!
//! `schemas/erasure.txt` lists every free text of the vocabulary: a new one has to be decided on here.

/// What is read where something was.
pub const ERASED: &str = "[erased]";

/// A place in an event, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// From the payload inwards; `*` is every key.
    pub path: &'static [&'static str],
    /// Whose.
    pub whose: Whose,
}

/// Whose words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The customer's whose install it is about: [`crate::decider::Decider::customer`].
    Customer,
    /// Written by the principal that the event names as `by`, about that customer if there is one: gone with either.
    Author,
}

const REASON: Place = Place { path: &["reason"], whose: Whose::Author };
const DETAIL: Place = Place { path: &["detail"], whose: Whose::Customer };
const INPUTS: Place = Place { path: &["inputs", "*"], whose: Whose::Customer };
const SET: Place = Place { path: &["set", "*"], whose: Whose::Customer };
const OUTPUTS: Place = Place { path: &["outputs", "*"], whose: Whose::Customer };
const HOSTNAME: Place = Place { path: &["host", "hostname"], whose: Whose::Customer };
/// What changed under a plan, said by the server: it may name values.
const VOIDED: Place = Place { path: &["reason"], whose: Whose::Customer };

/// The places of an event of this type, in any version.
pub fn places(event_type: &str) -> &'static [Place] {
    match event_type {
        "install.created" => &[INPUTS],
        "install.inputs_changed" => &[SET, REASON],
        "install.stack_outputs_set" => &[OUTPUTS, REASON],
        "install.stack_outputs_reported"
        | "install.sandbox_provisioned"
        | "install.component_deployed"
        | "install.action_completed"
        | "job.outputs_reported" => &[OUTPUTS],
        "install.config_pinned"
        | "install.auto_approve_changed"
        | "install.state_accepted"
        | "install.component_disabled"
        | "install.component_enabled"
        | "run.requested"
        | "run.approved"
        | "run.denied"
        | "run.step_retried"
        | "run.cancel_requested"
        | "job.cancel_requested"
        | "job.outcome_resolved"
        | "runner.disabled"
        | "runner.enabled"
        | "runner.drained"
        | "runner.resumed"
        | "runner.rekey_requested"
        | "runner.revoked"
        | "enrolment.revoked"
        | "subject.shredded" => &[REASON],
        "run.plan_invalidated" => &[VOIDED],
        "run.step_failed"
        | "run.step_retry_scheduled"
        | "job.failed"
        | "job.late_result_reported"
        | "runner.refused" => &[DETAIL],
        "runner.enrolled" => &[HOSTNAME],
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
