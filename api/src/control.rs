//! The Control API: one file per resource. A handler parses the request, calls a query or a use
//! case, and responds.
//!
//! ```text
//! guard (token, role) ─▶ query_params ─▶ min_position ─▶ idempotency (Idempotency-Key)
//!       └─▶ handler ─▶ use case
//!                └─▶ query
//! ```
mod apps;
mod audit;
mod blobs;
mod builds;
mod change_request;
mod changes;
mod document;
mod idempotency;
mod installs;
mod jobs;
mod logs;
mod min_position;
mod plugins;
mod projections;
mod query_params;
mod runner_control;
mod runners;
mod runs;
mod subjects;
mod tokens;
mod webhooks;
mod whoami;

use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use idempotency::idempotent;
pub(crate) use min_position::wait_for_min_position;
pub(crate) use query_params::{AllowedParams, reject_unknown_params};

use crate::state::App;

/// Maximum size of a bundle in bytes, both compressed and decompressed.
const MAX_BUNDLE_BYTES: usize = 64 << 20;

/// All routes with their OpenAPI documentation.
pub(crate) fn routes() -> OpenApiRouter<App> {
    let mut all = OpenApiRouter::new()
        .routes(routes!(whoami::whoami))
        .routes(routes!(apps::list))
        .routes(routes!(apps::show))
        .routes(routes!(apps::versions))
        .routes(routes!(apps::version))
        .routes(routes!(apps::diff))
        .merge(apps::large_body_routes())
        .routes(routes!(builds::list))
        .routes(routes!(builds::show))
        .routes(routes!(builds::retry))
        .routes(routes!(installs::list, installs::create))
        .routes(routes!(installs::show, installs::update))
        .routes(routes!(installs::state))
        .routes(routes!(installs::sensitive_inputs))
        .routes(routes!(installs::accept_state))
        .routes(routes!(installs::enrol))
        .routes(routes!(installs::request))
        .routes(routes!(runs::list))
        .routes(routes!(runs::show))
        .routes(routes!(runs::plan))
        .routes(routes!(runs::details))
        .routes(routes!(runs::approve))
        .routes(routes!(runs::deny))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::retry))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::resolve))
        .routes(routes!(logs::log))
        .routes(routes!(runners::list))
        .routes(routes!(runners::show))
        .routes(routes!(runners::journal_heads))
        .routes(routes!(runner_control::disable))
        .routes(routes!(runner_control::enable))
        .routes(routes!(runner_control::drain))
        .routes(routes!(runner_control::resume))
        .routes(routes!(runner_control::rekey))
        .routes(routes!(runner_control::revoke))
        .routes(routes!(runners::enrol))
        .routes(routes!(runners::enrolments))
        .routes(routes!(runners::revoke_enrolment))
        .routes(routes!(audit::events))
        .routes(routes!(audit::export))
        .routes(routes!(audit::checkpoint))
        .routes(routes!(audit::proofs))
        .routes(routes!(audit::bundle))
        .routes(routes!(audit::range))
        .routes(routes!(audit::state))
        .routes(routes!(audit::diff))
        .routes(routes!(audit::installs_diff))
        .routes(routes!(audit::examine))
        .routes(routes!(changes::changes))
        .routes(routes!(plugins::list))
        .routes(routes!(plugins::show, plugins::publish))
        .merge(plugins::large_body_routes())
        .routes(routes!(projections::list))
        .routes(routes!(projections::rows))
        .routes(routes!(projections::rebuild))
        .routes(routes!(projections::rollback))
        .routes(routes!(projections::verify))
        .routes(routes!(projections::discard))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(tokens::grant_role, tokens::revoke_role))
        .routes(routes!(tokens::name))
        .routes(routes!(webhooks::list))
        .routes(routes!(webhooks::show, webhooks::configure, webhooks::delete))
        .routes(routes!(webhooks::test))
        .routes(routes!(webhooks::deliveries))
        .routes(routes!(webhooks::replay))
        .routes(routes!(subjects::show))
        .routes(routes!(subjects::shred))
        .routes(routes!(blobs::blob));
    document::add_shared_parts(all.get_openapi_mut());
    all
}

#[cfg(test)]
mod tests;
