//! Starts a shim. The agent records the start in the journal first, so that the start is known
//! after a crash.
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    num::NonZeroU32,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use domain::{
    ids::{ExecutionId, JobId},
    image::COMPONENT_TYPES,
};
use schemas::{
    cluster::CLUSTER_INPUT,
    preflight::{PreflightInputs, Rendered},
    runner::{
        Claimed, Exit, FailureReason, Finished, Outcome, RefusedBy, Report, ReportBody, RunnerMode,
    },
};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, ChildStdin, Command},
};
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::{Agent, recover::ClaimStage};
use crate::{
    data,
    host::{self, Process},
    isolation::{self, Trial},
    journal::{JournalEvent, Position},
    plugins::{self, StateAccess},
    policy::{Policy, Refusal},
    processes,
    shim::{
        self,
        order::{CancelOrder, JobLimits, ShimOrder},
        recorder::{MAX_DETAIL_BYTES, truncate},
    },
    state::StateKeys,
    tasks,
    values::OpenValues,
    witness::Verified,
};

/// Environment variables of the agent that a shim gets. The shim does not pass its own environment
/// to children.
const SHIM_ENV: [&str; 16] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "RUST_LOG",
    "PATH",
    // For Docker's credential helpers, which the shim itself starts.
    "HOME",
    "DOCKER_CONFIG",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CONFIG_DIR",
    "GOOGLE_APPLICATION_CREDENTIALS",
];
/// Timeout of the customer's veto command.
pub(super) const VETO_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for a shim to read its launch parameters.
const ORDER_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for a shim to write its `spawned` entry.
const SPAWNED_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts the shim of an authorized claim.
pub(super) async fn start(
    agent: &Arc<Agent>,
    job: JobId,
    claimed: &Claimed,
    (verified, policy, values): (&Verified, &Policy, OpenValues),
    received_uptime_ms: u64,
) -> anyhow::Result<ClaimStage> {
    let execution = claimed.execution;
    let trial = Trial::of(&agent.data);
    let isolation = isolation::choose(policy, verified.manifest.kind, &trial).await;
    let prepared = isolation.map_err(anyhow::Error::new).and_then(|isolation| {
        let job_of = (verified, policy, isolation, values);
        prepare(agent, job, claimed, job_of, received_uptime_ms)
    });
    let started = match prepared.and_then(|order| Ok((fork(agent, job, execution)?, order))) {
        Ok((shim, order)) => send_order(agent, execution, shim, order).await,
        Err(error) => Err(error),
    };
    match started {
        Ok(process) => {
            info!(job.id = %job, execution.id = %execution, "Started the shim");
            Ok(ClaimStage::Spawned(process))
        }
        Err(error) => {
            let why = format!("{error:#}");
            warn!(job.id = %job, execution.id = %execution, error = why, "Cannot start the shim");
            end_not_started(agent, job, execution, &why)
        }
    }
}

/// Writes everything that must be on disk before a shim may start.
fn prepare(
    agent: &Agent,
    job: JobId,
    claimed: &Claimed,
    (verified, policy, isolation, values): (&Verified, &Policy, isolation::Choice, OpenValues),
    received_uptime_ms: u64,
) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let execution = claimed.execution;
    let dir = agent.data.job(execution);
    dir.create()?;
    data::replace(&dir.manifest(), &verified.manifest_bytes)?;
    data::replace(&dir.grant(), &verified.grant_bytes)?;
    // From here on, the deadline depends on the monotonic clock only.
    let duration = duration_ms(claimed, verified, policy);
    let deadline_uptime_ms = received_uptime_ms.saturating_add(duration);
    // A cancellation must not need disk space that the job has filled.
    data::keep_reserve(&dir.cancel())?;
    let mut order = order(agent, claimed, verified, (policy, isolation), deadline_uptime_ms)?;
    order.values = values;
    let order = Zeroizing::new(serde_json::to_vec(&order)?);
    agent.journal.write(JournalEvent::Spawning { job, execution })?;
    Ok(order)
}

