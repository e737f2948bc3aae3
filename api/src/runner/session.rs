//! Sessions of agent processes: the newest one wins.
use std::time::Duration;

use axum::{Extension, Json, extract::State, http::StatusCode};
use domain::{
    ids::{RunnerId, SessionId},
    job::JobKind,
    runner::{self as aggregate, RunnerCommand},
};
use schemas::{
    runner::{LogSettings, OpenSession, PROTOCOL, ProtocolRange, SessionOpened},
    secret::FEATURE,
    token::SessionAssertion,
};
use sqlx::Row as _;
use tokio::time::Instant;

use super::{caller, customer_values, install_keys, reconnect, recovery, resume, token::Signer};
use crate::{
    auth::{ACCESS_SECONDS, Assertions},
    dispatch::{Program, Session, SessionError},
    execute::Call,
    extract::{self, RunnerCaller},
    listen::Ticket,
    problem::{ApiResult, Code, Problem},
    state::App,
    usecases::journal_heads,
};

/// Number of suspicious openings within [`SUSPICION_WINDOW`] that raise no alert. An opening is
/// suspicious if it comes from another host, has another journal, or arrives while the previous
/// process is alive. More openings indicate that two agents share a key.
const MAX_SUSPICIOUS: usize = 3;
/// Number of past session ids kept per runner, to reject replayed openings. An opening is valid for
/// up to ten minutes, and two agents that share a key open many sessions in that time.
const MAX_OPENINGS: i32 = 256;
/// Number of characters of a version that the server keeps.
const MAX_VERSION_CHARACTERS: usize = 64;
/// Period in which suspicious openings are counted.
const SUSPICION_WINDOW: Duration = Duration::from_secs(600);

/// Row of a session that was just opened.
struct SessionRow {
    generation: u64,
    server_epoch: u64,
    /// True if the journal is the same as in the previous session.
    same_journal: bool,
    /// True if the previous session had another boot id or another journal.
    is_other_host: bool,
}

/// Open a session. The response contains an action for each entry of the journal in the request. A
/// repeated call returns the same session.
#[utoipa::path(post, path = "/runner/v1/sessions", tag = "session", request_body = OpenSession,
    responses((status = 200, body = SessionOpened), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn open(
    State(app): State<App>,
    connection: Option<Extension<Ticket>>,
    extract::Json(body): extract::Json<OpenSession>,
) -> ApiResult<SessionOpened> {
    if body.protocol.min > PROTOCOL || body.protocol.max < PROTOCOL {
        let ProtocolRange { min, max } = body.protocol;
        let detail = format!(
            "cannot open a session: the runner supports protocol versions {min} to {max}, but this server supports {PROTOCOL}; install a matching runner"
        );
        let problem = Problem::new(Code::ProtocolUnsupported, detail);
        return Err(problem.with("protocol", serde_json::json!({"min": PROTOCOL, "max": PROTOCOL})));
    }
    let (signer, now) = (Signer::of(&app, &body.assertion).await?, app.now());
    let key = &signer.identity.identity_key;
    let opening = Assertions::verify_opening(&body.assertion, key, now)?;
    signer.not_revoked()?;
    if let Some(Extension(connection)) = connection {
        connection.authenticate();
    }
    install_keys::record(&app, &signer, body.install_keys.as_ref()).await?;
    caller::ensure_loaded(&app, signer.id).await?;
    let (id, row) = (opening.session, write_row(&app, &opening).await?);
    let (generation, (mode, install)) = (row.generation, signer.scope());
    let runner = RunnerCaller { id: signer.id, mode, install, generation };
    let flapping = add_to_dispatcher(&app, &runner, &opening, &row, &body);
    if let Some(head) = &body.journal_head {
        journal_heads::store(&app, signer.id, head).await;
    }
    let resume = resume::resume(&app, &runner, id, &body.journal, row.same_journal).await?;
    record_opening(&app, &runner, flapping).await?;
    let access_token = app.tokens.access(runner.id, (mode, install), generation, now);
    let recorded_values = customer_values::record(&app, &runner, body.customer_values).await?;
    recovery::record(&app, &runner, body.wrapped_seeds.as_ref()).await?;
    let timing = app.dispatch.timing();
    Ok(Json(SessionOpened {
        recorded_values,
        session_id: id,
        generation,
        access_token: access_token.map_err(Problem::internal)?,
        expires_in_s: ACCESS_SECONDS,
        wait_s: timing.long_poll.as_secs().max(1),
        lease_s: timing.lease.as_secs().max(1),
        log: LogSettings::default(),
        resume,
        server_time: app.now(),
    }))
}

/// Close a session. The runner is `stopped` immediately and gets no more offers.
#[utoipa::path(delete, path = "/runner/v1/sessions/{session}", tag = "session",
    params(("session" = String, Path)),
    responses((status = 204), (status = "4XX", body = schemas::problem::Problem)))]
