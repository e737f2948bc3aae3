//! Deletes sensitive values that their installs no longer use: replaced and removed inputs, former
//! outputs, and values of rejected requests.
use std::{collections::BTreeSet, time::Duration};

use domain::{
    ids::{InstallId, ValueId},
    install::Install,
    secret::of_placeholder,
};
use serde_json::Value;
use tokio::time::{Instant, interval_at};

use crate::{problem::Problem, sensitive, state::App};

/// Wait before the first pass, so that a start does not load every install at once.
const FIRST: Duration = Duration::from_secs(60);
/// Interval of the passes.
const TICK: Duration = Duration::from_secs(30 * 60);

/// Deletes unused values until the server stops.
pub(crate) async fn run(app: App) {
    let mut ticks = interval_at(Instant::now() + FIRST, TICK);
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match collect(&app).await {
            Ok(0) => {}
            Ok(deleted) => {
                tracing::info!(deleted, "Deleted sensitive values that are not in use");
            }
            Err(problem) => tracing::warn!(
                error = %problem.detail,
                "Cannot delete sensitive values that are not in use; the next pass repeats it"
            ),
        }
    }
}

/// Deletes unused values of all installs, and returns their number.
pub(crate) async fn collect(app: &App) -> Result<u64, Problem> {
    let now = app.now();
    let mut deleted = 0;
    for install in sensitive::installs(&app.pool, now).await? {
        if app.stopping.is_cancelled() {
            break;
        }
        deleted += of_install(app, install).await?;
    }
    Ok(deleted)
}

async fn of_install(app: &App, install: InstallId) -> Result<u64, Problem> {
    // The time is older than the state. No later event refers to a value that is unused for so long.
    let now = app.now();
    // The cache may be outdated: another server may have recorded the value in use.
    let state = app.log().reload::<Install>(&install.to_string()).await?.state;
    let used = used_by(&state)?;
    sensitive::delete_unused(&app.pool, install, &used, now).await
}

/// Returns all values that the state of an install names. This includes inputs, outputs, and outputs
/// before an apply, and every member that the state gains later.
fn used_by(install: &Install) -> Result<BTreeSet<ValueId>, Problem> {
    let state = serde_json::to_value(install).map_err(Problem::internal)?;
    let (mut used, mut rest) = (BTreeSet::new(), vec![&state]);
    while let Some(value) = rest.pop() {
        match value {
            Value::String(text) => used.extend(of_placeholder(text)),
            Value::Array(items) => rest.extend(items),
            Value::Object(members) => rest.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    Ok(used)
}
