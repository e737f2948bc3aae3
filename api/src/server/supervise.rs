//! Background tasks that must run as long as the server does.
//!
//! ```text
//! task ── panics or ends ─▶ logged, named by /readyz ── back-off ─▶ restarted
//!                                └── more than 5 times in 5 minutes ─▶ the process ends
//! ```
use std::{any::Any, collections::VecDeque, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt as _;
#[cfg(feature = "fault-injection")]
use proof::fault_injection::{Fault, has};
use tokio::{task::JoinSet, time::Instant};
use tracing::error;

use crate::{metrics::TaskLabels, state::App};

/// Number of failures within [`WINDOW`] beyond which the process ends.
const MAX_FAILURES: usize = 5;
const WINDOW: Duration = Duration::from_secs(300);
/// Wait before the first restart. The wait doubles with each further failure within [`WINDOW`].
const BACK_OFF: Duration = Duration::from_millis(200);

/// Runs a task until the server stops. Restarts a task that panics or ends early.
pub(super) fn supervise<F>(
    tasks: &mut JoinSet<()>,
    app: &App,
    name: &'static str,
    task: impl FnMut(App) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    tasks.spawn(run_supervised(app.clone(), name, task));
}

async fn run_supervised<F>(
    app: App,
    name: &'static str,
    mut task: impl FnMut(App) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut failures: VecDeque<Instant> = VecDeque::new();
    loop {
        let run = task(app.clone());
        #[cfg(feature = "fault-injection")]
        let run = with_panic(name, run);
        let ended = AssertUnwindSafe(run).catch_unwind().await;
        if app.stopping.is_cancelled() {
            return;
        }
        let why = ended.map_or_else(
            |panic| panic_message(&*panic),
            |()| "the task ended although the server is not stopping".into(),
        );
        app.tasks.set(name, false);
        app.metrics.task_failures.get_or_create(&TaskLabels { task: name }).inc();
        let now = Instant::now();
        failures.push_back(now);
        failures.retain(|at| now.duration_since(*at) < WINDOW);
        if failures.len() > MAX_FAILURES {
            error!(task = name, error = %why, "Background task keeps failing; the process ends");
            return app.tasks.fail(name);
        }
        let wait = BACK_OFF * 2_u32.pow(u32::try_from(failures.len() - 1).unwrap_or(0));
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        error!(task = name, error = %why, wait_ms, "Background task failed; the server restarts it");
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(wait) => app.tasks.set(name, true),
        }
    }
}

/// Ends the process when a required task ends.
pub(super) fn require(
    tasks: &mut JoinSet<()>,
    app: &App,
    name: &'static str,
    ended: impl Future<Output = ()> + Send + 'static,
) {
    let app = app.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = app.stopping.cancelled() => {}
            () = ended => {
                error!(task = name, "Required task ended; the process ends");
                app.tasks.fail(name);
            }
        }
    });
}

/// Returns the message of a panic, or a fixed message if it has none.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".into())
}

/// Runs a task. The task `timers` panics once a test injects [`Fault::PanicInTask`].
#[cfg(feature = "fault-injection")]
async fn with_panic(name: &str, task: impl Future<Output = ()>) {
    #[allow(clippy::panic, reason = "this is the injected fault")]
    let fault = async {
        while !has(Fault::PanicInTask) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("injected fault");
    };
    if name != "timers" {
        return task.await;
    }
    tokio::select! {
        () = task => {}
        () = fault => {}
    }
}

#[cfg(all(test, feature = "fault-injection"))]
mod pentest {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
    use std::time::Duration;

    use cli::client::{Client, Target};
    use proof::fault_injection::{Fault, inject};
    use schemas::control::tokens::{CreateToken, Role};
    use serde_json::Value;

    use crate::server::testing::Started;

    async fn until_ready(started: &Started, status: u16) -> Value {
        for _ in 0..600 {
            let answer = started.http.get(started.control("/readyz")).send().await.unwrap();
            if answer.status() == status {
                return answer.json().await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("/readyz does not return {status}");
    }

    #[tokio::test]
    async fn readyz_names_a_task_that_panics_and_the_task_starts_again() {
        let started = Started::new().await;
        until_ready(&started, 200).await;
        let fault = inject(Fault::PanicInTask);
        let problem = until_ready(&started, 503).await;
        assert_eq!(
            (&problem["code"], &problem["tasks"][0]),
            (&"unavailable".into(), &"timers".into())
        );
        drop(fault);
        until_ready(&started, 200).await;
        let metrics = started.app().metrics.text();
        assert!(metrics.contains("stead_task_failures_total{task=\"timers\"}"), "{metrics}");
        started.server.stop().await;
    }

    #[tokio::test]
    async fn a_task_that_keeps_panicking_ends_the_process() {
        let started = Started::new().await;
        let _fault = inject(Fault::PanicInTask);
        let failed = tokio::time::timeout(Duration::from_secs(60), started.server.failed());
        assert_eq!(failed.await.unwrap(), "timers");
        started.server.stop().await;
    }

    #[tokio::test]
    async fn a_panic_of_the_appender_ends_the_process() {
        let started = Started::new().await;
        let _fault = inject(Fault::PanicInAppender);
        let server = started.server.ready.control.clone();
        let target = Target { server, token: Some(started.owner_token()), ca: None };
        let ask = CreateToken { role: Role::Viewer, name: None, expires_in_s: None };
        assert!(Client::new(&target).unwrap().create_token(&ask).await.is_err());
        let failed = tokio::time::timeout(Duration::from_secs(60), started.server.failed());
        assert_eq!(failed.await.unwrap(), "log");
        let problem = until_ready(&started, 503).await;
        let tasks = problem["tasks"].as_array().unwrap();
        assert!(tasks.contains(&"log".into()), "{tasks:?}");
        started.server.stop().await;
    }

    #[tokio::test]
    async fn a_panic_of_the_projections_is_named_and_they_go_on() {
        let started = Started::new().await;
        let fault = inject(Fault::PanicInProjector);
        assert_eq!(until_ready(&started, 503).await["tasks"][0], "projections");
        drop(fault);
        until_ready(&started, 200).await;
        started.server.stop().await;
    }
}
