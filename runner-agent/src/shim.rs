//! Shim: the small parent process of one job. It outlives the agent that started it.
//!
//! ```text
//! supervisor ──spawn──▶ shim (own session) ──▶ plugin ──▶ child (own process group)
//!     │  ▲                │ redact, number        ▲
//!     │  └── log.ndjson ──┤ reports.ndjson        │ TERM … KILL
//!     └──── cancel.json ──┴───────────────────────┘ deadline, no output
//! ```
//!
//! After the start, supervisor and shim communicate through files. So the exit of the supervisor
//! stops no job and loses no output.
pub(crate) mod leftovers;
pub mod limits;
pub mod log;
pub mod order;
pub mod recorder;
pub mod redact;
pub mod redact_socket;
mod sandbox;
mod tail;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    net::TcpListener,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use domain::ids::{ExecutionId, JobId};
use nix::sys::stat::{Mode, umask};
use oci_registry::Observer;
use schemas::{
    manifest::Manifest,
    runner::{Exit, FailureReason, Finished, JobKind, Outcome, RefusedBy, ReportBody},
};
use tokio::signal::unix::{SignalKind, signal};
use zeroize::Zeroizing;

use self::{
    limits::Watch,
    order::{JobLimits, ShimOrder, StopCause},
    recorder::Recorder,
};
use crate::{
    cgroup::{Cgroup, Limiter},
    client::Client,
    data::{Data, JobDir},
    host::Process,
    isolation::{JobNetwork, Trial},
    journal::{Journal, JournalEvent},
    plugins::{self, Background, JobContext, PluginError, Registry, Rules},
    policy::{Policy, publishers},
    processes, program,
    state::{self, KnownState},
    values,
};

