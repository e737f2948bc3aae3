//! Addresses that the host reaches, but not the own network of a job.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use reqwest::Url;

/// Names of the host.
pub(super) const HOSTS: &str = "/etc/hosts";

/// Returns why a job with its own network cannot connect to a URL. `loopback` are the ports that the
/// policy opens, `hosts` is the text of [`HOSTS`], and `own` are the addresses of the host that the
/// network of a job has, too.
pub(super) fn refusal(url: &str, loopback: &[u16], hosts: &str, own: &[IpAddr]) -> Option<String> {
    let (host, port) = host_and_port(url)?;
    let addresses = addresses(&host, hosts);
    let at = format!("{host}:{port}");
    if addresses.iter().any(is_loopback) {
        let is_forwarded = addresses.iter().any(is_forwarded);
        let ports: Vec<_> = loopback.iter().chain([&port]).map(u16::to_string).collect();
        let line = format!("sandbox_loopback = [{}]", ports.join(", "));
        return match (is_forwarded, loopback.contains(&port)) {
            (true, true) => None,
            (true, false) => Some(format!(
                "{at} is on the loopback interface of the runner's host, which a sandbox does not reach; set this line in \
                 the policy: {line}"
            )),
            (false, _) => Some(format!(
                "{at} is on the loopback interface of the runner's host, of which a sandbox reaches only 127.0.0.1 and \
                 ::1; use one of these addresses"
            )),
        };
    }
    addresses.iter().any(|address| own.contains(address)).then(|| {
        format!(
            "{at} is the address of the runner's host, which the network of a sandbox has, too; use another address of \
             the service, or set this line in the policy: sandbox_network = \"shared\""
        )
    })
}

/// Returns the addresses of the host that pasta gives to the network of a job: those that it uses for
/// other networks.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    // Addresses for documentation. Connecting a UDP socket sends nothing.
    let far: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    let own = far.into_iter().filter_map(|(any, far)| {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        socket.connect(SocketAddr::new(far, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    own.collect()
}

/// Returns host and port. Clients also accept an address without a scheme.
fn host_and_port(url: &str) -> Option<(String, u16)> {
    let parsed = Url::parse(url).ok().filter(Url::has_host);
    let parsed = parsed.or_else(|| Url::parse(&format!("https://{url}")).ok())?;
    Some((parsed.host_str()?.to_owned(), parsed.port_or_known_default()?))
}

/// Returns the addresses of a host that are known without a name server.
fn addresses(host: &str, hosts: &str) -> Vec<IpAddr> {
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return vec![address.to_canonical()];
    }
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return vec![Ipv4Addr::LOCALHOST.into()];
    }
    let of_line = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let (address, names) = line.trim().split_once(char::is_whitespace)?;
        let is_named = names.split_whitespace().any(|one| one.eq_ignore_ascii_case(&name));
        is_named.then(|| address.parse::<IpAddr>().ok()).flatten()
    };
    hosts.lines().filter_map(of_line).map(|address| address.to_canonical()).collect()
}

/// The kernel connects to the loopback interface if the address is unspecified.
fn is_loopback(address: &IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}

/// Returns whether pasta forwards connections to this address.
fn is_forwarded(address: &IpAddr) -> bool {
    let forwarded: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    address.is_unspecified() || forwarded.contains(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "127.0.0.1 localhost\n127.0.0.1\tcluster.test Other.Test # comment elsewhere.test\n\
        10.0.0.5 host.test\n203.0.113.9 far.test\n";

    fn refused(url: &str) -> Option<String> {
        refusal(url, &[6443], NAMES, &["10.0.0.5".parse().unwrap()])
    }

    #[test]
    fn a_loopback_address_in_each_spelling_needs_a_port_of_the_policy() {
        for host in [
            "127.0.0.1",
            "localhost",
            "localhost.",
            "LOCALHOST",
            "kube.localhost",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "127.1",
            "0x7f000001",
            "0.0.0.0",
            "[::]",
            "cluster.test",
            "other.test.",
        ] {
            for scheme in ["https://", "http://", ""] {
                let why = refused(&format!("{scheme}{host}:8443/path")).unwrap_or_default();
                let line = "sandbox_loopback = [6443, 8443]";
                assert!(why.contains("loopback") && why.ends_with(line), "{scheme}{host}: {why}");
                assert_eq!(refused(&format!("{scheme}{host}:6443")), None, "{scheme}{host}");
            }
        }
        assert!(refused("https://127.0.0.1").unwrap().ends_with("[6443, 443]"));
    }

    #[test]
    fn no_port_of_the_policy_opens_a_further_loopback_address() {
        for url in ["https://127.0.0.9:6443", "http://[::ffff:127.9.9.9]:6443"] {
            assert!(refused(url).unwrap().contains("only 127.0.0.1 and ::1"), "{url}");
        }
    }

    #[test]
    fn the_address_of_the_host_is_not_reachable() {
        for url in ["https://10.0.0.5:6443", "https://host.test", "10.0.0.5:6443"] {
            assert!(refused(url).unwrap().contains("sandbox_network = \"shared\""), "{url}");
        }
    }

    #[test]
    fn other_addresses_are_reachable() {
        for url in [
            "https://10.0.0.6:6443",
            "https://example.com",
            "https://far.test",
            "elsewhere.test",
            "",
        ] {
            assert_eq!(refused(url), None, "{url}");
        }
    }
}
