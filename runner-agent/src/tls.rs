//! Trust in the server's certificate: public CAs, a CA file, or a fingerprint.
use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Certificates that the runner trusts for the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// A public CA.
    #[default]
    Public,
    /// One of these CA certificates, PEM.
    Pem(String),
    /// Certificate in the server's chain with this SHA-256, hexadecimal.
    Fingerprint(String),
}

impl Trust {
    /// Returns the trust that the command line sets. A file takes precedence over a fingerprint.
    pub fn of(file: Option<&Path>, fingerprint: Option<&str>) -> anyhow::Result<Self> {
        if let Some(file) = file {
            let pem = fs::read_to_string(file);
            return Ok(Trust::Pem(pem.with_context(|| format!("cannot read {}", file.display()))?));
        }
        let Some(text) = fingerprint else { return Ok(Trust::Public) };
        let plain = text.trim_start_matches("sha256:").replace(':', "").to_lowercase();
        if hex::decode(&plain).is_ok_and(|bytes| bytes.len() == 32) {
            Ok(Trust::Fingerprint(plain))
        } else {
            bail!(
                "cannot use the fingerprint {text:?}: a SHA-256 fingerprint has 64 hexadecimal digits"
            )
        }
    }

    /// Returns the builder of an HTTP client with this trust.
    pub fn client(&self) -> anyhow::Result<reqwest::ClientBuilder> {
        // A second call fails, because the first one installed the same provider.
        let _already = ring::default_provider().install_default();
        // The server parks the connection of a waiting poll, so each poll needs its own. With
        // HTTP/2 a waiting poll would use more resources of the server.
        let builder = reqwest::Client::builder().http1_only();
        match self {
            Trust::Public => Ok(builder),
            Trust::Pem(pem) => Ok(builder.use_preconfigured_tls(by_file(pem)?)),
            Trust::Fingerprint(pin) => Ok(builder.use_preconfigured_tls(by_fingerprint(pin)?)),
        }
    }
}

fn config() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
}

fn by_file(pem: &str) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.context("cannot read the CA file")?)?;
    }
    if roots.is_empty() {
        bail!("cannot use the CA file: it has no certificate; pass a PEM file with a certificate");
    }
    Ok(config()?.with_root_certificates(roots).with_no_client_auth())
}

fn by_fingerprint(pin: &str) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let pinned = Pinned { pin: hex::decode(pin)?, provider };
    let config = config()?.dangerous().with_custom_certificate_verifier(Arc::new(pinned));
    Ok(config.with_no_client_auth())
}

/// Accepts the certificate with this fingerprint, and certificates that it issued.
#[derive(Debug)]
struct Pinned {
    pin: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn is(&self, certificate: &CertificateDer<'_>) -> bool {
        Sha256::digest(certificate)[..] == self.pin[..]
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.is(server) {
            // The customer pinned this certificate itself, so its name and dates are not checked.
            return Ok(ServerCertVerified::assertion());
        }
        let Some(root) = chain.iter().find(|certificate| self.is(certificate)) else {
            let message = "cannot trust the server: none of its certificates has the expected fingerprint; check --ca-fingerprint";
            return Err(Error::General(message.into()));
        };
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(server, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_in_their_usual_formats() {
        let plain = "ab".repeat(32);
        let colons = ["AB"; 32].join(":");
        for text in [plain.clone(), format!("sha256:{plain}"), colons] {
            assert_eq!(Trust::of(None, Some(&text)).unwrap(), Trust::Fingerprint(plain.clone()));
        }
        assert!(Trust::of(None, Some("abc")).is_err());
        assert!(Trust::Fingerprint(plain).client().is_ok());
    }

    #[test]
    fn a_ca_file_without_a_certificate_is_rejected() {
        assert!(Trust::Pem(String::new()).client().is_err());
    }
}
