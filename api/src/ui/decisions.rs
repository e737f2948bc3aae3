//! Forms of a run: approve, deny, cancel and retry.
use axum::{extract::State, response::Response};
use domain::{
    digest::Digest,
    ids::{RunId, StepId},
    run::PlanDecision,
};
use serde::Deserialize;

use super::{
    change::{FormToken, once},
    response::{Form, PageProblem, Ui, see_other},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Path},
    state::App,
    usecases::{reason, runs},
};

/// Decision about the plan of a step.
#[derive(Deserialize)]
pub(super) struct Decide {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    step: StepId,
    digest: Digest,
    reason: String,
    decision: Decision,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Approve,
    Deny,
}

/// Form with a reason.
#[derive(Deserialize)]
pub(super) struct WithReason {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    reason: String,
}

/// Approves or denies exactly the plan that the page showed.
pub(super) async fn decide(
    State(app): State<App>,
    Ui(Path(run)): Ui<Path<RunId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Decide>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let route = match form.decision {
        Decision::Approve => "/v1/runs/{run}/approve",
        Decision::Deny => "/v1/runs/{run}/deny",
    };
    let content = format!("{run}\n{}\n{}\n{}", form.step, form.digest, form.reason);
    let by = caller.actor.clone();
    let position = once(&app, &caller, (route, &form.idempotency_key, content), async |call| {
        let reason = reason::required(&form.reason)?;
        let decision =
            PlanDecision { step: form.step, digest: form.digest.clone(), by: by.clone(), reason };
        match form.decision {
            Decision::Approve => runs::approve(&app, call, run, decision).await,
            Decision::Deny => runs::deny(&app, call, run, decision).await,
        }
    });
    Ok(see_other(&format!("/ui/runs/{run}"), position.await?))
}

pub(super) async fn cancel(
    State(app): State<App>,
    Ui(Path(run)): Ui<Path<RunId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<WithReason>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let content = format!("{run}\n{}", form.reason);
    let key = ("/v1/runs/{run}/cancel", form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
        runs::cancel(&app, call, run, reason::required(&form.reason)?, false).await
    });
    Ok(see_other(&format!("/ui/runs/{run}"), position.await?))
}

/// Retries the failed steps, and shows the run that does it.
pub(super) async fn retry(
    State(app): State<App>,
    Ui(Path(run)): Ui<Path<RunId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<WithReason>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let content = format!("{run}\n{}", form.reason);
    let key = ("/v1/runs/{run}/retry", form.idempotency_key.as_str(), content);
    let mut shown = run;
    let position = once(&app, &caller, key, async |call| {
        let done =
            runs::retry(&app, call, run, reason::optional(Some(form.reason.clone()))?).await?;
        shown = done.value;
        Ok(done)
    });
    let position = position.await?;
    Ok(see_other(&format!("/ui/runs/{shown}"), position))
}
