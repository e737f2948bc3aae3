//! Addresses that a webhook may reach. An endpoint is chosen by a user of the vendor, but the server
//! is inside the vendor's network: without this check, a webhook could send requests to internal
//! services and to the metadata service of the cloud (server-side request forgery).
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// Maximum length of a URL in bytes.
const MAX_URL: usize = 2_000;

/// Addresses that webhooks may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachable {
    /// Public addresses, over HTTPS.
    Public,
    /// All addresses, also over HTTP.
    All,
}

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
        let Some(host) = url.host_str() else {
            return Err("it has no host; use https://HOST/…".into());
        };
        // Names are checked after each resolution.
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        if let Some(ip) = address
            && reachable == Reachable::Public
            && !is_public(ip)
        {
            return Err(format!(
                "{ip} is not a public address; use a public one, or start the server with --webhooks-to-private-networks"
            ));
        }
        let origin = url.origin().ascii_serialization();
        Ok(Destination { url, origin })
    }
}

/// Resolver that returns only addresses that webhooks may reach. The connection uses exactly these
/// addresses, so a second resolution cannot return another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuardedResolver(pub Reachable);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let GuardedResolver(reachable) = *self;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let permitted: Vec<SocketAddr> = found
                .filter(|address| reachable == Reachable::All || is_public(address.ip()))
                .collect();
            if permitted.is_empty() {
                let why = format!("{} has no public address", name.as_str());
                return Err(std::io::Error::other(why).into());
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

/// Returns true for addresses of the public Internet, after the registries of special-purpose
/// addresses (RFC 6890).
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_protocol = (a, b, c) == (192, 0, 0) || (a, b, c) == (192, 88, 99);
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    !(a == 0
        || a >= 224
        || ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_documentation()
        || is_shared
        || is_protocol
        || is_benchmark)
}

/// Only 2000::/3 is global unicast. Of it, 2001::/23, 2001:db8::/32, 3fff::/20 and 2002::/16 (6to4,
/// which contains any IPv4 address) are not. 64:ff9b::/96 is outside.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [first, second, ..] = ip.segments();
    let is_global = first & 0xe000 == 0x2000;
    let is_special = (first == 0x2001 && (second < 0x0200 || second == 0x0db8))
        || first == 0x2002
        || (first == 0x3fff && second < 0x1000);
    is_global && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_reachable() {
        for public in ["93.184.216.34", "2606:4700::1111", "2a00:1450::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        let internal = [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:a00:1::",
            "3fff::1",
        ];
        for address in internal {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

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

    #[tokio::test]
    async fn names_of_internal_addresses_are_not_resolved() {
        let name = || "localhost".parse::<Name>().unwrap();
        let refused = GuardedResolver(Reachable::Public).resolve(name()).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("no public address")));
        assert!(GuardedResolver(Reachable::All).resolve(name()).await.is_ok());
    }
}
