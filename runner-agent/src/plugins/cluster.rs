//! Access to the cluster of an install, for one job: a kubeconfig in the job's work directory.
//!
//! ```text
//! <work_dir>/cluster/kubeconfig   what KUBECONFIG names
//!                    token        token of a cloud, replaced before it expires
//! ```
//!
//! The manifest names the component that creates the cluster. Credentials come only from the state of
//! that component, which this runner encrypted and signed, or from the cloud. So a server cannot
//! choose the address that receives a credential.

mod aws;
mod ecr;
mod kubeconfig;
mod metadata;
mod outputs;
pub(super) mod registry_login;
mod sigv4;
mod token;

use std::{
    convert::Infallible,
    fs::{self, File},
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use nix::fcntl::OFlag;
use schemas::cluster::{CLUSTER_INPUT, ClusterInput, ClusterOutput, Platform};
use zeroize::Zeroizing;

use self::{
    aws::EksCluster,
    kubeconfig::Kubeconfig,
    metadata::Metadata,
    outputs::ClusterOutputs,
    token::{HostClock, JobTokens, TokenFile, TokenSource},
};
use super::{
    contract::{JobContext, PluginError, Sink, Stream},
    plugin::{Halt, IoContext, Work},
    work::{is_safe, private_dir},
};
use crate::{data, state};

pub use self::kubeconfig::{Allowed, Feature};

/// Output with a kubeconfig. The runner never reports it.
pub(crate) const OUTPUT: &str = "kubeconfig";
/// Environment variable with the path of the kubeconfig.
pub(crate) const KUBECONFIG: &str = "KUBECONFIG";
/// Component types whose jobs fail without a cluster.
const NEED_CLUSTER: [&str; 2] = ["kubernetes_manifest", "helm_chart"];
/// Environment variable for plugins: what the customer allows in a kubeconfig, separated by commas.
pub(crate) const ALLOWS: &str = "STEAD_KUBECONFIG_ALLOWS";

/// Files of a job's access to a cluster, which are removed with this value.
#[derive(Debug)]
pub(crate) struct ClusterAccess {
    dir: PathBuf,
    /// The directory itself. A program of the job could put a link in its place.
    opened: File,
    renewal: Option<Renewal>,
}

/// Renewal of a token for as long as the job runs.
#[derive(Debug)]
struct Renewal {
    source: TokenSource,
    file: TokenFile,
    metadata: Metadata,
    expires: DateTime<Utc>,
}

impl ClusterAccess {
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    fn create(work_dir: &Path) -> Result<Self, PluginError> {
        let dir = work_dir.join("cluster");
        private_dir(&dir)?;
        let flags = (OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits();
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(&dir);
        let opened = opened.doing(|| format!("cannot open {}", dir.display()))?;
        Ok(ClusterAccess { dir, opened, renewal: None })
    }

    /// Returns a path of a file in the directory that no program of the job can redirect.
    fn own_path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.opened.as_raw_fd()))
    }

    /// Replaces the token before it expires. Never returns: the caller drops this at the end of the
    /// job.
    pub(crate) async fn keep_fresh(access: Option<&Self>, job: &JobContext) -> Infallible {
        let Some(renewal) = access.and_then(|access| access.renewal.as_ref()) else {
            return std::future::pending().await;
        };
        let Renewal { source, file, metadata, expires } = renewal;
        let tokens = JobTokens { source, env: &job.env, metadata };
        file.keep_fresh(*expires, job.background.as_ref(), &HostClock, &tokens).await
    }
}

impl Drop for ClusterAccess {
    fn drop(&mut self) {
        // The shim and the agent remove the work directory, too.
        let _best_effort = fs::remove_dir_all(&self.dir);
    }
}

/// Reason why a job has no access to a cluster.
#[derive(Debug)]
enum NoAccess {
    /// The customer does not allow the only way.
    Refused(String),
    /// No cluster is known, or its credentials cannot be found.
    Unavailable(String),
    /// The work cannot be done, or the job was stopped.
    Halt(Halt),
}

impl<E: Into<Halt>> From<E> for NoAccess {
    fn from(error: E) -> Self {
        NoAccess::Halt(error.into())
    }
}

