//! `/v1/runners/{runner}/<verb>`: control of runners. Each verb has its own route, so that the
//! verbs can require different roles.
use axum::{Json, extract::State};
use domain::ids::RunnerId;
use schemas::control::{ChangeResult, ReasonBody};

use super::change_request::{ChangeRequest, change_result, optional_reason};
use crate::{
    extract::{self, Path},
    problem::ApiResult,
    state::App,
    usecases::runners::{self, RunnerControl},
};

macro_rules! runner_verbs {
    ($($verb:ident $path:tt $order:ident $about:tt;)*) => {$(
        #[doc = $about]
        #[utoipa::path(
            post, path = $path, tag = "runners", request_body = ReasonBody,
            params(("runner" = String, Path, description = "The runner's id")),
            responses((status = 200, body = ChangeResult)),
        )]
        pub(super) async fn $verb(
            State(app): State<App>,
            Path(runner): Path<RunnerId>,
            ChangeRequest { call, .. }: ChangeRequest,
            extract::Json(body): extract::Json<ReasonBody>,
        ) -> ApiResult<ChangeResult> {
            let reason = optional_reason(body.reason)?;
            let applied = runners::apply_control(&app, &call, runner, RunnerControl::$order, reason).await?;
            Ok(Json(change_result(&applied)))
        }
    )*};
}

runner_verbs! {
    disable "/v1/runners/{runner}/disable" Disable "Disable a runner: it gets no more jobs until it is enabled";
    enable "/v1/runners/{runner}/enable" Enable "Enable a runner";
    drain "/v1/runners/{runner}/drain" Drain "Drain a runner: it finishes its jobs and accepts no more";
    resume "/v1/runners/{runner}/resume" Resume "Resume a runner after a drain";
    rekey "/v1/runners/{runner}/rekey" Rekey "Make a runner replace its identity key";
    revoke "/v1/runners/{runner}/revoke" Revoke "Revoke a runner permanently";
}
