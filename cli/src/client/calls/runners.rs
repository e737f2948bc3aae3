//! Runners and enrolment tokens.
use domain::ids::{RunnerId, TokenId};
use reqwest::Method;
use schemas::control::{ChangeResult, Page, PageQuery, ReasonBody, installs, runners};
use serde_json::json;

use super::CallResult;
use crate::client::Client;

impl Client {
    pub async fn runners(&self, listing: &PageQuery) -> CallResult<Page<runners::Runner>> {
        self.fresh("/v1/runners", listing).await
    }

    pub async fn runner(&self, runner: RunnerId) -> CallResult<runners::Runner> {
        self.fresh(&format!("/v1/runners/{runner}"), &()).await
    }

    /// Returns the newest signed heads of a runner's journals.
    pub async fn journal_heads(&self, runner: RunnerId) -> CallResult<runners::JournalHeads> {
        self.get(&format!("/v1/runners/{runner}/journal-heads"), &()).await
    }

    /// Runs a control command on a runner: `disable`, `enable`, `drain`, `resume`, `rekey` or
    /// `revoke`.
    pub async fn order_runner(
        &self,
        runner: RunnerId,
        verb: &str,
        body: &ReasonBody,
    ) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/runners/{runner}/{verb}"), body).await
    }

    pub async fn create_build_enrolment_token(&self) -> CallResult<installs::EnrolmentIssued> {
        self.change(Method::POST, "/v1/runners/enrolment-tokens", &json!({})).await
    }

    pub async fn enrolment_tokens(
        &self,
        listing: &PageQuery,
    ) -> CallResult<Page<runners::EnrolmentToken>> {
        self.fresh("/v1/enrolment-tokens", listing).await
    }

    pub async fn revoke_enrolment_token(
        &self,
        token: TokenId,
        body: &ReasonBody,
    ) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/enrolment-tokens/{token}/revoke"), body).await
    }
}
