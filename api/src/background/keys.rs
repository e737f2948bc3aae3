//! Takes the keys that an operator has replaced, without a restart.
use std::time::Duration;

use event_log::{NoteKey, SEAL_LAG};
use schemas::keys::KeyUse;

use crate::{
    keys::{Former, KeySet},
    state::App,
};

/// How long an operator waits until a new key is used.
const TICK: Duration = Duration::from_secs(2);

/// Look for replaced keys until the server stops.
pub async fn run(app: App) {
    let mut ticks = tokio::time::interval(TICK);
    // Written at the start too: a key may have been replaced while no server ran.
    let mut noted = false;
    // Said once, not at every look.
    let (mut wrong, mut unrecorded) = (String::new(), String::new());
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match app.keys.look() {
            Ok(None) => wrong.clear(),
            Ok(Some(keys)) => {
                wrong.clear();
                app.tokens.renew(&keys);
                tracing::info!(
                    "A key was replaced; manifests are signed by {} once every server shows it",
                    keys.fingerprint()
                );
                noted = false;
            }
            Err(error) if error.to_string() == wrong => {}
            Err(error) => {
                wrong = error.to_string();
                tracing::error!(reason = %wrong, "The keys stay what they were: {wrong}");
            }
        }
        match end(&app).await {
            Ok(ended) => noted &= !ended,
            Err(error) if error.to_string() == unrecorded => {}
            Err(error) => {
                unrecorded = error.to_string();
                tracing::warn!(reason = %error, "The last checkpoint of a retired key is not recorded yet: {error}");
            }
        }
        if !noted {
            noted = note(&app, &app.keys.current()).await;
        }
    }
}

/// Record the size of the log at the last checkpoint of each retired key, when its time is over. Returns whether there was
/// one to record.
async fn end(app: &App) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
    let (keys, now) = (app.keys.current(), app.now());
    let former = keys.former(KeyUse::Checkpoints);
    let is_over = |former: &&Former| former.ended_at + SEAL_LAG <= now;
    let mut ended = false;
    for former in former.filter(is_over).filter(|former| former.last_size.is_none()) {
        let size = app.log().last_size_of(&former.key, former.ended_at).await?;
        app.keys.keep_last_size(&former.key, size)?;
        ended = true;
    }
    Ok(ended)
}

/// Keep the public keys of checkpoints in the database, with their times.
async fn note(app: &App, keys: &KeySet) -> bool {
    let former = keys.former(KeyUse::Checkpoints).map(|former| former.made_at);
    let made = std::iter::once(keys.checkpoints_since()).chain(former);
    let all: Vec<NoteKey> =
        keys.seal_keys().into_iter().zip(made).map(|(key, from)| NoteKey { key, from }).collect();
    let noted = app.log().note_keys(&all).await;
    if let Err(error) = &noted {
        tracing::warn!(reason = %error, "The checkpoint keys are not in the database yet: {error}");
    }
    noted.is_ok()
}
