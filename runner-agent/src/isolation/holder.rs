//! Process that owns the network of one job: `stead-runner sandbox-network`.
//!
//! Its standard input is a socket of the shim. A request is one byte and a port in two bytes,
//! big-endian. The response is the byte 0, or the byte 1 and an error message. The process ends
//! with the socket.
use std::{
    fs,
    io::{self, IoSlice, Read as _, Write as _},
    mem::MaybeUninit,
    net::{Ipv4Addr, TcpListener},
    os::{fd::AsFd as _, unix::net::UnixStream},
    process::ExitCode,
};

use anyhow::Context as _;
use nix::{
    sched::{CloneFlags, unshare},
    unistd::{getgid, getuid},
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::{neighbours, routes};

/// Succeeds if pasta answers.
pub(super) const PROBE: u8 = b'p';
/// Makes the metadata addresses unreachable.
pub(super) const BLOCK: u8 = b'b';
/// Listens on a loopback port of the job's network; 0 selects a free port.
pub(super) const LISTEN: u8 = b'l';

/// Creates the namespaces and serves the shim until it closes the socket.
pub(crate) fn hold() -> anyhow::Result<ExitCode> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut control = UnixStream::from(input);
    let created = create().context("cannot create a user and a network namespace");
    let is_created = created.is_ok();
    respond(&mut control, created)?;
    let mut request = [0; 3];
    while is_created && control.read_exact(&mut request).is_ok() {
        let port = u16::from_be_bytes([request[1], request[2]]);
        match request[0] {
            PROBE => respond(&mut control, neighbours::probe())?,
            BLOCK => respond(&mut control, routes::block_metadata())?,
            LISTEN => match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                Ok(listener) => send(&control, &listener)?,
                Err(error) => respond(&mut control, Err(error.into()))?,
            },
            _ => respond(&mut control, Err(anyhow::anyhow!("unknown request")))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Moves this process to new namespaces. Its user and group keep their ids.
fn create() -> anyhow::Result<()> {
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    Ok(())
}

fn respond(control: &mut UnixStream, result: anyhow::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) => control.write_all(&[0]),
        Err(error) => {
            let text = format!("{error:#}");
            let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
            control.write_all(&[1])?;
            control.write_all(&length.to_be_bytes())?;
            control.write_all(&text.as_bytes()[..usize::from(length)])
        }
    }
}

/// Sends the listener itself, so that the shim accepts connections from the job's network.
fn send(control: &UnixStream, listener: &TcpListener) -> io::Result<()> {
    let files = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("the message has no room for the listener"));
    }
    sendmsg(control, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}
