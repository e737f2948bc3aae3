//! TLS 1.2 and 1.3 with rustls, from PEM files.
use std::{path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;

use super::Certificate;

/// Reasons to reject a certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {reason}; pass a PEM file")]
    Pem { path: String, reason: String },
    #[error(
        "certificate {chain} and key {key} cannot be used together: {reason}; pass the private key of this certificate"
    )]
    Pair { chain: String, key: String, reason: rustls::Error },
}

/// Creates the acceptor of TLS handshakes.
///
/// # Errors
/// [`TlsError`], which names the file.
pub(crate) fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor, TlsError> {
    let pem =
        |path: &Path, reason: String| TlsError::Pem { path: path.display().to_string(), reason };
    let chain: Vec<_> = CertificateDer::pem_file_iter(&certificate.chain)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|reason| pem(&certificate.chain, reason.to_string()))?;
    if chain.is_empty() {
        return Err(pem(&certificate.chain, "it contains no certificate".into()));
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

/// Digest of the root at the end of the chain, if the chain has one, as `sha256:…` of its bytes.
/// The chain of a public CA usually ends before its root. An operator with a private CA includes
/// the root in the chain, so that runners can pin the root.
pub(crate) fn private_root(certificate: &Certificate) -> Option<String> {
    let chain = CertificateDer::pem_file_iter(&certificate.chain).ok()?;
    let last = chain.filter_map(Result::ok).last()?;
    let read = webpki::EndEntityCert::try_from(&last).ok()?;
    let is_root = read.issuer() == read.subject();
    is_root.then(|| format!("sha256:{}", hex::encode(Sha256::digest(&last))))
}
