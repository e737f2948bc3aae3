//! Replacement of a runner's identity key. The former key authorizes the new one, and the runner
//! proves that it has both keys.
use axum::{Json, extract::State};
use domain::runner::{Runner, RunnerCommand};
use schemas::runner::{RekeyRequest, Rekeyed};

use super::{caller, token::Signer};
use crate::{
    auth::Assertions,
    dispatch::CallKind,
    extract::{self, RunnerCaller},
    problem::ApiResult,
    state::App,
};

/// Replace the identity key. Afterwards, the server rejects new signatures by the former key. A
/// repeated call with the same new key succeeds, so a runner that lost the response can retry with
/// both keys.
#[utoipa::path(post, path = "/runner/v1/rekey", tag = "identity", request_body = RekeyRequest,
    responses((status = 200, body = Rekeyed), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn rekey(
    State(app): State<App>,
    extract::Json(body): extract::Json<RekeyRequest>,
) -> ApiResult<Rekeyed> {
    let signer = Signer::of(&app, &body.proof).await?;
    let server_time = app.now();
    let identity_key = Assertions::verify_rekey(&body, &signer.identity.identity_key, server_time)?;
    signer.not_revoked()?;
    let (mode, install) = signer.scope();
    let runner = RunnerCaller { id: signer.id, mode, install, generation: 0 };
    caller::allow(&app, &runner, CallKind::Rekey)?;
    let (call, new) = (caller::call(&runner, "/runner/v1/rekey"), identity_key.clone());
    let recorded = app.engine.transact(&call, move |unit| {
        let rekey = RunnerCommand::Rekey { identity_key: new.clone() };
        Box::pin(unit.handle::<Runner>(runner.id, rekey))
    });
    if recorded.await.map_err(caller::retryable)?.value > 0 {
        tracing::info!(runner.id = %runner.id, "Replaced the identity key of the runner");
    }
    Ok(Json(Rekeyed { runner: runner.id, identity_key, server_time }))
}
