//! One life of an agent's process: the newest one wins.
use std::time::Duration;

use axum::{Extension, Json, extract::State, http::StatusCode};
use domain::{
    ids::{RunnerId, SessionId},
    job::JobKind,
    runner::{self as aggregate, RunnerCommand},
};
use schemas::{
    runner::{LogSettings, OpenSession, PROTOCOL, ProtocolRange, RunnerMode, SessionOpened},
    token::Opening,
};
use sqlx::Row as _;
use tokio::time::Instant;

use super::{caller, journal, resume, settle, token::Signer};
use crate::{
    auth::{ACCESS_SECONDS, Assertions, Runner},
    dispatch::{self, Session, SessionRefusal},
    execute::Call,
    extract,
    listen::Ticket,
    problem::{Answer, Code, Problem},
    state::App,
};

/// More sessions of other hosts, other journals or agents that both live than this in [`FLAPPING`] are no restarts
/// any more: two agents share one key.
const SESSIONS_MOST: usize = 3;
/// So many names under which sessions were opened are kept. An opening is taken for up to ten minutes, and two agents
/// that share a key open many in that time.
const OPENINGS: i32 = 256;
/// How long they are counted.
const FLAPPING: Duration = Duration::from_secs(600);

/// What the database says of a session that was just opened.
struct Row {
    generation: u64,
    server_epoch: u64,
    /// Whether the journal is the one of the life before.
    same_journal: bool,
    /// Whether the life before was another host's, or this host's before it started anew.
    another: bool,
}

/// Open a session. The response tells how to continue each execution of the former session. Idempotent.
#[utoipa::path(post, path = "/runner/v1/sessions", tag = "session", request_body = OpenSession,
    responses((status = 200, body = SessionOpened), (status = "4XX", body = schemas::problem::Problem)))]
pub async fn open(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    extract::Json(ask): extract::Json<OpenSession>,
) -> Answer<SessionOpened> {
    if ask.protocol.min > PROTOCOL || ask.protocol.max < PROTOCOL {
        let ProtocolRange { min, max } = ask.protocol;
        let detail = format!(
            "the runner speaks versions {min} to {max} of the protocol and this server speaks {PROTOCOL}"
        );
        let problem = Problem::new(Code::ProtocolUnsupported, detail);
        return Err(problem.with("protocol", serde_json::json!({"min": PROTOCOL, "max": PROTOCOL})));
    }
    let (signer, now) = (Signer::of(&app, &ask.assertion).await?, app.now());
    let key = &signer.identity.identity_key;
    let opening = Assertions::opening(&ask.assertion, key, now)?;
    signer.not_revoked()?;
    if let Some(Extension(connection)) = connection {
        connection.authenticate();
    }
    caller::meet(&app, signer.id).await?;
    let (id, row) = (opening.session, write(&app, &opening).await?);
    let (generation, (mode, install)) = (row.generation, signer.scope());
    let runner = Runner { id: signer.id, mode, install, generation };
    let flapping = seat(&app, &runner, &opening, &row, &ask);
    if let Some(head) = &ask.journal_head {
        journal::told(&app, signer.id, head).await;
    }
    let resume = resume::resume(&app, &runner, id, &ask.journal, row.same_journal).await?;
    greet(&app, &runner, flapping).await?;
    let access_token = app.tokens.access(runner.id, (mode, install), generation, now);
    let timing = app.dispatch.timing();
    Ok(Json(SessionOpened {
        session_id: id,
        generation,
        access_token: access_token.map_err(Problem::internal)?,
        expires_in_s: ACCESS_SECONDS,
        wait_s: timing.wait.as_secs().max(1),
        lease_s: timing.lease.as_secs().max(1),
        log: LogSettings::default(),
        resume,
        server_time: app.now(),
    }))
}

/// Close a session: the runner is `stopped` immediately and gets no more offers.
#[utoipa::path(delete, path = "/runner/v1/sessions/{session}", tag = "session",
    params(("session" = String, Path)),
    responses((status = 204), (status = "4XX", body = schemas::problem::Problem)))]
