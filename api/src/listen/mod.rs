//! The two doors: one for people and services (Control API), one for runners (Runner API).
//!
//! ```text
//! accept ─▶ admission (bounded) ─▶ TLS ─▶ hyper, one task per connection ─▶ router
//!                                      ◀─ a call that waits is put aside, and hyper given up ─┘
//! stop   ─▶ no new connections ─▶ parked polls answer ─▶ open calls end ─▶ the rest is cut after `drain`
//! ```
mod admission;
mod aside;
mod files;
mod progress;
mod serve;
mod tls;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use tokio::net::TcpListener;

pub use self::{
    admission::Ticket,
    aside::Aside,
    files::{Shares, raise_limit},
    serve::{Limits, serve},
    tls::{TlsError, acceptor, private_root},
};

/// A door that is open but not served yet: its port is known.
pub struct Door {
    /// What accepts.
    pub listener: TcpListener,
    /// Where, with the port that was chosen when 0 was asked for.
    pub address: SocketAddr,
}

/// Why a door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else has the port, or it is not ours to take.
    #[error("cannot listen on {address}: {reason}; choose another with {flag}")]
    Bind { address: SocketAddr, flag: &'static str, reason: std::io::Error },
    /// Others could read the tokens that pass.
    #[error(
        "{flag} {address} is reachable from other machines and would speak plain HTTP: give \
         --tls-cert and --tls-key, or say --behind-proxy when a proxy in front of it ends TLS"
    )]
    Plain { address: SocketAddr, flag: &'static str },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Where to find a certificate and its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate and what is between it and the root, PEM.
    pub chain: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// Open a door. Plain HTTP leaves this machine only when somebody said that it may.
///
/// # Errors
/// [`ListenError`].
pub async fn open(
    address: SocketAddr,
    flag: &'static str,
    plain_outside: bool,
    tls: bool,
) -> Result<Door, ListenError> {
    if !tls && !plain_outside && !address.ip().is_loopback() {
        return Err(ListenError::Plain { address, flag });
    }
    let failed = |reason| ListenError::Bind { address, flag, reason };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Door { listener, address })
}

impl Door {
    /// How others reach it, as long as nobody said otherwise.
    pub fn url(&self, tls: bool) -> String {
        let scheme = if tls { "https" } else { "http" };
        // Whoever listens everywhere is at least here.
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
