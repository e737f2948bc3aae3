//! Sandbox of the job of this shim: its report, its network and its view of the host.
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use domain::{ids::ExecutionId, isolation::IsolationLevel};
use nix::unistd::geteuid;
use schemas::{
    manifest::Manifest,
    runner::{JobKind, ReportBody},
};
use serde_json::Value;

use super::{order::ShimOrder, recorder::Recorder};
use crate::{
    data::{self, Data, JobDir},
    isolation::{self, Choice, JobNetwork, Mount, Sandbox, View, starts_programs},
    journal::JournalEvent,
    plugins::is_safe_name,
    policy,
    state::StateStore,
};

/// Resolver configuration of the host.
const RESOLVER: &str = "/etc/resolv.conf";

/// Reports the start of the job, in the journal and in the log, too. `isolation` is the choice for
/// the job and its network; `None` if nothing will run.
pub(super) fn report(
    recorder: &Recorder,
    execution: ExecutionId,
    isolation: Option<(&Choice, JobKind, &JobNetwork)>,
) -> io::Result<()> {
    let mut writer = recorder.writer();
    let Some((choice, kind, network)) = isolation else {
        return writer.report(ReportBody::Started { isolation: None });
    };
    let applied = applied(choice, kind, network.holder().is_some());
    let is_root = geteuid().is_root();
    let (isolation, note) = (applied.report(is_root), applied.note());
    // The vendor reads the log. Only the journal names the paths and ports of the customer.
    writer.write_shim_record(&format!("isolation: {}", isolation.text()));
    let entry = JournalEvent::Isolated { execution, isolation: isolation.clone(), note };
    writer.journal(entry)?;
    writer.report(ReportBody::Started { isolation: Some(isolation) })
}

/// Returns the isolation that the programs of a job have.
fn applied(choice: &Choice, kind: JobKind, has_network: bool) -> Choice {
    if !starts_programs(kind) {
        return Choice { why: choice.why.clone(), ..Choice::default() };
    }
    let pasta = choice.pasta.clone().filter(|_| has_network);
    Choice { pasta, ..choice.clone() }
}

/// Creates the network of the job. A job that starts no program of its own uses the host's.
pub(super) async fn network(
    choice: &Choice,
    kind: JobKind,
    execution: ExecutionId,
) -> anyhow::Result<JobNetwork> {
    match &choice.pasta {
        Some(pasta) if starts_programs(kind) => {
            let env = [("STEAD_EXECUTION", execution.to_string())];
            let programs = (isolation::RUNNING.as_ref(), pasta.as_path());
            let network = JobNetwork::create(programs, &choice.loopback, &env).await;
            network.context("cannot create the network of the job")
        }
        Some(_) | None => Ok(JobNetwork::of_host()),
    }
}

/// Returns the sandbox of the job's programs. `None` at the level `process`.
pub(super) fn of_job(
    data: &Data,
    dir: &JobDir,
    order: &ShimOrder,
    manifest: &Manifest,
    env: &BTreeMap<String, String>,
    network: &JobNetwork,
) -> anyhow::Result<Option<Sandbox>> {
    let choice = &order.isolation;
    let bwrap = match (choice.level, &choice.bwrap) {
        (IsolationLevel::Process, _) => return Ok(None),
        (IsolationLevel::Sandbox, Some(bwrap)) => bwrap.clone(),
        (IsolationLevel::Sandbox, None) => anyhow::bail!("the path of bubblewrap is missing"),
    };
    let runner = env.get("STEAD_RUNNER").map(PathBuf::from);
    let runner = runner.context("the path of the runner is missing")?;
    data::directory(&dir.own_tmp())?;
    for path in choice.read.iter().chain(&choice.write) {
        anyhow::ensure!(
            path.exists(),
            "cannot show {} to the job: it does not exist; create it, or remove it from `sandbox_read` and `sandbox_write` in \
             the policy",
            path.display()
        );
    }
    let values = order.pass_env.values().map(String::as_str);
    let mut outside = isolation::of_environment(&order.path, values);
    outside.extend(choice.read.iter().cloned().map(Mount::Read));
    outside.extend(choice.write.iter().cloned().map(Mount::Write));
    outside.extend(policy_file(data)?.map(|path| Mount::Instead("/dev/null".into(), path)));
    outside.extend(resolver(dir, network)?);
    let inside = inside(data, dir, manifest, &runner)?;
    let shown = choice.read.iter().chain(&choice.write).cloned().collect();
    let view = View { data: data.root().to_owned(), tmp: dir.own_tmp(), outside, inside, shown };
    let loopback = choice.loopback.clone();
    let (network, closes_namespaces) = (network.holder(), choice.closes_namespaces);
    Ok(Some(Sandbox { bwrap, closes_namespaces, runner, network, loopback, view }))
}