pub(crate) async fn close(
    State(app): State<App>,
    runner: RunnerCaller,
    extract::Path(session): extract::Path<SessionId>,
) -> Result<StatusCode, Problem> {
    if app.dispatch.session_of(runner.id).is_none() {
        adopt(&app, &runner, session, runner.generation, 0).await?;
    }
    record_stop(&app, &runner, session).await?;
    app.dispatch.close(runner.id, session);
    Ok(StatusCode::NO_CONTENT)
}

/// Records that a runner stopped, unless it has opened another session meanwhile.
async fn record_stop(app: &App, runner: &RunnerCaller, session: SessionId) -> Result<(), Problem> {
    let Some(guard) = app.dispatch.guard(runner.id, session) else { return Ok(()) };
    let call = Call { sessions: vec![guard], ..caller::call(runner, "/runner/v1/sessions") };
    let (id, last_contact_at) = (runner.id, app.now());
    let recorded = app.engine.transact(&call, move |unit| {
        let stop = RunnerCommand::Disconnect { last_contact_at, stopped: true };
        Box::pin(unit.handle::<aggregate::Runner>(id, stop))
    });
    recorded.await.map(|_| ()).map_err(caller::retryable)
}

/// Writes the session row. The newest session wins, regardless of the server of the previous one. A
/// new session increments the generation and the epoch of the row, so calls of the previous session
/// and commits on its behalf fail.
///
/// A repeated opening returns the same session while that session is the newest. Later every server
/// rejects the opening, because the row lists the ids of recent sessions.
async fn write_row(app: &App, opening: &SessionAssertion) -> Result<SessionRow, Problem> {
    let row = sqlx::query(
        "with former as (select boot_id, journal_id from runner_session where runner = $1) \
         insert into runner_session as known \
           (runner, session, generation, server, server_epoch, boot_id, journal_id, opened_at, \
            recent_sessions) \
         values ($1, $2, 1, $3, 1, $4, $5, $6, array[$2]) \
         on conflict (runner) do update set session = excluded.session, \
           generation = known.generation \
             + case when known.session = excluded.session then 0 else 1 end, \
           server = excluded.server, server_epoch = known.server_epoch + 1, \
           boot_id = excluded.boot_id, journal_id = excluded.journal_id, \
           opened_at = excluded.opened_at, previous_journal_id = \
             case when known.session = excluded.session then known.previous_journal_id \
             else known.journal_id end, recent_sessions = \
             case when known.session = excluded.session then known.recent_sessions \
             else (excluded.recent_sessions || known.recent_sessions)[1:$7] end \
           where known.session = excluded.session \
             or not excluded.session = any (known.recent_sessions) \
         returning generation, server_epoch, \
           coalesce(previous_journal_id = journal_id, false) as same_journal, \
           coalesce((select (former.boot_id, former.journal_id) <> ($4, $5) from former), false) \
             as another",
    )
    .bind(opening.sub.to_string())
    .bind(opening.session.to_string())
    .bind(app.dispatch.server())
    .bind(&opening.boot_id)
    .bind(&opening.journal_id)
    .bind(app.now())
    .bind(MAX_OPENINGS)
    .fetch_optional(&app.pool)
    .await?;
    let Some(row) = row else { return Err(SessionError::Superseded.into()) };
    Ok(SessionRow {
        is_other_host: row.try_get("another")?,
        generation: row.try_get::<i64, _>("generation")?.cast_unsigned(),
        server_epoch: row.try_get::<i64, _>("server_epoch")?.cast_unsigned(),
        same_journal: row.try_get("same_journal")?,
    })
}

