//! The dashboard: pages of `dashboard`, filled with the same queries and use cases as the Control
//! API. The Control API never accepts the cookie of a session.
//!
//! ```text
//! require_current ─▶ guard (cookie, Host, Origin) ─▶ page ─▶ query ─▶ dashboard::pages
//!                                                └─▶ form ─▶ use case ─▶ 303 to a page
//! ```
mod as_of;
mod assets;
mod audit;
mod builds;
mod bulk;
mod change;
mod changes;
mod control;
mod decisions;
mod find;
mod guard;
mod home;
mod installs;
mod live;
mod log;
mod login;
mod new_install;
mod options;
mod pages;
mod response;
mod settings;
#[cfg(test)]
pub(crate) mod tests;
mod webhooks;

pub(crate) use self::login::has_loopback_url;

use axum::{
    Router,
    middleware::from_fn_with_state,
    response::Redirect,
    routing::{get, post},
};

use crate::{extract, state::App};

/// Routes of the dashboard.
pub(crate) fn routes(app: &App) -> Router<App> {
    let pages = Router::new()
        .route("/ui/", get(home::home))
        .route("/ui/installs", get(installs::list))
        .route("/ui/installs.csv", get(installs::csv))
        .route("/ui/bulk", get(bulk::choose))
        .route("/ui/bulk/change", post(bulk::change))
        .route("/ui/bulk/preview", get(bulk::preview))
        .route("/ui/installs/{install}", get(pages::install))
        .route("/ui/installs/{install}/change", get(changes::change))
        .route("/ui/installs/{install}/upgrade", get(changes::compare).post(changes::upgrade))
        .route("/ui/installs/{install}/inputs", post(changes::inputs))
        .route("/ui/installs/{install}/run", post(changes::run))
        .route("/ui/installs/{install}/components", post(options::component))
        .route("/ui/installs/{install}/stack-outputs", post(options::stack_output))
        .route("/ui/installs/{install}/accept-state", post(options::accept_state))
        .route("/ui/installs/{install}/approval", post(options::approval))
        .route("/ui/installs/{install}/enrol", post(new_install::enrol))
        .route("/ui/runs", get(pages::runs))
        .route("/ui/runs/{run}", get(pages::run))
        .route("/ui/runs/{run}/as-of", get(as_of::run))
        .route("/ui/runs/{run}/decide", post(decisions::decide))
        .route("/ui/runs/{run}/decide-all", post(decisions::decide_all))
        .route("/ui/runs/{run}/cancel", post(decisions::cancel))
        .route("/ui/runs/{run}/retry", post(decisions::retry))
        .route("/ui/jobs/{job}", get(log::job))
        .route("/ui/jobs/{job}/as-of", get(as_of::job))
        .route("/ui/jobs/{job}/cancel", post(control::cancel))
        .route("/ui/jobs/{job}/resolve", post(control::resolve))
        .route("/ui/jobs/{job}/attempts", get(log::attempts))
        .route("/ui/jobs/{job}/attempts/{attempt}/log", get(log::download))
        .route("/ui/apps", get(pages::apps))
        .route("/ui/apps/{app}", get(pages::app))
        .route("/ui/apps/{app}/as-of", get(as_of::app))
        .route("/ui/apps/{app}/diff", get(pages::diff))
        .route("/ui/apps/{app}/builds", get(builds::builds))
        .route("/ui/apps/{app}/new-install", get(new_install::page).post(new_install::create))
        .route("/ui/plugins", get(pages::plugins))
        .route("/ui/plugins/{plugin}", get(pages::plugin))
        .route("/ui/builds/{build}", get(builds::build))
        .route("/ui/builds/{build}/retry", post(builds::retry))
        .route("/ui/runners", get(control::runners))
        .route("/ui/runners/enrol", post(control::enrol))
        .route("/ui/runners/revoke-token", post(control::revoke_token))
        .route("/ui/runners/{runner}", get(control::runner))
        .route("/ui/runners/{runner}/control", post(control::control))
        .route("/ui/audit", get(audit::events))
        .route("/ui/audit/diff", get(audit::diff))
        .route("/ui/audit/proofs", get(audit::proofs))
        .route("/ui/audit/bundle", get(audit::bundle))
        .route("/ui/audit/checkpoint", get(audit::checkpoint))
        .route("/ui/settings", get(settings::settings))
        .route("/ui/settings/tokens", post(settings::create))
        .route("/ui/settings/revoke", post(settings::revoke))
        .route("/ui/settings/roles", post(settings::roles))
        .route("/ui/settings/names", post(settings::rename))
        .route("/ui/settings/shred", post(settings::shred))
        .route("/ui/settings/webhooks", get(webhooks::list).post(webhooks::configure))
        .route("/ui/settings/webhooks/{webhook}", get(webhooks::show))
        .route("/ui/settings/webhooks/{webhook}/test", post(webhooks::test))
        .route("/ui/settings/webhooks/{webhook}/replay", post(webhooks::replay))
        .route("/ui/settings/webhooks/{webhook}/delete", post(webhooks::delete))
        .route("/ui/_components", get(pages::catalog))
        .route("/ui/find", get(find::find))
        .route("/ui/live", get(live::live))
        .route("/ui/logout", post(login::logout))
        .route_layer(from_fn_with_state(app.clone(), guard::guard))
        .route_layer(from_fn_with_state(app.clone(), extract::require_current));
    let open = Router::new()
        .route("/", get(|| async { Redirect::to("/ui/") }))
        .route("/ui", get(|| async { Redirect::permanent("/ui/") }))
        .route("/ui/login", get(login::page).post(login::login))
        .route_layer(from_fn_with_state(app.clone(), guard::same_host))
        .route_layer(from_fn_with_state(app.clone(), extract::require_current));
    pages.merge(open).merge(assets::routes())
}
