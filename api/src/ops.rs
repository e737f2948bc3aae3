//! Endpoints for operators and probes: liveness, readiness, metrics and keys.
mod gauges;

use std::time::Duration;

use axum::{Json, Router, extract::State, http::header, response::IntoResponse, routing::get};
use proof::dsse::Envelope;
use schemas::keys::KEYS_PATH;
use serde_json::{Value, json};

use crate::{
    metrics::OPENMETRICS,
    problem::{ApiResult, Code, Problem},
    reactions::dead_letters,
    state::App,
};

/// Routes of both listeners. Only the Control API listener serves metrics.
pub(crate) fn routes(metrics: bool) -> Router<App> {
    let both = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route(KEYS_PATH, get(key_list));
    if metrics { both.route("/metrics", get(metrics_text)) } else { both }
}

/// Liveness: the process responds.
async fn healthz() -> Json<Value> {
    Json(json!({"status": "alive"}))
}

/// Readiness. The server is not stopping, every background task runs, and the server has read the
/// log recently. The database responds within a second and has the layout of this program's
/// version.
async fn readyz(State(app): State<App>) -> ApiResult<Value> {
    if app.stopping.is_cancelled() {
        return Err(
            Problem::new(Code::ShuttingDown, "server is not ready: it is stopping").retry_after(5)
        );
    }
    let mut down = app.tasks.down();
    if !app.projections.is_running() && !down.contains(&"projections") {
        down.push("projections");
    }
    if !down.is_empty() {
        let detail = format!(
            "server is not ready: background tasks are not running: {}; see the server's log",
            down.join(", ")
        );
        return Err(Problem::new(Code::Unavailable, detail).with("tasks", down).retry_after(1));
    }
    app.principals.check_current(app.log())?;
    let ping = async {
        app.log().check_layout().await?;
        Ok::<_, Problem>(dead_letters::progress(&app.pool).await?)
    };
    match tokio::time::timeout(Duration::from_secs(1), ping).await {
        // Lagging policies do not make the server unready, because another server would not be
        // faster.
        Ok(Ok(policies)) => Ok(Json(json!({
            "status": "ready",
            "policies_lag": app.log().position().saturating_sub(policies.position),
            "policies_dead_letters": policies.dead_letters,
            "callers_unreadable": app.principals.unreadable(),
        }))),
        Ok(Err(reason)) => Err(reason),
        Err(_) => {
            let detail = "server is not ready: the database did not respond within a second; check the connection to the database";
            Err(Problem::new(Code::Unavailable, detail).retry_after(2))
        }
    }
}

async fn metrics_text(State(app): State<App>) -> impl IntoResponse {
    let metrics = &app.metrics;
    metrics.log_position.set(app.log().position());
    metrics.projections_position.set(app.projections.position());
    metrics.log_read_age.set(app.principals.age(app.log()).as_secs_f64());
    metrics.callers_unreadable.set(app.principals.unreadable() as u64);
    // If the database is unavailable, these gauges keep their previous values.
    if let Ok(policies) = dead_letters::progress(&app.pool).await {
        metrics.policies_position.set(policies.position);
        metrics.policies_dead_letters.set(policies.dead_letters);
    }
    if let Ok(open) = gauges::read(&app).await {
        metrics.approvals_waiting.set(open.approvals);
        metrics.approvals_oldest.set(open.oldest_seconds);
        metrics.runners_disconnected.set(open.disconnected);
    }
    metrics.database_connections.set(app.pool.size().into());
    metrics.database_connections_idle.set(app.pool.num_idle() as u64);
    ([(header::CONTENT_TYPE, OPENMETRICS)], metrics.text())
}

/// Public keys of the server, signed by the key whose fingerprint the enrol command prints.
async fn key_list(State(app): State<App>) -> ApiResult<Envelope> {
    app.keys.list(app.log().log_id(), app.now()).map(Json).map_err(Problem::internal)
}
