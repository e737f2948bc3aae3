//! Downloads the texts that an app directory references by URL, if the vendor passes
//! `--allow-remote`. The texts become part of the bundle and its digest, so a server never
//! downloads them.
use std::time::Duration;

use app_config::{File, Tree, remote_path};

use crate::failure::Failure;

const MAX_BYTES: usize = 1 << 20;
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Downloads texts into the tree. Returns true if `urls` is not empty.
pub(crate) async fn fetch_all(urls: &[String], tree: &mut Tree) -> Result<bool, Failure> {
    for url in urls {
        let bytes = fetch(url)
            .await
            .map_err(|error| Failure::Usage(format!("cannot download {url}: {error}")))?;
        let file = File { bytes, executable: false };
        tree.insert(&remote_path(url), file).map_err(|e| Failure::Usage(e.to_string()))?;
    }
    Ok(!urls.is_empty())
}

async fn fetch(url: &str) -> Result<Vec<u8>, String> {
    if !url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://")) {
        return Err("only https:// is supported; save the file in the app directory".into());
    }
    let mut client = reqwest::Client::builder().timeout(DOWNLOAD_TIMEOUT).https_only(true);
    for certificate in trusted_certificates()? {
        client = client.add_root_certificate(certificate);
    }
    let client = client.build().map_err(|e| e.to_string())?;
    let response = client.get(url).send().await.map_err(|e| e.to_string())?;
    let mut response = response.error_for_status().map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| e.to_string())? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_BYTES {
            return Err(format!(
                "the text is larger than {MAX_BYTES} bytes; save it in the app directory"
            ));
        }
    }
    Ok(bytes)
}

/// Returns the certificates of the file in `SSL_CERT_FILE`, such as that of a proxy that inspects
/// TLS.
fn trusted_certificates() -> Result<Vec<reqwest::Certificate>, String> {
    let Some(file) = std::env::var_os("SSL_CERT_FILE") else { return Ok(vec![]) };
    let failed = |error: &dyn std::fmt::Display| {
        format!("cannot read SSL_CERT_FILE {}: {error}", file.display())
    };
    let pem = std::fs::read(&file).map_err(|error| failed(&error))?;
    reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| failed(&error))
}
