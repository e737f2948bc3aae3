//! Inline projections and background loops of a server.
use std::sync::Arc;

use event_log::{InlineProjection, StoredEvent};
use tokio::{sync::broadcast::Receiver, task::JoinSet};

use super::supervise::{require, supervise};
use crate::{
    dispatch,
    maintenance::{
        artifacts, checkpoints, keys, log_days, log_partitions, sensitive_values, uploads,
        verification,
    },
    problem::Problem,
    reactions::{erasure, liveness, policies, principals, timers, webhooks},
    state::App,
    write_behind::{
        WriteBehindQueue, grants,
        idempotent_responses::{self, StoredResponse},
    },
};

/// Projections that are written in the append statement.
pub(super) fn views() -> Vec<Arc<dyn InlineProjection>> {
    projections::inline_projections()
}

/// Inputs of the loops that must exist before the loops start: the log's tail, and the queues of
/// grants and responses.
pub(super) type Inputs =
    (Receiver<Arc<[StoredEvent]>>, WriteBehindQueue<Vec<u8>>, WriteBehindQueue<StoredResponse>);

/// Loads the state of the loops and starts them. Each ends when the server stops.
pub(super) async fn start(
    app: &App,
    loops: &mut JoinSet<()>,
    (tail, grant_queue, response_queue): Inputs,
) -> Result<(), Problem> {
    let (log, views) = (app.log().clone(), app.projections.clone());
    require(loops, app, "log", async move { log.ended().await });
    require(loops, app, "projections", async move { views.ended().await });
    // After a restart the task takes a new tail and reads the events since its failure.
    let mut first = Some(tail);
    supervise(loops, app, "authorization", move |app| {
        let tail = first.take().unwrap_or_else(|| app.log().tail());
        principals::run(app, tail)
    });
    let (_, position) = dispatch::load(&app.dispatch, app.log(), &app.pool).await?;
    supervise(loops, app, "dispatch", move |app| {
        let (dispatcher, log, stopping) =
            (app.dispatch.clone(), app.log().clone(), app.stopping.clone());
        let (tail, position) = (log.tail(), position.max(dispatcher.applied_position()));
        dispatch::follow(dispatcher, log, tail, position, stopping)
    });
    supervise(loops, app, "grants", move |app| {
        grants::run(app.pool.clone(), app.stopping.clone(), grant_queue.clone())
    });
    supervise(loops, app, "idempotent_responses", move |app| {
        idempotent_responses::run(app.pool.clone(), app.stopping.clone(), response_queue.clone())
    });
    supervise(loops, app, "liveness", liveness::run);
    supervise(loops, app, "timers", timers::run);
    supervise(loops, app, "keys", keys::run);
    supervise(loops, app, "checkpoints", |app| checkpoints::run(app, checkpoints::Pace::default()));
    supervise(loops, app, "erasure", erasure::run);
    supervise(loops, app, "uploads", uploads::run);
    supervise(loops, app, "artifacts", artifacts::run);
    supervise(loops, app, "log_days", log_days::run);
    supervise(loops, app, "log_partitions", log_partitions::run);
    supervise(loops, app, "sensitive_values", sensitive_values::run);
    supervise(loops, app, "policies", |app| {
        let server = app.config.server.clone();
        policies::run(app, server)
    });
    supervise(loops, app, "webhooks", webhooks::run);
    supervise(loops, app, "verification", |app| {
        verification::run(app, verification::Pace::default())
    });
    Ok(())
}
