//! Tokens, principals and data subjects.
use domain::{
    ids::{PrincipalId, TokenId},
    subject::SubjectId,
};
use reqwest::Method;
use schemas::control::{ChangeResult, Page, PageQuery, ReasonBody, subjects, tokens};
use serde_json::json;

use super::CallResult;
use crate::client::Client;

impl Client {
    /// Returns the principal of the token, and the position of the log.
    pub async fn whoami(&self) -> CallResult<tokens::Whoami> {
        self.get("/v1/whoami", &()).await
    }

    pub async fn tokens(&self, listing: &PageQuery) -> CallResult<Page<tokens::Token>> {
        self.fresh("/v1/tokens", listing).await
    }

    /// Creates a principal with a token.
    pub async fn create_token(
        &self,
        body: &tokens::CreateToken,
    ) -> CallResult<tokens::TokenCreated> {
        self.change(Method::POST, "/v1/tokens", body).await
    }

    /// Renames a principal, or deletes its name.
    pub async fn name_principal(
        &self,
        id: PrincipalId,
        body: &tokens::RenamePrincipal,
    ) -> CallResult<ChangeResult> {
        self.change(Method::PUT, &format!("/v1/principals/{id}/name"), body).await
    }

    pub async fn revoke_token(&self, token: TokenId) -> CallResult<ChangeResult> {
        self.change(Method::DELETE, &format!("/v1/tokens/{token}"), &json!({})).await
    }

    pub async fn grant_role(&self, principal: PrincipalId, role: &str) -> CallResult<ChangeResult> {
        let path = format!("/v1/principals/{principal}/roles/{role}");
        self.change(Method::PUT, &path, &json!({})).await
    }

    pub async fn revoke_role(
        &self,
        principal: PrincipalId,
        role: &str,
    ) -> CallResult<ChangeResult> {
        let path = format!("/v1/principals/{principal}/roles/{role}");
        self.change(Method::DELETE, &path, &json!({})).await
    }

    pub async fn subject(&self, subject: SubjectId) -> CallResult<subjects::Subject> {
        self.get(&format!("/v1/subjects/{subject}"), &()).await
    }

    /// Deletes the key of a data subject, so that its data is permanently unreadable.
    pub async fn shred(&self, subject: SubjectId, body: &ReasonBody) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/subjects/{subject}/shred"), body).await
    }
}
