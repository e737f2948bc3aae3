//! Artifacts of config versions that the retention may have removed.
use domain::{
    app::Published,
    build::{Build, State as BuildState},
};

use crate::{
    problem::{Code, Problem},
    state::App,
};

/// Rejects a config version whose artifacts the retention removed. Marks its artifacts as used, so that
/// the retention keeps them until the log names their use.
pub(super) async fn check(app: &App, version: &Published) -> Result<(), Problem> {
    let mut removed = vec![];
    for part in &version.components {
        let BuildState::Succeeded { artifact } = app.engine.load::<Build>(part.build).await?.state
        else {
            continue;
        };
        if !app.registry.renew(&artifact, app.now()).await.map_err(Problem::internal)? {
            removed.push(part.name.as_str());
        }
    }
    if removed.is_empty() {
        return Ok(());
    }
    let (version, names) = (version.config_version, removed.join(", "));
    let detail = format!(
        "cannot use version {version}: the server removed the artifacts of {names}, because no install used them and the app \
         exceeded its quota; publish the directory of that version again with `stead apps sync`, and use the new version"
    );
    Err(Problem::new(Code::Rejected, detail))
}
