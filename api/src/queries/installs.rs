//! Installs, and the state that their templates read.
use domain::{app::App as AppState, erasure::ERASED, install::Install as InstallAggregate};
use projections::views::installs as views;
use schemas::control::{
    Page,
    installs::{Install, InstallState, InstallsQuery, StateQuery},
};

use super::{audit, filter, lookup::Lookup, pagination::PageRequest, show};
use crate::{
    configs::{published, resolved_inputs},
    extract::Caller,
    problem::Problem,
    render::state as templates,
    state::App,
    usecases::installs,
};

/// Lists installs, oldest first.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: InstallsQuery,
) -> Result<Page<Install>, Problem> {
    caller.authorize("GET", "/v1/installs")?;
    let of = match &query.app {
        Some(name) => Some(filter::app(app, name).await?),
        None => None,
    };
    let part = PageRequest::of(query.limit, query.cursor)?;
    let rows = views::page(&app.pool, of, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.install);
    let (mut look, mut items) = (Lookup::new(app), Vec::new());
    look.for_installs(&rows).await?;
    for row in &rows {
        items.extend(show::install(app, &mut look, row).await?);
    }
    Ok(Page { items, next })
}

/// Returns an install by its name or id.
pub(crate) async fn get(app: &App, caller: &Caller, name: &str) -> Result<Install, Problem> {
    caller.authorize("GET", "/v1/installs/{install}")?;
    let id = installs::find(app, name).await?;
    let missing = || Problem::not_found(format!("the install {name:?}"));
    let row = views::install(&app.pool, id).await?.ok_or_else(missing)?;
    let mut look = Lookup::new(app);
    look.for_installs(std::slice::from_ref(&row)).await?;
    let mut shown = show::install(app, &mut look, &row).await?.ok_or_else(missing)?;
    shown.ignored_settings = show::ignored_settings_of(&mut look, &row).await?;
    Ok(shown)
}

/// Returns the state of an install that templates can read, now or as of a point.
pub(crate) async fn state(
    app: &App,
    caller: &Caller,
    name: &str,
    when: StateQuery,
) -> Result<InstallState, Problem> {
    caller.authorize("GET", "/v1/installs/{install}/state")?;
    let id = installs::find(app, name).await?;
    let position = audit::resolve_position(app, when.position, when.time).await?;
    let log = app.engine.log();
    let install = log.load_as_of::<InstallAggregate>(&id.to_string(), position).await?.state;
    let app_id = install.app.ok_or_else(|| Problem::not_found(name))?;
    let of = app.engine.load::<AppState>(app_id).await?;
    let version = published(&of, install.config_version)?;
    let config = app.configs.get(&app.pool, version).await?;
    let inputs = match resolved_inputs(&config, &install.inputs) {
        // An erased value may not match the type of its input, so the inputs are shown unchecked.
        Err(_) if install.inputs.values().any(|value| value == ERASED) => install.inputs.clone(),
        resolved_inputs => resolved_inputs?,
    };
    let state = templates::template_state((app_id, &of), (id, &install), &config, &inputs);
    Ok(InstallState { id, position, state })
}
