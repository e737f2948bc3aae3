//! Renders the manifest of a job that resolves a git reference to a commit.
use domain::{
    ids::{AppId, JobId},
    job::{Origin, Work},
};
use schemas::{
    manifest::{Manifest, PluginRef},
    runner::JobKind,
};
use serde_json::json;

use super::{build::PLUGIN_CONTRACT, manifest};
use crate::{problem::Problem, state::App};

/// Plugin of the build runner that resolves references.
const PLUGIN: &str = "git";
/// Deadline of a resolution: ten minutes.
const DEADLINE_MS: u64 = 10 * 60 * 1000;

/// Renders the job that resolves a reference of a config version.
pub(crate) async fn work(
    app: &App,
    (of, config_version): (AppId, u32),
    (repo, reference): (&str, &str),
    job: JobId,
) -> Result<Work, Problem> {
    let kind = JobKind::Resolve;
    let manifest = Manifest {
        version: 1,
        job,
        kind,
        class: kind.class(),
        plugin: PluginRef {
            name: PLUGIN.into(),
            version: PLUGIN_CONTRACT.into(),
            digest: None,
            artifact: None,
        },
        artifacts: vec![],
        inputs: json!({ "repo": repo, "ref": reference }),
        env: Default::default(),
        role: None,
        limits: manifest::limits(),
        timeouts: manifest::timeouts(kind.class(), DEADLINE_MS),
        plan: None,
        state: None,
        secrets: vec![],
    };
    let (repo, reference) = (repo.into(), reference.into());
    let origin = Origin::Source { app: of, config_version, repo, reference };
    manifest::store(app, &manifest, origin).await
}
