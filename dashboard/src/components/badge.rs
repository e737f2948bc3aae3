//! State of anything, as a word with a color.
use maud::{Markup, html};

/// Meaning of a state, which selects its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Ok,
    Running,
    Waiting,
    Failed,
    Idle,
}

impl Tone {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Tone::Ok => "ok",
            Tone::Running => "run",
            Tone::Waiting => "wait",
            Tone::Failed => "fail",
            Tone::Idle => "idle",
        }
    }
}

/// Returns the tone of a state of the Control API. States are an open set, so an unknown one is idle.
pub(crate) fn tone(state: &str) -> Tone {
    match state {
        "active" | "ok" | "succeeded" | "deployed" | "passed" | "approved" | "resolved"
        | "built" => Tone::Ok,
        "running" | "started" | "checking" | "pending" | "reconnecting" | "planning"
        | "applying" | "provisioning" | "updating" | "tearing_down" | "deprovisioning"
        | "claimed" | "requested" | "queued" | "cancelling" | "resolving" => Tone::Running,
        "waiting_for_approval"
        | "waiting_for_runner"
        | "incomplete"
        | "retry_scheduled"
        | "outcome_unknown"
        | "disabled"
        | "drained"
        | "deferred" => Tone::Waiting,
        "failed" | "denied" | "expired" | "lost" | "disconnected" | "revoked" | "unresolved" => {
            Tone::Failed
        }
        _ => Tone::Idle,
    }
}

/// A state as a badge. Underscores become spaces.
pub(crate) fn badge(state: &str) -> Markup {
    html! { span class={ "badge " (tone(state).class()) } { (super::kind(state)) } }
}
