//! Retries failed builds. A build has one attempt, and a config version names the builds that it
//! deploys. New attempts therefore require a new version of the same bundle.
use domain::{
    app::{App as AppState, AppCommand, Published},
    build::{Build, BuildCommand, BuildRequest, State},
    ids::{AppId, BuildId},
};
use futures::FutureExt as _;

use crate::{
    execute::{Call, Done, UnitOfWork},
    ids,
    problem::{Code, Problem},
    state::App,
};

/// Result of a retry.
#[derive(Debug, Clone)]
pub(crate) struct RetriedBuilds {
    pub app: AppId,
    /// Config version with the new builds.
    pub version: u32,
    /// New builds by component, one for each failed build.
    pub builds: Vec<(String, BuildId)>,
}

/// Retries the failed builds of the newest config version, given one of them.
pub(crate) async fn retry(
    app: &App,
    call: &Call,
    build: BuildId,
) -> Result<Done<RetriedBuilds>, Problem> {
    app.engine.transact(call, move |unit| retry_failed(unit, build).boxed()).await
}

async fn retry_failed(unit: &mut UnitOfWork, build: BuildId) -> Result<RetriedBuilds, Problem> {
    let failed = failed_order(unit, build).await?;
    let app = failed
        .ok_or_else(|| {
            rejection(format!(
                "cannot retry {build}: it has not failed; only a failed build can be retried"
            ))
        })?
        .app;
    let state = unit.load::<AppState>(app).await?.clone();
    let Some(Published { config_version, bundle, mut components, plugins }) =
        state.latest().cloned()
    else {
        return Err(Problem::not_found(app));
    };
    if !components.iter().any(|part| part.build == build) {
        let detail = format!(
            "cannot retry {build}: it does not belong to the newest config version, {config_version}; sync \
                     the app instead"
        );
        return Err(rejection(detail));
    }
    if state.is_resolving(config_version) {
        let detail = format!(
            "cannot retry {build}: config version {config_version} is still resolving its git references; \
             wait for the state `resolved` or `unresolved`"
        );
        return Err(rejection(detail));
    }
    let (version, mut builds) = (config_version + 1, Vec::new());
    for part in &mut components {
        let Some(order) = failed_order(unit, part.build).await? else { continue };
        part.build = BuildId(ids::new_ulid());
        let order = BuildRequest { config_version: version, ..order };
        unit.create::<Build>(part.build, BuildCommand::Request(order)).await?;
        builds.push((part.name.clone(), part.build));
    }
    unit.handle::<AppState>(app, AppCommand::Publish { bundle, components, plugins }).await?;
    Ok(RetriedBuilds { app, version, builds })
}

/// Returns the request of a build if the build failed.
async fn failed_order(
    unit: &mut UnitOfWork,
    build: BuildId,
) -> Result<Option<BuildRequest>, Problem> {
    let state = unit.load::<Build>(build).await?;
    let order = state.request.clone().ok_or_else(|| Problem::not_found(build))?;
    Ok(matches!(state.state, State::Failed { .. }).then_some(order))
}

fn rejection(detail: String) -> Problem {
    Problem::new(Code::Rejected, detail)
}
