//! Checked URL of an endpoint. A user of the vendor chooses it.
use reqwest::Url;

use crate::reach::Reachable;

/// Maximum length of a URL in bytes.
const MAX_URL: usize = 2_000;

/// URL of an endpoint that passed the checks of its scheme and host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Destination {
    pub url: Url,
    /// Scheme, host and port, which are not secret.
    pub origin: String,
}

impl Destination {
    /// Checks a URL. The error is the reason and the remedy.
    pub(crate) fn parse(text: &str, reachable: Reachable) -> Result<Destination, String> {
        if text.len() > MAX_URL {
            return Err(format!("it is longer than {MAX_URL} bytes; use a shorter URL"));
        }
        let url = Url::parse(text)
            .map_err(|error| format!("it is not a URL ({error}); use https://…"))?;
        match (url.scheme(), reachable) {
            ("https", Reachable::Public | Reachable::All) | ("http", Reachable::All) => {}
            ("http", Reachable::Public) => {
                return Err("HTTP is not encrypted; use https://, or start the server with --webhooks-to-private-networks".into());
            }
            (other, Reachable::Public | Reachable::All) => {
                return Err(format!("the scheme {other} is not supported; use https://"));
            }
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "it contains a user name or a password; put a secret into the path or query".into(),
            );
        }
        if url.host_str().is_none() {
            return Err("it has no host; use https://HOST/…".into());
        }
        // Names are checked after each resolution.
        reachable.check(&url).map_err(|ip| {
            format!(
                "{ip} is not a public address; use a public one, or start the server with --webhooks-to-private-networks"
            )
        })?;
        let origin = url.origin().ascii_serialization();
        Ok(Destination { url, origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_checked() {
        let check = |text: &str| Destination::parse(text, Reachable::Public);
        let parsed = check("https://hooks.example.com:8443/T0/B0/secret?key=1").unwrap();
        assert_eq!(parsed.origin, "https://hooks.example.com:8443");
        for (text, part) in [
            ("hooks.example.com/x", "it is not a URL"),
            ("http://hooks.example.com", "HTTP is not encrypted"),
            ("file:///etc/passwd", "the scheme file is not supported"),
            ("https://user:pass@hooks.example.com", "it contains a user name"),
            ("https://127.0.0.1/", "127.0.0.1 is not a public address"),
            ("https://[::ffff:169.254.169.254]/", "is not a public address"),
            ("https://2130706433/", "127.0.0.1 is not a public address"),
            ("https://0x7f.1/", "127.0.0.1 is not a public address"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Destination::parse("http://127.0.0.1:1/", Reachable::All).is_ok());
        assert!(check(&format!("https://a.example/{}", "x".repeat(MAX_URL))).is_err());
    }
}
