//! Prefetches the rows that a page of a list refers to, in one statement per type.
use std::{collections::HashSet, fmt::Display, hash::Hash, sync::Arc};

use domain::{actor::Actor, build::State, run::Target};
use projections::{
    Projection,
    views::{
        apps::Apps,
        builds::{self, Builds},
        config_versions,
        installs::{self, Installs},
        jobs::{self, Jobs},
        runners::{self, Runners},
        runs::{self, Runs},
    },
};
use sqlx::PgPool;

use super::{Lookup, RowCache, principal};
use crate::auth::names;

type PrefetchResult = Result<(), sqlx::Error>;

impl Lookup<'_> {
    pub(crate) async fn for_builds(&mut self, rows: &[builds::Row]) -> PrefetchResult {
        prefetch::<Apps, _>(self.pool, &mut self.apps, rows.iter().map(|row| row.order.app))
            .await?;
        self.for_actors(rows.iter().map(|row| &row.requested_by)).await?;
        let jobs = rows.iter().filter_map(|row| match row.state {
            State::Building { job } => Some(job),
            State::NotCreated
            | State::Requested
            | State::Succeeded { .. }
            | State::Failed { .. } => None,
        });
        prefetch::<Jobs, _>(self.pool, &mut self.jobs, jobs).await
    }

    pub(crate) async fn for_runs(&mut self, rows: &[runs::Row]) -> PrefetchResult {
        let requests = || rows.iter().filter_map(|row| row.state.request.as_ref());
        let installs = requests().map(|request| request.install);
        prefetch::<Installs, _>(self.pool, &mut self.installs, installs).await?;
        self.for_actors(requests().map(|request| &request.by)).await
    }

    /// Prefetches the rows for the steps of a run.
    pub(crate) async fn for_run(&mut self, row: &runs::Row) -> PrefetchResult {
        let builds = row.state.steps.iter().filter_map(|step| match &step.spec.target {
            Target::Sandbox { build } | Target::Component { build, .. } => Some(*build),
            Target::Action { .. } => None,
        });
        if row.state.outcome.is_none() {
            prefetch::<Builds, _>(self.pool, &mut self.builds, builds).await?;
        }
        let requesters = row.state.request.iter().map(|request| &request.by);
        self.for_actors(requesters.chain(row.decisions.values().map(|decision| &decision.by))).await
    }

    pub(crate) async fn for_installs(&mut self, rows: &[installs::Row]) -> PrefetchResult {
        let apps = rows.iter().filter_map(|row| row.state.app);
        prefetch::<Apps, _>(self.pool, &mut self.apps, apps).await?;
        let versions =
            rows.iter().filter_map(|row| Some((row.state.app?, row.state.config_version)));
        let versions: HashSet<_> = versions.collect();
        self.versions.extend(config_versions::versions(self.pool, versions).await?);
        let runners = rows.iter().filter_map(installs::Row::runner);
        prefetch::<Runners, _>(self.pool, &mut self.runners, runners).await
    }

    /// Prefetches the names of actors.
    pub(crate) async fn for_actors<'r>(
        &mut self,
        actors: impl IntoIterator<Item = &'r Actor>,
    ) -> PrefetchResult {
        let principals: HashSet<_> = actors.into_iter().filter_map(principal).collect();
        self.names.extend(names::get(self.pool, principals).await?);
        Ok(())
    }

    pub(crate) async fn for_runners(&mut self, rows: &[runners::Row]) -> PrefetchResult {
        let installs = rows.iter().filter_map(runners::Row::install);
        prefetch::<Installs, _>(self.pool, &mut self.installs, installs).await?;
        self.read_claimed_jobs(rows.iter().map(|row| row.runner).collect()).await
    }

    pub(crate) async fn for_jobs(&mut self, rows: &[jobs::Row]) -> PrefetchResult {
        let builds = rows.iter().filter_map(jobs::Row::build);
        prefetch::<Builds, _>(self.pool, &mut self.builds, builds).await?;
        let runs = rows.iter().filter_map(jobs::Row::run);
        prefetch::<Runs, _>(self.pool, &mut self.runs, runs).await?;
        // Only unfinished jobs show the condition that they wait for.
        let open = rows.iter().filter(|row| row.ended_at.is_none());
        let installs = open.filter_map(jobs::Row::install);
        prefetch::<Installs, _>(self.pool, &mut self.installs, installs).await?;
        let known = self.installs.values().flatten();
        let runners: Vec<_> = known.filter_map(|install| install.runner()).collect();
        prefetch::<Runners, _>(self.pool, &mut self.runners, runners.iter().copied()).await?;
        self.read_claimed_jobs(runners).await
    }
}

/// Reads the rows that the cache does not have yet.
async fn prefetch<P: Projection, Id: Copy + Eq + Hash + Display>(
    pool: &PgPool,
    known: &mut RowCache<Id, P::Row>,
    ids: impl IntoIterator<Item = Id>,
) -> PrefetchResult {
    let missing: HashSet<Id> = ids.into_iter().filter(|id| !known.contains_key(id)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let keys = missing.iter().map(Id::to_string).collect();
    let mut rows = projections::many::<P>(pool, keys).await?;
    known.extend(missing.into_iter().map(|id| (id, rows.remove(&id.to_string()).map(Arc::new))));
    Ok(())
}
