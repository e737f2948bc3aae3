//! Private CA and a server certificate from it, as an operator creates them.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tempfile::TempDir;

use crate::stdout_of;

/// PEM files of a CA and a server.
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    /// Creates certificates for a server at this IP address.
    pub fn for_ip(ip: &str) -> Certificates {
        Certificates::for_names(&format!("IP:{ip}"))
    }

    /// Creates certificates for these hosts.
    pub fn for_hosts(hosts: &[String]) -> Certificates {
        let names: Vec<String> = hosts.iter().map(|host| format!("DNS:{host}")).collect();
        Certificates::for_names(&names.join(","))
    }

    /// Creates certificates with this value of `subjectAltName`.
    fn for_names(names: &str) -> Certificates {
        let dir = tempfile::Builder::new().prefix("stead-ca-").tempdir().unwrap();
        let certificates = Certificates { dir };
        let at = |name: &str| certificates.path().join(name).display().to_string();
        let openssl = |args: &[&str]| stdout_of(Command::new("openssl").args(args));
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let (ca, ca_key) = (at("ca.pem"), at("ca.key"));
        let (own, key, request) = (at("own.pem"), at("server.key"), at("server.csr"));
        let mut root = vec!["req", "-x509", "-days", "2", "-subj", "/CN=a private CA"];
        root.extend(curve);
        root.extend(["-keyout", &ca_key, "-out", &ca]);
        openssl(&root);
        let mut csr = vec!["req", "-subj", "/CN=stead"];
        csr.extend(curve);
        csr.extend(["-keyout", &key, "-out", &request]);
        openssl(&csr);
        let extensions = at("server.ext");
        let text = format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n");
        fs::write(&extensions, text).unwrap();
        let mut sign = vec!["x509", "-req", "-days", "2", "-in", &request, "-out", &own];
        sign.extend(["-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial", "-extfile", &extensions]);
        openssl(&sign);
        let chain = fs::read_to_string(&own).unwrap() + &fs::read_to_string(&ca).unwrap();
        fs::write(certificates.chain(), chain).unwrap();
        certificates
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the root certificate that customers pin.
    pub fn ca(&self) -> PathBuf {
        self.path().join("ca.pem")
    }

    /// Returns the server's chain: its certificate, then the root.
    pub fn chain(&self) -> PathBuf {
        self.path().join("chain.pem")
    }

    /// Returns the path of the server's private key.
    pub fn key(&self) -> PathBuf {
        self.path().join("server.key")
    }

    /// Returns the TLS settings of a server with the certificate.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let chain = CertificateDer::pem_file_iter(self.chain()).unwrap().map(Result::unwrap);
        let key = PrivateKeyDer::from_pem_file(self.key()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        Arc::new(config.with_single_cert(chain.collect(), key).unwrap())
    }

    /// Returns the SHA-256 of the root in its usual text form.
    pub fn ca_fingerprint(&self) -> String {
        let args = ["x509", "-noout", "-fingerprint", "-sha256", "-in"];
        let output = stdout_of(Command::new("openssl").args(args).arg(self.ca()));
        output.trim().rsplit('=').next().unwrap().to_string()
    }
}
