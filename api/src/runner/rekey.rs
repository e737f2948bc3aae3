//! A runner makes itself a new identity key: the one that it has vouches for it, and it proves to have both.
use axum::{Json, extract::State};
use domain::runner::{Runner, RunnerCommand};
use schemas::runner::{RekeyRequest, Rekeyed};

use super::{caller, token::Signer};
use crate::{
    auth::{self, Assertions},
    dispatch::Calls,
    extract,
    problem::Answer,
    state::App,
};

/// Rotate the identity key. Signatures of the former key are rejected from then on. The same new key
/// gets the same response again: a runner that lost the response retries with both keys.
#[utoipa::path(post, path = "/runner/v1/rekey", tag = "identity", request_body = RekeyRequest,
    responses((status = 200, body = Rekeyed), (status = "4XX", body = schemas::problem::Problem)))]
pub async fn rekey(
    State(app): State<App>,
    extract::Json(ask): extract::Json<RekeyRequest>,
) -> Answer<Rekeyed> {
    let signer = Signer::of(&app, &ask.proof).await?;
    let server_time = app.now();
    let identity_key = Assertions::new_key(&ask, &signer.identity.identity_key, server_time)?;
    signer.not_revoked()?;
    let (mode, install) = signer.scope();
    let runner = auth::Runner { id: signer.id, mode, install, generation: 0 };
    caller::allow(&app, &runner, Calls::Rekey)?;
    let (call, new) = (caller::call(&runner, "/runner/v1/rekey"), identity_key.clone());
    let told = app.engine.transact(&call, move |unit| {
        let rekey = RunnerCommand::Rekey { identity_key: new.clone() };
        Box::pin(unit.tell::<Runner>(runner.id, rekey))
    });
    if told.await.map_err(caller::again)?.answer > 0 {
        tracing::info!(runner.id = %runner.id, "Replaced the identity key of the runner");
    }
    Ok(Json(Rekeyed { runner: runner.id, identity_key, server_time }))
}
