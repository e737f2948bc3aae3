//! Readiness of pasta: it answers as the neighbour of a job's network only after it has configured
//! the addresses and the routes of its interface.
use std::net::{IpAddr, Ipv6Addr};

use anyhow::Context as _;

use super::{
    netlink::{ACKNOWLEDGE, CREATE, DUMP, Link, REPLACE, address, attribute},
    network::NAME_SERVER,
};

const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
/// Lets the kernel ask for the neighbour.
const FLAG_USE: u8 = 1;
/// States of a neighbour that has answered: reachable, stale, delay, probe.
const ANSWERED: u16 = 0x02 | 0x04 | 0x08 | 0x10;
const NDA_DST: u16 = 1;

/// Asks for neighbours, for whom pasta answers.
///
/// # Errors
/// pasta has not answered yet.
pub(super) fn probe() -> anyhow::Result<()> {
    let link = Link::of_pasta()?;
    let is_answered = answered(&link).context("cannot list the neighbours")?;
    if is_answered {
        return Ok(());
    }
    let of_first: IpAddr = NAME_SERVER.parse().context("the name server has no address")?;
    // A host may have only IPv6. Before the interface is up, the kernel refuses the question.
    let of_second = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
    for to in [of_first, of_second] {
        let flags = ACKNOWLEDGE | CREATE | REPLACE;
        let _not_yet = link.request(RTM_NEWNEIGH, flags, &question(to, link.index));
    }
    anyhow::ensure!(answered(&link)?, "pasta does not answer in the network");
    Ok(())
}

/// Returns the `ndmsg` of a neighbour with its address.
fn question(to: IpAddr, device: u32) -> Vec<u8> {
    let (family, to) = address(to);
    let mut body = vec![family, 0, 0, 0];
    body.extend(device.to_ne_bytes());
    body.extend([0, 0, FLAG_USE, 0]);
    body.extend(attribute(NDA_DST, &to));
    body
}

fn answered(link: &Link) -> std::io::Result<bool> {
    let mut found = false;
    link.exchange(RTM_GETNEIGH, DUMP, &[0; 12], |kind, body| {
        found |= kind == RTM_NEWNEIGH && has_answered(body, link.index);
    })?;
    Ok(found)
}

fn has_answered(body: &[u8], device: u32) -> bool {
    let index = body.get(4..8).and_then(|index| index.try_into().ok()).map(u32::from_ne_bytes);
    let state = body.get(8..10).and_then(|state| state.try_into().ok()).map(u16::from_ne_bytes);
    index == Some(device) && state.is_some_and(|state| state & ANSWERED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is that of `ndmsg` and an attribute in rtnetlink(7).
    #[test]
    fn a_question_has_the_layout_of_the_kernel() {
        let expected = [2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 1, 0, 8, 0, 1, 0, 169, 254, 1, 1];
        if cfg!(target_endian = "little") {
            assert_eq!(question("169.254.1.1".parse().unwrap(), 3), expected);
        }
    }

    #[test]
    fn only_a_neighbour_of_the_interface_that_answered_counts() {
        let entry = |device: u8, state: u8| {
            let mut entry = question("169.254.1.1".parse().unwrap(), 0);
            entry[4..8].copy_from_slice(&u32::from(device).to_ne_bytes());
            entry[8..10].copy_from_slice(&u16::from(state).to_ne_bytes());
            entry
        };
        // Incomplete, failed and no ARP, as those of a multicast address.
        for state in [0x01, 0x20, 0x40] {
            assert!(!has_answered(&entry(3, state), 3), "{state}");
        }
        assert!(has_answered(&entry(3, 0x02), 3));
        assert!(!has_answered(&entry(4, 0x02), 3));
        assert!(!has_answered(&[0; 4], 3));
    }
}
