//! Installs, and the state that their templates read.
use app_config::{Reads, model::Spec, tree::SANDBOX};
use domain::{
    app::App as AppState,
    erasure::ERASED,
    install::Install as InstallAggregate,
    job::JobKind,
    secret::{Consumer, of_placeholder},
};
use projections::views::{
    installs::{self as views, RunnerFilter, State},
    runners,
};
use schemas::control::{
    Page,
    installs::{
        Install, InstallState, InstallsQuery, SensitiveInput, SensitiveInputs,
        SensitiveInputsQuery, StateQuery,
    },
};
use schemas::secret::action_consumer;

use super::{audit, filter, lookup::Lookup, pagination::PageRequest, show};
use crate::{
    configs::{Config, chosen_inputs, published},
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
    filter::one_of("state", query.state.as_deref(), &State::ALL.map(State::as_str))?;
    let runner = match query.runner.as_deref() {
        None => None,
        Some("none") => Some(RunnerFilter::None),
        Some(state) => {
            filter::one_of("runner", Some(state), &runners::STATES)?;
            Some(RunnerFilter::State(state.to_owned()))
        }
    };
    let part = PageRequest::of(query.limit, query.cursor)?;
    let filter = views::Filter {
        app: of,
        search: query.search,
        version: query.version,
        state: query.state,
        runner,
        attention: query.attention.unwrap_or(false),
    };
    let rows = views::page(&app.pool, &filter, part.after, part.query_limit()).await?;
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
    let inputs = match chosen_inputs(&config, &install.inputs) {
        // An erased value may not match the type of its input, so the inputs are shown unchecked.
        Err(_) if install.inputs.values().any(|value| value == ERASED) => install.inputs.clone(),
        inputs => inputs?,
    };
    let state = templates::template_state((app_id, &of), (id, &install), &config, &inputs);
    Ok(InstallState { id, position, state })
}

/// Returns the sensitive inputs of a config version, and their values in an install.
pub(crate) async fn sensitive_inputs(
    app: &App,
    caller: &Caller,
    name: &str,
    query: SensitiveInputsQuery,
) -> Result<SensitiveInputs, Problem> {
    caller.authorize("GET", "/v1/installs/{install}/sensitive-inputs")?;
    let id = installs::find(app, name).await?;
    let install = app.engine.load::<InstallAggregate>(id).await?;
    let app_id = install.app.ok_or_else(|| Problem::not_found(name))?;
    let of = app.engine.load::<AppState>(app_id).await?;
    let config_version = query.config_version.unwrap_or(install.config_version);
    let config = app.configs.get(&app.pool, published(&of, config_version)?).await?;
    let sensitive = config.app.inputs.iter().filter(|input| input.sensitive);
    let inputs = sensitive.map(|input| SensitiveInput {
        name: input.name.clone(),
        kind: input.kind.name().into(),
        required: input.required,
        has_default: input.default.as_ref().is_some_and(|text| !text.is_empty()),
        value: install.inputs.get(&input.name).and_then(|text| of_placeholder(text)),
        readers: readers(&config, &input.name),
    });
    Ok(SensitiveInputs { config_version, inputs: inputs.collect() })
}

/// Jobs whose templates read an input.
fn readers(config: &Config, input: &str) -> Vec<Consumer> {
    let by_all = config.graph.runner.reads_input(input);
    let reads = |reads: &Reads| by_all || reads.reads_input(input);
    let mut readers = vec![];
    let mut add = |component: &str, kinds: &[JobKind]| {
        readers.extend(kinds.iter().map(|kind| Consumer {
            component: component.to_owned(),
            job_kind: kind.as_str().to_owned(),
        }));
    };
    if config.app.sandbox.is_some() && reads(&config.graph.sandbox) {
        add(SANDBOX, &[JobKind::Plan, JobKind::Apply]);
    }
    for component in &config.app.components {
        let node = config.graph.components.get(&component.name);
        if node.is_some_and(|node| reads(&node.reads)) {
            let is_image = matches!(component.module.spec, Spec::Image(_));
            let last = if is_image { JobKind::Sync } else { JobKind::Apply };
            add(&component.name, &[JobKind::Plan, last]);
        }
    }
    for action in config.app.actions.iter().filter(|action| reads(&Reads::of(&action.texts))) {
        add(&action_consumer(&action.name), &[JobKind::Action]);
    }
    readers
}
