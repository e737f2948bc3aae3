//! Manifests and lists of a registry.

use bytes::Bytes;
use domain::digest::Digest;
use oci_layout::{Document, MANIFEST_LIMIT, sha256};
use reqwest::{Method, StatusCode, header};

use super::{Endpoint, RegistryError, auth::Scope, endpoint::ACCEPT, response::body};

/// Manifest or list, as a registry sent it.
pub struct Received {
    pub digest: Digest,
    pub bytes: Bytes,
    pub document: Document,
}

impl Endpoint {
    /// Reads a manifest or a list by its tag or digest.
    ///
    /// # Errors
    /// The registry is unreachable, refuses the request, or sends other bytes.
    pub async fn document(&self, name: &str, reference: &str) -> Result<Received, RegistryError> {
        let what = format!("{name} {reference}");
        let url = self.url(&format!("{name}/manifests/{reference}"))?;
        let mut retry = self.retry();
        loop {
            let scope = Scope::pull(name);
            let mut response = self.download(&what, &scope, url.clone(), 0).await?;
            if !response.status().is_success() {
                return Err(self.refusal(&what, response).await);
            }
            let limit = usize::try_from(MANIFEST_LIMIT).unwrap_or(usize::MAX);
            let too_large = response.content_length().is_some_and(|size| size > MANIFEST_LIMIT);
            if too_large {
                return Err(self.invalid(&what, format!("its manifest exceeds {limit} bytes")));
            }
            let bytes = match body(&mut response, limit, self.idle_timeout).await {
                Ok(bytes) => bytes,
                Err(why) if why.starts_with("it exceeds") => return Err(self.invalid(&what, why)),
                Err(why) => {
                    retry.pause(None, self.unreachable(why)).await?;
                    continue;
                }
            };
            let digest = sha256(&bytes);
            let expected = reference.parse::<Digest>().ok();
            if let Some(expected) = expected.filter(|expected| *expected != digest) {
                let host = self.host.clone();
                retry.pause(None, RegistryError::WrongDigest { host, digest: expected }).await?;
                continue;
            }
            let document = Document::parse(&bytes);
            let document = document.map_err(|error| {
                self.invalid(&what, format!("it is not a container image: {error}"))
            })?;
            return Ok(Received { digest, bytes, document });
        }
    }

    /// Returns the digest that a tag or digest names in the registry. `None` if it does not exist.
    pub(crate) async fn find(
        &self,
        name: &str,
        reference: &str,
    ) -> Result<Option<Digest>, RegistryError> {
        let what = format!("{name} {reference}");
        let url = self.url(&format!("{name}/manifests/{reference}"))?;
        let head = |http: &reqwest::Client| {
            http.request(Method::HEAD, url.clone()).header(header::ACCEPT, ACCEPT)
        };
        let response = self.send(&what, &Scope::push(name), head).await?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => {
                let digest = response.headers().get("docker-content-digest");
                Ok(digest.and_then(|digest| digest.to_str().ok()?.parse().ok()))
            }
            _ => Err(self.refusal(&what, response).await),
        }
    }
}
