//! Permissions of calls about states: of an execution for its component, and of the runner.
use std::sync::Arc;

use app_config::tree::SANDBOX;
use domain::{
    ids::{ExecutionId, InstallId, JobId, RunnerId},
    install::{self, Install},
    job::{Job, JobClass, Origin},
    runner::Runner,
};
use schemas::{
    cluster::CLUSTER_INPUT,
    manifest::Fence,
    preflight::{PlannedJob, PreflightInputs, Rendered},
    runner::StateUpload,
};
use serde_json::Value;

use super::{
    super::{execution, grant},
    StateCaller,
};
use crate::{
    extract::{self, JobCaller, RunnerCaller},
    problem::{Code, Problem},
    state::App,
    state_versions::{self, Begun, Of, Writer},
    usecases::states,
};

/// Checks the name in the path. It must be printable in messages, and the database must accept it.
pub(super) fn check_name(component: &str) -> Result<(), Problem> {
    if install::is_component_name(component) {
        return Ok(());
    }
    let detail = "cannot find the state: the path names no component; send the name of one";
    Err(Problem::new(Code::BadRequest, detail))
}

/// Checks that the caller may read the state of the component. Returns the install, and the
/// execution if it may change the component from now on.
pub(super) async fn check_reader(
    app: &App,
    caller: &StateCaller,
    component: &str,
) -> Result<(InstallId, Option<Begun>), Problem> {
    match caller {
        StateCaller::Job(call) => {
            let job = held_job(app, call).await?;
            let names = names(app, &job).await?;
            if !names.is_read(component) {
                return Err(other_component(component));
            }
            let changes = job.class() == JobClass::Mutating && names.is_own(component);
            let begun = changes.then_some(Begun { fence: call.fence, job: Some(call.job) });
            Ok((names.install, begun))
        }
        StateCaller::Runner(runner) => Ok((install_of(runner)?, None)),
    }
}

/// Checks that the caller may store this version of the component. Returns the install and the
/// writer.
pub(super) async fn check_writer(
    app: &App,
    caller: &StateCaller,
    component: &str,
    upload: &StateUpload,
) -> Result<(InstallId, Writer), Problem> {
    match (caller, upload.written_by, upload.is_decided) {
        (StateCaller::Job(call), None, false) => {
            check_fence(call.fence, upload.head.fence)?;
            let job = held_job(app, call).await?;
            Ok((check_component(app, &job, component).await?, Writer::Job(call.job)))
        }
        (StateCaller::Runner(runner), Some(written_by), false) => {
            let install = install_of(runner)?;
            check_late(app, install, written_by, (component, upload.head.fence)).await?;
            Ok((install, Writer::Job(written_by.0)))
        }
        (StateCaller::Runner(runner), None, true) => {
            let install = install_of(runner)?;
            if !app.engine.load::<Install>(install).await?.may_have_state(component) {
                let detail =
                    format!("cannot store the state: the install has no component {component}");
                return Err(Problem::new(Code::UnknownComponent, detail));
            }
            let of = Of { install, component };
            let (known, until) = states::check_unused(app, of).await?;
            match state_versions::newest(&app.pool, of).await? {
                // The user chose a state on this host, so the host must know the newest version.
                Some(newest) if newest.fence != upload.head.fence => return Err(other_newest()),
                // A fence of the future would reject all later executions.
                None if upload.head.fence > until => return Err(other_newest()),
                Some(_) | None => {}
            }
            Ok((install, Writer::User { known, until }))
        }
        (StateCaller::Job(_), Some(_), _)
        | (StateCaller::Job(_), None, true)
        | (StateCaller::Runner(_), Some(_), true)
        | (StateCaller::Runner(_), None, false) => {
            let detail = "cannot store the state: a job sends neither `written_by` nor `is_decided`, and a runner sends one of them";
            Err(Problem::new(Code::BadRequest, detail))
        }
    }
}

/// Checks in the log that the runner is not revoked. The revocations in memory may be outdated, and
/// a server that crashed after it committed a recovery has set no fence against the former runner.
pub(super) async fn check_not_revoked(app: &App, runner: RunnerId) -> Result<(), Problem> {
    match app.log().reload::<Runner>(&runner.to_string()).await?.state.revoked {
        true => Err(extract::revoked(runner)),
        false => Ok(()),
    }
}

fn install_of(runner: &RunnerCaller) -> Result<InstallId, Problem> {
    runner.install.ok_or_else(|| Problem::not_found("state of a build runner"))
}

