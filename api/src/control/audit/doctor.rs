//! `POST /v1/audit/doctor`: checks the log and the projections with the current code, without
//! writing anything.
use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use event_log::{
    LogError,
    verify::{VerifyError, verify},
};
use futures::Stream;
use projections::{RebuildError, event::decode};
use proof::report::ReportCounts;
use schemas::control::audit::DoctorProgress;
use tokio::sync::{
    OwnedSemaphorePermit,
    mpsc::{UnboundedSender, unbounded_channel},
};

use crate::{
    erasure,
    extract::NoIdempotencyKey,
    problem::{Code, Problem},
    reactions::dead_letters,
    state::App,
};

/// Number of events that are read at a time.
const PAGE: u32 = 2_000;
/// Maximum number of reported unreadable events.
const MAX_FINDINGS: usize = 100;

/// Check the log and the projections
///
/// Verifies the leaves, the chain, the tree, the stream versions and the head. Also checks the
/// runners' signatures, published checkpoints, every event and every projection row. Writes
/// nothing. Only one check runs on each server at a time, because it reads everything.
#[utoipa::path(
    post, path = "/v1/audit/doctor", tag = "audit",
    responses((status = 200, body = DoctorProgress, content_type = "text/event-stream")),
)]
pub(crate) async fn examine(
    State(app): State<App>,
    _: NoIdempotencyKey,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let only = app.doctor_permit.clone().try_acquire_owned().map_err(|_| {
        Problem::new(Code::Rejected, "cannot start the check: another check is in progress on this server; try again when it has finished")
    })?;
    let (progress, mut updates) = unbounded_channel::<DoctorProgress>();
    let check = async move {
        let total = app.log().position();
        let mut doctor = Doctor { progress, total, findings: vec![], permit: Arc::new(only) };
        let state = match doctor.check_all(&app).await {
            Ok(()) => DoctorProgress {
                events: total,
                findings: std::mem::take(&mut doctor.findings),
                ..doctor.progress_of("all", "done")
            },
            Err(problem) => DoctorProgress {
                detail: Some(problem.detail),
                ..doctor.progress_of("all", "failed")
            },
        };
        let _ = doctor.progress.send(state);
    };
    let events = async_stream::stream! {
        // If the client disconnects, the check stops after the verification in progress. The check
        // writes nothing, so nothing is left incomplete.
        let mut check = std::pin::pin!(check);
        let mut over = false;
        loop {
            let examined = tokio::select! {
                biased;
                updates = updates.recv() => updates,
                () = &mut check, if !over => { over = true; continue }
            };
            let Some(examined) = examined else { break };
            let event = Event::default().event("progress").json_data(&examined);
            yield Ok(event.unwrap_or_else(|_| Event::default().comment("unreadable")));
            if matches!(examined.state.as_str(), "done" | "failed") {
                break;
            }
        }
    };
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// Describes job results without a runner's signature. They are not findings, because a report may
/// have no signature.
fn unsigned_results(
    ReportCounts { unsigned, first_unsigned, .. }: &ReportCounts,
) -> Option<String> {
    first_unsigned.map(|first| {
        format!(
            "{unsigned} results of jobs have no signature of a runner (first: position {first}); only the server attests these results"
        )
    })
}

/// Returns true if the table is missing or has other columns.
fn is_incompatible_table(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "42703" | "42P01"))
}

struct Doctor {
    progress: UnboundedSender<DoctorProgress>,
    total: u64,
    findings: Vec<String>,
    /// Permit for one check at a time.
    permit: Arc<OwnedSemaphorePermit>,
}

impl Doctor {
    async fn check_all(&mut self, app: &App) -> Result<(), Problem> {
        self.check_log(app).await?;
        self.check_checkpoints(app).await?;
        self.check_events(app).await?;
        let mut connection = app.pool.acquire().await?;
        let names = projections::list(&mut connection).await?;
        drop(connection);
        for name in names.iter().map(|status| status.name) {
            self.check_projection(app, name).await?;
            let mut connection = app.pool.acquire().await?;
            let copies = projections::copies(&mut connection, name).await?;
            drop(connection);
            for copy in copies {
                self.check_copy(app, name, &copy).await?;
            }
        }
        let remaining = erasure::remaining_copies(app).await?;
        self.finish_check("erasure", remaining, None);
        let dead_letters = dead_letters::progress(&app.pool).await?.dead_letters;
        if dead_letters > 0 {
            self.findings.push(format!(
                "dead letters of the policies: {dead_letters}; the server's log has the reasons"
            ));
        }
        Ok(())
    }

    fn progress_of(&self, check: &str, state: &str) -> DoctorProgress {
        let (check, state, total) = (check.into(), state.into(), self.total);
        DoctorProgress { check, state, events: 0, total, findings: vec![], detail: None }
    }

    fn finish_check(&mut self, check: &str, findings: Vec<String>, detail: Option<String>) {
        let (events, found) = (self.total, findings.clone());
        let report = DoctorProgress {
            events,
            findings: found,
            detail,
            ..self.progress_of(check, "checked")
        };
        let _ = self.progress.send(report);
        self.findings.extend(findings.into_iter().map(|finding| format!("{check}: {finding}")));
    }