/// Runs one job to its end. The files report its result; the returned error is only for the shim's
/// own standard error.
pub async fn run(data: &Data, job: JobId, execution: ExecutionId) -> anyhow::Result<()> {
    // Leave the supervisor's session, so that a signal to it does not end the shim. Fails only for
    // the leader of a session.
    let _leads_already = nix::unistd::setsid();
    umask(Mode::from_bits_truncate(0o077));
    // An agent that cannot see its shim treats it as ended. So a shim stays visible where `/proc`
    // hides protected processes.
    if !crate::host::hides_undumpable_processes() {
        crate::host::make_undumpable();
    }
    // Adopt orphans before the first child starts. So every descendant stays in the process tree,
    // even in another session.
    processes::adopt_orphans().context("cannot become the parent of orphaned processes")?;
    let journal = Journal::open(data)?;
    let process = Process::of(std::process::id())?;
    journal.write(JournalEvent::Spawned { job, execution, process })?;
    if journal.is_abandoned(execution)? {
        // The agent has reported an unknown outcome, so another execution may do the work.
        anyhow::bail!("cannot start {execution}: the agent abandoned it before the shim started");
    }
    let dir = data.job(execution);
    dir.create()?;
    let order = read_order();
    let secrets = order.as_ref().map_or(Vec::new(), |order| {
        order.secrets().map(|value| Zeroizing::new(value.to_owned())).collect()
    });
    let parsed = order.as_ref().ok().map(ShimOrder::limited_manifest);
    let keep = match &parsed {
        Some(Ok(Manifest { limits, .. })) => limits.output_bytes,
        Some(Err(_)) | None => 0,
    };
    let recorder = match Recorder::begin((job, execution), dir.clone(), &journal, secrets, keep) {
        Ok(recorder) => recorder,
        Err(error) => {
            // No work has begun, and the journal must show that. Otherwise a user has to resolve
            // the outcome. The disk of the log may be full, but the journal has a reserve.
            for file in [dir.reports(), dir.log(), dir.reserve()] {
                let _best_effort = crate::data::remove(&file);
            }
            let reason = Some(FailureReason::SpawnFailed);
            let exit = Exit { outcome: Outcome::Failed, code: None, signal: None, reason };
            journal.write(JournalEvent::Exited { job, execution, exit })?;
            return Err(anyhow::Error::new(error).context("cannot create the log"));
        }
    };
    let mut cgroup = Cgroup::enter(&dir);
    let network = match (&order, &parsed) {
        (Ok(order), Some(Ok(manifest))) => {
            Some(sandbox::network(&order.isolation, manifest.kind, execution).await)
        }
        (Ok(_), Some(Err(_)) | None) | (Err(_), _) => None,
    };
    // The report states what was created, not what was ordered.
    let applied = match (&order, &parsed, &network) {
        (Ok(order), Some(Ok(manifest)), Some(Ok(network))) => {
            Some((&order.isolation, manifest.kind, network))
        }
        (Ok(_) | Err(_), _, _) => None,
    };
    let started = sandbox::report(&recorder, execution, applied);
    let network = network.transpose();
    let last = match (started, network, &order, parsed) {
        (Err(error), ..) => {
            Err(anyhow::Error::new(error).context("cannot write a report to the runner's disk"))
        }
        (Ok(()), Err(error), ..) => Err(error),
        (Ok(()), Ok(Some(network)), Ok(order), Some(Ok(mut manifest))) => {
            // The name of the component must be that of the signed manifest.
            let encrypter = values::encrypt::Encrypter::open(data, &manifest);
            match values::fill::fill(&mut manifest, &order.values) {
                Ok(inserted) => {
                    recorder.writer().add_secrets(inserted);
                    match encrypter {
                        Ok(encrypter) => recorder.writer().encrypt_with(encrypter),
                        Err(error) => recorder.writer().write_shim_record(&format!(
                            "cannot encrypt sensitive outputs: {error}"
                        )),
                    }
                    work(data, &dir, (order, network), manifest, &recorder, cgroup.as_mut()).await
                }
                Err(why) => Err(anyhow::Error::msg(why)),
            }
        }
        (Ok(()), Ok(_), Ok(_), Some(Err(error))) => {
            Err(anyhow::Error::new(error).context("cannot read the manifest"))
        }
        (Ok(()), Ok(_), Ok(_) | Err(_), _) => Err(anyhow::anyhow!(
            "cannot start the job: the supervisor exited before it sent the launch parameters"
        )),
    };
    let last = last
        .unwrap_or_else(|error| failure_report(FailureReason::SpawnFailed, format!("{error:#}")));
    let finished = recorder.writer().finish(last);
    // The child may have written secrets to the work directory, but a state that was not rescued
    // must be kept.
    if may_remove_work(data, execution) {
        let _best_effort = fs::remove_dir_all(dir.work());
    }
    for temporary in [dir.scratch(), dir.own_tmp()] {
        let _best_effort = fs::remove_dir_all(temporary);
    }
    redact_socket::remove(&dir);
    if let Some(cgroup) = &cgroup {
        cgroup.remove();
    }
    Ok(finished?)
}

/// Returns true if no apply of this execution remains to be resolved, so the work directory can be
/// removed.
fn may_remove_work(data: &Data, execution: ExecutionId) -> bool {
    state::executions_in_progress(&data.path("state"))
        .is_ok_and(|in_progress| !in_progress.contains(&execution))
}

