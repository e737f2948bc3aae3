//! A list asks the database as often for many things as for few.
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use schemas::control::{installs::InstallsQuery, jobs::JobsQuery};
use tracing::{Event, Metadata, Subscriber, field::Visit, span};

use super::{new_install, with_install};

/// Counts what is asked of views and of the log, by whatever this thread does.
#[derive(Clone, Default)]
struct Statements(Arc<AtomicUsize>);

/// What `sqlx` says of a statement.
struct IsRead(bool);

impl Visit for IsRead {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let said = format!("{value:?}");
        let reads = ["from view_", "log_event", "log_snapshot", "principal_name", "from blob"];
        self.0 |= reads.iter().any(|table| said.contains(table));
    }
}

impl Subscriber for Statements {
    fn enabled(&self, what: &Metadata<'_>) -> bool {
        what.target() == "sqlx::query"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut is = IsRead(false);
        event.record(&mut is);
        self.0.fetch_add(usize::from(is.0), Relaxed);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_page_costs_as_many_statements_as_a_row() {
    let (_started, owner, _) = with_install().await;
    for name in ["beta", "gamma", "delta"] {
        owner.create_install(&new_install(name)).await.unwrap();
    }
    let statements = Statements::default();
    let _heard = tracing::subscriber::set_default(statements.clone());
    // What the server does by itself is counted too, now and then: the least of a few is the call's own.
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
    assert!(few >= 3, "statements are heard: {few}");
    assert_eq!(few, many);
}