/// Prepares the access of a job to its cluster. `None` if the job uses no cluster, if the customer
/// passes a kubeconfig, or if no cluster is known and the job can do without.
pub(crate) async fn prepare(
    work: &Work<'_>,
    sink: &mut dyn Sink,
) -> Result<Option<ClusterAccess>, Halt> {
    let Some(input) = work.manifest.inputs.get(CLUSTER_INPUT) else {
        // The component has no cluster from another one, for example because it is the sandbox.
        let paths = work.job.env.get(KUBECONFIG);
        let paths = paths.filter(|_| NEED_CLUSTER.contains(&work.manifest.plugin.name.as_str()));
        return match paths.map_or(Ok(()), |paths| check_own(work, paths)) {
            Ok(()) => Ok(None),
            Err(why) => Err(without_access(why)),
        };
    };
    let input: ClusterInput = serde_json::from_value(input.clone()).map_err(|e| {
        PluginError::Refused(format!("cannot run the job: the input `cluster` is invalid: {e}"))
    })?;
    let found = match work.job.env.get(KUBECONFIG) {
        Some(paths) => check_own(work, paths).map(|()| None),
        None => find(work, &input).await.map(Some),
    };
    match found {
        Ok(None) => Ok(None),
        Ok(Some(access)) => {
            let line = format!("access to the cluster of {}", input.component);
            sink.line(Stream::Runner, line.as_bytes());
            Ok(Some(access))
        }
        Err(NoAccess::Unavailable(why)) if !input.required => {
            sink.line(Stream::Runner, format!("no access to a cluster: {why}").as_bytes());
            Ok(None)
        }
        Err(why) => Err(without_access(why)),
    }
}

/// Returns the error of a job that needs a cluster.
fn without_access(why: NoAccess) -> Halt {
    match why {
        NoAccess::Refused(why) => PluginError::Refused(why).into(),
        NoAccess::Unavailable(why) => {
            PluginError::Refused(format!("no access to a cluster: {why}")).into()
        }
        NoAccess::Halt(halt) => halt,
    }
}

/// Checks that the programs of the job reach the cluster of the kubeconfig that the customer passes.
/// A file that the runner cannot read is left to the program that uses it.
fn check_own(work: &Work<'_>, paths: &str) -> Result<(), NoAccess> {
    let files = std::env::split_paths(paths).filter(|path| path.is_file());
    let mut texts = files.filter_map(|path| fs::read_to_string(path).ok()).map(Zeroizing::new);
    let parsed = texts.find_map(|text| kubeconfig::parse(&text).ok());
    parsed.map_or(Ok(()), |parsed| check_reach(work, KUBECONFIG, parsed.address()))
}

/// Checks that the programs of the job reach the address of a cluster.
fn check_reach(work: &Work<'_>, of: &str, address: Option<&str>) -> Result<(), NoAccess> {
    match (&work.job.sandbox, address) {
        (Some(sandbox), Some(address)) => match sandbox.cannot_reach(address) {
            Some(why) => {
                Err(NoAccess::Unavailable(format!("cannot reach the cluster of {of}: {why}")))
            }
            None => Ok(()),
        },
        (None, _) | (_, None) => Ok(()),
    }
}

/// Redacts the credentials in the output `kubeconfig` of the component itself. Terraform prints the
/// output if the module does not mark it as sensitive.
pub(crate) fn redact_output(work: &Work<'_>) -> Result<(), PluginError> {
    let context = || format!("cannot read the state of {}", work.name);
    let state = work.state.read().doing(context)?;
    let outputs = state::outputs(state.as_deref().map(Vec::as_slice)).doing(context)?;
    let text = ClusterOutputs::of(outputs).and_then(|outputs| outputs.kubeconfig);
    let parsed = text.and_then(|text| kubeconfig::parse(&text).ok());
    for secret in parsed.iter().flat_map(Kubeconfig::secrets) {
        work.job.background.secret(secret);
    }
    Ok(())
}

async fn find(work: &Work<'_>, input: &ClusterInput) -> Result<ClusterAccess, NoAccess> {
    let component = &input.component;
    if !is_safe(component) {
        let why = format!("cannot run the job: {component:?} is not a valid component name");
        return Err(NoAccess::Refused(why));
    }
    let outputs = work.job.outputs_of(component).await?;
    let Some(outputs) = ClusterOutputs::of(outputs) else {
        return Err(NoAccess::Unavailable(format!(
            "{component} is not deployed, or its state is lost; deploy {component} first, or pass a \
             kubeconfig with --pass-env {KUBECONFIG}"
        )));
    };
    if let Some(written) = &outputs.kubeconfig {
        return from_kubeconfig(work, component, written);
    }
    match &outputs.cluster {
        Some(cluster) => from_cloud(work, input, cluster).await,
        None => Err(NoAccess::Unavailable(format!(
            "{component} has neither an output `kubeconfig` nor an output `cluster`; add one, or pass a kubeconfig with \
             --pass-env {KUBECONFIG}"
        ))),
    }
}

