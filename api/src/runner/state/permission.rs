//! Permissions of calls about states: of an execution for its component, and of the runner.
use std::sync::Arc;

use app_config::tree::SANDBOX;
use domain::{
    ids::{ExecutionId, InstallId, JobId},
    install::{self, Install},
    job::{Job, Origin},
};
use schemas::{cluster::CLUSTER_INPUT, manifest::Fence, runner::StateUpload};
use serde_json::Value;

use super::{
    super::{execution, grant},
    StateCaller,
};
use crate::{
    extract::{JobCaller, RunnerCaller},
    problem::{Code, Problem},
    state::App,
    state_versions::{self, Of},
};

/// Checks the name in the path. It must be printable in messages, and the database must accept it.
pub(super) fn check_name(component: &str) -> Result<(), Problem> {
    if install::is_component_name(component) {
        return Ok(());
    }
    let detail = "cannot find the state: the path names no component; send the name of one";
    Err(Problem::new(Code::BadRequest, detail))
}

/// Checks that the caller may read the state of the component. Returns the install.
pub(super) async fn check_reader(
    app: &App,
    caller: &StateCaller,
    component: &str,
) -> Result<InstallId, Problem> {
    match caller {
        StateCaller::Job(call) => {
            let job = held_job(app, call).await?;
            check_reads(app, &job, component).await
        }
        StateCaller::Runner(runner) => install_of(runner),
    }
}

/// Checks that the caller may store this version of the component. Returns the install.
pub(super) async fn check_writer(
    app: &App,
    caller: &StateCaller,
    component: &str,
    upload: &StateUpload,
) -> Result<InstallId, Problem> {
    match (caller, upload.written_by, upload.is_decided) {
        (StateCaller::Job(call), None, false) => {
            check_fence(call.fence, upload.head.fence)?;
            let job = held_job(app, call).await?;
            check_component(app, &job, component).await
        }
        (StateCaller::Runner(runner), Some(written_by), false) => {
            let install = install_of(runner)?;
            check_late(app, runner, written_by, (component, upload.head.fence)).await?;
            Ok(install)
        }
        (StateCaller::Runner(runner), None, true) => {
            let install = install_of(runner)?;
            if !app.engine.load::<Install>(install).await?.may_have_state(component) {
                let detail =
                    format!("cannot store the state: the install has no component {component}");
                return Err(Problem::new(Code::UnknownComponent, detail));
            }
            let newest = state_versions::newest(&app.pool, Of { install, component }).await?;
            // The user chose a state on this host, so the host must know the newest execution.
            if let Some(newest) = newest {
                check_fence(newest.fence, upload.head.fence)?;
            }
            Ok(install)
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

/// Checks an upload that arrives after its job ended, or while the shim cannot reach the server.
async fn check_late(
    app: &App,
    runner: &RunnerCaller,
    (job, id): (JobId, ExecutionId),
    (component, fence): (&str, Fence),
) -> Result<(), Problem> {
    execution::check_may_report(app, runner, job, id).await?;
    let loaded = app.log().reload::<Job>(&job.to_string()).await?.state;
    check_component(app, &loaded, component).await?;
    let position = grant::claim_position(app, job, id).await?;
    check_fence(Fence { epoch: fence.epoch.min(app.log().epoch()), position }, fence)
}

/// Checks that the state of the component is the one that the job plans or applies. Returns the
/// install.
async fn check_component(app: &App, job: &Job, component: &str) -> Result<InstallId, Problem> {
    let (install, names) = names(app, job).await?;
    match names.own.as_deref() == Some(component) {
        true => Ok(install),
        false => Err(other_component(component)),
    }
}

/// Checks that the job reads outputs of the component: of its own one, of the one that creates its
/// cluster, or of the sandbox, which names the registry. Returns the install.
async fn check_reads(app: &App, job: &Job, component: &str) -> Result<InstallId, Problem> {
    let (install, names) = names(app, job).await?;
    let reads = [names.own.as_deref(), names.cluster.as_deref(), Some(SANDBOX)];
    match reads.contains(&Some(component)) {
        true => Ok(install),
        false => Err(other_component(component)),
    }
}

/// Components that the manifest of a job names.
struct Names {
    /// Component whose state the job plans or applies.
    own: Option<String>,
    /// Component that creates the cluster of the job.
    cluster: Option<String>,
}

async fn names(app: &App, job: &Job) -> Result<(InstallId, Names), Problem> {
    let no_step = || {
        let detail =
            "request rejected: the job belongs to no step of an install, so it has no state";
        Problem::new(Code::Forbidden, detail)
    };
    let work = job.work.as_ref().ok_or_else(no_step)?;
    let Origin::Step { install, .. } = work.origin else { return Err(no_step()) };
    let manifest = app.manifests.get(&app.pool, &work.manifest).await?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let own = text(manifest.inputs.get(work.kind.subject())).filter(|_| work.kind.uses_state());
    let cluster = manifest.inputs.get(CLUSTER_INPUT).and_then(|input| input.get("component"));
    Ok((install, Names { own, cluster: text(cluster) }))
}

fn other_component(component: &str) -> Problem {
    let detail = format!("request rejected: the job does not use the state of {component}");
    Problem::new(Code::Forbidden, detail)
}

fn check_fence(expected: Fence, fence: Fence) -> Result<(), Problem> {
    if expected == fence {
        return Ok(());
    }
    let detail = "cannot store the state: its fence is not the one of its execution";
    Err(Problem::new(Code::Fenced, detail))
}
