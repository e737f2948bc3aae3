//! Any aggregate, folded up to a position.
use domain::{
    access::Access, app::App as AppState, build::Build, component::Component, decider::Decider,
    enrolment::Enrolment, install::Install, job::Job, name::Name, run::Run, runner::Runner,
};
use event_log::StreamId;
use schemas::control::audit::AsOf;

use crate::{
    problem::{Code, Problem},
    state::App,
    usecases::{apps, installs},
};

/// The state of a stream as of a position.
pub async fn as_of(app: &App, stream: &str, position: u64) -> Result<AsOf, Problem> {
    let (kind, id) = stream.split_once('/').ok_or_else(|| {
        Problem::new(Code::BadRequest, "a stream is <aggregate type>/<aggregate id>")
    })?;
    match kind {
        AppState::NAME => {
            fold::<AppState>(app, &apps::find(app, id).await?.to_string(), position).await
        }
        Install::NAME => {
            fold::<Install>(app, &installs::find(app, id).await?.to_string(), position).await
        }
        Component::NAME => fold::<Component>(app, id, position).await,
        Build::NAME => fold::<Build>(app, id, position).await,
        Run::NAME => fold::<Run>(app, id, position).await,
        Job::NAME => fold::<Job>(app, id, position).await,
        Runner::NAME => fold::<Runner>(app, id, position).await,
        Access::NAME => fold::<Access>(app, id, position).await,
        Enrolment::NAME => fold::<Enrolment>(app, id, position).await,
        Name::NAME => fold::<Name>(app, id, position).await,
        other => Err(Problem::not_found(format!("the aggregate type {other:?}"))),
    }
}

async fn fold<D: Decider>(app: &App, id: &str, position: u64) -> Result<AsOf, Problem> {
    let log = app.engine.log();
    let loaded = log.load_as_of::<D>(id, position).await?;
    if loaded.version == 0 {
        let detail = format!("{}/{id} did not exist at position {position}", D::NAME);
        return Err(Problem::new(Code::NotFound, detail));
    }
    let at = log.read(position.saturating_sub(1), 1).await?;
    Ok(AsOf {
        stream: StreamId::of::<D>(id).to_string(),
        position,
        recorded_at: at.first().map(|event| event.recorded_at),
        sequence: loaded.version,
        state: serde_json::to_value(&*loaded.state).map_err(Problem::internal)?,
    })
}
