//! By which of its keys a runner signed: the one that it has now, or one that it had until a moment ago.
use domain::runner as aggregate;
use ed25519_dalek::VerifyingKey;

use crate::{
    auth::Runner,
    execute::Unit,
    problem::{Code, Problem},
    state::App,
};

/// The identity keys of one runner.
pub(super) struct Keys {
    /// The one of now, if it is known.
    pub now: Vec<VerifyingKey>,
    /// The same, hexadecimal.
    pub hex: String,
    /// Those that it has replaced.
    pub former: Vec<VerifyingKey>,
}

/// As this server knows them, which may be no more so.
pub(super) async fn known(app: &App, runner: &Runner) -> Result<Keys, Problem> {
    Ok(Keys::of(&app.engine.load::<aggregate::Runner>(runner.id).await?))
}

/// As the log has them: before anything is refused, because another server may have heard of a new key a moment ago.
pub(super) async fn of_the_log(app: &App, runner: &Runner) -> Result<Keys, Problem> {
    let loaded = app.engine.log().reload::<aggregate::Runner>(&runner.id.to_string()).await?;
    Ok(Keys::of(&loaded.state))
}

/// As they are where this use case writes: its commit fails if they have changed. Of a revoked runner nothing counts.
pub(super) async fn of_now(unit: &mut Unit, runner: &Runner) -> Result<Keys, Problem> {
    let loaded = unit.load::<aggregate::Runner>(runner.id).await?;
    if loaded.revoked {
        return Err(Problem::new(Code::RunnerRevoked, "enrol again with a new token"));
    }
    Ok(Keys::of(loaded))
}

impl Keys {
    fn of(runner: &aggregate::Runner) -> Keys {
        let hex = runner.key().cloned().unwrap_or_default();
        let now = key(&hex).into_iter().collect();
        Keys { now, hex, former: runner.former_keys.iter().filter_map(|hex| key(hex)).collect() }
    }
}

fn key(hex: &str) -> Option<VerifyingKey> {
    let bytes = <[u8; 32]>::try_from(hex::decode(hex).ok()?).ok()?;
    VerifyingKey::from_bytes(&bytes).ok()
}

/// What was signed before the runner changed its key is no forgery, and proves nothing any more: it signs again.
pub(super) fn is_former(runner: &Runner, what: &str) -> Problem {
    tracing::info!(runner.id = %runner.id, signed = %what, "Accepted a signature by a replaced key of the runner");
    let detail = format!("{what} is signed by a key that the runner has replaced; sign it again");
    Problem::new(Code::Rejected, detail).with("signed_by", "former_key")
}
