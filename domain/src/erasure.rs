//! Personal data fields of each event type. The log encrypts them with the key of their data
//! subject. After that key is shredded, they read as [`ERASED`].
//!
//! A field holds a text or any JSON value. No rule may need its value after the key is shredded.
//!
//! `schemas/erasure.txt` lists every free-text field of all events. The golden test fails for a new
//! one, so that its owner is decided here.

/// Value that replaces an erased field.
pub const ERASED: &str = "[erased]";

/// Personal data field of an event, and the data subject that owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonalField {
    /// Path of the field in the payload, outermost key first. `*` matches every key.
    pub path: &'static [&'static str],
    /// Data subject whose key encrypts the field.
    pub owner: FieldOwner,
}

/// Data subject of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldOwner {
    /// Customer of the event's install, see [`crate::decider::Decider::customer`].
    Customer,
    /// Principal that the event names as `by`, and the customer, if there is one. Shredding either
    /// key erases the field.
    Author,
}

const REASON: PersonalField = PersonalField { path: &["reason"], owner: FieldOwner::Author };
const DETAIL: PersonalField = PersonalField { path: &["detail"], owner: FieldOwner::Customer };
const INPUTS: PersonalField = PersonalField { path: &["inputs", "*"], owner: FieldOwner::Customer };
const SET: PersonalField = PersonalField { path: &["set", "*"], owner: FieldOwner::Customer };
const OUTPUTS: PersonalField =
    PersonalField { path: &["outputs", "*"], owner: FieldOwner::Customer };
const HOSTNAME: PersonalField =
    PersonalField { path: &["host", "hostname"], owner: FieldOwner::Customer };
/// Reason that the server gives for an invalidated plan. It may contain values of the customer.
const INVALIDATION_REASON: PersonalField =
    PersonalField { path: &["reason"], owner: FieldOwner::Customer };

/// Returns the personal data fields of an event type, for all its versions.
pub fn personal_fields(event_type: &str) -> &'static [PersonalField] {
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
        "run.plan_invalidated" => &[INVALIDATION_REASON],
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
