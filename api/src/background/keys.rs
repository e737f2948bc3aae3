//! Takes the keys that an operator has replaced, without a restart.
use std::time::Duration;

use schemas::keys::KeyUse;

use crate::{keys::KeySet, state::App};

/// How long an operator waits until a new key is used.
const TICK: Duration = Duration::from_secs(2);

/// Look for replaced keys until the server stops.
pub async fn run(app: App) {
    let mut ticks = tokio::time::interval(TICK);
    // Written at the start too: a key may have been replaced while no server ran.
    let mut noted = false;
    // Said once, not at every look.
    let mut wrong = String::new();
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
        if !noted {
            noted = note(&app, &app.keys.current()).await;
        }
    }
}

/// Keep the public keys of checkpoints in the database, with their times.
async fn note(app: &App, keys: &KeySet) -> bool {
    let signs = keys.checkpoints().verifying_key();
    let former = keys.former(KeyUse::Checkpoints);
    let former = former.map(|former| (former.key, former.made_at, Some(former.ended_at)));
    let all: Vec<_> =
        std::iter::once((signs, keys.checkpoints_since(), None)).chain(former).collect();
    let noted = app.log().note_keys(&all).await;
    if let Err(error) = &noted {
        tracing::warn!(reason = %error, "The checkpoint keys are not in the database yet: {error}");
    }
    noted.is_ok()
}