pub async fn close(
    State(app): State<App>,
    runner: Runner,
    extract::Path(session): extract::Path<SessionId>,
) -> Result<StatusCode, Problem> {
    if app.dispatch.session_of(runner.id).is_none() {
        adopt(&app, &runner, session, runner.generation, 0).await?;
    }
    stopped(&app, &runner, session).await?;
    app.dispatch.close(runner.id, session);
    Ok(StatusCode::NO_CONTENT)
}

/// Records that a runner ended in order, unless another session of it exists by now.
async fn stopped(app: &App, runner: &Runner, session: SessionId) -> Result<(), Problem> {
    let Some(guard) = app.dispatch.guard(runner.id, session) else { return Ok(()) };
    let call = Call { sessions: vec![guard], ..caller::call(runner, "/runner/v1/sessions") };
    let (id, silent_since) = (runner.id, app.now());
    let told = app.engine.transact(&call, move |unit| {
        let stop = RunnerCommand::Disconnect { silent_since, stopped: true };
        Box::pin(unit.tell::<aggregate::Runner>(id, stop))
    });
    told.await.map(|_| ()).map_err(caller::again)
}

/// The newest session wins, whatever server the former one was with: both numbers grow, so that
/// neither a call of the former nor a commit in its name gets through any more. A session that is asked for
/// again is the same one if it is still the newest; otherwise it never comes back, whatever server is asked: the
/// row itself knows under which names it was opened.
async fn write(app: &App, opening: &Opening) -> Result<Row, Problem> {
    let row = sqlx::query(
        "with former as (select boot_id, journal_id from runner_session where runner = $1) \
         insert into runner_session as known \
           (runner, session, generation, server, server_epoch, boot_id, journal_id, opened_at, \
            openings) \
         values ($1, $2, 1, $3, 1, $4, $5, $6, array[$2]) \
         on conflict (runner) do update set session = excluded.session, \
           generation = known.generation \
             + case when known.session = excluded.session then 0 else 1 end, \
           server = excluded.server, server_epoch = known.server_epoch + 1, \
           boot_id = excluded.boot_id, journal_id = excluded.journal_id, \
           opened_at = excluded.opened_at, former_journal_id = \
             case when known.session = excluded.session then known.former_journal_id \
             else known.journal_id end, openings = \
             case when known.session = excluded.session then known.openings \
             else (excluded.openings || known.openings)[1:$7] end \
           where known.session = excluded.session \
             or not excluded.session = any (known.openings) \
         returning generation, server_epoch, \
           coalesce(former_journal_id = journal_id, false) as same_journal, \
           coalesce((select (former.boot_id, former.journal_id) <> ($4, $5) from former), false) \
             as another",
    )
    .bind(opening.sub.to_string())
    .bind(opening.session.to_string())
    .bind(app.dispatch.server())
    .bind(&opening.boot_id)
    .bind(&opening.journal_id)
    .bind(app.now())
    .bind(OPENINGS)
    .fetch_optional(&app.pool)
    .await?;
    let Some(row) = row else { return Err(SessionRefusal::Superseded.into()) };
    Ok(Row {
        another: row.try_get("another")?,
        generation: row.try_get::<i64, _>("generation")?.cast_unsigned(),
        server_epoch: row.try_get::<i64, _>("server_epoch")?.cast_unsigned(),
        same_journal: row.try_get("same_journal")?,
    })
}

