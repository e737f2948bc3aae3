//! Calls of `/v1/installs`.
use reqwest::Method;
use schemas::control::{ChangeResult, Page, installs, runs};

use super::CallResult;
use crate::client::Client;

impl Client {
    pub async fn create_install(
        &self,
        body: &installs::CreateInstall,
    ) -> CallResult<installs::InstallCreated> {
        self.change(Method::POST, "/v1/installs", body).await
    }

    pub async fn installs(
        &self,
        query: &installs::InstallsQuery,
    ) -> CallResult<Page<installs::Install>> {
        self.fresh("/v1/installs", query).await
    }

    /// One install, by name or id.
    pub async fn install(&self, install: &str) -> CallResult<installs::Install> {
        self.fresh(&format!("/v1/installs/{install}"), &()).await
    }

    /// Returns the values that templates of an install can read.
    pub async fn install_state(
        &self,
        install: &str,
        when: &installs::StateQuery,
    ) -> CallResult<installs::InstallState> {
        self.get(&format!("/v1/installs/{install}/state"), when).await
    }

    /// Returns the sensitive inputs of a config version, and the jobs that read them.
    pub async fn sensitive_inputs(
        &self,
        install: &str,
        query: &installs::SensitiveInputsQuery,
    ) -> CallResult<installs::SensitiveInputs> {
        self.get(&format!("/v1/installs/{install}/sensitive-inputs"), query).await
    }

    /// Changes inputs, stack outputs, config version or auto-approval of an install.
    pub async fn update_install(
        &self,
        install: &str,
        change: &installs::UpdateInstall,
    ) -> CallResult<installs::InstallUpdated> {
        self.change(Method::PATCH, &format!("/v1/installs/{install}"), change).await
    }

    /// Accepts a state of a component that the runner refuses.
    pub async fn accept_state(
        &self,
        install: &str,
        component: &str,
        body: &installs::AcceptState,
    ) -> CallResult<ChangeResult> {
        let path = format!("/v1/installs/{install}/components/{component}/accepted-state");
        self.change(Method::POST, &path, body).await
    }

    pub async fn create_enrolment_token(
        &self,
        install: &str,
        body: &installs::CreateEnrolmentToken,
    ) -> CallResult<installs::EnrolmentIssued> {
        let path = format!("/v1/installs/{install}/enrolment-tokens");
        self.change(Method::POST, &path, body).await
    }

    pub async fn request_run(
        &self,
        install: &str,
        body: &runs::RequestRun,
    ) -> CallResult<runs::RunRequested> {
        self.change(Method::POST, &format!("/v1/installs/{install}/runs"), body).await
    }
}
