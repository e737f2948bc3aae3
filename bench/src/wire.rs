//! An HTTP/1.1 connection of a caller. It is minimal, because callers share the cores with the
//! server that is measured.
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
    header::{HOST, HeaderMap, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Caller that connects from one address to one server, without TLS.
pub struct Wire {
    from: Ipv4Addr,
    to: SocketAddr,
    host: HeaderValue,
    open: Option<SendRequest<Full<Bytes>>>,
}

pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpResponse {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns the response, which must be a success.
    #[track_caller]
    pub fn ok(self) -> HttpResponse {
        let text = || String::from_utf8_lossy(&self.body).into_owned();
        assert!(self.status.is_success(), "{}: {}", self.status, text());
        self
    }
}

impl Wire {
    /// Caller of `http://host:port`. Opens no connection yet.
    pub fn to(url: &str) -> Wire {
        Wire::from_to(Ipv4Addr::LOCALHOST, url)
    }

    /// Caller from this source address. Each address has only 28,000 ports.
    pub fn from_to(from: Ipv4Addr, url: &str) -> Wire {
        let host = url.strip_prefix("http://").unwrap();
        Wire { from, to: host.parse().unwrap(), host: host.parse().unwrap(), open: None }
    }

    /// Sends a request over the open or a new connection, and reads the whole response.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<HttpResponse, Error> {
        let (parts, body) = self.open(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(HttpResponse { status: parts.status, headers: parts.headers, body })
    }

    /// Sends a request over the open or a new connection. The connection is busy until the caller has
    /// read the body.
    pub async fn open(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Error> {
        let mut open = match self.open.take() {
            Some(open) if !open.is_closed() => open,
            Some(_) | None => self.connect().await?,
        };
        open.ready().await?;
        request.headers_mut().insert(HOST, self.host.clone());
        let response = open.send_request(request).await?;
        self.open = Some(open);
        Ok(response)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.from, 0).into())?;
        let stream = socket.connect(self.to).await?;
        stream.set_nodelay(true)?;
        let (open, connection) = handshake(TokioIo::new(stream)).await?;
        // The task ends when either side closes the connection. The next request detects that.
        tokio::spawn(connection);
        Ok(open)
    }
}
