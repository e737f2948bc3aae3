//! Starts a shim: journalled before, so that afterwards nobody has to guess.
use std::{
    collections::BTreeMap,
    env, fs,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use domain::ids::{ExecutionId, JobId};
use schemas::runner::{
    Claimed, Exit, FailureReason, Finished, Outcome, RefusedBy, Report, ReportBody,
};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
};
use tracing::{info, warn};

use super::{Agent, adopt::Stage};
use crate::{
    data,
    host::Process,
    journal::Fact,
    policy::{Policy, Refusal},
    shim::order::Order,
    witness::Verified,
};

/// What of the agent's environment a shim needs to reach the server. No child gets these.
const FOR_THE_SHIM: [&str; 8] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "RUST_LOG",
    "PATH",
];
/// How long the customer's hook may think.
const VETO: Duration = Duration::from_secs(60);
/// How long a shim may take to say that it runs.
const SAYS: Duration = Duration::from_secs(10);

/// Start the shim of a claim that is allowed.
pub(super) async fn start(
    agent: &Arc<Agent>,
    job: JobId,
    claimed: &Claimed,
    verified: &Verified,
    policy: &Policy,
    received_uptime_ms: u64,
) -> anyhow::Result<Stage> {
    let execution = claimed.execution;
    let dir = agent.data.job(execution);
    dir.create()?;
    data::replace(&dir.manifest(), &verified.manifest_bytes)?;
    data::replace(&dir.grant(), &verified.grant_bytes)?;
    // The server's clock says how long; from here on only the clock that nobody sets counts.
    let left = (verified.grant.deadline - claimed.server_time).num_milliseconds().max(0);
    let deadline_uptime_ms = received_uptime_ms.saturating_add(left.unsigned_abs());
    let order = order(agent, claimed, verified, policy, deadline_uptime_ms)?;
    agent.journal.write(Fact::Spawning { job, execution })?;
    match spawn(agent, job, execution, &order).await {
        Ok(process) => {
            info!(job.id = %job, execution.id = %execution, "{execution} of {job} runs");
            Ok(Stage::Spawned(process))
        }
        Err(error) => {
            warn!(job.id = %job, execution.id = %execution, "{execution} could not be started: {error:#}");
            not_started(agent, job, execution, &format!("{error:#}"))
        }
    }
}

fn order(
    agent: &Agent,
    claimed: &Claimed,
    verified: &Verified,
    policy: &Policy,
    deadline_uptime_ms: u64,
) -> anyhow::Result<Order> {
    let names = agent.settings.pass_env.iter().chain(&policy.pass_env);
    let pass_env: BTreeMap<String, String> =
        names.filter_map(|name| Some((name.clone(), env::var(name).ok()?))).collect();
    Ok(Order {
        manifest: String::from_utf8(verified.manifest_bytes.clone())?,
        manifest_digest: verified.digest.clone(),
        server: agent.client.base().into(),
        trust: agent.identity.trust.clone(),
        job_token: claimed.job_token.clone(),
        deadline_uptime_ms,
        pass_env,
        path: env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into()),
        plugin_dir: agent.settings.plugin_dir.clone(),
    })
}

/// Start it and wait until it has said who it is.
async fn spawn(
    agent: &Arc<Agent>,
    job: JobId,
    execution: ExecutionId,
    order: &Order,
) -> anyhow::Result<Process> {
    let dir = agent.data.job(execution);
    let errors = data::append(&dir.shim_errors())?;
    // The program that runs, also when its file was replaced by an upgrade meanwhile.
    let mut child = Command::new("/proc/self/exe")
        .arg("shim")
        .arg("--data")
        .arg(agent.data.root())
        .args(["--job", &job.to_string(), "--execution", &execution.to_string()])
        .env_clear()
        .envs(FOR_THE_SHIM.iter().filter_map(|name| Some((*name, env::var_os(name)?))))
        .current_dir(dir.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .context("starting the shim")?;
    let mut pipe = child.stdin.take().context("the shim has no pipe")?;
    let text = zeroize::Zeroizing::new(serde_json::to_vec(order)?);
    // A shim that ended already is noticed below.
    let _ended = pipe.write_all(&text).await;
    drop(pipe);
    let said = says_who_it_is(agent, execution, &mut child).await;
    // It is not ours to end; it is only ours to bury.
    tokio::spawn(async move { child.wait().await });
    said
}

async fn says_who_it_is(
    agent: &Agent,
    execution: ExecutionId,
    child: &mut Child,
) -> anyhow::Result<Process> {
    let begun = Instant::now();
    loop {
        let ended = child.try_wait()?;
        let entries = agent.journal.read()?;
        let said = entries.into_iter().rev().find_map(|entry| match entry.fact {
            Fact::Spawned { execution: of, process, .. } if of == execution => Some(process),
            _ => None,
        });
        if let Some(process) = said {
            return Ok(process);
        }
        if let Some(status) = ended {
            let errors = fs::read_to_string(agent.data.job(execution).shim_errors());
            anyhow::bail!(
                "the shim ended at once ({status}): {}",
                errors.unwrap_or_default().trim()
            );
        }
        if begun.elapsed() > SAYS {
            // It may still begin: nobody can say that it did not.
            return Ok(Process::of(child.id().context("the shim has no number")?)?);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Nothing ran: say so in the words that a shim would use.
fn not_started(
    agent: &Agent,
    job: JobId,
    execution: ExecutionId,
    why: &str,
) -> anyhow::Result<Stage> {
    let (outcome, reason) = (Outcome::Failed, Some(FailureReason::SpawnFailed));
    let last = Finished {
        outcome,
        exit_code: None,
        signal: None,
        reason,
        detail: why.into(),
        forced: false,
        log_len: 0,
        log_sha256: hex::encode(proof::sha256(b"")),
        omitted: 0,
    };
    let body = ReportBody::Finished(last);
    let mut line = serde_json::to_vec(&Report { execution, seq: 1, body, log_len: 0 })?;
    line.push(b'\n');
    data::replace(&agent.data.job(execution).reports(), &line)?;
    let exit = Exit { outcome, code: None, signal: None, reason };
    agent.journal.write(Fact::Exited { job, execution, exit: exit.clone() })?;
    Ok(Stage::Exited(exit))
}

/// Ask the customer's hook, if there is one.
pub(super) async fn veto(policy: &Policy, verified: &Verified) -> Result<(), Refusal> {
    let Some((program, arguments)) = policy.veto.split_first() else { return Ok(()) };
    let no = |detail: String| Refusal { by: RefusedBy::Veto, rule: "veto".into(), detail };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| no(format!("the veto hook could not be started: {error}")))?;
    if let Some(mut pipe) = child.stdin.take() {
        // A hook need not read.
        let _unread = pipe.write_all(&verified.manifest_bytes).await;
    }
    match tokio::time::timeout(VETO, child.wait_with_output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().next().unwrap_or("the veto hook said no");
            Err(no(line.chars().take(500).collect()))
        }
        Ok(Err(error)) => Err(no(format!("the veto hook failed: {error}"))),
        Err(_) => Err(no("the veto hook took longer than 60 s".into())),
    }
}
