//! Renders the manifest of a build job, which packs one directory of the bundle or of a git
//! repository, or copies an image.
use app_config::model::KUBERNETES_MANIFEST;
use domain::{
    app::Published,
    build::{BuildRequest, BuildSource},
    ids::{BuildId, JobId},
    job::{Origin, Work},
};
use schemas::{
    manifest::{Manifest, PluginRef},
    runner::JobKind,
};
use serde_json::{Value, json};

use super::{
    manifest::{self, DEFAULT_DEADLINE_MS},
    plugin,
};
use crate::{problem::Problem, state::App};

/// Version of the interface between the runner and its plugins.
pub(crate) const PLUGIN_CONTRACT: &str = "1";

/// Renders the job of a build. `version` is the config version that requested it, and `commit` the
/// commit of its git source.
pub(crate) async fn work(
    app: &App,
    build: BuildId,
    order: &BuildRequest,
    (app_name, version): (&str, Option<&Published>),
    job: JobId,
    commit: Option<&str>,
) -> Result<Work, Problem> {
    let kind = JobKind::Build;
    let mut inputs = json!({
        "component": order.component_name,
        "repository": repository(app_name, &order.component_name),
    });
    // The build runner pushes there only if its own option names the same registry.
    if let Some(registry) = &app.config.registry {
        inputs["registry"] = json!(registry.to_string());
    }
    match &order.source {
        BuildSource::Bundle { digest } => inputs["source"] = json!(digest),
        BuildSource::Git(git) => {
            inputs["git"] = json!(git);
            inputs["git"]["commit"] = json!(commit);
        }
        BuildSource::Image(image) => inputs["image"] = json!(image),
    }
    if let Some(kustomization) = kustomization(app, order, version).await? {
        inputs["kustomization"] = kustomization;
    }
    // A build runner has no executable that a bundle pins by digest: customers install it on their
    // runners. Such a build packs the source unchanged, like one without a plugin.
    let plugin = version.and_then(|version| plugin::published(&version.plugins, &order.kind));
    let plugin = plugin.unwrap_or_else(|| PluginRef {
        name: order.kind.clone(),
        version: PLUGIN_CONTRACT.into(),
        digest: None,
        artifact: None,
    });
    let manifest = Manifest {
        version: 1,
        job,
        kind,
        class: kind.class(),
        plugin,
        artifacts: vec![],
        inputs,
        env: Default::default(),
        role: None,
        limits: manifest::limits(),
        timeouts: manifest::timeouts(kind.class(), DEFAULT_DEADLINE_MS),
        plan: None,
        state: None,
        secrets: vec![],
    };
    let origin = Origin::Build { app: order.app, component: order.component, build };
    manifest::store(app, &manifest, origin).await
}

/// Returns the kustomization of a component, which the build checks. `None` if it contains templates:
/// only an install has their values.
async fn kustomization(
    app: &App,
    order: &BuildRequest,
    version: Option<&Published>,
) -> Result<Option<Value>, Problem> {
    let Some(version) = version.filter(|_| order.kind == KUBERNETES_MANIFEST) else {
        return Ok(None);
    };
    let config = app.configs.get(&app.pool, version).await?;
    let mut components = config.app.components.iter();
    let component = components.find(|part| part.name == order.component_name);
    let Some(kustomize) = component.and_then(|part| part.module.spec.kustomize()) else {
        return Ok(None);
    };
    let files = kustomize.files.values().map(|text| text.value.as_str());
    let mut texts = files.chain(kustomize.patches.iter().map(String::as_str));
    if texts.any(|text| text.contains("{{")) {
        return Ok(None);
    }
    Ok(Some(json!({
        "path": kustomize.path,
        "patches": kustomize.patches,
        "enable_helm": kustomize.enable_helm,
    })))
}

/// Repository of a component's artifacts below `/v2/`.
pub(crate) fn repository(app_name: &str, component: &str) -> String {
    format!("{app_name}/{component}")
}
