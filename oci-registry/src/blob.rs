//! Download of one blob, verified and resumed at its offset.

use bytes::Bytes;
use oci_layout::{Blob, Hasher};
use reqwest::{Response, StatusCode, header};
use tokio::time::timeout;

use super::{Endpoint, RegistryError, auth::Scope, response::reason, retry::Retry};

/// Bytes of a blob in order. After the last one, the digest is verified.
pub struct BlobReader<'e> {
    endpoint: &'e Endpoint,
    name: &'e str,
    blob: &'e Blob,
    /// Offset of the next byte for the caller.
    at: u64,
    hasher: Hasher,
    open: Option<OpenResponse>,
    retry: Retry,
}

struct OpenResponse {
    response: Response,
    /// Number of bytes before the offset, from a registry that ignores ranges.
    skip: u64,
}

impl<'e> BlobReader<'e> {
    /// Returns a reader at the first byte.
    pub fn new(endpoint: &'e Endpoint, name: &'e str, blob: &'e Blob) -> Self {
        let (hasher, retry) = (Hasher::default(), endpoint.retry());
        BlobReader { endpoint, name, blob, at: 0, hasher, open: None, retry }
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.at
    }

    /// Continues at another offset. Bytes that were read before are not hashed again: the receiver
    /// verifies the whole blob.
    pub fn seek(&mut self, at: u64) {
        if at != self.at {
            (self.at, self.open) = (at, None);
        }
    }

    /// Returns the next bytes, or `None` after the last one.
    ///
    /// # Errors
    /// The registry is unreachable or refuses the request, or the bytes have another digest.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        loop {
            if self.at == self.blob.size {
                return self.verify().map(|()| None);
            }
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.open().await?,
            };
            let idle = self.endpoint.idle_timeout;
            let why = match timeout(idle, open.response.chunk()).await {
                Ok(Ok(Some(chunk))) => {
                    let skipped = open.skip.min(chunk.len() as u64);
                    open.skip -= skipped;
                    let chunk = chunk.slice(usize::try_from(skipped).unwrap_or(usize::MAX)..);
                    self.open = Some(open);
                    if chunk.is_empty() {
                        continue;
                    }
                    return self.accept(chunk).map(Some);
                }
                Ok(Ok(None)) => "the connection ended early".to_owned(),
                Ok(Err(error)) => reason(&error),
                Err(_) => "it stopped sending data".to_owned(),
            };
            self.retry.pause(None, self.endpoint.unreachable(why)).await?;
        }
    }

    fn accept(&mut self, chunk: Bytes) -> Result<Bytes, RegistryError> {
        let end = self.at + chunk.len() as u64;
        if end > self.blob.size {
            let why = format!("it is larger than its manifest states ({} bytes)", self.blob.size);
            return Err(self.endpoint.invalid(&self.blob.digest.to_string(), why));
        }
        let hashed = self.hasher.length();
        if end > hashed {
            let known = usize::try_from(hashed.saturating_sub(self.at)).unwrap_or(usize::MAX);
            self.hasher.update(&chunk[known..]);
        }
        self.at = end;
        self.retry.reset();
        Ok(chunk)
    }

    fn verify(&mut self) -> Result<(), RegistryError> {
        // An upload that resumed in front of the end has hashed every byte already.
        let complete = self.hasher.length() == self.blob.size;
        let found = std::mem::take(&mut self.hasher).finish();
        if complete && found != self.blob.digest {
            let (host, digest) = (self.endpoint.host().to_owned(), self.blob.digest.clone());
            return Err(RegistryError::WrongDigest { host, digest });
        }
        Ok(())
    }

    async fn open(&self) -> Result<OpenResponse, RegistryError> {
        let what = format!("the blob {}", self.blob.digest);
        let url = self.endpoint.url(&format!("{}/blobs/{}", self.name, self.blob.digest))?;
        let scope = Scope::pull(self.name);
        let response = self.endpoint.download(&what, &scope, url, self.at).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if self.at > 0 => {
                let range = response.headers().get(header::CONTENT_RANGE);
                let range = range.and_then(|range| range.to_str().ok()).unwrap_or_default();
                if range.starts_with(&format!("bytes {}-", self.at)) {
                    return Ok(OpenResponse { response, skip: 0 });
                }
                let why = format!("the registry sent another range than requested: {range:?}");
                Err(self.endpoint.invalid(&what, why))
            }
            StatusCode::OK => Ok(OpenResponse { response, skip: self.at }),
            _ => Err(self.endpoint.refusal(&what, response).await),
        }
    }
}
