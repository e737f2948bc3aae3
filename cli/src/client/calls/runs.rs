//! Runs, approvals and other interventions.
use domain::ids::{RunId, StepId};
use reqwest::Method;
use schemas::control::{ChangeResult, Page, ReasonBody, jobs, runs};
use serde_json::Value;

use super::CallResult;
use crate::client::Client;

impl Client {
    /// Runs, the newest first.
    pub async fn runs(&self, query: &runs::RunsQuery) -> CallResult<Page<runs::RunSummary>> {
        self.fresh("/v1/runs", query).await
    }

    /// One run with its steps.
    pub async fn run(&self, run: RunId) -> CallResult<runs::Run> {
        self.fresh(&format!("/v1/runs/{run}"), &()).await
    }

    /// The redacted summary of a step's plan.
    pub async fn plan(&self, run: RunId, step: StepId) -> CallResult<Value> {
        self.get(&format!("/v1/runs/{run}/steps/{step}/plan"), &()).await
    }

    /// The values that a step's plan would change.
    pub async fn plan_details(
        &self,
        run: RunId,
        step: StepId,
    ) -> CallResult<runs::StepPlanDetails> {
        self.get(&format!("/v1/runs/{run}/steps/{step}/plan/details"), &()).await
    }

    pub async fn approve(&self, run: RunId, body: &runs::ApproveRun) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/runs/{run}/approve"), body).await
    }

    pub async fn deny(&self, run: RunId, body: &runs::DenyRun) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/runs/{run}/deny"), body).await
    }

    pub async fn cancel_run(&self, run: RunId, body: &jobs::Cancel) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/runs/{run}/cancel"), body).await
    }

    /// Retries the failed steps: in the same run while it is in progress, otherwise in a new run.
    pub async fn retry_run(&self, run: RunId, body: &ReasonBody) -> CallResult<runs::RunRequested> {
        self.change(Method::POST, &format!("/v1/runs/{run}/retry"), body).await
    }
}
