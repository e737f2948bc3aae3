//! Identity keys of a runner: the current one, and those that it has replaced.
use domain::runner as aggregate;
use ed25519_dalek::VerifyingKey;

use crate::{
    execute::UnitOfWork,
    extract::RunnerCaller,
    problem::{Code, Problem},
    state::App,
};

pub(super) struct IdentityKeys {
    /// Current key, or empty if it is unknown.
    pub current: Vec<VerifyingKey>,
    /// Current key in hexadecimal.
    pub hex: String,
    /// Replaced keys.
    pub former: Vec<VerifyingKey>,
}

/// Keys in this server's cache, which may be outdated.
pub(super) async fn cached_keys(app: &App, runner: &RunnerCaller) -> Result<IdentityKeys, Problem> {
    Ok(IdentityKeys::of(&app.engine.load::<aggregate::Runner>(runner.id).await?))
}

/// Keys from the log. Needed before a rejection, because another server may just have recorded a
/// new key.
pub(super) async fn logged_keys(app: &App, runner: &RunnerCaller) -> Result<IdentityKeys, Problem> {
    let loaded = app.engine.log().reload::<aggregate::Runner>(&runner.id.to_string()).await?;
    Ok(IdentityKeys::of(&loaded.state))
}

/// Keys at the version that this unit of work guards: the commit fails if they have changed.
/// Rejects a revoked runner.
pub(super) async fn guarded_keys(
    unit: &mut UnitOfWork,
    runner: &RunnerCaller,
) -> Result<IdentityKeys, Problem> {
    let loaded = unit.load::<aggregate::Runner>(runner.id).await?;
    if loaded.revoked {
        return Err(Problem::new(
            Code::RunnerRevoked,
            "request rejected: the runner was revoked; enrol it again with a new enrolment token",
        ));
    }
    Ok(IdentityKeys::of(loaded))
}

impl IdentityKeys {
    fn of(runner: &aggregate::Runner) -> IdentityKeys {
        let hex = runner.key().cloned().unwrap_or_default();
        let current = parse_key(&hex).into_iter().collect();
        IdentityKeys {
            current,
            hex,
            former: runner.former_keys.iter().filter_map(|hex| parse_key(hex)).collect(),
        }
    }
}

fn parse_key(hex: &str) -> Option<VerifyingKey> {
    let bytes = <[u8; 32]>::try_from(hex::decode(hex).ok()?).ok()?;
    VerifyingKey::from_bytes(&bytes).ok()
}

/// Problem for a signature by a replaced key. Such a signature is not a forgery, but it is no
/// longer valid, so the runner must sign again.
pub(super) fn former_key_problem(runner: &RunnerCaller, what: &str) -> Problem {
    tracing::info!(runner.id = %runner.id, signed = %what, "Rejected a signature by a replaced key of the runner");
    let detail = format!(
        "{what} rejected: it is signed by a key that the runner has replaced; sign the {what} again with the current key"
    );
    Problem::new(Code::Rejected, detail).with("signed_by", "former_key")
}
