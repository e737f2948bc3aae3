//! Personal data fields of each event type. The log encrypts each field with the keys of its data
//! subjects. After the deletion of one of these keys, readers see [`ERASED`] in place of the value.
//!
//! A personal data field contains a string or any JSON value. No rule may depend on the value,
//! because the key may be deleted.
//!
//! `schemas/erasure.txt` lists every free-text field of all events. A golden test fails for a field
//! that the list lacks. Decide the owner of a new field in [`personal_fields`].

/// Value of a field whose key was deleted.
pub const ERASED: &str = "[erased]";

/// Personal data field of an event, with its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonalField {
    /// Path of the field in the payload, outermost key first. `*` matches every key and every item.
    pub path: &'static [&'static str],
    pub owner: FieldOwner,
}

/// Data subjects whose keys encrypt a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldOwner {
    /// Customer of the event's install; see [`crate::decider::Decider::customer`].
    Customer,
    /// Principal in the event's field `by`, and the customer of the event's install, as far as the
    /// event has them. Deletion of either key erases the field.
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
/// Findings of a runner about the host and cluster of the customer.
const CHECK_MESSAGES: PersonalField =
    PersonalField { path: &["checks", "*", "message"], owner: FieldOwner::Customer };
/// Explanation from the runner that found a plan stale. The text may contain values of the
/// customer.
const INVALIDATION_REASON: PersonalField =
    PersonalField { path: &["reason"], owner: FieldOwner::Customer };

/// Returns the personal data fields of an event type, which are the same in all versions of the
/// payload.
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
        "job.checks_reported" | "run.preflight_passed" => &[CHECK_MESSAGES],
        "run.preflight_failed" => &[CHECK_MESSAGES, DETAIL],
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
