//! `/v1/runners/{runner}/<verb>`: what the vendor tells a runner, a route for each, so that each can need
//! another role.
use axum::{Json, extract::State};
use domain::ids::RunnerId;
use schemas::control::{Done, ReasonBody};

use super::ask::{Ask, done, optional};
use crate::{
    extract::{self, Path},
    problem::Answer,
    state::App,
    usecases::runners::{self, Order},
};

macro_rules! orders {
    ($($verb:ident $path:tt $order:ident $about:tt;)*) => {$(
        #[doc = $about]
        #[utoipa::path(
            post, path = $path, tag = "runners", request_body = ReasonBody,
            params(("runner" = String, Path, description = "The runner's id")),
            responses((status = 200, body = Done)),
        )]
        pub async fn $verb(
            State(app): State<App>,
            Path(runner): Path<RunnerId>,
            Ask { call, .. }: Ask,
            extract::Json(ask): extract::Json<ReasonBody>,
        ) -> Answer<Done> {
            let reason = optional(ask.reason)?;
            let told = runners::order(&app, &call, runner, Order::$order, reason).await?;
            Ok(Json(done(&told)))
        }
    )*};
}

orders! {
    disable "/v1/runners/{runner}/disable" Disable "Disable a runner; its jobs continue";
    enable "/v1/runners/{runner}/enable" Enable "Enable a runner";
    drain "/v1/runners/{runner}/drain" Drain "Drain a runner: its jobs finish, it accepts no new ones";
    resume "/v1/runners/{runner}/resume" Resume "Resume a drained runner";
    rekey "/v1/runners/{runner}/rekey" Rekey "Rotate the identity key of a runner";
    revoke "/v1/runners/{runner}/revoke" Revoke "Revoke a runner permanently";
}
