//! Artifacts of config versions that the retention may have removed.
use app_config::tree::SANDBOX;
use domain::{
    app::Published,
    build::{Build, State as BuildState},
    ids::BuildId,
    run::{Operation, StepSpec, Target},
};

use crate::{
    problem::{Code, Problem},
    state::App,
};

/// Rejects a config version whose artifacts the retention removed. Marks its artifacts as used, so that
/// the retention keeps them until the log names their use.
pub(super) async fn check_version(app: &App, version: &Published) -> Result<(), Problem> {
    let parts = version.components.iter().map(|part| (part.name.as_str(), part.build));
    check(app, version.config_version, parts.collect()).await
}

/// Rejects steps that apply artifacts which the retention removed, and marks the others as used.
pub(super) async fn check_steps(
    app: &App,
    version: u32,
    steps: &[StepSpec],
) -> Result<(), Problem> {
    let applied = steps.iter().filter(|step| step.operation == Operation::Apply);
    let builds = applied.filter_map(|step| match &step.target {
        Target::Sandbox { build } => Some((SANDBOX, *build)),
        Target::Component { name, build, .. } => Some((name.as_str(), *build)),
        Target::Action { .. } => None,
    });
    check(app, version, builds.collect()).await
}

async fn check(app: &App, version: u32, builds: Vec<(&str, BuildId)>) -> Result<(), Problem> {
    let mut removed = vec![];
    for (name, build) in builds {
        let BuildState::Succeeded { artifact } = app.engine.load::<Build>(build).await?.state
        else {
            continue;
        };
        if !app.registry.renew(&artifact, app.now()).await.map_err(Problem::internal)? {
            removed.push(name);
        }
    }
    if removed.is_empty() {
        return Ok(());
    }
    let names = removed.join(", ");
    let detail = format!(
        "cannot use version {version}: the server does not have the artifacts of {names} any more, because retention removed \
         them; publish the directory of that version again with `stead apps sync`, and use the new version"
    );
    Err(Problem::new(Code::Rejected, detail))
}