/// Returns what a job sees of the data directory: its own files, the files of the component's
/// plugin, and its approved plan. The runner trusts its own records beside those files.
fn inside(data: &Data, dir: &JobDir, manifest: &Manifest, runner: &Path) -> io::Result<Vec<Mount>> {
    let mut mounts = vec![
        Mount::Read(runner.to_owned()),
        Mount::Write(dir.work()),
        Mount::Write(dir.scratch()),
        Mount::Write(dir.redact_dir()),
    ];
    let name = manifest.inputs.get(manifest.kind.subject()).and_then(Value::as_str);
    if let Some(name) = name.filter(|name| manifest.kind.uses_state() && is_safe_name(name)) {
        let store = StateStore::new(&data.path("state"), name);
        mounts.push(Mount::Write(store.prepare_plugin_dir()?));
    }
    if let Some(plan) = &manifest.plan {
        let name = plan.to_string().trim_start_matches("sha256:").to_owned();
        // The runner removes a plan after it was applied, and then starts further programs. Without its
        // plan, an apply ends before it starts a program.
        mounts.push(Mount::ReadWhileThere(data.path("plans").join(name)));
    }
    Ok(mounts)
}

/// Returns the policy of the customer, if it is a file.
fn policy_file(data: &Data) -> io::Result<Option<PathBuf>> {
    Ok(match policy::Choice::recorded(data)? {
        Some(policy::Choice::File(path)) => fs::canonicalize(path).ok(),
        Some(policy::Choice::None) | None => None,
    })
}

/// Returns the resolver configuration that fits the network of the job.
fn resolver(dir: &JobDir, network: &JobNetwork) -> io::Result<Option<Mount>> {
    let Ok(path) = fs::canonicalize(RESOLVER) else { return Ok(None) };
    if network.holder().is_none() {
        return Ok(Some(Mount::Read(path)));
    }
    let host = fs::read_to_string(&path).unwrap_or_default();
    data::replace(&dir.resolver(), isolation::resolver(&host).as_bytes())?;
    Ok(Some(Mount::Instead(dir.resolver(), path)))
}

#[cfg(test)]
mod tests {
    use domain::isolation::Protection;

    use super::*;

    #[test]
    fn the_report_states_what_was_applied() {
        let level = IsolationLevel::Sandbox;
        let (bwrap, pasta) = (Some("/usr/bin/bwrap".into()), Some("/usr/bin/pasta".into()));
        let closes_namespaces = true;
        let choice = Choice { level, bwrap, closes_namespaces, pasta, ..Choice::default() };
        let report = |kind, has_network| applied(&choice, kind, has_network).report(false);
        assert_eq!(report(JobKind::Apply, true).not_enforced, []);
        let shared = [Protection::Network, Protection::Metadata];
        assert_eq!(report(JobKind::Apply, false).not_enforced, shared);
        // Root reads files such as /etc/shadow. Before version 0.8.0, bubblewrap lets a program create
        // user namespaces.
        assert_eq!(choice.report(true).not_enforced, [Protection::Files]);
        let older = Choice { closes_namespaces: false, ..choice.clone() };
        assert_eq!(older.report(false).not_enforced, [Protection::Kernel]);
        for kind in [JobKind::Resolve, JobKind::Sync] {
            let outside = report(kind, false);
            assert_eq!(outside.level, IsolationLevel::Process);
            assert_eq!(outside.not_enforced, Protection::ALL);
        }
    }
}
