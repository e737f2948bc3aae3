//! Deletes artifacts that no install needs, of apps beyond their quota.
//!
//! These artifacts stay:
//!
//! - those of the newest config version of the app;
//! - those of the current and the previous config version of each install;
//! - those that an install has deployed, and had before an apply in progress;
//! - those of open runs;
//! - those of a component with a build in progress;
//! - the two newest of each component;
//! - those that were pushed or renewed within [`MIN_AGE`]. A use case renews an artifact before it
//!   commits a use of it. So the use is in the log before the artifact can be deleted.
//!
//! Projections only list the installs and builds. The state of each install comes from the log.
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use domain::{
    app::App as AppState,
    build::{Build, State as BuildState},
    ids::{AppId, BuildId, InstallId},
    install::{Install, InstallEvent},
    run::{Run, Target},
};
use event_log::StreamId;
use projections::views;
use tokio::time::{Instant, interval_at};

use crate::{
    metrics::AppLabels,
    problem::{Code, Problem},
    registry::Retained,
    state::App,
    usecases::apps,
};

/// Wait before the first pass, so that a start does not load every install at once.
const FIRST: Duration = Duration::from_secs(15);
/// Interval of the passes.
const TICK: Duration = Duration::from_secs(60 * 60);
/// Minimum age of a deleted artifact. Longer than any build and any lag of a projection.
const MIN_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum wait for the projections.
const LAG_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of rows that a query returns at once.
const PAGE: u32 = 200;

/// Deletes artifacts until the server stops.
pub(crate) async fn run(app: App) {
    let mut ticks = interval_at(Instant::now() + FIRST, TICK);
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(problem) = collect(&app).await {
            tracing::warn!(error = %problem.detail, "Cannot measure the artifacts");
        }
    }
}

async fn collect(app: &App) -> Result<(), Problem> {
    let quota = app.config.artifact_quota;
    for (name, bytes) in app.registry.usage().await.map_err(Problem::internal)? {
        if app.stopping.is_cancelled() {
            break;
        }
        let mut left = bytes;
        if bytes > quota && app.registry.has_retention() {
            match delete_unused(app, &name, bytes - quota).await {
                Ok(removed) => left = bytes.saturating_sub(removed),
                Err(problem) => tracing::warn!(
                    app = %name, error = %problem.detail,
                    "Cannot delete artifacts that no install needs; the next pass repeats it"
                ),
            }
            if left > quota {
                tracing::warn!(app = %name, bytes = left, quota, "Artifacts of an app exceed its quota");
            }
        }
        app.metrics.artifacts_bytes.get_or_create(&AppLabels { app: name }).set(left);
    }
    Ok(())
}

/// Deletes artifacts of an app until `excess` bytes are free. Returns the number of deleted bytes.
async fn delete_unused(app: &App, name: &str, excess: u64) -> Result<u64, Problem> {
    let now = SystemTime::from(app.now());
    let retained = retained(app, apps::find(app, name).await?).await?;
    let removed = app.registry.prune(name, excess, retained, (MIN_AGE, now)).await;
    let removed = removed.map_err(Problem::internal)?;
    if removed > 0 {
        tracing::info!(app = %name, bytes = removed, "Deleted artifacts that no install needs");
    }
    Ok(removed)
}