/// Adds the session to the dispatcher. Returns the number of recent suspicious openings if there
/// were too many.
fn add_to_dispatcher(
    app: &App,
    runner: &RunnerCaller,
    opening: &SessionAssertion,
    row: &SessionRow,
    body: &OpenSession,
) -> Option<u32> {
    let able = body.capabilities.iter().filter(|kind| kind.runs_on(runner.mode));
    let capabilities = able.copied().collect();
    let session = Session {
        capabilities,
        secret_references: body.features.iter().any(|feature| feature == FEATURE),
        slots: body.slots,
        process_id: Some(opening.process_id.clone()),
        program: Some(Program { version: short(&body.version), policy: body.policy.clone() }),
        ..Session::new(opening.session, row.generation, row.server_epoch)
    };
    let now = app.dispatch.moment().instant;
    let mut dispatch_state = app.dispatch.state();
    let former = dispatch_state.runners.get(runner.id).and_then(|known| known.session.as_ref());
    // A copy of the directory on the same host has the same journal. An agent process that has
    // ended does not wait in a long poll.
    let twin = former.is_some_and(|former| former.has_other_process(&opening.process_id));
    let known = dispatch_state.open_session(runner.id, session, now)?;
    // An agent that restarts with the same journal on the same host is not a clone, regardless of
    // the number of restarts.
    if !row.is_other_host && !twin {
        return None;
    }
    known
        .recent_openings
        .retain(|at: &Instant| now.saturating_duration_since(*at) < SUSPICION_WINDOW);
    known.recent_openings.push(now);
    let lately = known.recent_openings.len();
    if lately <= MAX_SUSPICIOUS {
        return None;
    }
    // Resets the counter, so that the next record requires as many openings again.
    known.recent_openings.clear();
    Some(u32::try_from(lately).unwrap_or(u32::MAX))
}

/// Returns the begin of a version. The runner chose the text, and the server keeps it in memory.
fn short(version: &str) -> String {
    version.chars().take(MAX_VERSION_CHARACTERS).collect()
}

/// Records that the runner reconnected, or that two agents may share its key.
async fn record_opening(
    app: &App,
    runner: &RunnerCaller,
    flapping: Option<u32>,
) -> Result<(), Problem> {
    reconnect::record_reconnect(app, runner).await?;
    let Some(sessions) = flapping else { return Ok(()) };
    tracing::warn!(runner.id = %runner.id, sessions, "Runner opened many sessions in 10 minutes; two agents may share its key");
    let (call, id) = (caller::call(runner, "/runner/v1/sessions"), runner.id);
    let recorded = app.engine.transact(&call, move |unit| {
        let alert = RunnerCommand::SuspectClone { sessions };
        Box::pin(unit.handle::<aggregate::Runner>(id, alert))
    });
    recorded.await.map(|_| ()).map_err(caller::retryable)
}

/// Takes over a session that another server opened, or that this server opened before a restart.
/// The capabilities are not in the database. Until the next opening, the session is assumed to
/// accept all kinds of jobs that suit the runner's mode.
pub(crate) async fn adopt(
    app: &App,
    runner: &RunnerCaller,
    session: SessionId,
    generation: u64,
    slots: u32,
) -> Result<(), Problem> {
    caller::ensure_loaded(app, runner.id).await?;
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
    let Some(row) = row else { return Err(mismatch(app, runner.id, generation).await?.into()) };
    let server_epoch = row.try_get::<i64, _>("server_epoch")?.cast_unsigned();
    let all = JobKind::ALL.into_iter();
    let capabilities = all.filter(|kind| kind.runs_on(runner.mode)).collect();
    let fresh = Session::new(session, generation, server_epoch);
    let session = Session { capabilities, slots, ..fresh };
    take_over(app, runner.id, session);
    Ok(())
}

/// Returns the reason why the session cannot be adopted: it is superseded, or the database does not
/// have it.
async fn mismatch(
    app: &App,
    runner: RunnerId,
    generation: u64,
) -> Result<SessionError, sqlx::Error> {
    let newest = sqlx::query_scalar("select generation from runner_session where runner = $1")
        .bind(runner.to_string())
        .fetch_optional(&app.pool);
    let newest: Option<i64> = newest.await?;
    let is_newer = newest.is_some_and(|newest| newest.cast_unsigned() >= generation);
    Ok(if is_newer { SessionError::Superseded } else { SessionError::Unknown })
}

fn take_over(app: &App, runner: RunnerId, session: Session) {
    let now = app.dispatch.moment().instant;
    app.dispatch.state().open_session(runner, session, now + app.dispatch.timing().takeover);
}
