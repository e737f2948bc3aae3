//! Failures to read an image or to copy it.

use domain::digest::Digest;
use oci_layout::LayoutError;

/// Failure of a request to a registry, or of a copy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    #[error(
        "cannot reach the registry {host}: {why}; check its name and the network of the runner, or name a mirror: --registry-mirror {host}=URL"
    )]
    Unreachable { host: String, why: String },
    #[error(
        "cannot read {what} from {host}: it does not exist, or the registry does not show it to this runner; correct the reference, or give the runner credentials for {host}"
    )]
    Missing { host: String, what: String },
    #[error(
        "cannot access {what} in {host}: the registry refused the runner's credentials ({detail}); run `docker login {host}` as the runner's user, or configure a credential helper in Docker's config.json"
    )]
    Denied { host: String, what: String, detail: String },
    #[error(
        "cannot use the credentials for {host}: {why}; check Docker's config.json of the runner's user"
    )]
    Credentials { host: String, why: String },
    #[error(
        "cannot complete {request} in {host}: the registry responded with status {status}{detail}"
    )]
    Status { host: String, request: String, status: u16, detail: String },
    #[error("cannot use {what} from {host}: {why}")]
    Invalid { host: String, what: String, why: String },
    #[error(
        "cannot copy {reference}: it has no image for {missing}; it has {available}; correct `platforms`"
    )]
    NoPlatform { reference: String, missing: String, available: String },
    #[error(
        "cannot use {digest} from {host}: its bytes have another digest; retry, or name a mirror: --registry-mirror {host}=URL"
    )]
    WrongDigest { host: String, digest: Digest },
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("the copy of a blob ended early: {0}; retry the job")]
    Task(String),
}