/// Writes a kubeconfig for the cluster of an output, with a token of the cloud.
async fn from_cloud(
    work: &Work<'_>,
    input: &ClusterInput,
    cluster: &ClusterOutput,
) -> Result<ClusterAccess, NoAccess> {
    let component = &input.component;
    let unavailable = |why: &str| {
        NoAccess::Unavailable(format!("cannot use the output `cluster` of {component}: {why}"))
    };
    let server = server(cluster).map_err(|why| unavailable(&why))?;
    check_reach(work, component, Some(&server))?;
    let authority = cluster.certificate_authority_data.as_deref();
    let authority = authority.filter(|text| STANDARD.decode(text.trim()).is_ok());
    let authority = authority.ok_or_else(|| {
        unavailable("its certificate_authority_data is not a certificate in base64")
    })?;
    // The state decides about the cluster. A difference means that the vendor knows another state.
    let known = &input.output;
    if known.endpoint.as_ref().is_some_and(|known| Some(known) != cluster.endpoint.as_ref()) {
        return Err(unavailable(
            "its endpoint differs from the one in the manifest; deploy the component again",
        ));
    }
    let source = source(work, input, cluster, &server).map_err(|why| unavailable(&why))?;
    let metadata = Metadata::new().map_err(|why| unavailable(&why))?;
    let token = source.token(&work.job.env, &metadata).await;
    let token = token
        .map_err(|why| unavailable(&format!("cannot get a token: {why}; {}", source.remedy())))?;
    let mut access = ClusterAccess::create(&work.job.work_dir)?;
    let file = TokenFile { path: access.own_path("token") };
    file.store(&token, work.job.background.as_ref())
        .doing(|| "cannot write the token of the cluster".into())?;
    let path = access.dir.join("token").display().to_string();
    let written = Kubeconfig::with_token_file(&server, authority.trim(), &path);
    write(&access.own_path("kubeconfig"), &written.text())?;
    access.renewal = Some(Renewal { source, file, metadata, expires: token.expires });
    Ok(access)
}

/// Returns the URL of the API server. Clouds also return its address alone.
fn server(cluster: &ClusterOutput) -> Result<String, String> {
    let endpoint = cluster.endpoint.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let endpoint = endpoint.ok_or("it has no `endpoint`")?;
    let url = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false => format!("https://{endpoint}"),
    };
    let parsed = reqwest::Url::parse(&url).ok().filter(|url| {
        url.scheme() == "https" && url.username().is_empty() && url.password().is_none()
    });
    match parsed {
        Some(_) => Ok(url),
        None => Err("its `endpoint` is not an https URL without credentials".into()),
    }
}

/// Selects the origin of the token by the cloud of the install.
fn source(
    work: &Work<'_>,
    input: &ClusterInput,
    cluster: &ClusterOutput,
    server: &str,
) -> Result<TokenSource, String> {
    let is_eks = server.contains(".eks.amazonaws.com");
    match input.platform {
        Some(Platform::Gcp) => Ok(TokenSource::Google),
        Some(Platform::Azure) => Ok(TokenSource::Azure),
        None if !is_eks => TokenSource::of_pod().ok_or_else(|| {
            "the cloud is unknown, and the runner is not in a pod; set the `runner_type` of the app, or add an output \
             `kubeconfig`"
                .to_owned()
        }),
        Some(Platform::Aws) | None => {
            let (name, arn) = (cluster.name.as_deref(), cluster.arn.as_deref());
            EksCluster::new(name, arn, server, &work.job.env).map(TokenSource::Eks)
        }
    }
}

/// Writes the kubeconfig of an output, after its check.
fn from_kubeconfig(
    work: &Work<'_>,
    component: &str,
    written: &str,
) -> Result<ClusterAccess, NoAccess> {
    let parsed = kubeconfig::parse(written).map_err(|why| {
        NoAccess::Unavailable(format!(
            "the output `kubeconfig` of {component} is not usable: {why}"
        ))
    })?;
    for secret in parsed.secrets() {
        work.job.background.secret(secret);
    }
    parsed.check(&work.job.kubeconfig_allows).map_err(|why| {
        NoAccess::Refused(format!("refused the output `kubeconfig` of {component}: {why}"))
    })?;
    check_reach(work, component, parsed.address())?;
    let access = ClusterAccess::create(&work.job.work_dir)?;
    write(&access.own_path("kubeconfig"), &parsed.text())?;
    Ok(access)
}

/// Replaces a file of a job's access. Readers see the old or the new content, never a part.
fn write(path: &Path, text: &Zeroizing<String>) -> Result<(), PluginError> {
    data::replace(path, text.as_bytes()).doing(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests;