fn read_order() -> io::Result<ShimOrder> {
    let mut text = Zeroizing::new(String::new());
    io::stdin().read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

async fn work(
    data: &Data,
    dir: &JobDir,
    (order, network): (&ShimOrder, JobNetwork),
    manifest: Manifest,
    recorder: &Recorder,
    mut cgroup: Option<&mut Cgroup>,
) -> anyhow::Result<Finished> {
    let memory_bytes = [order.limits.memory_bytes, manifest.limits.memory_bytes];
    let memory_bytes = memory_bytes.into_iter().flatten().min();
    let processes = order.limits.processes.or(limits::default_processes(order.isolation.level));
    let limits = JobLimits { memory_bytes, processes: order.limits.processes };
    let by_kernel = JobLimits { processes, ..limits };
    let limiter = limiter(dir, &by_kernel, cgroup.as_deref_mut());
    recorder.writer().write_shim_record(&limits::text(&limits, &limiter));
    recorder.writer().limit_with(limiter.clone());
    let (grace, silence) = (manifest.timeouts.grace_ms, manifest.timeouts.no_output_ms);
    let mut watch = Watch::new(
        dir.clone(),
        recorder.clone(),
        order.deadline_uptime_ms,
        (Duration::from_millis(grace), Duration::from_millis(order.max_grace_ms)),
        silence.map(Duration::from_millis),
        (limits, limiter.clone()),
    );
    let context = context(data, dir, order, &manifest, recorder, (&watch, &network)).await;
    let context = match context {
        Ok(context) => context,
        Err(error) => {
            network.stop().await;
            return Err(error);
        }
    };
    // An earlier cancel must take effect before the plugin starts.
    watch.check();
    let mut sink = recorder.clone();
    #[expect(clippy::disallowed_methods, reason = "the task is awaited below")]
    let mut plugin =
        tokio::spawn(async move { plugins::run(&manifest, &context, &mut sink).await });
    let mut stop = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let ended = loop {
        tokio::select! {
            ended = &mut plugin => break Some(ended),
            () = watch.until_stuck() => break None,
            _signal = stop.recv() => watch.stop_on_signal(),
        }
    };
    plugin.abort();
    network.stop().await;
    let last = match ended {
        Some(Ok(ended)) => result_report(ended, watch.cause, recorder),
        Some(Err(_)) => failure_report(FailureReason::PluginFailed, "the plugin panicked".into()),
        None => stop_report(watch.cause, true),
    };
    let last = naming_limit(last, watch.cause, &limiter);
    let leftovers = leftovers::end(&mut watch, &mut stop, cgroup.as_deref()).await;
    let forced = last.forced || (last.outcome == Outcome::Cancelled && leftovers.killed);
    Ok(Finished { forced, not_ended: leftovers.not_ended, ..last })
}

/// Lets the kernel limit the job, as far as it can on this host.
fn limiter(dir: &JobDir, limits: &JobLimits, cgroup: Option<&mut Cgroup>) -> Limiter {
    let limiter = cgroup.map(|group| group.limit(dir, limits.memory_bytes, limits.processes));
    limiter.unwrap_or_default()
}

/// Returns the report of a job that failed because of a limit. The program itself only sees a signal,
/// or an error when it starts a process.
fn naming_limit(last: Finished, cause: Option<StopCause>, limiter: &Limiter) -> Finished {
    use FailureReason::{ExitCode, Internal, PluginFailed, Signal, SpawnFailed};
    let limit = cause.or_else(|| limiter.exceeded().map(StopCause::from));
    let limit = limit.filter(|cause| cause.limit().is_some());
    let is_effect =
        matches!(last.reason, Some(ExitCode | Signal | PluginFailed | SpawnFailed | Internal));
    match limit {
        Some(cause) if is_effect => stop_report(Some(cause), last.forced),
        Some(_) | None => last,
    }
}

async fn context(
    data: &Data,
    dir: &JobDir,
    order: &ShimOrder,
    manifest: &Manifest,
    recorder: &Recorder,
    (watch, network): (&Watch, &JobNetwork),
) -> anyhow::Result<JobContext> {
    let (job, execution) = {
        let writer = recorder.writer();
        (writer.job, writer.execution)
    };
    let unfilled = order.limited_manifest()?;
    let unfilled_inputs = match unfilled.secrets.is_empty() {
        true => None,
        false => Some(plugins::digest_of_inputs(&unfilled)?),
    };
    let http = Client::new(&order.server, &order.trust)?.http();
    let (base_url, token) = (order.server.clone(), order.job_token.clone());
    let background: Arc<dyn Background> = Arc::new(recorder.clone());
    let log = Arc::clone(&background);
    let observer: Observer = Arc::new(move |cause| log.line(&format!("retrying: {cause}")));
    let (known_state, known_states) = known_states(data, order, manifest)?;
    let env = environment(data, dir, order, recorder, (job, execution)).await?;
    let sandbox = sandbox::of_job(data, dir, order, manifest, &env, network)?;
    Ok(JobContext {
        work_dir: dir.work(),
        state_dir: data.path("state"),
        artifacts_dir: data.path("artifacts"),
        plugin_dir: order.plugin_dir.clone(),
        plans_dir: data.path("plans"),
        env,
        git_env: order.git_env.clone(),
        kubeconfig_allows: order.kubeconfig_allows.clone(),
        background,
        sandbox,
        cancel: watch.cancel.clone(),
        registry: Registry {
            base_url,
            token,
            http,
            idle_timeout: Registry::IDLE_TIMEOUT,
            observer: Some(observer),
        },
        images: order.images.clone(),
        job,
        execution,
        rules: rules(data, manifest.kind)?,
        known_state,
        known_states,
        state: order.state.clone(),
        state_port: state_port(order, network).context("cannot listen on a port for the state")?,
        manifest_digest: order.manifest_digest.clone(),
        unfilled_inputs,
    })
}

/// Returns a free loopback port of the network in which the job's programs run.
fn state_port(order: &ShimOrder, network: &JobNetwork) -> io::Result<Option<Arc<TcpListener>>> {
    let listen = |_| network.listen().map(Arc::new);
    order.state.as_ref().map(listen).transpose()
}

/// Returns the rules of the customer, for a preflight.
fn rules(data: &Data, kind: JobKind) -> anyhow::Result<Option<Rules>> {
    match kind {
        JobKind::Preflight => {
            let (policy, publishers) = (Policy::current(data)?, publishers::recorded(data)?);
            Ok(Some(Rules { policy, publishers, trial: Trial::of(data) }))
        }
        JobKind::Resolve
        | JobKind::Build
        | JobKind::Plan
        | JobKind::Apply
        | JobKind::Sync
        | JobKind::Action => Ok(None),
    }
}

/// Returns the states that this runner has seen: of the job's component, and of the others whose
/// states the job may read.
fn known_states(
    data: &Data,
    order: &ShimOrder,
    manifest: &Manifest,
) -> io::Result<(KnownState, BTreeMap<String, KnownState>)> {
    let component = manifest.inputs.get("component").and_then(|name| name.as_str());
    let others = order.state.iter().flat_map(|state| state.keys.components());
    let mut names: Vec<&str> = others.chain(component).collect();
    names.sort_unstable();
    if names.is_empty() {
        return Ok(Default::default());
    }
    let mut known = state::known(&Journal::open(data)?.read()?);
    known.retain(|name, _| names.binary_search(&name.as_str()).is_ok());
    let own = component.and_then(|name| known.get(name)).cloned().unwrap_or_default();
    Ok((own, known))
}

/// Returns the base environment of a child. Of the runner's own variables, it has only those that
/// the customer passes on.
async fn environment(
    data: &Data,
    dir: &JobDir,
    order: &ShimOrder,
    recorder: &Recorder,
    (job, execution): (JobId, ExecutionId),
) -> io::Result<BTreeMap<String, String>> {
    // Create the temporary directory outside the work directory, which a plugin may expect to be
    // empty.
    let scratch = dir.scratch();
    crate::data::directory(&scratch)?;
    let mut env = order.pass_env.clone();
    let own = [
        ("PATH", order.path.clone()),
        ("TMPDIR", scratch.display().to_string()),
        ("STEAD_JOB", job.to_string()),
        ("STEAD_EXECUTION", execution.to_string()),
    ];
    env.extend(own.map(|(name, value)| (name.to_owned(), value)));
    let with_context = |error| {
        let why = format!(
            "cannot start the job: its scripts could not register values to redact: {error}"
        );
        io::Error::other(why)
    };
    let program = program::keep(data).map_err(with_context)?;
    program::check(&program).await.map_err(with_context)?;
    let socket = redact_socket::listen(dir, program.clone(), recorder).map_err(with_context)?;
    env.insert(redact_socket::SOCKET.into(), socket.display().to_string());
    env.insert("STEAD_RUNNER".into(), program.display().to_string());
    Ok(env)
}

/// Returns the final report for the plugin's result, given the cause of a stop.
fn result_report(
    ended: Result<plugins::Outcome, PluginError>,
    cause: Option<StopCause>,
    recorder: &Recorder,
) -> Finished {
    match ended {
        Ok(plugins::Outcome::Succeeded) => {
            let detail = cause.map_or("", |_| "cancel_too_late");
            Finished {
                outcome: Outcome::Succeeded,
                exit_code: Some(0),
                ..unfinished_report(detail.into())
            }
        }
        Ok(plugins::Outcome::Failed { reason, exit_code, signal, detail }) => {
            Finished { exit_code, signal, ..failure_report(reason, detail) }
        }
        Ok(plugins::Outcome::Cancelled { forced }) => stop_report(cause, forced),
        Err(error) => {
            let (by, rule) = match error {
                PluginError::Unverified(_) => (RefusedBy::Verification, "plugin_signature"),
                PluginError::Refused(_)
                | PluginError::ToolMissing(_)
                | PluginError::ArtifactUnavailable(_)
                | PluginError::PlanStale(_)
                | PluginError::PluginFailed(_)
                | PluginError::SpawnFailed { .. }
                | PluginError::TimedOut(_)
                | PluginError::Io { .. } => (RefusedBy::Capability, "plugin"),
            };
            let (reason, detail) = (error.reason(), format!("{:#}", anyhow::Error::new(error)));
            let mut writer = recorder.writer();
            let shown = writer.redacted(&detail);
            writer.write_shim_record(&shown);
            if reason == FailureReason::Refused {
                let (rule, detail) = (rule.to_owned(), writer.redacted(&detail));
                if let Err(error) = writer.report(ReportBody::Refused { by, rule, detail }) {
                    writer.write_shim_record(&format!("cannot report the refusal: {error}"));
                }
            }
            failure_report(reason, detail)
        }
    }
}

/// Returns the final report of work that was stopped.
pub(crate) fn stop_report(cause: Option<StopCause>, forced: bool) -> Finished {
    match cause {
        Some(StopCause::Cancel) => {
            Finished { outcome: Outcome::Cancelled, forced, ..unfinished_report(String::new()) }
        }
        Some(StopCause::Deadline) => {
            failure_report(FailureReason::TimedOut, "the deadline has passed".into())
        }
        Some(StopCause::NoOutput) => failure_report(
            FailureReason::TimedOut,
            "the job wrote no output for longer than its limit".into(),
        ),
        Some(cause @ StopCause::Memory) => {
            failure_report(FailureReason::MemoryLimit, cause.limit().unwrap_or_default().into())
        }
        Some(cause @ StopCause::Processes) => {
            failure_report(FailureReason::ProcessLimit, cause.limit().unwrap_or_default().into())
        }
        Some(StopCause::AgentStop) => failure_report(
            FailureReason::AgentStopped,
            "the runner stopped the job immediately".into(),
        ),
        None => failure_report(
            FailureReason::PluginFailed,
            "the plugin stopped without a request".into(),
        ),
    }
}

fn failure_report(reason: FailureReason, detail: String) -> Finished {
    Finished { reason: Some(reason), ..unfinished_report(detail) }
}

/// Returns a final report whose log is not finalized yet.
fn unfinished_report(detail: String) -> Finished {
    Finished {
        outcome: Outcome::Failed,
        exit_code: None,
        signal: None,
        reason: None,
        detail,
        forced: false,
        log_len: 0,
        log_sha256: String::new(),
        omitted: 0,
        not_ended: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stop_cause_determines_the_result() {
        let stopped_by = |cause| {
            let last = stop_report(Some(cause), true);
            (last.outcome, last.reason, last.forced)
        };
        assert_eq!(stopped_by(StopCause::Cancel), (Outcome::Cancelled, None, true));
        let timed_out = (Outcome::Failed, Some(FailureReason::TimedOut), false);
        assert_eq!(stopped_by(StopCause::Deadline), timed_out);
        assert_eq!(stopped_by(StopCause::NoOutput), timed_out);
        assert_eq!(stopped_by(StopCause::AgentStop).1, Some(FailureReason::AgentStopped));
    }
}
