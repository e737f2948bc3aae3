//! Requests of callers for runs, as the run use case takes them.
use domain::run::{Cause, RunKind, plan::Scope};
use schemas::control::runs::{RequestRun, RequestedKind};

use super::{reason, runs::RunRequest};
use crate::problem::Problem;

/// Returns the parameters of a requested run. Rejects members that its kind does not allow.
pub(crate) fn run_request(request: RequestRun) -> Result<RunRequest, Problem> {
    let RequestRun { kind, components, action, reason, plan_all } = request;
    if !components.is_empty() && kind != RequestedKind::Deploy {
        return Err(Problem::invalid_field(
            "components",
            "are only valid for a deploy",
            "omit components",
        ));
    }
    if action.is_some() != (kind == RequestedKind::Action) {
        return Err(Problem::invalid_field(
            "action",
            "is required for the kind action and invalid for other kinds",
            "name the action, or omit it for another kind",
        ));
    }
    let (kind, scope) = match kind {
        RequestedKind::Action | RequestedKind::Drift if plan_all => {
            return Err(Problem::invalid_field(
                "plan_all",
                "is not valid for this kind, which has no plans to approve",
                "omit plan_all",
            ));
        }
        RequestedKind::Provision => (RunKind::Provision, Scope::Everything),
        RequestedKind::Reprovision => (RunKind::Reprovision, Scope::Everything),
        RequestedKind::Deploy if components.is_empty() => (RunKind::Deploy, Scope::Everything),
        RequestedKind::Deploy => {
            let names = components.into_iter().collect();
            (RunKind::Deploy, Scope::Named { names, dependents: true })
        }
        RequestedKind::Teardown => (RunKind::Teardown, Scope::Everything),
        RequestedKind::Deprovision => (RunKind::Deprovision, Scope::Everything),
        RequestedKind::Action => (RunKind::Action, Scope::Changed),
        RequestedKind::Drift => (RunKind::Drift, Scope::Everything),
    };
    let reason = reason::optional(reason)?;
    Ok(RunRequest { kind, scope, action, cause: Cause::Requested, reason, plan_all })
}
