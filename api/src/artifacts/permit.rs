//! Permissions of an execution. Its manifest determines the content that it can pull and the
//! repository to which it can push.
use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};
use domain::{digest::Digest, ids::RunnerId, job::Job};
use schemas::{
    manifest::Manifest,
    preflight::{PlannedJob, PreflightInputs},
    runner::JobKind,
};
use serde_json::Value;

use super::problem::RegistryProblem;
use crate::{
    extract::JobCaller,
    problem::{Code, Problem},
    registry::Repository,
    state::App,
};

/// Authenticated request of an execution that holds its job, with the permissions of the job.
pub(super) struct Permit {
    pub(super) runner: RunnerId,
    manifest: Arc<Manifest>,
    /// Jobs whose requirements a preflight checks.
    planned: Vec<PlannedJob>,
}

impl FromRequestParts<App> for Permit {
    type Rejection = RegistryProblem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, RegistryProblem> {
        let call = JobCaller::from_request_parts(parts, app).await?;
        // The cache may be outdated, and an execution that lost the job must not push.
        let job = app.log().reload::<Job>(&call.job.to_string()).await.map_err(Problem::from)?;
        let manifest = manifest_of(&job.state, &call).ok_or_else(|| {
            let detail =
                format!("request rejected: {} no longer holds {}", call.execution, call.job);
            Problem::new(Code::ExecutionSuperseded, detail)
        })?;
        let manifest = app.manifests.get(&app.pool, &manifest).await?;
        let planned = PreflightInputs::of(&manifest).map(|inputs| inputs.jobs).unwrap_or_default();
        Ok(Permit { runner: call.runner, manifest, planned })
    }
}

/// Digest of the job's manifest, if this execution holds the job.
fn manifest_of(job: &Job, call: &JobCaller) -> Option<Digest> {
    let current = job.execution()?;
    let ours = current.id == call.execution && current.runner == call.runner;
    job.work.as_ref().filter(|_| ours).map(|work| work.manifest.clone())
}

impl Permit {
    /// Image manifests of this repository that may be pulled.
    pub(super) fn images(&self, repository: &Repository) -> impl Iterator<Item = &Digest> {
        let named = repository.to_string();
        let planned = self.planned.iter().flat_map(|job| &job.artifacts);
        let artifacts = self.manifest.artifacts.iter().chain(planned);
        artifacts
            .filter(move |artifact| artifact.repository == named)
            .map(|artifact| &artifact.digest)
    }

    /// Returns the digest of the index of the job's plugin in this repository. A preflight uses one
    /// plugin per repository.
    pub(super) fn plugin(&self, repository: &Repository) -> Option<&Digest> {
        let named = repository.to_string();
        let planned = self.planned.iter().map(|job| &job.plugin);
        let mut all =
            planned.chain([&self.manifest.plugin]).filter_map(|one| one.artifact.as_ref());
        all.find(|artifact| artifact.repository == named).map(|artifact| &artifact.digest)
    }

    /// Returns true if the job may push to the repository: only a build job, and only to its own
    /// repository.
    pub(super) fn pushes_to(&self, repository: &Repository) -> bool {
        let own = self.manifest.inputs.get("repository").and_then(Value::as_str);
        self.manifest.kind == JobKind::Build && own == Some(repository.to_string().as_str())
    }

    /// Returns true if the digest is the source of the build.
    pub(super) fn is_source(&self, repository: &Repository, digest: &Digest) -> bool {
        let source = self.manifest.inputs.get("source").and_then(Value::as_str);
        self.pushes_to(repository) && source == Some(digest.to_string().as_str())
    }

    /// Returns the repository if this job may push to it.
    pub(super) fn check_push(&self, repository: Repository) -> Result<Repository, RegistryProblem> {
        if self.pushes_to(&repository) {
            Ok(repository)
        } else {
            Err(not_found(&repository).into())
        }
    }
}

/// Problem with status 404, also for content that the job may not access.
pub(super) fn not_found(what: impl std::fmt::Display) -> Problem {
    let detail = format!("{what} does not exist for this job");
    Problem::new(Code::NotFound, detail)
}