/// Checks that the execution holds its job. Returns the job.
async fn held_job(app: &App, call: &JobCaller) -> Result<Arc<Job>, Problem> {
    // The cache may be outdated, and an execution that lost the job must not write.
    let job = app.log().reload::<Job>(&call.job.to_string()).await?.state;
    let held = job.execution();
    if held.is_none_or(|held| held.id != call.execution || held.runner != call.runner) {
        return Err(execution::stale_execution(&job));
    }
    Ok(job)
}

/// Checks an upload that arrives after its job ended, or while the shim cannot reach the server. Any
/// runner of the install may send it: the runner of the execution may have been replaced, with the
/// same data directory.
async fn check_late(
    app: &App,
    install: InstallId,
    (job, id): (JobId, ExecutionId),
    (component, fence): (&str, Fence),
) -> Result<(), Problem> {
    let loaded = app.log().reload::<Job>(&job.to_string()).await?.state;
    if loaded.work.is_none() {
        return Err(Problem::not_found("job"));
    }
    if check_component(app, &loaded, component).await? != install {
        return Err(other_component(component));
    }
    if !execution::has_had(&loaded, id) {
        return Err(execution::stale_execution(&loaded));
    }
    let position = grant::claim_position(app, job, id).await?;
    check_fence(Fence { epoch: fence.epoch.min(app.log().epoch()), position }, fence)
}

/// Checks that the state of the component is the one that the job plans or applies. Returns the
/// install.
async fn check_component(app: &App, job: &Job, component: &str) -> Result<InstallId, Problem> {
    let names = names(app, job).await?;
    match names.is_own(component) {
        true => Ok(names.install),
        false => Err(other_component(component)),
    }
}

/// Components that the manifest of a job names.
struct Names {
    install: InstallId,
    /// Component whose state the job plans or applies.
    own: Option<String>,
    /// Components that create the clusters of the job, or of the jobs that a preflight checks.
    clusters: Vec<String>,
}

impl Names {
    fn is_own(&self, component: &str) -> bool {
        self.own.as_deref() == Some(component)
    }

    /// Returns true if the job reads outputs of the component: of its own one, of one that creates a
    /// cluster, or of the sandbox, which names the registry.
    fn is_read(&self, component: &str) -> bool {
        let is_cluster = || self.clusters.iter().any(|cluster| cluster == component);
        component == SANDBOX || self.is_own(component) || is_cluster()
    }
}

async fn names(app: &App, job: &Job) -> Result<Names, Problem> {
    let no_step = || {
        let detail =
            "request rejected: the job belongs to no step of an install, so it has no state";
        Problem::new(Code::Forbidden, detail)
    };
    let work = job.work.as_ref().ok_or_else(no_step)?;
    match work.origin {
        Origin::Step { install, .. } => {
            let manifest = app.manifests.get(&app.pool, &work.manifest).await?;
            let own = manifest.inputs.get(work.kind.subject()).and_then(Value::as_str);
            let own = own.filter(|_| work.kind.uses_state()).map(str::to_owned);
            Ok(Names { install, own, clusters: cluster(&manifest.inputs).into_iter().collect() })
        }
        Origin::Preflight { install, .. } => {
            let manifest = app.manifests.get(&app.pool, &work.manifest).await?;
            let jobs = PreflightInputs::of(&manifest).map(|inputs| inputs.jobs);
            let cluster_of = |planned: PlannedJob| match planned.rendered {
                Rendered::Known { inputs, .. } => cluster(&inputs),
                Rendered::Deferred(_) => None,
            };
            let clusters = jobs.into_iter().flatten().filter_map(cluster_of).collect();
            Ok(Names { install, own: None, clusters })
        }
        Origin::Build { .. } | Origin::Source { .. } => Err(no_step()),
    }
}

/// Component that creates the cluster of a job with these inputs.
fn cluster(inputs: &Value) -> Option<String> {
    let component = inputs.get(CLUSTER_INPUT)?.get("component")?;
    component.as_str().map(str::to_owned)
}

fn other_component(component: &str) -> Problem {
    let detail = format!("request rejected: the job does not use the state of {component}");
    Problem::new(Code::Forbidden, detail)
}

fn check_fence(expected: Fence, fence: Fence) -> Result<(), Problem> {
    if expected == fence {
        return Ok(());
    }
    Err(other_fence())
}

/// Rejects a decision that does not continue the newest version.
fn other_newest() -> Problem {
    let detail = "cannot store the chosen state: another one was stored since it was read; repeat the choice";
    Problem::new(Code::StateFenced, detail)
}

fn other_fence() -> Problem {
    let detail = "cannot store the state: its fence is not the one of its execution";
    Problem::new(Code::Fenced, detail)
}
