//! Requests to the kernel about the interface of pasta, through netlink.
use std::{io, net::IpAddr};

use anyhow::Context as _;
use rustix::{
    fd::OwnedFd,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice::name_to_index,
        recv, send, socket_with,
    },
};

use super::network::INTERFACE;

const REQUEST: u16 = 0x1;
pub(super) const ACKNOWLEDGE: u16 = 0x4;
pub(super) const REPLACE: u16 = 0x100;
/// Asks for all entries.
pub(super) const DUMP: u16 = 0x300;
pub(super) const CREATE: u16 = 0x400;

/// Types of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Length of the header of a message.
const HEADER: usize = 16;
/// Longest response that is read at once. The kernel sends no longer one.
const LONGEST: usize = 32 * 1024;

/// Interface of pasta in the network of this process.
pub(super) struct Link {
    socket: OwnedFd,
    pub index: u32,
}

impl Link {
    /// Returns the interface.
    ///
    /// # Errors
    /// pasta has not created the interface yet.
    pub(super) fn of_pasta() -> anyhow::Result<Link> {
        // Protocol 0 is that of routes, addresses and neighbours.
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
                .context("cannot open a netlink socket")?;
        let index = name_to_index(&socket, INTERFACE).context("there is no interface of pasta")?;
        Ok(Link { socket, index })
    }

    /// Sends a request, and waits until the kernel has executed it.
    pub(super) fn request(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.exchange(kind, flags, body, |_, _| {})
    }

    /// Sends a request for entries, and passes the type and the body of each to `each`.
    pub(super) fn exchange(
        &self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut each: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        send(&self.socket, &message(kind, flags, body), SendFlags::empty())?;
        let mut response = vec![0; LONGEST];
        loop {
            let (length, _) = recv(&self.socket, &mut response, RecvFlags::empty())?;
            let mut rest = &response[..length];
            while let Some((kind, body, after)) = split(rest) {
                match kind {
                    ERROR => return acknowledged(body),
                    DONE => return Ok(()),
                    _ => each(kind, body),
                }
                rest = after;
            }
        }
    }
}

/// Returns the family and the bytes of an address.
pub(super) fn address(of: IpAddr) -> (u8, Vec<u8>) {
    match of {
        IpAddr::V4(address) => (nix::libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (nix::libc::AF_INET6 as u8, address.octets().to_vec()),
    }
}

/// Returns an attribute whose value needs no padding.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut attribute = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Returns the type and the body of the first message, and the bytes after it.
fn split(messages: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let header = messages.get(..HEADER)?;
    let length = u32::from_ne_bytes(header[..4].try_into().ok()?) as usize;
    let body = messages.get(HEADER..length)?;
    let after = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((u16::from_ne_bytes([header[4], header[5]]), body, after))
}

/// Returns the result in an acknowledgement: 0, or a negative error number.
fn acknowledged(body: &[u8]) -> io::Result<()> {
    let code = body.get(..4).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::Error::other("the kernel's response is malformed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is that of `nlmsghdr` in netlink(7).
    #[test]
    fn a_message_has_the_layout_of_the_kernel_and_is_read_back() {
        let sent = message(24, ACKNOWLEDGE | CREATE | REPLACE, &[7, 8]);
        if cfg!(target_endian = "little") {
            assert_eq!(
                sent,
                [[18, 0, 0, 0, 24, 0, 5, 5, 0, 0], [0, 0, 0, 0, 0, 0, 7, 8, 0, 0]].concat()[..18]
            );
        }
        let several = [&sent[..], &[0, 0], &message(ERROR, 0, &[0; 4])].concat();
        let (kind, body, after) = split(&several).unwrap();
        assert_eq!((kind, body), (24, &[7, 8][..]));
        let (kind, body, after) = split(after).unwrap();
        assert_eq!((kind, after), (ERROR, &[][..]));
        acknowledged(body).unwrap();
        assert!(split(&sent[..17]).is_none());
        let refused = acknowledged(&(-1_i32).to_ne_bytes()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }
}