/// Put the session where polls find it. Answers how many there were lately, if there were too many.
fn seat(
    app: &App,
    runner: &Runner,
    opening: &Opening,
    row: &Row,
    ask: &OpenSession,
) -> Option<u32> {
    let able = ask.capabilities.iter().map(|kind| dispatch::kind_of(*kind));
    let capabilities = able.filter(|kind| suits(runner.mode, *kind)).collect();
    let session = Session {
        capabilities,
        slots: ask.slots,
        process_id: Some(opening.process_id.clone()),
        ..Session::new(opening.session, row.generation, row.server_epoch)
    };
    let now = app.dispatch.moment().instant;
    let mut desk = app.dispatch.desk();
    let former = desk.roster.get(runner.id).and_then(|known| known.session.as_ref());
    // A copy of the directory on the same host has the same journal; but who was ended does not wait for work.
    let twin = former.is_some_and(|former| former.has_a_twin(&opening.process_id));
    let known = desk.seat(runner.id, session, now)?;
    // An agent that comes back with the same journal on the same host is no second one, however often.
    if !row.another && !twin {
        return None;
    }
    known.opened.retain(|at: &Instant| now.saturating_duration_since(*at) < FLAPPING);
    known.opened.push(now);
    let lately = known.opened.len();
    if lately <= SESSIONS_MOST {
        return None;
    }
    // Said once: it takes as many again before it is said again.
    known.opened.clear();
    Some(u32::try_from(lately).unwrap_or(u32::MAX))
}

/// A build runner builds, and nothing else; the runner of an install never builds.
fn suits(mode: RunnerMode, kind: JobKind) -> bool {
    match kind {
        JobKind::Build => mode == RunnerMode::Build,
        JobKind::Plan | JobKind::Apply | JobKind::Action => mode == RunnerMode::Install,
    }
}

/// Say to the log what is worth a line: it is back, or there are two of it.
async fn greet(app: &App, runner: &Runner, flapping: Option<u32>) -> Result<(), Problem> {
    settle::returned(app, runner).await?;
    let Some(sessions) = flapping else { return Ok(()) };
    tracing::warn!(runner.id = %runner.id, "{} opened {sessions} sessions in 10 min: is its key used twice?", runner.id);
    let (call, id) = (caller::call(runner, "/runner/v1/sessions"), runner.id);
    let said = app.engine.transact(&call, move |unit| {
        let alert = RunnerCommand::SuspectClone { sessions };
        Box::pin(unit.tell::<aggregate::Runner>(id, alert))
    });
    said.await.map(|_| ()).map_err(caller::again)
}

/// Serve a session that another server opened, or this one in an earlier life. What its agent can
/// do is not in the database: until it opens a new one it is taken to do all that suits its mode.
pub async fn adopt(
    app: &App,
    runner: &Runner,
    session: SessionId,
    generation: u64,
    slots: u32,
) -> Result<(), Problem> {
    caller::meet(app, runner.id).await?;
    let row = sqlx::query(
        "update runner_session set server = $4, server_epoch = server_epoch + 1 \
         where runner = $1 and session = $2 and generation = $3 returning server_epoch",
    )
    .bind(runner.id.to_string())
    .bind(session.to_string())
    .bind(generation.cast_signed())
    .bind(app.dispatch.server())
    .fetch_optional(&app.pool)
    .await?;
    let Some(row) = row else { return Err(why_not(app, runner.id, generation).await?.into()) };
    let server_epoch = row.try_get::<i64, _>("server_epoch")?.cast_unsigned();
    let all = [JobKind::Build, JobKind::Plan, JobKind::Apply, JobKind::Action];
    let capabilities = all.into_iter().filter(|kind| suits(runner.mode, *kind)).collect();
    let fresh = Session::new(session, generation, server_epoch);
    let session = Session { capabilities, slots, ..fresh };
    take_over(app, runner.id, session);
    Ok(())
}

/// Why a session is not the one that the database has.
async fn why_not(
    app: &App,
    runner: RunnerId,
    generation: u64,
) -> Result<SessionRefusal, sqlx::Error> {
    let newest = sqlx::query_scalar("select generation from runner_session where runner = $1")
        .bind(runner.to_string())
        .fetch_optional(&app.pool);
    let newest: Option<i64> = newest.await?;
    let is_newer = newest.is_some_and(|newest| newest.cast_unsigned() >= generation);
    Ok(if is_newer { SessionRefusal::Superseded } else { SessionRefusal::Unknown })
}

fn take_over(app: &App, runner: RunnerId, session: Session) {
    let now = app.dispatch.moment().instant;
    app.dispatch.desk().seat(runner, session, now + app.dispatch.timing().takeover);
}
