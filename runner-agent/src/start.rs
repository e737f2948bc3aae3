//! Start of the agent: its identity, its server, and the lock against a second agent.
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, IsTerminal as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use oci_registry::VendorLocation;
use schemas::runner::{PROTOCOL, ProtocolRange, RunnerMode};
use serde_json::Value;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::{
    budgets::Budgets,
    cli::{Mode, Run},
    data::Data,
    enrol::{self, EnrolmentOptions, Identity},
    host::Process,
    images::{ImageSettings, RegistryChoice, record_registry},
    isolation::{self, Trial},
    keys::Keys,
    policy::{self, Choice, Policy, publishers},
    seed,
    supervisor::{self, ExitReason, Settings},
    tls::Trust,
};

/// Runs the agent until it must exit.
pub(crate) async fn serve(data: &Data, run: Run) -> anyhow::Result<ExitCode> {
    let _lock = lock(data).await?;
    if let Err(error) = data.name_agent(&Process::of(std::process::id())?) {
        warn!(%error, "Cannot record the agent's process");
    }
    if nix::unistd::geteuid().is_root() {
        warn!(
            "This runner runs as root, and so does each job: a job can change everything on this host. Use a \
             dedicated user"
        );
    }
    let stored = enrol::stored_identity(data)?.map(|stored| stored.mode);
    if stored.or(run.mode.map(Into::into)) == Some(RunnerMode::Build) {
        check_build_registry(run.registry.as_ref())?;
    }
    let mut keys = Keys::open(data)?;
    let identity = identity(data, &mut keys, &run).await?;
    let program_dir =
        std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_path_buf()));
    let plugin_dir = run.plugin_dir.or(program_dir).unwrap_or_else(|| "/usr/lib/stead".into());
    let registry = record_registry(data, run.registry.as_ref())?;
    let mirrors = run.registry_mirror.into_iter().collect();
    let settings = Settings {
        images: ImageSettings { mirrors, registry },
        slots: run.slots,
        plugin_dir: std::path::absolute(plugin_dir)?,
        pass_env: run.pass_env,
        budgets: Budgets { artifacts: run.artifact_budget, jobs: run.job_budget },
    };
    let ended = supervisor::run((data.clone(), keys, identity), settings).await?;
    Ok(match ended {
        ExitReason::Drained | ExitReason::Detached => ExitCode::SUCCESS,
        ExitReason::StatesPending { components } => {
            eprintln!(
                "exiting: only this host has the newest state of {}, because the server did not take it; keep {} and start the \
                 runner again when the server responds; `stead-runner state list` shows the states",
                components.join(", "),
                data.path("state").display()
            );
            ExitCode::from(5)
        }
        ExitReason::Superseded => {
            eprintln!(
                "exiting: another agent has opened a session with this runner's identity; run only one of the two agents"
            );
            ExitCode::from(3)
        }
        ExitReason::NoProtocol { server } => {
            eprintln!("exiting: {}", no_protocol(server));
            ExitCode::from(4)
        }
    })
}

/// Returns the error for protocol versions that do not match, with the side to upgrade.
fn no_protocol(server: Option<ProtocolRange>) -> String {
    let remedy = match server {
        Some(server) if server.max < PROTOCOL => {
            "this agent is newer than its server: upgrade the server, or start an older agent"
        }
        Some(_) => "this agent is older than its server accepts: install a newer agent",
        None => "install the agent that belongs to the server's version",
    };
    let server_versions = server.map(|ProtocolRange { min, max }| {
        format!(", but the server supports versions {min} to {max}")
    });
    let server_versions = server_versions.unwrap_or_default();
    format!("this agent supports protocol version {PROTOCOL}{server_versions}; {remedy}")
}

/// Checks the registry that builds push to. Without a prefix, each build would refuse it.
fn check_build_registry(choice: Option<&RegistryChoice>) -> anyhow::Result<()> {
    match choice {
        Some(RegistryChoice::Registry(location)) => {
            let checked = location.to_string().parse::<VendorLocation>();
            checked.map(drop).map_err(|why| anyhow!("cannot push builds to {location}: {why}"))
        }
        Some(RegistryChoice::Sandbox | RegistryChoice::None) | None => Ok(()),
    }
}

