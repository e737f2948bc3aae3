//! Routes that keep the metadata services of clouds out of a job's network.
//!
//! Their addresses become local addresses of the network itself, where nothing listens. An
//! unreachable route would not suffice: a socket that is bound to an interface (`SO_BINDTODEVICE`
//! needs no capability) skips it and uses the neighbour, for whom pasta answers. A local address
//! has priority for every socket.
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use anyhow::Context as _;
use rustix::{
    fd::AsFd,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice::name_to_index,
        recv, send, socket_with,
    },
};

use super::network::NAME_SERVER;

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
/// Request, acknowledge, create, replace.
const FLAGS: u16 = 0x1 | 0x4 | 0x400 | 0x100;
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
/// Length of the header of a netlink message, and of its body for a route.
const HEADER: usize = 16;
const ROUTE: usize = 12;

/// Makes each metadata address an address of the network of this process. Only the name server of
/// pasta, which is a link-local address, stays reachable.
pub(super) fn block_metadata() -> anyhow::Result<()> {
    // Protocol 0 is that of routes.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .context("cannot open a netlink socket")?;
    let devices = fs::read_to_string("/proc/self/net/dev").context("cannot list interfaces")?;
    let devices: Vec<_> = interfaces(&devices).collect();
    let [device] = devices.as_slice() else {
        anyhow::bail!("the network has not one interface of pasta, but {}", devices.len());
    };
    let index = name_to_index(&socket, device).context("cannot find the interface of pasta")?;
    let to = NAME_SERVER.parse().context("the name server has no address")?;
    let name_server = Route { to, prefix: 32, kind: TYPE_UNICAST, scope: SCOPE_LINK };
    [name_server].iter().chain(&METADATA).try_for_each(|route| add(&socket, route, index))
}

/// Returns the names of the interfaces in `/proc/net/dev`, without the loopback interface.
fn interfaces(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(|line| line.split_once(':').map(|(name, _)| name.trim()));
    names.filter(|name| !name.contains('|') && *name != "lo")
}

fn add(socket: impl AsFd, route: &Route, device: u32) -> anyhow::Result<()> {
    let context = || format!("cannot keep {} out of the network", route.to);
    send(&socket, &message(route, device), SendFlags::empty()).with_context(context)?;
    let mut response = [0; 1024];
    let (length, _) = recv(&socket, &mut response, RecvFlags::empty()).with_context(context)?;
    match error_code(&response[..length]) {
        Some(0) => Ok(()),
        // A network without IPv6 cannot reach an address of IPv6.
        Some(code) if route.to.is_ipv6() && has_no_ipv6(code) => Ok(()),
        Some(code) => {
            let error = std::io::Error::from_raw_os_error(-code);
            Err(anyhow::Error::new(error).context(context()))
        }
        None => anyhow::bail!("{}: the kernel's response is malformed", context()),
    }
}

fn has_no_ipv6(code: i32) -> bool {
    [nix::libc::EAFNOSUPPORT, nix::libc::EOPNOTSUPP].contains(&-code)
}

fn message(route: &Route, device: u32) -> Vec<u8> {
    let (family, bytes) = match route.to {
        IpAddr::V4(address) => (nix::libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (nix::libc::AF_INET6 as u8, address.octets().to_vec()),
    };
    let attribute = 4 + bytes.len();
    let length = HEADER + ROUTE + attribute + 8;
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(RTM_NEWROUTE.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family, route.prefix, 0, 0]);
    message.extend([TABLE_LOCAL, PROTOCOL_STATIC, route.scope, route.kind]);
    message.extend([0; 4]);
    message.extend((attribute as u16).to_ne_bytes());
    message.extend(RTA_DST.to_ne_bytes());
    message.extend(bytes);
    message.extend(8_u16.to_ne_bytes());
    message.extend(RTA_OIF.to_ne_bytes());
    message.extend(device.to_ne_bytes());
    message
}

/// Returns the code of an acknowledgement: 0, or a negative error number.
fn error_code(response: &[u8]) -> Option<i32> {
    let code = response.get(HEADER..HEADER + 4)?;
    Some(i32::from_ne_bytes(code.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is that of `nlmsghdr`, `rtmsg` and two attributes in rtnetlink(7).
    #[test]
    fn a_message_has_the_layout_of_the_kernel() {
        let expected = [
            vec![44, 0, 0, 0, 24, 0, 5, 5],
            vec![0; 8],
            vec![2, 16, 0, 0, 255, 4, 254, 2, 0, 0, 0, 0],
            vec![8, 0, 1, 0, 169, 254, 0, 0, 8, 0, 4, 0, 3, 0, 0, 0],
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(message(&METADATA[0], 3), expected.concat());
        }
    }

    #[test]
    fn the_loopback_interface_is_not_that_of_pasta() {
        let text =
            "Inter-|   Receive |  Transmit\n face |bytes packets|bytes\n    lo: 0 0\n  eth0: 1 2\n";
        assert_eq!(interfaces(text).collect::<Vec<_>>(), ["eth0"]);
    }
}
