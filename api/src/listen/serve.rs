//! One task per connection, bounded in number and in what it may send before it has said who it is.
use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_http::timeout::RequestBodyTimeoutLayer;
use tracing::{debug, info, warn};

/// What a connection may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time; more wait in the kernel.
    pub connections: usize,
    /// Bytes of one request's head.
    pub head_bytes: usize,
    /// Headers of one request.
    pub headers: usize,
    /// From the first byte to the last of a request's head, and between two requests.
    pub idle: Duration,
    /// Between two pieces of a request's body.
    pub silence: Duration,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// From the order to stop until what is still open is cut.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_000,
            head_bytes: 16 * 1024,
            headers: 64,
            // Longer than clients keep an idle connection: the one who reuses it should be the one who ends it.
            idle: Duration::from_secs(120),
            silence: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

/// Everything that the connections of one door share.
struct Connections {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    router: Router,
    tls: Option<TlsAcceptor>,
    handshake: Duration,
    stop: CancellationToken,
    cut: CancellationToken,
}

/// Serve until `stop`, then end what is open and give back.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let (handshake, cut) = (limits.handshake, CancellationToken::new());
    let (http1, http2) = builders(&limits);
    // A body that stops half way holds its connection, and what was read of it, no longer than this.
    let router = router.layer(RequestBodyTimeoutLayer::new(limits.silence));
    let shared = Arc::new(Connections {
        http1,
        http2,
        router,
        tls,
        handshake,
        stop: stop.clone(),
        cut: cut.clone(),
    });
    let (slots, open) = (Arc::new(Semaphore::new(limits.connections)), TaskTracker::new());
    while let Some(Ok(slot)) = stop.run_until_cancelled(Arc::clone(&slots).acquire_owned()).await {
        let stream = match stop.run_until_cancelled(listener.accept()).await {
            None => break,
            Some(Ok((stream, _))) => stream,
            Some(Err(reason)) => {
                // Out of file descriptors: those that are open may end meanwhile.
                warn!(reason = %reason, "Cannot accept a connection: {reason}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let shared = Arc::clone(&shared);
        open.spawn(async move {
            shared.meet(stream).await;
            drop(slot);
        });
    }
    drop(listener);
    open.close();
    if timeout(limits.drain, open.wait()).await.is_err() {
        info!(connections = open.len(), "Cutting {} connections that did not end", open.len());
        cut.cancel();
        open.wait().await;
    }
}

fn builders(limits: &Limits) -> (http1::Builder, http2::Builder<TokioExecutor>) {
    let (mut http1, mut http2) = (http1::Builder::new(), http2::Builder::new(TokioExecutor::new()));
    http1
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(limits.head_bytes)
        .max_headers(limits.headers);
    http2
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(64)
        .keep_alive_interval(Some(Duration::from_secs(30)));
    (http1, http2)
}

impl Connections {
    /// Which HTTP is spoken is settled by TLS, never guessed: a connection is no bigger than it must be.
    async fn meet(&self, stream: TcpStream) {
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(self.router.clone());
        let Some(tls) = &self.tls else {
            return self.talk(self.http1.serve_connection(TokioIo::new(stream), service)).await;
        };
        let stream = match timeout(self.handshake, tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(reason)) => return debug!(reason = %reason, "A handshake failed: {reason}"),
            Err(_) => return debug!("A handshake took too long"),
        };
        let second = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = TokioIo::new(stream);
        if second {
            Box::pin(self.talk(self.http2.serve_connection(stream, service))).await;
        } else {
            Box::pin(self.talk(self.http1.serve_connection(stream, service))).await;
        }
    }

    async fn talk<C: GracefulConnection<Error = hyper::Error>>(&self, talk: C) {
        let mut talk = std::pin::pin!(talk);
        let ended = tokio::select! {
            ended = talk.as_mut() => Some(ended),
            () = self.stop.cancelled() => None,
        };
        let ended = match ended {
            Some(ended) => Some(ended),
            None => {
                talk.as_mut().graceful_shutdown();
                self.cut.run_until_cancelled(talk).await
            }
        };
        if let Some(Err(reason)) = ended {
            debug!(reason = %reason, "A connection ended early: {reason}");
        }
    }
}
