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
    disable "/v1/runners/{runner}/disable" Disable "Give a runner no more work until it is enabled";
    enable "/v1/runners/{runner}/enable" Enable "Give a runner work again";
    drain "/v1/runners/{runner}/drain" Drain "Let a runner finish what it has and take no more";
    resume "/v1/runners/{runner}/resume" Resume "Let a runner take work again after a drain";
    rekey "/v1/runners/{runner}/rekey" Rekey "Have a runner make itself a new identity key";
    revoke "/v1/runners/{runner}/revoke" Revoke "Never hear a runner again";
}
