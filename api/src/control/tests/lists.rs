//! Tests that the number of SQL statements of a list request does not depend on the number of rows.
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use cli::client::ClientError;
use schemas::control::{
    audit::EventsQuery, builds::BuildsQuery, installs::InstallsQuery, jobs::JobsQuery,
    runs::RunsQuery,
};
use tracing::{Event, Metadata, Subscriber, field::Visit, span};

use super::{new_install, rejection, with_install};

/// Counts the statements of this thread that read projections or the log.
#[derive(Clone, Default)]
struct StatementCounter(Arc<AtomicUsize>);

/// Visitor for the statement in an event of `sqlx`.
struct ReadVisitor(bool);

impl Visit for ReadVisitor {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let sql = format!("{value:?}");
        let reads =
            ["from projection_", "log_event", "log_snapshot", "principal_name", "from blob"];
        self.0 |= reads.iter().any(|table| sql.contains(table));
    }
}

impl Subscriber for StatementCounter {
    fn enabled(&self, what: &Metadata<'_>) -> bool {
        what.target() == "sqlx::query"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut is = ReadVisitor(false);
        event.record(&mut is);
        self.0.fetch_add(usize::from(is.0), Relaxed);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn page_needs_as_many_statements_as_one_row() {
    let (_started, owner, _) = with_install().await;
    for name in ["beta", "gamma", "delta"] {
        owner.create_install(&new_install(name)).await.unwrap();
    }
    let statements = StatementCounter::default();
    let _guard = tracing::subscriber::set_default(statements.clone());
    // Background tasks may add to the counts, so the minimum of several attempts is taken.
    let least = async |limit: u32| {
        let mut counts = vec![];
        for _ in 0..5 {
            let before = statements.0.load(Relaxed);
            let installs = InstallsQuery { limit: Some(limit), ..Default::default() };
            let page = owner.installs(&installs).await.unwrap();
            assert_eq!(page.items.len(), limit as usize);
            let jobs = JobsQuery { limit: Some(limit.min(2)), ..Default::default() };
            owner.jobs(&jobs).await.unwrap();
            counts.push(statements.0.load(Relaxed) - before);
        }
        counts.into_iter().min().unwrap()
    };
    let (few, many) = (least(1).await, least(4).await);
    assert!(few >= 3, "statements are not counted: {few}");
    assert_eq!(few, many);
}

/// Status and code of a problem, after a check of its detail.
fn rejected_with<T: std::fmt::Debug>(
    response: Result<T, ClientError>,
    detail: &str,
) -> (u16, String) {
    let message = response.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(message.contains(detail), "{message:?} does not contain {detail:?}");
    rejection(response)
}

#[tokio::test]
async fn unknown_state_filter_lists_the_allowed_states() {
    let (_started, owner, _) = with_install().await;
    let state = || Some("bogus".to_owned());
    let bad = (400, "bad_request".to_owned());
    let runs = RunsQuery { state: state(), ..Default::default() };
    assert_eq!(rejected_with(owner.runs(&runs).await, "waiting_for_approval, cancelling"), bad);
    let jobs = JobsQuery { state: state(), ..Default::default() };
    assert_eq!(rejected_with(owner.jobs(&jobs).await, "disconnected, outcome_unknown"), bad);
    let builds = BuildsQuery { state: state(), ..Default::default() };
    assert_eq!(
        rejected_with(
            owner.builds(&builds).await,
            "requested, resolving, queued, running, succeeded, failed"
        ),
        bad
    );
}

#[tokio::test]
async fn unknown_id_filter_returns_not_found() {
    let (_started, owner, created) = with_install().await;
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let missing = (404, "not_found".to_owned());
    let install = || Some(format!("ins_{id}"));
    let runs = RunsQuery { install: install(), ..Default::default() };
    assert_eq!(rejected_with(owner.runs(&runs).await, "ins_01ARZ"), missing);
    let jobs = JobsQuery { install: install(), ..Default::default() };
    assert_eq!(rejected_with(owner.jobs(&jobs).await, "ins_01ARZ"), missing);
    let jobs = JobsQuery { run: format!("run_{id}").parse().ok(), ..Default::default() };
    assert_eq!(rejected_with(owner.jobs(&jobs).await, "run_01ARZ"), missing);
    let of_app = || Some(format!("app_{id}"));
    let builds = BuildsQuery { app: of_app(), ..Default::default() };
    assert_eq!(rejected_with(owner.builds(&builds).await, "app_01ARZ"), missing);
    let installs = InstallsQuery { app: of_app(), ..Default::default() };
    assert_eq!(rejected_with(owner.installs(&installs).await, "app_01ARZ"), missing);

    let of = |stream: &str| EventsQuery { stream: Some(stream.into()), ..Default::default() };
    for stream in [format!("run/run_{id}"), format!("install/ins_{id}")] {
        assert_eq!(rejected_with(owner.events(&of(&stream)).await, &stream), missing);
    }
    assert!(!owner.events(&of(&format!("install/{}", created.id))).await.unwrap().items.is_empty());
    let by = |actor: &str| EventsQuery { actor: Some(actor.into()), ..Default::default() };
    for actor in [format!("prn_{id}"), format!("rnr_{id}")] {
        assert_eq!(rejected_with(owner.events(&by(&actor)).await, &actor), missing);
    }
    let bad = (400, "bad_request".to_owned());
    assert_eq!(rejected_with(owner.events(&by("ann")).await, "invalid actor"), bad);
    assert_eq!(rejected_with(owner.events(&by("policy:x")).await, "run_event_advances_run"), bad);
    assert_eq!(
        rejected_with(owner.events(&by("timer:x")).await, "approval_expiry, auto_retry, liveness"),
        bad
    );
    assert!(owner.events(&by("policy:run_event_advances_run")).await.is_ok());
    let typed = |name: &str| EventsQuery { event_type: Some(name.into()), ..Default::default() };
    assert_eq!(rejected_with(owner.events(&typed("run.aproved")).await, "run.approved"), bad);
    assert!(owner.events(&typed("run.approved")).await.unwrap().items.is_empty());
}
