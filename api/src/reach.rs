//! Addresses that the server may reach although others choose them: a user who configures a webhook,
//! or a registry that refers to its storage. The server is inside the vendor's network: without this
//! check, such a request could reach internal services and the metadata service of the cloud
//! (server-side request forgery).
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// Addresses that a request may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachable {
    /// Public addresses.
    Public,
    /// All addresses.
    All,
}

impl Reachable {
    /// Checks the host of a URL if it is an address. [`GuardedResolver`] checks names.
    pub(crate) fn check(self, url: &Url) -> Result<(), IpAddr> {
        let host = url.host_str().unwrap_or_default();
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) if self == Reachable::Public && !is_public(ip) => Err(ip),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Resolver that returns only permitted addresses. The connection uses exactly these
/// addresses, so a second resolution cannot return another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuardedResolver(pub Reachable);

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

    #[tokio::test]
    async fn names_of_internal_addresses_are_not_resolved() {
        let name = || "localhost".parse::<Name>().unwrap();
        let refused = GuardedResolver(Reachable::Public).resolve(name()).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("no public address")));
        assert!(GuardedResolver(Reachable::All).resolve(name()).await.is_ok());
    }
}
