//! What failed to build is built again. A build is one attempt and a config version names the builds that
//! it deploys, so the new attempts make a new version of the same bundle.
use domain::{
    app::{App as AppState, AppCommand, Published},
    build::{Build, BuildCommand, Order, State},
    ids::{AppId, BuildId},
};
use futures::FutureExt as _;

use crate::{
    execute::{Call, Done, Unit},
    problem::{Code, Problem},
    state::App,
};

/// The new attempts.
#[derive(Debug, Clone)]
pub struct Rebuilt {
    /// Of which app.
    pub app: AppId,
    /// The config version that has them.
    pub version: u32,
    /// One for each component whose build had failed.
    pub builds: Vec<(String, BuildId)>,
}

/// Build again what failed in the newest config version; `build` is one of it.
pub async fn again(app: &App, call: &Call, build: BuildId) -> Result<Done<Rebuilt>, Problem> {
    app.engine.transact(call, move |unit| rebuild(unit, build).boxed()).await
}

async fn rebuild(unit: &mut Unit, build: BuildId) -> Result<Rebuilt, Problem> {
    let failed = failed_order(unit, build).await?;
    let app = failed.ok_or_else(|| refused(format!("{build} has not failed")))?.app;
    let state = unit.load::<AppState>(app).await?.clone();
    let Some(Published { config_version, bundle, mut components }) = state.latest().cloned() else {
        return Err(Problem::not_found(app));
    };
    if !components.iter().any(|part| part.build == build) {
        let detail =
            format!("{build} is not of the newest config version, {config_version}; sync the app");
        return Err(refused(detail));
    }
    let (version, mut builds) = (config_version + 1, Vec::new());
    for part in &mut components {
        let Some(order) = failed_order(unit, part.build).await? else { continue };
        part.build = BuildId(ulid::Ulid::new());
        let order = Order { config_version: version, ..order };
        unit.begin::<Build>(part.build, BuildCommand::Request(order)).await?;
        builds.push((part.name.clone(), part.build));
    }
    unit.tell::<AppState>(app, AppCommand::Publish { bundle, components }).await?;
    Ok(Rebuilt { app, version, builds })
}

/// What was ordered, of a build that failed.
async fn failed_order(unit: &mut Unit, build: BuildId) -> Result<Option<Order>, Problem> {
    let state = unit.load::<Build>(build).await?;
    let order = state.order.clone().ok_or_else(|| Problem::not_found(build))?;
    Ok(matches!(state.state, State::Failed { .. }).then_some(order))
}

fn refused(detail: String) -> Problem {
    Problem::new(Code::Rejected, detail)
}
