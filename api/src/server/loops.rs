//! What goes on without being asked, in one list: the views that ride in an append, and the loops.
use std::sync::Arc;

use event_log::SyncView;
use tokio::task::JoinSet;

use crate::{background, dispatch, problem::Problem, state::App};

/// The views that are written by the append statement.
pub(super) fn views() -> Vec<Arc<dyn SyncView>> {
    projections::sync_views()
}

/// Fill what the loops keep in memory, then start them. Each ends when the server stops.
pub(super) async fn start(app: &App, loops: &mut JoinSet<()>) -> Result<(), Problem> {
    let (tail, position) = dispatch::load(&app.dispatch, app.engine.log(), &app.pool).await?;
    let (desk, log, stopping) =
        (app.dispatch.clone(), app.engine.log().clone(), app.stopping.clone());
    loops.spawn(dispatch::follow(desk, log, tail, position, stopping));
    loops.spawn(background::liveness::run(app.clone()));
    loops.spawn(background::timers::run(app.clone()));
    loops.spawn(background::keys::run(app.clone()));
    loops
        .spawn(background::checkpoints::run(app.clone(), background::checkpoints::Pace::default()));
    loops.spawn(background::erasure::run(app.clone()));
    loops.spawn(background::log_days::run(app.clone()));
    loops.spawn(background::log_partitions::run(app.clone()));
    loops.spawn(background::policies::run(app.clone(), app.config.server.clone()));
    loops.spawn(background::verification::run(
        app.clone(),
        background::verification::Pace::default(),
    ));
    Ok(())
}
