//! Renders the manifest of a build job, which packs one directory of the bundle or of a git
//! repository, or copies an image.
use domain::{
    build::{BuildRequest, BuildSource},
    ids::{BuildId, JobId},
    job::{Origin, Work},
};
use schemas::{
    manifest::{Manifest, PluginRef},
    runner::JobKind,
};
use serde_json::json;

use super::manifest::{self, DEFAULT_DEADLINE_MS};
use crate::{problem::Problem, state::App};

/// Version of the interface between the runner and its plugins.
pub(crate) const PLUGIN_CONTRACT: &str = "1";

/// Renders the job of a build. `commit` is the commit of its git source.
pub(crate) async fn work(
    app: &App,
    build: BuildId,
    order: &BuildRequest,
    app_name: &str,
    job: JobId,
    commit: Option<&str>,
) -> Result<Work, Problem> {
    let kind = JobKind::Build;
    let mut inputs = json!({
        "component": order.component_name,
        "repository": repository(app_name, &order.component_name),
    });
    match &order.source {
        BuildSource::Bundle { digest } => inputs["source"] = json!(digest),
        BuildSource::Git(git) => {
            inputs["git"] = json!(git);
            inputs["git"]["commit"] = json!(commit);
        }
        BuildSource::Image(image) => inputs["image"] = json!(image),
    }
    let manifest = Manifest {
        version: 1,
        job,
        kind,
        class: kind.class(),
        plugin: PluginRef {
            name: order.kind.clone(),
            version: PLUGIN_CONTRACT.into(),
            digest: None,
            artifact: None,
        },
        artifacts: vec![],
        inputs,
        env: Default::default(),
        role: None,
        limits: manifest::limits(),
        timeouts: manifest::timeouts(kind.class(), DEFAULT_DEADLINE_MS),
        plan: None,
        state: None,
    };
    let origin = Origin::Build { app: order.app, component: order.component, build };
    manifest::store(app, &manifest, origin).await
}

/// Repository of a component's artifacts below `/v2/`.
pub(crate) fn repository(app_name: &str, component: &str) -> String {
    format!("{app_name}/{component}")
}
