//! One connection of HTTP/1.1, held by whoever calls. Lean on purpose: callers and server share the same cores, and it
//! is the server that is measured.
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, StatusCode,
    client::conn::http1::{SendRequest, handshake},
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A caller, from one address to one server without TLS.
pub struct Wire {
    from: Ipv4Addr,
    to: SocketAddr,
    host: HeaderValue,
    open: Option<SendRequest<Full<Bytes>>>,
}

/// What came back.
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The same answer, which must be a success.
    #[track_caller]
    pub fn ok(self) -> Answer {
        let text = || String::from_utf8_lossy(&self.body).into_owned();
        assert!(self.status.is_success(), "{}: {}", self.status, text());
        self
    }
}

impl Wire {
    /// To `http://host:port`; nothing is opened yet.
    pub fn to(url: &str) -> Wire {
        Wire::from_to(Ipv4Addr::LOCALHOST, url)
    }

    /// Likewise, calling from this address: each has 28,000 ports only.
    pub fn from_to(from: Ipv4Addr, url: &str) -> Wire {
        let host = url.strip_prefix("http://").unwrap();
        Wire { from, to: host.parse().unwrap(), host: host.parse().unwrap(), open: None }
    }

    /// Ask and read the whole answer, on the connection that is open, or on a new one.
    pub async fn send(&mut self, mut ask: Request<Full<Bytes>>) -> Result<Answer, Error> {
        let mut open = match self.open.take() {
            Some(open) if !open.is_closed() => open,
            Some(_) | None => self.connect().await?,
        };
        open.ready().await?;
        ask.headers_mut().insert(HOST, self.host.clone());
        let (parts, body) = open.send_request(ask).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        self.open = Some(open);
        Ok(Answer { status: parts.status, body })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.from, 0).into())?;
        let stream = socket.connect(self.to).await?;
        stream.set_nodelay(true)?;
        let (open, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with the server's or with our end of it; whoever asks next sees that.
        tokio::spawn(connection);
        Ok(open)
    }
}
