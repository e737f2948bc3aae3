//! Forms of a run: approve, deny, cancel and retry.
use std::collections::BTreeMap;

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
    problem::{Code, Problem},
    state::App,
    usecases::{decide_all, reason, runs},
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

impl Decision {
    fn route(self) -> &'static str {
        match self {
            Decision::Approve => "/v1/runs/{run}/approve",
            Decision::Deny => "/v1/runs/{run}/deny",
        }
    }
}

/// Decision about several plans. Field `plan.STEP` has the digest of the step's plan.
#[derive(Deserialize)]
pub(super) struct DecideAll {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    reason: String,
    decision: Decision,
    #[serde(flatten)]
    fields: BTreeMap<String, String>,
}

/// Form with a reason.
#[derive(Deserialize)]
pub(super) struct WithReason {
    #[serde(flatten)]
    pub token: FormToken,
    pub idempotency_key: String,
    pub reason: String,
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
    let route = form.decision.route();
    let content = format!("{run}\n{}\n{}\n{}", form.step, form.digest, form.reason);
    let by = caller.actor.clone();
    let key = (("POST", route), form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
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

/// Approves or denies exactly the plans that the page showed, or none of them.
pub(super) async fn decide_all(
    State(app): State<App>,
    Ui(Path(run)): Ui<Path<RunId>>,
    caller: Caller,
    session: Session,
    Form(form): Form<DecideAll>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let plans = plans(&form.fields)?;
    let content = format!("{run}\n{plans:?}\n{}", form.reason);
    let by = caller.actor.clone();
    let key = (("POST", form.decision.route()), form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
        let reason = reason::required(&form.reason)?;
        let plans = plans.iter().map(|(step, digest)| {
            let (by, reason) = (by.clone(), reason.clone());
            PlanDecision { step: *step, digest: digest.clone(), by, reason }
        });
        let approves = matches!(form.decision, Decision::Approve);
        decide_all::decide_all(&app, call, run, plans.collect(), approves).await
    });
    Ok(see_other(&format!("/ui/runs/{run}"), position.await?))
}

/// Steps and digests of a form that decides several plans.
fn plans(fields: &BTreeMap<String, String>) -> Result<Vec<(StepId, Digest)>, Problem> {
    let named = fields.iter().filter_map(|(field, digest)| {
        let step = field.strip_prefix("plan.")?;
        Some(step.parse().ok().zip(digest.parse().ok()))
    });
    match named.collect::<Option<Vec<_>>>() {
        Some(plans) if !plans.is_empty() => Ok(plans),
        Some(_) | None => {
            let detail = "form rejected: it names no plan, or an invalid one; open the page again";
            Err(Problem::new(Code::BadRequest, detail))
        }
    }
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
    let key = (("POST", "/v1/runs/{run}/cancel"), form.idempotency_key.as_str(), content);
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
    let key = (("POST", "/v1/runs/{run}/retry"), form.idempotency_key.as_str(), content);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_of_several_plans_names_valid_steps_and_digests() {
        let step = "stp_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let digest = format!("sha256:{}", "0".repeat(64));
        let fields = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let field = format!("plan.{step}");
        let of = plans(&fields(&[(&field, &digest), ("other", "x")])).unwrap();
        assert_eq!(of, [(step.parse().unwrap(), digest.parse().unwrap())]);
        for invalid in [&[][..], &[(&*field, "sha256:1")], &[("plan.run_1", &*digest)]] {
            assert!(plans(&fields(invalid)).is_err(), "{invalid:?}");
        }
    }
}