/// Returns the artifacts of an app that stay.
async fn retained(app: &App, id: AppId) -> Result<Retained, Problem> {
    // A lagging projection could miss an install.
    let position = app.log().position();
    app.projections.wait_for(position, LAG_TIMEOUT).await.map_err(|behind| {
        let detail = format!(
            "cannot list the installs at position {position}: the projections are at position {}",
            behind.at
        );
        Problem::new(Code::ProjectionLag, detail)
    })?;
    let building = building(app, id).await?;
    let mut artifacts = BTreeSet::new();
    let state = app.log().reload::<AppState>(&id.to_string()).await?.state;
    let mut needed = Needed::default();
    needed.versions.insert(state.version());
    let (filter, mut after) =
        (views::installs::Filter { app: Some(id), ..Default::default() }, None);
    loop {
        let rows = views::installs::page(&app.pool, &filter, after, PAGE).await?;
        for row in &rows {
            needed.add_install(app, row.install).await?;
        }
        match rows.last() {
            Some(last) if is_full(&rows) => after = Some(last.install),
            Some(_) | None => break,
        }
    }
    for number in &needed.versions {
        let parts = state.versions.get(number).into_iter().flat_map(|of| &of.components);
        needed.builds.extend(parts.map(|part| part.build));
    }
    for build in needed.builds {
        let build = app.log().reload::<Build>(&build.to_string()).await?.state;
        match &build.state {
            BuildState::Succeeded { artifact } => {
                artifacts.insert(artifact.digest.clone());
            }
            BuildState::NotCreated
            | BuildState::Requested
            | BuildState::Building { .. }
            | BuildState::Failed { .. } => {}
        }
    }
    Ok(Retained { artifacts, building })
}

/// Returns true if another page can follow.
fn is_full<T>(rows: &[T]) -> bool {
    u32::try_from(rows.len()).is_ok_and(|length| length >= PAGE)
}

/// Returns the names of the components with builds in progress.
async fn building(app: &App, id: AppId) -> Result<BTreeSet<String>, Problem> {
    let mut names = BTreeSet::new();
    for state in ["requested", "resolving", "queued", "running"] {
        let filter = views::builds::Filter {
            app: Some(id),
            state: Some(state.to_owned()),
            ..Default::default()
        };
        let mut before = None;
        loop {
            let rows = views::builds::page(&app.pool, &filter, before, PAGE).await?;
            names.extend(rows.iter().map(|row| row.order.component_name.clone()));
            match rows.last() {
                Some(last) if is_full(&rows) => before = Some(last.build),
                Some(_) | None => break,
            }
        }
    }
    Ok(names)
}

/// Config versions and builds whose artifacts stay.
#[derive(Default)]
struct Needed {
    versions: BTreeSet<u32>,
    builds: BTreeSet<BuildId>,
}

impl Needed {
    async fn add_install(&mut self, app: &App, id: InstallId) -> Result<(), Problem> {
        let install = app.log().reload::<Install>(&id.to_string()).await?.state;
        if install.is_over() {
            return Ok(());
        }
        self.versions.extend(pinned_versions(app, id).await?);
        let before = install.before_apply.values().filter_map(|before| before.previous.as_ref());
        for deployed in install.components.values().chain(before) {
            self.builds.insert(deployed.build);
            self.versions.insert(deployed.config_version);
        }
        let before = install.sandbox_before_apply.iter().filter_map(|of| of.previous.as_ref());
        for deployed in install.sandbox.iter().chain(before) {
            self.builds.insert(deployed.build);
            self.versions.insert(deployed.config_version);
        }
        for run in install.runs.keys() {
            let run = app.log().reload::<Run>(&run.to_string()).await?.state;
            self.versions.extend(run.request.as_ref().map(|request| request.config_version));
            for step in &run.steps {
                match &step.spec.target {
                    Target::Sandbox { build } | Target::Component { build, .. } => {
                        self.builds.insert(*build);
                    }
                    Target::Action { .. } => {}
                }
            }
        }
        Ok(())
    }
}

/// Returns the current and the previous config version of an install.
async fn pinned_versions(app: &App, install: InstallId) -> Result<Vec<u32>, Problem> {
    let stream = StreamId::of::<Install>(install.to_string());
    let mut versions = vec![];
    for stored in app.log().read_stream(&stream, 0).await? {
        for event in stored.decode::<InstallEvent>()? {
            if let InstallEvent::Created { config_version, .. }
            | InstallEvent::ConfigPinned { config_version, .. } = event
            {
                versions.push(config_version);
            }
        }
    }
    versions.dedup();
    Ok(versions.into_iter().rev().take(2).collect())
}
