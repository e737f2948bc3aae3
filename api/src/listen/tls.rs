//! TLS 1.2 and 1.3 by rustls, from PEM files.
use std::{path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;

use super::Certificate;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read, or holds nothing of what it should.
    #[error("{path}: {reason}; it must be PEM")]
    Pem { path: String, reason: String },
    /// The two do not belong together, or the key is of a kind that is not supported.
    #[error("the certificate {chain} and the key {key} cannot be used together: {reason}")]
    Pair { chain: String, key: String, reason: rustls::Error },
}

/// What does the handshakes.
///
/// # Errors
/// [`TlsError`], naming the file.
pub fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor, TlsError> {
    let pem =
        |path: &Path, reason: String| TlsError::Pem { path: path.display().to_string(), reason };
    let chain: Vec<_> = CertificateDer::pem_file_iter(&certificate.chain)
        .and_then(|found| found.collect::<Result<Vec<_>, _>>())
        .map_err(|reason| pem(&certificate.chain, reason.to_string()))?;
    if chain.is_empty() {
        return Err(pem(&certificate.chain, "no certificate in it".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&certificate.key)
        .map_err(|reason| pem(&certificate.key, reason.to_string()))?;
    let pair = |reason| TlsError::Pair {
        chain: certificate.chain.display().to_string(),
        key: certificate.key.display().to_string(),
        reason,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The root at the end of the chain, where the chain has one, as `sha256:…` of its bytes. A chain of a public
/// CA ends before its root; one of a private CA is served whole, so that runners can pin its root.
pub fn private_root(certificate: &Certificate) -> Option<String> {
    let chain = CertificateDer::pem_file_iter(&certificate.chain).ok()?;
    let last = chain.filter_map(Result::ok).last()?;
    let read = webpki::EndEntityCert::try_from(&last).ok()?;
    let is_root = read.issuer() == read.subject();
    is_root.then(|| format!("sha256:{}", hex::encode(Sha256::digest(&last))))
}
