//! Network listeners: the Control API for users and services, and the Runner API for runners.
//!
//! ```text
//! accept ─▶ admission (bounded) ─▶ TLS ─▶ hyper, one task per connection ─▶ router
//!                                      ◀─ a waiting request is parked, and hyper dropped ─┘
//! stop   ─▶ no new connections ─▶ long polls return ─▶ open requests end ─▶ the rest is cut after `drain`
//! ```
mod admission;
mod files;
mod parked;
mod progress;
mod serve;
mod tls;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use tokio::net::TcpListener;

pub(crate) use self::{
    admission::Ticket,
    files::{Shares, raise_limit},
    parked::ParkedResponse,
    serve::{Limits, serve},
    tls::{TlsError, acceptor, private_root},
};

/// Listener that is bound but not served yet. Its port is known.
pub(crate) struct BoundListener {
    /// Listening socket.
    pub listener: TcpListener,
    /// Bound address, with the actual port if port 0 was requested.
    pub address: SocketAddr,
}

/// Reasons to reject a listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address}: {reason}; choose another address with {flag}")]
    Bind { address: SocketAddr, flag: &'static str, reason: std::io::Error },
    /// Tokens would cross the network in plain text.
    #[error(
        "cannot listen on {flag} {address}: other machines could reach it over plain HTTP; set --tls-cert and --tls-key, or --behind-proxy if a proxy terminates TLS"
    )]
    Plain { address: SocketAddr, flag: &'static str },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Paths of a certificate and its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// PEM file with the certificate and its intermediate certificates.
    pub chain: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
}

/// Binds a listener. Plain HTTP on a non-loopback address requires `plain_outside`.
///
/// # Errors
/// [`ListenError`].
pub(crate) async fn open(
    address: SocketAddr,
    flag: &'static str,
    plain_outside: bool,
    tls: bool,
) -> Result<BoundListener, ListenError> {
    if !tls && !plain_outside && !address.ip().is_loopback() {
        return Err(ListenError::Plain { address, flag });
    }
    let failed = |reason| ListenError::Bind { address, flag, reason };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(BoundListener { listener, address })
}

impl BoundListener {
    /// Default URL of the listener.
    pub(crate) fn url(&self, tls: bool) -> String {
        let scheme = if tls { "https" } else { "http" };
        // An unspecified address includes the loopback address.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
        };
        format!("{scheme}://{}", SocketAddr::new(ip, self.address.port()))
    }
}

#[cfg(test)]
mod pentest;
#[cfg(test)]
mod tests;