    async fn check_log(&mut self, app: &App) -> Result<(), Problem> {
        let (sender, mut report) = (self.progress.clone(), self.progress_of("log", "running"));
        let (log, only) = (app.log().clone(), self.permit.clone());
        // The verification tasks continue after the client disconnects, so they hold the permit
        // until they finish.
        #[expect(clippy::disallowed_methods, reason = "the task is awaited below")]
        let verified = tokio::spawn(async move {
            let _only = only;
            let progress = move |events| {
                report.events = events;
                let _ = sender.send(report.clone());
            };
            verify(&log, 0, progress).await
        });
        let mut detail = None;
        let findings = match verified.await.map_err(Problem::internal)? {
            Ok(verified) => {
                self.total = verified.size;
                detail = unsigned_results(&verified.reported.tally);
                verified.reported.wrong.iter().map(ToString::to_string).collect()
            }
            Err(VerifyError::Differs(difference)) => vec![difference.to_string()],
            Err(VerifyError::Log(LogError::Database(error))) => return Err(error.into()),
            Err(VerifyError::Log(error)) => vec![error.to_string()],
        };
        self.finish_check("log", findings, detail);
        Ok(())
    }

    async fn check_checkpoints(&mut self, app: &App) -> Result<(), Problem> {
        // Uses the keys of the server, not those in the database. An attacker who changes the log
        // and its checkpoints could also add a key to the database.
        let keys = app.keys.current().seal_keys();
        let mut findings = match app.log().verify_checkpoints(&keys).await {
            Ok(_) => vec![],
            Err(LogError::Database(error)) => return Err(error.into()),
            Err(error) => vec![error.to_string()],
        };
        let named = app.log().known_note_keys().await?.into_iter();
        findings.extend(named.filter(|key| keys.iter().all(|known| known.key != *key)).map(
            |key| {
                let key = hex::encode(key.as_bytes());
                format!("the database lists a checkpoint key that this server does not know: {key}")
            },
        ));
        self.finish_check("checkpoints", findings, None);
        Ok(())
    }

    async fn check_events(&mut self, app: &App) -> Result<(), Problem> {
        let (mut at, mut findings) = (0, vec![]);
        while at < self.total && findings.len() < MAX_FINDINGS {
            let page = match app.log().read(at, PAGE).await {
                // The event at `position` is damaged, and the log cannot be read past it.
                Err(LogError::Damaged { position, what }) => {
                    findings.push(format!("position {position}: {what}"));
                    break;
                }
                page => page?,
            };
            if page.is_empty() {
                break;
            }
            for event in &page {
                at = event.position;
                findings.extend(decode(event).err().map(|error| error.to_string()));
                if findings.len() == MAX_FINDINGS {
                    break;
                }
            }
            let _ = self
                .progress
                .send(DoctorProgress { events: at, ..self.progress_of("events", "running") });
        }
        if at < self.total {
            let after =
                format!("events after position {at} were not checked; fix these findings first");
            findings.push(after);
        }
        self.finish_check("events", findings, None);
        Ok(())
    }

    /// Checks an as-of table of a projection, or the rows from before its last rebuild. Reports
    /// only the keys of rows that differ, because the rows may contain data that was erased since.
    async fn check_copy(
        &mut self,
        app: &App,
        name: &str,
        copy: &projections::EarlierRows,
    ) -> Result<(), Problem> {
        let remedy = match copy.table.ends_with("_previous") {
            true => format!("`stead projections rebuild {name}` replaces the table"),
            false => {
                format!("`stead projections drop {name} --as-of {}` drops the table", copy.position)
            }
        };
        let findings = match projections::verify_copy(app.log(), name, copy, |_| {}).await {
            Ok(verified) if verified.differences.is_empty() => vec![],
            Ok(verified) => {
                let keys = verified.differences.iter().map(projections::Difference::key);
                let keys = keys.take(5).collect::<Vec<_>>().join(", ");
                vec![format!("rows differ from the log (first: {keys}); {remedy}")]
            }
            // The table was dropped in the meantime, or another version created it with other
            // columns.
            Err(RebuildError::Log(LogError::Database(error))) if is_incompatible_table(&error) => {
                vec![format!(
                    "cannot compare the rows: the table was dropped, or another version created it; {remedy}"
                )]
            }
            Err(RebuildError::Log(LogError::Damaged { position, what })) => {
                vec![format!("position {position}: {what}")]
            }
            Err(RebuildError::Log(error)) => return Err(error.into()),
            Err(error) => return Err(Problem::internal(error)),
        };
        self.finish_check(&copy.table, findings, None);
        Ok(())
    }

    async fn check_projection(&mut self, app: &App, name: &str) -> Result<(), Problem> {
        let (sender, mut report) = (self.progress.clone(), self.progress_of(name, "running"));
        let mut hundredth = 0;
        let verified = projections::verify(app.log(), name, move |progress| {
            if let projections::Progress::Replaying { events, total } = progress
                && hundredth != events.saturating_mul(100) / total.max(1)
            {
                hundredth = events.saturating_mul(100) / total.max(1);
                (report.events, report.total) = (events, total);
                let _ = sender.send(report.clone());
            }
        });
        let findings = match verified.await {
            Ok(verified) => verified.differences.iter().map(ToString::to_string).collect(),
            Err(RebuildError::Log(LogError::Damaged { position, what })) => {
                vec![format!("position {position}: {what}")]
            }
            Err(RebuildError::Log(error)) => return Err(error.into()),
            Err(error) => return Err(Problem::internal(error)),
        };
        self.finish_check(name, findings, None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_results_are_reported_but_are_no_finding() {
        assert_eq!(unsigned_results(&ReportCounts { signed: 3, ..ReportCounts::default() }), None);
        let tally = ReportCounts { signed: 3, unsigned: 2, first_unsigned: Some(7) };
        let text = unsigned_results(&tally).unwrap();
        assert!(
            text.contains("2 results of jobs have no signature of a runner (first: position 7)"),
            "{text}"
        );
    }
}
