//! Compares an aggregate at two points and lists the events between them.
use std::collections::HashSet;

use domain::{
    actor::Actor, decider::Decider, decider::Timestamp, history::History, ids::PrincipalId,
    install::Install, run::Run as RunState,
};
use event_log::StreamId;
use projections::{
    history,
    json_diff::{FieldChange, differences},
};
use schemas::control::history::{FieldChanged, HistoryConverter, StreamDiff, StreamDiffQuery};
use serde_json::Value;

use super::{point_at, resolve_position, states};
use crate::{
    auth::names,
    extract::Caller,
    problem::{Code, Problem},
    state::App,
};

/// Maximum number of listed fields.
const MAX_FIELDS: usize = 2_000;

/// Compares a stream at two points, and lists the events between them by run.
pub(crate) async fn diff(
    app: &App,
    caller: &Caller,
    which: &StreamDiffQuery,
) -> Result<StreamDiff, Problem> {
    caller.authorize("GET", "/v1/audit/diff")?;
    let stream = states::parse_stream(app, &which.stream).await?;
    let from = (which.from_position, which.from_time);
    let range = resolve_range(app, from, (which.to_position, which.to_time)).await?;
    compare_stream(app, &stream, range).await
}

/// Resolves the points `from` and `to` to positions.
pub(super) async fn resolve_range(
    app: &App,
    from: (Option<u64>, Option<Timestamp>),
    to: (Option<u64>, Option<Timestamp>),
) -> Result<(u64, u64), Problem> {
    if from == (None, None) {
        let detail = "invalid request: it has no first point; send from_position or from_time";
        return Err(Problem::new(Code::BadRequest, detail));
    }
    let from = resolve_position(app, from.0, from.1).await?;
    let to = resolve_position(app, to.0, to.1).await?;
    if from > to {
        let detail = format!(
            "invalid request: the first point (position {from}) is after the second (position {to}); swap them"
        );
        return Err(Problem::new(Code::BadRequest, detail));
    }
    Ok((from, to))
}

/// Compares one stream at two positions.
pub(super) async fn compare_stream(
    app: &App,
    stream: &StreamId,
    (from, to): (u64, u64),
) -> Result<StreamDiff, Problem> {
    let before = states::as_of(app, stream, from).await?;
    let after = states::as_of(app, stream, to).await?;
    if after.sequence == 0 {
        return Err(states::not_created_yet(app, stream, to).await?);
    }
    // An aggregate that did not exist has no fields, although its default state has some.
    let was = if before.sequence == 0 { Value::Null } else { before.state };
    let mut changes = differences(&was, &after.state);
    let more_changes = changes.len().saturating_sub(MAX_FIELDS) as u64;
    changes.truncate(MAX_FIELDS);
    let history = history(app, stream, (from, to)).await?;
    let names = names::get(&app.pool, principals(&history)).await?;
    let converter = HistoryConverter { names: &names };
    let name = after.state.get("name").and_then(Value::as_str).map(str::to_owned);
    Ok(StreamDiff {
        stream: stream.to_string(),
        name,
        from: point_at(app, from).await?,
        to: point_at(app, to).await?,
        changes: changes.into_iter().map(field_to_wire).collect(),
        more_changes,
        complete_through: history.complete_through,
        runs: history.runs.into_iter().map(|run| converter.run(run)).collect(),
        other_events: history
            .other_events
            .into_iter()
            .map(|event| converter.event(event))
            .collect(),
    })
}

async fn history(app: &App, stream: &StreamId, range: (u64, u64)) -> Result<History, Problem> {
    let (kind, id) = (&*stream.aggregate_type, &*stream.aggregate_id);
    let log = app.log();
    Ok(match kind {
        Install::NAME => {
            let install = id.parse().map_err(Problem::internal)?;
            history::of_install(log, install, range, None).await?
        }
        RunState::NAME => {
            history::of_run(log, id.parse().map_err(Problem::internal)?, range).await?
        }
        other => history::of_stream(log, (other, id), range).await?,
    })
}

/// Principals in this history, for their names.
fn principals(history: &History) -> HashSet<PrincipalId> {
    let mut all: Vec<&Actor> = history.other_events.iter().map(|event| &event.actor).collect();
    for run in &history.runs {
        all.extend(run.request.iter().map(|request| &request.by));
        all.extend(run.interventions.iter().map(|intervention| &intervention.by));
        all.extend(run.events.iter().map(|event| &event.actor));
    }
    let principal = |actor: &Actor| match actor {
        Actor::Principal(id) => Some(*id),
        Actor::Runner(_) | Actor::Policy(_) | Actor::Timer(_) | Actor::System => None,
    };
    all.into_iter().filter_map(principal).collect()
}

fn field_to_wire(change: FieldChange) -> FieldChanged {
    let FieldChange { path, before, after } = change;
    let non_null = |value: Value| (!value.is_null()).then_some(value);
    FieldChanged { path, before: non_null(before), after: non_null(after) }
}
