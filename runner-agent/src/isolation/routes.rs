//! Routes that keep the metadata services of clouds out of a job's network.
//!
//! Their addresses become local addresses of the network itself, where nothing listens. An
//! unreachable route would not suffice: a socket that is bound to an interface (`SO_BINDTODEVICE`
//! needs no capability) skips it and uses the neighbour, for whom pasta answers. A local address
//! has priority for every socket.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Context as _;

use super::{
    netlink::{ACKNOWLEDGE, CREATE, Link, REPLACE, address, attribute},
    network::NAME_SERVER,
};

/// Route to add, as the kernel expects it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Route {
    to: IpAddr,
    prefix: u8,
    kind: u8,
    scope: u8,
}

const fn local4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Route {
    let to = IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    Route { to, prefix, kind: TYPE_LOCAL, scope: SCOPE_HOST }
}

const fn local6(parts: [u16; 8]) -> Route {
    let [a, b, c, d, e, f, g, h] = parts;
    let to = IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h));
    Route { to, prefix: 128, kind: TYPE_LOCAL, scope: SCOPE_UNIVERSE }
}

/// Addresses of metadata services.
const METADATA: [Route; 8] = [
    // All link-local addresses: AWS with its containers, Google, Azure, Scaleway and others.
    local4(169, 254, 0, 0, 16),
    // Azure.
    local4(168, 63, 129, 16, 32),
    // Alibaba.
    local4(100, 100, 100, 200, 32),
    // AWS, and AWS for pods.
    local6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]),
    local6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23]),
    // Google.
    local6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]),
    // Oracle.
    local6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]),
    // OpenStack.
    local6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe]),
];

const RTM_NEWROUTE: u16 = 24;
/// Table that the kernel searches first, for every socket.
const TABLE_LOCAL: u8 = 255;
const PROTOCOL_STATIC: u8 = 4;
const TYPE_UNICAST: u8 = 1;
const TYPE_LOCAL: u8 = 2;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const SCOPE_HOST: u8 = 254;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;

/// Makes each metadata address an address of the network of this process. Only the name server of
/// pasta, which is a link-local address, stays reachable.
pub(super) fn block_metadata() -> anyhow::Result<()> {
    let link = Link::of_pasta()?;
    let to = NAME_SERVER.parse().context("the name server has no address")?;
    let name_server = Route { to, prefix: 32, kind: TYPE_UNICAST, scope: SCOPE_LINK };
    [name_server].iter().chain(&METADATA).try_for_each(|route| add(&link, route))
}

fn add(link: &Link, route: &Route) -> anyhow::Result<()> {
    let context = || format!("cannot keep {} out of the network", route.to);
    let flags = ACKNOWLEDGE | CREATE | REPLACE;
    match link.request(RTM_NEWROUTE, flags, &body(route, link.index)) {
        // A network without IPv6 cannot reach an address of IPv6.
        Err(error) if route.to.is_ipv6() && has_no_ipv6(&error) => Ok(()),
        result => result.with_context(context),
    }
}

fn has_no_ipv6(error: &std::io::Error) -> bool {
    let codes = [nix::libc::EAFNOSUPPORT, nix::libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Returns the `rtmsg` of a route with its attributes.
fn body(route: &Route, device: u32) -> Vec<u8> {
    let (family, to) = address(route.to);
    let mut body = vec![family, route.prefix, 0, 0];
    body.extend([TABLE_LOCAL, PROTOCOL_STATIC, route.scope, route.kind]);
    body.extend([0; 4]);
    body.extend(attribute(RTA_DST, &to));
    body.extend(attribute(RTA_OIF, &device.to_ne_bytes()));
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is that of `rtmsg` and two attributes in rtnetlink(7).
    #[test]
    fn a_route_has_the_layout_of_the_kernel() {
        let expected = [
            vec![2, 16, 0, 0, 255, 4, 254, 2, 0, 0, 0, 0],
            vec![8, 0, 1, 0, 169, 254, 0, 0, 8, 0, 4, 0, 3, 0, 0, 0],
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(body(&METADATA[0], 3), expected.concat());
        }
    }
}