/// Returns the longest duration of the job from its claim: until the grant's deadline by the
/// server's clock, within the policy's limit.
fn duration_ms(claimed: &Claimed, verified: &Verified, policy: &Policy) -> u64 {
    let left = (verified.grant.deadline - claimed.server_time).num_milliseconds().max(0);
    let longest = u64::try_from(policy.limits().duration.as_millis()).unwrap_or(u64::MAX);
    left.unsigned_abs().min(longest)
}

/// Returns the timeout of an approval. The policy limits it, and at least half of the job's
/// duration must remain.
///
/// A job that was approved shortly before its deadline would be stopped before it is complete.
pub(super) fn approval_timeout(
    claimed: &Claimed,
    verified: &Verified,
    policy: &Policy,
    received_uptime_ms: u64,
) -> Duration {
    let half = duration_ms(claimed, verified, policy) / 2;
    let left = received_uptime_ms.saturating_add(half).saturating_sub(host::uptime_ms());
    policy.limits().approval.min(Duration::from_millis(left))
}

fn order(
    agent: &Agent,
    claimed: &Claimed,
    verified: &Verified,
    (policy, isolation): (&Policy, isolation::Choice),
    deadline_uptime_ms: u64,
) -> anyhow::Result<ShimOrder> {
    let names = agent.settings.pass_env.iter().chain(&policy.pass_env);
    let pass_env: BTreeMap<String, String> =
        names.filter_map(|name| Some((name.clone(), env::var(name).ok()?))).collect();
    let git_env = match agent.identity.mode {
        RunnerMode::Build => plugins::git_environment(),
        RunnerMode::Install => BTreeMap::new(),
    };
    Ok(ShimOrder {
        manifest: String::from_utf8(verified.manifest_bytes.clone())?,
        manifest_digest: verified.digest.clone(),
        server: agent.client.base().into(),
        trust: agent.identity.trust.clone(),
        job_token: claimed.job_token.clone(),
        deadline_uptime_ms,
        max_grace_ms: u64::try_from(policy.limits().grace.as_millis()).unwrap_or(u64::MAX),
        pass_env,
        git_env,
        kubeconfig_allows: policy.kubeconfig_allows.clone(),
        isolation,
        limits: JobLimits {
            memory_bytes: policy.max_memory,
            processes: policy.max_processes.map(NonZeroU32::get),
        },
        path: env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into()),
        plugin_dir: agent.settings.plugin_dir.clone(),
        images: agent.settings.images.clone(),
        values: OpenValues::new(),
        state: state_access(agent, verified),
    })
}

/// Returns the keys of the states that the job may use: of its component, of the component that
/// created its cluster, and of the sandbox, whose outputs name the registry of images.
fn state_access(agent: &Agent, verified: &Verified) -> Option<StateAccess> {
    const SANDBOX: &str = "sandbox";
    let (keys, install) = (agent.keys.install.as_ref()?, agent.identity.install?);
    let manifest = &verified.manifest;
    let planned = PreflightInputs::of(manifest).map(|inputs| inputs.jobs).unwrap_or_default();
    let planned = planned.iter().filter_map(|job| match &job.rendered {
        Rendered::Known { inputs, .. } => Some(inputs),
        Rendered::Deferred(_) => None,
    });
    let clusters = planned.chain([&manifest.inputs]).filter_map(|inputs| inputs.get(CLUSTER_INPUT));
    let clusters = clusters.filter_map(|input| input["component"].as_str());
    let own = manifest.inputs.get("component").and_then(|name| name.as_str());
    let is_image = COMPONENT_TYPES.contains(&manifest.plugin.name.as_str());
    let sandbox = is_image.then_some(SANDBOX);
    let components: BTreeSet<&str> = clusters.chain(own).chain(sandbox).collect();
    let keys = StateKeys::derive(keys, &agent.identity.log_id, install, components);
    Some(StateAccess { keys, fence: verified.grant.fence })
}

