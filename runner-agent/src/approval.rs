//! Approval on the host: a job waits for the decision of a user of the customer.
//!
//! The request and the decision are files in the directory of the execution.
use std::{
    fs, io,
    time::{Duration, Instant},
};

use chrono::{DateTime, TimeDelta, Utc};
use domain::{digest::Digest, ids::ExecutionId};
use schemas::{manifest::Manifest, moment, plugin::PlanDetails};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    data::{self, Data},
    host,
    journal::{Journal, JournalEvent},
    plugins,
    policy::{self, Refusal},
    shim::order::CancelOrder,
    witness::Verified,
};

const CHECK_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Id that the user passes to `approve` or `deny`.
    pub execution: ExecutionId,
    /// Verified manifest.
    pub manifest: Manifest,
    pub digest: Digest,
    /// Name and digest of an action, as policy rules write them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Summary of the plan, if this runner has the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Value>,
    /// Details of the plan, if this runner has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<PlanDetails>,
    #[serde(with = "moment")]
    pub asked_at: DateTime<Utc>,
    #[serde(with = "moment")]
    pub expires_at: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    /// `true` for an approval, `false` for a denial.
    pub yes: bool,
    pub reason: String,
}

impl ApprovalRequest {
    /// Creates the approval request of a granted job. The request expires after `timeout`.
    pub fn new(
        data: &Data,
        verified: &Verified,
        execution: ExecutionId,
        timeout: Duration,
    ) -> Self {
        let manifest = verified.manifest.clone();
        let stored = manifest.plan.as_ref();
        let stored = stored.and_then(|plan| plugins::plan_summary(&data.path("plans"), plan));
        let (plan, details) = stored.map_or((None, None), |(plan, details)| (Some(plan), details));
        let asked_at = host::now();
        ApprovalRequest {
            execution,
            action: policy::action_with_digest(&manifest),
            plan,
            details,
            manifest,
            digest: verified.digest.clone(),
            asked_at,
            expires_at: TimeDelta::from_std(timeout)
                .ok()
                .and_then(|timeout| asked_at.checked_add_signed(timeout))
                .unwrap_or(asked_at),
        }
    }
}

/// Result of a request that was not denied and did not expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalOutcome {
    Approved,
    /// The job was cancelled while it waited, and must not start.
    Cancelled,
}

