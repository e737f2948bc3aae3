//! Loads keys that an operator replaced, without a restart.
use std::time::Duration;

use event_log::{CheckpointKeyRecord, SEAL_LAG};
use schemas::keys::KeyUse;

use crate::{
    keys::{FormerKey, KeySet},
    state::App,
};

/// Longest delay between the replacement of a key and its detection.
const TICK: Duration = Duration::from_secs(2);

/// Checks for replaced keys until the server stops.
pub(crate) async fn run(app: App) {
    let mut ticks = tokio::time::interval(TICK);
    // False until the public keys are stored in the database. Starts as false, because a key may
    // have been replaced while no server ran.
    let mut noted = false;
    // Last errors, so that each one is logged once and not at every check.
    let (mut wrong, mut unrecorded) = (String::new(), String::new());
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match app.keys.reload_if_changed() {
            Ok(None) => wrong.clear(),
            Ok(Some(keys)) => {
                wrong.clear();
                app.tokens.replace_keys(&keys);
                tracing::info!(
                    fingerprint = keys.fingerprint(),
                    "Loaded a new key; a new manifest key signs as soon as every server publishes it"
                );
                noted = false;
            }
            Err(error) if error.to_string() == wrong => {}
            Err(error) => {
                wrong = error.to_string();
                tracing::error!(error = %wrong, "Cannot load the keys; the current keys stay in use");
            }
        }
        match record_last_sizes(&app).await {
            Ok(ended) => noted &= !ended,
            Err(error) if error.to_string() == unrecorded => {}
            Err(error) => {
                unrecorded = error.to_string();
                tracing::warn!(error = %error, "Cannot record the last checkpoint of a former key, trying again");
            }
        }
        if !noted {
            noted = store_public_keys(&app, &app.keys.current()).await;
        }
    }
}

/// Records the size of the log at the last checkpoint of each replaced checkpoint key that has
/// expired. Returns true if a size was recorded.
async fn record_last_sizes(app: &App) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
    let (keys, now) = (app.keys.current(), app.now());
    let former = keys.former(KeyUse::Checkpoints);
    let is_over = |former: &&FormerKey| former.ended_at + SEAL_LAG <= now;
    let mut ended = false;
    for former in former.filter(is_over).filter(|former| former.last_size.is_none()) {
        let size = app.log().last_size_of(&former.key, former.ended_at).await?;
        app.keys.keep_last_size(&former.key, size)?;
        ended = true;
    }
    Ok(ended)
}

/// Stores the public checkpoint keys in the database, with the times from which they are valid.
/// Returns true if they were stored.
async fn store_public_keys(app: &App, keys: &KeySet) -> bool {
    let former = keys.former(KeyUse::Checkpoints).map(|former| former.made_at);
    let created = std::iter::once(keys.checkpoints_since()).chain(former);
    let all: Vec<CheckpointKeyRecord> = keys
        .seal_keys()
        .into_iter()
        .zip(created)
        .map(|(key, from)| CheckpointKeyRecord { key, from })
        .collect();
    let noted = app.log().note_keys(&all).await;
    if let Err(error) = &noted {
        tracing::warn!(error = %error, "Cannot store the checkpoint keys in the database, trying again");
    }
    noted.is_ok()
}
