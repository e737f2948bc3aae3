//! Folds any aggregate up to a position.
use std::{fmt::Display, str::FromStr};

use chrono::SecondsFormat;
use domain::{
    access::Access,
    app::App as AppState,
    build::Build,
    component::Component,
    decider::Decider,
    enrolment::Enrolment,
    ids::{BuildId, ComponentId, JobId, PrincipalId, RunId, RunnerId, TokenId},
    install::Install,
    job::Job,
    name::Name,
    plugin::Plugin,
    run::Run,
    runner::Runner,
    subject::{Subject, SubjectId},
    webhook::Webhook,
};
use event_log::StreamId;
use serde_json::Value;

use crate::{
    problem::{Code, Problem},
    state::App,
    usecases::{apps, installs},
};

/// Aggregate types that have streams.
pub(super) const AGGREGATE_TYPES: [&str; 13] = [
    AppState::NAME,
    Install::NAME,
    Component::NAME,
    Build::NAME,
    Run::NAME,
    Job::NAME,
    Runner::NAME,
    Access::NAME,
    Enrolment::NAME,
    Name::NAME,
    Plugin::NAME,
    Subject::NAME,
    Webhook::NAME,
];

/// State of an aggregate as of a position.
pub(super) struct Folded {
    /// Number of applied events; 0 if the aggregate did not exist.
    pub sequence: u64,
    pub state: Value,
}

/// Parses `<aggregate type>/<aggregate id>`. Apps and installs can also be given by name.
pub(super) async fn parse_stream(app: &App, text: &str) -> Result<StreamId, Problem> {
    let (kind, id) = text.split_once('/').ok_or_else(|| {
        Problem::new(
            Code::BadRequest,
            format!("invalid stream {text:?}: it has no `/`; use <aggregate type>/<aggregate id>"),
        )
    })?;
    match kind {
        AppState::NAME => Ok(StreamId::of::<AppState>(apps::find(app, id).await?)),
        Install::NAME => Ok(StreamId::of::<Install>(installs::find(app, id).await?)),
        Component::NAME => by_id::<Component, ComponentId>(id),
        Build::NAME => by_id::<Build, BuildId>(id),
        Run::NAME => by_id::<Run, RunId>(id),
        Job::NAME => by_id::<Job, JobId>(id),
        Runner::NAME => by_id::<Runner, RunnerId>(id),
        Access::NAME => by_id::<Access, PrincipalId>(id),
        Enrolment::NAME => by_id::<Enrolment, TokenId>(id),
        Name::NAME => Ok(StreamId::of::<Name>(id)),
        Plugin::NAME => Ok(StreamId::of::<Plugin>(id)),
        Subject::NAME => by_id::<Subject, SubjectId>(id),
        Webhook::NAME => Ok(StreamId::of::<Webhook>(id)),
        other => Err(Problem::not_found(format!("the aggregate type {other:?}"))),
    }
}

fn by_id<D: Decider, I: FromStr<Err: Display> + Display>(id: &str) -> Result<StreamId, Problem> {
    let id: I = id.parse().map_err(|error: I::Err| {
        let kind = D::NAME;
        let detail = format!(
            "{error}; pass the id: only installs and apps can be given by name, not the type {kind}"
        );
        Problem::new(Code::BadRequest, detail)
    })?;
    Ok(StreamId::of::<D>(id))
}

/// Returns the state of a stream as of a position.
pub(super) async fn as_of(app: &App, stream: &StreamId, position: u64) -> Result<Folded, Problem> {
    let id = &stream.aggregate_id;
    match &*stream.aggregate_type {
        AppState::NAME => fold::<AppState>(app, id, position).await,
        Install::NAME => fold::<Install>(app, id, position).await,
        Component::NAME => fold::<Component>(app, id, position).await,
        Build::NAME => fold::<Build>(app, id, position).await,
        Run::NAME => fold::<Run>(app, id, position).await,
        Job::NAME => fold::<Job>(app, id, position).await,
        Runner::NAME => fold::<Runner>(app, id, position).await,
        Access::NAME => fold::<Access>(app, id, position).await,
        Enrolment::NAME => fold::<Enrolment>(app, id, position).await,
        Name::NAME => fold::<Name>(app, id, position).await,
        Plugin::NAME => fold::<Plugin>(app, id, position).await,
        Subject::NAME => fold::<Subject>(app, id, position).await,
        Webhook::NAME => fold::<Webhook>(app, id, position).await,
        other => Err(Problem::not_found(format!("the aggregate type {other:?}"))),
    }
}

async fn fold<D: Decider>(app: &App, id: &str, position: u64) -> Result<Folded, Problem> {
    let loaded = app.log().load_as_of::<D>(id, position).await?;
    let state = serde_json::to_value(&*loaded.state).map_err(Problem::internal)?;
    Ok(Folded { sequence: loaded.version, state })
}

/// Problem for a stream without events at this position. Names the stream's first event, if there
/// is one.
pub(super) async fn not_created_yet(
    app: &App,
    stream: &StreamId,
    position: u64,
) -> Result<Problem, Problem> {
    let first = app.log().read_page(stream, (0, u64::MAX), 1).await?;
    let detail = match first.first() {
        Some(first) => {
            let at = first.recorded_at.to_rfc3339_opts(SecondsFormat::Secs, true);
            format!(
                "{stream} did not exist at position {position}: its first event is at position \
                 {}, recorded {at}; use a later point",
                first.position
            )
        }
        None => format!("{stream} does not exist: the log has no event of it"),
    };
    Ok(Problem::new(Code::NotFound, detail))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    #[test]
    fn aggregate_type_list_is_complete() {
        let events = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/events"));
        let names = events.unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let kinds: BTreeSet<_> =
            names.filter_map(|name| Some(name.split_once('.')?.0.to_owned())).collect();
        assert_eq!(kinds, AGGREGATE_TYPES.map(str::to_owned).into());
    }
}