impl From<Mode> for RunnerMode {
    fn from(mode: Mode) -> RunnerMode {
        match mode {
            Mode::Install => RunnerMode::Install,
            Mode::Build => RunnerMode::Build,
        }
    }
}

/// Takes the agent's lock. Retries, because `stead-runner status` holds the lock for a moment.
pub(crate) async fn lock(data: &Data) -> anyhow::Result<fs::File> {
    for _ in 0..5 {
        if let Some(lock) = data.lock()? {
            return Ok(lock);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!(
        "cannot start: another agent uses {}; stop that agent, or pass another directory with --data",
        data.root().display()
    )
}

/// Returns the stored identity. Enrols the runner if there is none.
pub(crate) async fn identity(data: &Data, keys: &mut Keys, run: &Run) -> anyhow::Result<Identity> {
    let trust = Trust::of(run.ca_file.as_deref(), run.ca_fingerprint.as_deref())?;
    let choice = Choice::from_args(run.policy.as_deref(), run.no_policy)?;
    if let Some(mut stored) = enrol::stored_identity(data)? {
        policy::resume(data, choice, run.isolation.map(Into::into))?;
        match isolation::check(&Policy::current(data)?, stored.mode, &Trial::of(data)).await {
            Ok(has_network) => warn_about_credentials(has_network),
            Err(why) => warn!(%why, "This runner refuses jobs"),
        }
        if let Some(server) = &run.server {
            stored.server.clone_from(server);
        }
        if trust != Trust::Public {
            stored.trust = trust;
        }
        check_url(&stored.server, run.allow_http)?;
        open_install_keys(data, keys, stored.mode, true)?;
        publishers::record(data, &run.plugin_publisher)?;
        enrol::store_identity(data, &stored)?;
        if !run.stack_output.is_empty() || run.stack_outputs_file.is_some() {
            warn!(
                "Ignoring the stack outputs: this runner sent its stack outputs when it enrolled. To change them, revoke the \
                 runner, copy keys/install to a new directory, and enrol another runner there"
            );
        }
        return Ok(stored);
    }
    let needed = "required at the first start";
    let mode = run.mode.with_context(|| format!("cannot enrol: --mode is {needed}"))?.into();
    let server =
        run.server.clone().with_context(|| format!("cannot enrol: --server is {needed}"))?;
    check_url(&server, run.allow_http)?;
    let options = EnrolmentOptions {
        mode,
        server,
        trust,
        token: token(run)?,
        server_key: run
            .server_key
            .clone()
            .with_context(|| format!("cannot enrol: --server-key is {needed}"))?,
        stack_outputs: stack_outputs(run)?,
    };
    let level = run.isolation.map(Into::into);
    // The token enrols one runner once, so a runner that would refuse its jobs does not use it.
    if let Some(policy) = policy::preview(data, choice.as_ref(), level)? {
        let trial = Trial::of(data);
        let checked = isolation::check(&policy, mode, &trial).await;
        warn_about_credentials(checked.context("cannot enrol: this runner would refuse jobs")?);
        if mode == RunnerMode::Install && isolation::is_recommended(&policy, &trial).await {
            info!("{}", isolation::RECOMMENDATION);
        }
    }
    open_install_keys(data, keys, mode, false)?;
    policy::begin(data, choice, level)?;
    publishers::record(data, &run.plugin_publisher)?;
    let identity = enrol::enrol(data, keys, &options).await?;
    info!(runner.id = %identity.runner, "Enrolled");
    Ok(identity)
}

/// Warns that jobs in a sandbox have no credentials of the host.
fn warn_about_credentials(has_network: bool) {
    if has_network {
        warn!("{}", isolation::WITHOUT_CREDENTIALS);
    }
}

/// Opens the keys of the install, or creates them. A build runner has none.
fn open_install_keys(
    data: &Data,
    keys: &mut Keys,
    mode: RunnerMode,
    is_enrolled: bool,
) -> anyhow::Result<()> {
    keys.install = match mode {
        RunnerMode::Install => Some(seed::open_or_create(data, is_enrolled)?),
        RunnerMode::Build => None,
    };
    Ok(())
}

/// Returns the stack outputs of the file, overridden by those of the command line.
fn stack_outputs(run: &Run) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut outputs = BTreeMap::new();
    if let Some(path) = &run.stack_outputs_file {
        let reading = || format!("cannot read {}", path.display());
        let text = fs::read_to_string(path).with_context(reading)?;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let read: BTreeMap<String, Value> = match is_json {
            true => serde_json::from_str(&text).with_context(reading)?,
            false => toml::from_str(&text).with_context(reading)?,
        };
        for (name, value) in read {
            let value = match value {
                Value::String(_) | Value::Array(_) | Value::Object(_) => value,
                // A template would print a large number as 1e+07.
                Value::Bool(_) | Value::Number(_) => Value::String(value.to_string()),
                Value::Null => {
                    bail!("cannot use {}: {name} is null; remove the entry", path.display())
                }
            };
            outputs.insert(name, value);
        }
    }
    let from_args = run.stack_output.iter();
    outputs.extend(from_args.map(|(name, text)| (name.clone(), Value::String(text.clone()))));
    Ok(outputs)
}

fn token(run: &Run) -> anyhow::Result<Zeroizing<String>> {
    let text = match (&run.token_file, &run.token) {
        (Some(file), _) if file.as_os_str() == "-" => {
            let stdin = std::io::stdin();
            if stdin.is_terminal() {
                eprint!("Enrolment token: ");
            }
            let mut line = Zeroizing::new(String::new());
            stdin
                .lock()
                .read_line(&mut line)
                .context("cannot read the token from standard input")?;
            line
        }
        (Some(file), _) => {
            let text = fs::read_to_string(file);
            Zeroizing::new(text.with_context(|| format!("cannot read {}", file.display()))?)
        }
        (None, Some(token)) => Zeroizing::new(token.clone()),
        (None, None) => bail!(
            "cannot enrol: the first start requires an enrolment token; pass --token-file FILE (`-` for standard \
             input), or set STEAD_ENROLMENT_TOKEN"
        ),
    };
    let token = text.trim();
    // The server would reject an empty token as an unknown one.
    if token.is_empty() {
        bail!("cannot enrol: the enrolment token is empty; ask the vendor for a token");
    }
    Ok(Zeroizing::new(token.into()))
}

/// Rejects an unencrypted URL of another host, unless `allow_http` is set. Requests contain tokens.
fn check_url(server: &str, allow_http: bool) -> anyhow::Result<()> {
    let url = reqwest::Url::parse(server)
        .with_context(|| format!("cannot use the server {server:?}: it is not a URL"))?;
    let local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match url.scheme() {
        "https" => Ok(()),
        "http" if local || allow_http => Ok(()),
        "http" => bail!(
            "cannot use {server}: the connection is not encrypted; use https, or pass --allow-http"
        ),
        other => bail!("cannot use {server}: the URL scheme {other} is not supported; use https"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_side_to_upgrade() {
        let range = |min, max| Some(ProtocolRange { min, max });
        assert!(no_protocol(range(0, 0)).contains("upgrade the server"));
        assert!(no_protocol(range(2, 3)).contains("install a newer agent"));
        assert!(no_protocol(None).contains("install the agent"));
    }

    #[test]
    fn builds_need_a_registry_with_a_prefix() {
        let check = |text| check_build_registry(Some(&RegistryChoice::parse(text).unwrap()));
        let error = check("oci://host.example").unwrap_err().to_string();
        assert!(error.contains("write oci://host.example/PREFIX"), "{error}");
        assert!(check("oci://host.example/stead").is_ok() && check("none").is_ok());
    }

    #[test]
    fn unencrypted_urls_are_allowed_only_for_this_host() {
        assert!(check_url("http://127.0.0.1:7071", false).is_ok());
        assert!(check_url("https://stead.example.com", false).is_ok());
        assert!(check_url("http://stead.example.com", false).is_err());
        assert!(check_url("http://stead.example.com", true).is_ok());
        assert!(check_url("ftp://stead.example.com", true).is_err());
    }
}