/// Forked shim, with the journal position after which its `spawned` entry is expected.
struct Forked {
    child: Child,
    pipe: ChildStdin,
    journal: Position,
}

/// Starts the process of the shim. After an error, no part of the job has started.
fn fork(agent: &Agent, job: JobId, execution: ExecutionId) -> anyhow::Result<Forked> {
    let dir = agent.data.job(execution);
    let errors = data::append(&dir.shim_errors())?;
    let journal = agent.journal.end_position()?;
    // Start the running program itself, even if an upgrade replaced its file.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("shim")
        .arg("--data")
        .arg(agent.data.root())
        .args(["--job", &job.to_string(), "--execution", &execution.to_string()])
        .env_clear()
        .envs(SHIM_ENV.iter().filter_map(|name| Some((*name, env::var_os(name)?))))
        .current_dir(dir.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(errors);
    let mut child = processes::spawn(&mut command).context("cannot start the shim")?;
    // The pipe was requested above, so it exists. A shim without launch parameters does nothing.
    let pipe = child.stdin.take().context("cannot start the shim: it has no standard input")?;
    Ok(Forked { child, pipe, journal })
}

/// Sends a shim its launch parameters. From here on the job may have started: an error means that
/// the shim ended without starting it.
async fn send_order(
    agent: &Agent,
    execution: ExecutionId,
    shim: Forked,
    order: Zeroizing<Vec<u8>>,
) -> anyhow::Result<Process> {
    let Forked { mut child, mut pipe, journal } = shim;
    let Some(process) = identify(&mut child).await else {
        anyhow::bail!(
            "cannot start the shim: its process cannot be identified; the runner killed it"
        );
    };
    // Write in the background: a shim that does not read must not block other claims.
    tasks::detach("launch parameters", async move {
        // The wait below detects a shim that has ended.
        let _ended = tokio::time::timeout(ORDER_TIMEOUT, pipe.write_all(&order)).await;
    });
    let result = wait_for_spawned_entry(agent, (execution, process), &mut child, journal).await;
    // Reaps the shim when it ends. The agent does not wait for that.
    tasks::detach("reap shim", async move {
        let _ended = child.wait().await;
    });
    result
}

/// Returns the identity of the shim, which distinguishes it from a later process with the same pid.
/// The agent kills a shim that it cannot identify, and sends it no launch parameters.
async fn identify(child: &mut Child) -> Option<Process> {
    for _ in 0..20 {
        if let Some(Ok(process)) = child.id().map(Process::of) {
            return Some(process);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Without launch parameters the shim has started nothing.
    let _gone_already = child.kill().await;
    None
}

async fn wait_for_spawned_entry(
    agent: &Agent,
    (execution, process): (ExecutionId, Process),
    child: &mut Child,
    mut journal: Position,
) -> anyhow::Result<Process> {
    let begun = Instant::now();
    loop {
        // Check the child before the journal: a shim writes its entry before it ends.
        let ended = child.try_wait().ok().flatten();
        match agent.journal.read_on(&mut journal) {
            Ok(entries)
                if entries.iter().any(|entry| is_spawned_entry(&entry.event, execution)) =>
            {
                return Ok(process);
            }
            Ok(_) => {
                if let Some(status) = ended {
                    let errors = fs::read_to_string(agent.data.job(execution).shim_errors());
                    let errors = errors.unwrap_or_default();
                    anyhow::bail!(
                        "cannot start the shim: it ended immediately ({status}): {}",
                        errors.trim()
                    );
                }
            }
            // A failed read proves nothing, so try again.
            Err(error) => {
                warn!(execution.id = %execution, %error, "Cannot read the journal, retrying")
            }
        }
        if begun.elapsed() > SPAWNED_TIMEOUT {
            // The shim may still start, so it counts as started.
            return Ok(process);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_spawned_entry(event: &JournalEvent, execution_id: ExecutionId) -> bool {
    matches!(event, JournalEvent::Spawned { execution, .. } if *execution == execution_id)
}

/// Ends a job that was cancelled before its shim was started.
pub(super) fn end_cancelled(
    agent: &Agent,
    job: JobId,
    execution: ExecutionId,
    order: &CancelOrder,
) -> anyhow::Result<ClaimStage> {
    info!(
        job.id = %job,
        execution.id = %execution,
        reason = order.reason,
        "The job was cancelled before its start"
    );
    let Finished { outcome, reason, detail, .. } = shim::stop_report(Some(order.cause), false);
    record_end(agent, job, Exit { outcome, code: None, signal: None, reason }, (execution, &detail))
}

fn end_not_started(
    agent: &Agent,
    job: JobId,
    execution: ExecutionId,
    why: &str,
) -> anyhow::Result<ClaimStage> {
    let (outcome, reason) = (Outcome::Failed, Some(FailureReason::SpawnFailed));
    record_end(agent, job, Exit { outcome, code: None, signal: None, reason }, (execution, why))
}

/// Records the end of a job that did not start, with the report that a shim would write.
fn record_end(
    agent: &Agent,
    job: JobId,
    exit: Exit,
    (execution, why): (ExecutionId, &str),
) -> anyhow::Result<ClaimStage> {
    let body = ReportBody::Finished(final_report(exit.clone(), why.into(), b""));
    let mut line = serde_json::to_vec(&Report {
        execution,
        seq: 1,
        body,
        log_len: 0,
        end: None,
        details: None,
    })?;
    line.push(b'\n');
    data::replace(&agent.data.job(execution).reports(), &line)?;
    agent.journal.write(JournalEvent::Exited { job, execution, exit: exit.clone() })?;
    Ok(ClaimStage::Exited(exit))
}

/// Builds a final report without a shim, from a result and the existing part of the log.
pub(super) fn final_report(exit: Exit, detail: String, log: &[u8]) -> Finished {
    Finished {
        outcome: exit.outcome,
        exit_code: exit.code,
        signal: exit.signal,
        reason: exit.reason,
        detail: truncate(detail, MAX_DETAIL_BYTES),
        forced: false,
        log_len: log.len() as u64,
        log_sha256: hex::encode(proof::sha256(log)),
        omitted: 0,
        not_ended: Vec::new(),
    }
}

/// Runs the customer's veto command, if there is one.
pub(super) async fn veto(
    policy: &Policy,
    verified: &Verified,
    timeout: Duration,
) -> Result<(), Refusal> {
    let Some((program, arguments)) = policy.veto_command.split_first() else { return Ok(()) };
    let refusal =
        |detail: String| Refusal { by: RefusedBy::Veto, rule: "veto_command".into(), detail };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(env::var_os("PATH").map(|path| ("PATH", path)))
        .env(processes::HOOK_VARIABLE, "veto")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = processes::spawn(&mut command)
        .map_err(|error| refusal(format!("cannot start the veto command: {error}")))?;
    let pipe = child.stdin.take();
    let run = async {
        let write_manifest = async move {
            if let Some(mut pipe) = pipe {
                // A veto command need not read its input.
                let _unread = pipe.write_all(&verified.manifest_bytes).await;
            }
        };
        tokio::join!(write_manifest, child.wait_with_output()).1
    };
    match tokio::time::timeout(timeout, run).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let line = errors.lines().next().unwrap_or("the veto command refused the job");
            Err(refusal(line.chars().take(500).collect()))
        }
        Ok(Err(error)) => Err(refusal(format!("the veto command failed: {error}"))),
        Err(_) => {
            Err(refusal(format!("the veto command took longer than {} s", timeout.as_secs())))
        }
    }
}