/// Requests an approval and waits for the decision. A cancel or the timeout ends the wait.
pub async fn wait(
    data: &Data,
    journal: &Journal,
    request: &ApprovalRequest,
    timeout: Duration,
) -> Result<ApprovalOutcome, Refusal> {
    let (job, execution) = (request.manifest.job, request.execution);
    // Uses the monotonic clock, so the server's clock cannot extend the wait.
    let until = Instant::now() + timeout;
    let dir = data.job(execution);
    dir.create()
        .and_then(|()| data::replace_json(&dir.approval_request(), request))
        .and_then(|()| journal.write(JournalEvent::ApprovalRequested { job, execution }))
        .map_err(|error| {
            Refusal::policy("require_approval", format!("cannot request the approval: {error}"))
        })?;
    let outcome = loop {
        if CancelOrder::of(&dir).is_some() {
            break Ok(ApprovalOutcome::Cancelled);
        }
        match data::read_json::<ApprovalDecision>(&dir.approval_decision()) {
            Ok(Some(ApprovalDecision { yes: true, .. })) => break Ok(ApprovalOutcome::Approved),
            Ok(Some(ApprovalDecision { reason, .. })) => {
                break Err(Refusal::policy("require_approval", reason));
            }
            Ok(None) | Err(_) => {}
        }
        if Instant::now() >= until {
            let detail = format!(
                "not approved: the approval request expired after {} s; ask the vendor to retry the run, and approve the job in time",
                timeout.as_secs()
            );
            break Err(Refusal::policy("require_approval", detail));
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    };
    // Best effort: a decision after this point has no effect, even if the file remains.
    let _best_effort = data::remove(&dir.approval_request());
    outcome
}

/// Returns the pending approval requests, oldest first.
pub fn pending(data: &Data) -> io::Result<Vec<ApprovalRequest>> {
    let dirs = fs::read_dir(data.path("jobs"))?.filter_map(Result::ok);
    let requests =
        dirs.filter_map(|dir| data::read_json(&dir.path().join("approval-request.json")).ok()?);
    // Skip expired requests, which a killed agent may leave behind.
    let now = host::now();
    let mut pending: Vec<ApprovalRequest> =
        requests.filter(|request: &ApprovalRequest| now < request.expires_at).collect();
    pending.sort_unstable_by_key(|request| request.asked_at);
    Ok(pending)
}

/// Records a decision. Returns `false` if the execution has no pending request.
pub fn decide(
    data: &Data,
    execution: ExecutionId,
    decision: &ApprovalDecision,
) -> io::Result<bool> {
    let dir = data.job(execution);
    if !dir.approval_request().exists() {
        return Ok(false);
    }
    let ApprovalDecision { yes, reason } = decision.clone();
    // The journal comes first: a decision must be recorded before it takes effect.
    Journal::open(data)?.write(JournalEvent::ApprovalDecided {
        execution,
        approved: yes,
        reason,
    })?;
    data::replace_json(&dir.approval_decision(), decision)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::tests::{execution, verified};

    async fn outcome_of(
        timeout: Duration,
        approved: Option<bool>,
    ) -> Result<ApprovalOutcome, Refusal> {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let journal = Journal::open(&data).unwrap();
        let request = ApprovalRequest::new(&data, &verified(), execution(), timeout);
        let waiting = wait(&data, &journal, &request, timeout);
        let deciding = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(pending(&data).unwrap(), std::slice::from_ref(&request));
            if let Some(yes) = approved {
                let decision = ApprovalDecision { yes, reason: "not today".into() };
                assert!(decide(&data, request.execution, &decision).unwrap());
            }
        };
        let (outcome, ()) = tokio::join!(waiting, deciding);
        assert_eq!(pending(&data).unwrap(), []);
        let late = ApprovalDecision { yes: true, reason: String::new() };
        assert!(!decide(&data, request.execution, &late).unwrap());
        outcome
    }

    #[tokio::test]
    async fn a_decision_ends_the_wait() {
        let minute = Duration::from_secs(60);
        assert_eq!(outcome_of(minute, Some(true)).await, Ok(ApprovalOutcome::Approved));
        let denied = outcome_of(minute, Some(false)).await.unwrap_err();
        assert_eq!(
            (denied.rule.as_str(), denied.detail.as_str()),
            ("require_approval", "not today")
        );
    }

    #[tokio::test]
    async fn a_cancel_overrides_an_approval_even_if_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let journal = Journal::open(&data).unwrap();
        let minute = Duration::from_secs(60);
        let request = ApprovalRequest::new(&data, &verified(), execution(), minute);
        let files = data.job(request.execution);
        files.create().unwrap();
        let approval = ApprovalDecision { yes: true, reason: String::new() };
        data::replace_json(&files.approval_decision(), &approval).unwrap();
        let wait = || wait(&data, &journal, &request, minute);
        assert_eq!(wait().await, Ok(ApprovalOutcome::Approved));
        fs::write(files.cancel(), "{\"reason\":").unwrap();
        assert_eq!(wait().await, Ok(ApprovalOutcome::Cancelled));
        let order = CancelOrder::of_vendor("enough".into(), 1, false);
        data::replace_json(&files.cancel(), &order).unwrap();
        assert_eq!(wait().await, Ok(ApprovalOutcome::Cancelled));
        assert_eq!(pending(&data).unwrap(), []);
    }

    #[tokio::test]
    async fn an_unanswered_request_expires() {
        let refusal = outcome_of(Duration::from_millis(300), None).await.unwrap_err();
        assert!(refusal.detail.contains("expired"));
    }
}
