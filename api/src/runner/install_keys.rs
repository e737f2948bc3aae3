//! Public keys of an install, which its runner reports.
use domain::runner::{self as aggregate, InstallPublicKeys, RunnerCommand};
use ed25519_dalek::VerifyingKey;
use schemas::{problem::FieldProblem, runner::install_keys_are_signed};

use super::{caller, token::Signer};
use crate::{extract::RunnerCaller, problem::Problem, state::App};

/// Records the keys of a runner that opens a session, if it has reported none yet. Rejects others: a
/// thief of the host could replace the keys that the customer recovers.
pub(super) async fn record(
    app: &App,
    signer: &Signer,
    reported: Option<&InstallPublicKeys>,
) -> Result<(), Problem> {
    let recorded = signer.identity.install_keys.as_ref();
    let Some(keys) = reported.filter(|new| recorded.is_none_or(|keys| !keys.is_same(new))) else {
        return Ok(());
    };
    check(keys, &signer.identity.identity_key).map_err(|message| {
        let (field, message) = (Some("install_keys".into()), message.into());
        let field = FieldProblem { field, message, ..FieldProblem::default() };
        Problem::invalid("invalid keys of the install", vec![field])
    })?;
    let (mode, install) = signer.scope();
    let runner = RunnerCaller { id: signer.id, mode, install, generation: 0 };
    let (call, keys) = (caller::call(&runner, "/runner/v1/sessions"), keys.clone());
    let (id, generation) = (runner.id, keys.generation);
    let recorded = app.engine.transact(&call, move |unit| {
        let replace = RunnerCommand::ReplaceInstallKeys(keys.clone());
        Box::pin(unit.handle::<aggregate::Runner>(id, replace))
    });
    recorded.await.map_err(caller::retryable)?;
    tracing::info!(runner.id = %id, generation, "Recorded the public keys of the runner's install");
    Ok(())
}

/// Checks the public keys of an install, and their signature by the identity key of the runner.
pub(super) fn check(keys: &InstallPublicKeys, identity_key: &str) -> Result<(), &'static str> {
    if keys.generation == 0 {
        return Err("must have a generation from 1 on");
    }
    if key_bytes(&keys.encryption_key).is_none() {
        return Err(
            "must have an X25519 public key in encryption_key: 64 lower-case hexadecimal digits",
        );
    }
    if !is_ed25519_key(&keys.signing_key) {
        return Err(
            "must have an Ed25519 public key in signing_key: 64 lower-case hexadecimal digits",
        );
    }
    if !install_keys_are_signed(keys, identity_key) {
        return Err("must be signed by the identity key of the runner");
    }
    Ok(())
}

/// Returns true for an Ed25519 public key in lower-case hexadecimal.
pub(super) fn is_ed25519_key(text: &str) -> bool {
    key_bytes(text).and_then(|key| VerifyingKey::from_bytes(&key).ok()).is_some()
}

fn key_bytes(text: &str) -> Option<[u8; 32]> {
    hex::decode(text).ok()?.try_into().ok().filter(|key| hex::encode(key) == text)
}
