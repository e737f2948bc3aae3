//! Failures of requests to a registry and of copies.

use domain::digest::Digest;
use oci_layout::LayoutError;

/// Failure of a request to a registry, or of a copy.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("cannot reach the registry {host}: {why}; check its name and the network of this host")]
    Unreachable { host: String, why: String },
    #[error(
        "cannot read {what} from {host}: it does not exist, or the registry does not show it without other credentials; correct the reference, or log in: docker login {host}"
    )]
    Missing { host: String, what: String },
    #[error(
        "cannot access {what} in {host}: the registry refused the credentials ({detail}); run `docker login {host}` as the user of this process, or configure a credential helper in Docker's config.json"
    )]
    Denied { host: String, what: String, detail: String },
    #[error(
        "cannot use the credentials for {host}: {why}; check Docker's config.json of the user of this process"
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
        "cannot use {digest} from {host}: its bytes have another digest; retry, or restore them in the registry"
    )]
    WrongDigest { host: String, digest: Digest },
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("the copy of a blob ended early: {0}; retry the job")]
    Task(String),
}
