//! One task per connection, bounded in number and in what it may send before it has said who it is.
use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use axum::{Router, response::Response};
use hyper::{
    Request, Version,
    body::Incoming,
    header,
    server::conn::{
        http1::{self, Parts},
        http2,
    },
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;
use tower_http::timeout::RequestBodyTimeoutLayer;
use tracing::{debug, info, warn};

use super::aside::{Aside, Later, Line, Unsent};

/// A call whose answer is there.
const CALL: &[u8] = b"GET / HTTP/1.1\r\nhost: stead\r\n\r\n";
/// The same, after which the connection ends.
const LAST_CALL: &[u8] = b"GET / HTTP/1.1\r\nhost: stead\r\nconnection: close\r\n\r\n";

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
        match &self.tls {
            None => self.first(stream).await,
            // In a box of its own: a connection without TLS has no room for it.
            Some(tls) => Box::pin(self.secret(tls, stream)).await,
        }
    }

    async fn secret(&self, tls: &TlsAcceptor, stream: TcpStream) {
        let stream = match timeout(self.handshake, tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(reason)) => return debug!(reason = %reason, "A handshake failed: {reason}"),
            Err(_) => return debug!("A handshake took too long"),
        };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let service = TowerToHyperService::new(self.router.clone());
            let second = self.http2.serve_connection(TokioIo::new(stream), service);
            self.talk(&mut Box::pin(second), &Aside::default(), &Unsent::default()).await;
        } else {
            Box::pin(self.first(stream)).await;
        }
    }

    /// HTTP/1.1, until a call has to wait; then without hyper, which is made again for its answer.
    async fn first<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S) {
        let (mut line, mut answer) = (Line::new(stream), None);
        while let Some((later, rest)) = self.speak(line, answer).await {
            line = rest;
            let answered = tokio::select! {
                biased;
                answered = later => answered,
                () = line.left() => return debug!("A caller that waited has left"),
                () = self.cut.cancelled() => return,
            };
            // hyper answers calls only: this one stands for the one that waited, and its answer is there.
            let last = self.stop.is_cancelled();
            line.put_back(if last { LAST_CALL } else { CALL });
            answer = Some(answered);
        }
    }

    /// Until the connection ends, or a call has to wait: then what is waited for, and the connection. The first call
    /// has this answer, if there is one.
    async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        line: Line<S>,
        answer: Option<Response>,
    ) -> Option<(Later, Line<S>)> {
        let (aside, answer) = (Aside::default(), Mutex::new(answer));
        let service = service_fn(|mut request: Request<Incoming>| {
            let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
            let keeps = keeps_alive(&request);
            if keeps {
                request.extensions_mut().insert(aside.clone());
            }
            let (aside, router) = (aside.clone(), self.router.clone());
            async move {
                if let Some(answer) = answer {
                    return Ok::<_, Infallible>(answer);
                }
                let answer = router.oneshot(request).await?;
                let Some(mut later) = aside.take() else { return Ok(answer) };
                match futures::poll!(&mut later) {
                    Poll::Ready(answer) => Ok(answer),
                    Poll::Pending => {
                        aside.put(later);
                        std::future::pending().await
                    }
                }
            }
        });
        let unsent = line.unsent();
        let mut talk = Box::pin(self.http1.serve_connection(TokioIo::new(line), service));
        let later = self.talk(&mut talk, &aside, &unsent).await?;
        let Parts { io, read_buf, .. } = Pin::into_inner(talk).into_parts();
        let mut line = io.into_inner();
        line.put_back(&read_buf);
        Some((later, line))
    }

    /// Until the connection ends, or a call was put aside.
    async fn talk<C: GracefulConnection<Error = hyper::Error>>(
        &self,
        talk: &mut Pin<Box<C>>,
        aside: &Aside,
        unsent: &Unsent,
    ) -> Option<Later> {
        let said = tokio::select! {
            biased;
            said = next(talk, aside, unsent) => Some(said),
            () = self.stop.cancelled() => None,
        };
        let said = match said {
            Some(said) => Some(said),
            None => {
                talk.as_mut().graceful_shutdown();
                self.cut.run_until_cancelled(next(talk, aside, unsent)).await
            }
        };
        match said? {
            Ok(later) => later,
            Err(reason) => {
                debug!(reason = %reason, "A connection ended early: {reason}");
                None
            }
        }
    }
}

/// The call that was put aside; none: the connection has ended.
async fn next<C: GracefulConnection<Error = hyper::Error>>(
    talk: &mut Pin<Box<C>>,
    aside: &Aside,
    unsent: &Unsent,
) -> Result<Option<Later>, hyper::Error> {
    poll_fn(|cx| match talk.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(ended.map(|()| None)),
        // An earlier answer that the caller is still to take goes first.
        Poll::Pending if unsent.is_some() => Poll::Pending,
        Poll::Pending => aside.take().map_or(Poll::Pending, |later| Poll::Ready(Ok(Some(later)))),
    })
    .await
}

/// Whether the connection is there after the answer, without a word about it in the answer.
fn keeps_alive(request: &Request<Incoming>) -> bool {
    request.version() == Version::HTTP_11 && !request.headers().contains_key(header::CONNECTION)
}
