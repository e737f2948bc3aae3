//! Serves connections, one task each, with limits on the number of connections and on
//! unauthenticated callers.
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
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;
use tower_http::timeout::RequestBodyTimeoutLayer;
use tracing::{debug, info, warn};

use super::{
    admission::{Admission, Ticket},
    parked::{Deferred, ParkedResponse, Rewound},
    progress::{Deadline, InFlight, Progress, Tracked},
};

/// Synthetic request that makes hyper send a deferred response.
const RESUME_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: stead\r\n\r\n";
/// Synthetic request that also closes the connection after the response.
const FINAL_RESUME_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: stead\r\nconnection: close\r\n\r\n";

/// Limits of a listener's connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of unauthenticated connections per address. `None` means a sixteenth of all
    /// connections, but at least 16.
    pub per_address: Option<usize>,
    /// Maximum size of a request head, in bytes.
    pub head_bytes: usize,
    /// Maximum number of headers per request.
    pub headers: usize,
    /// Time for a request head from its first byte, or from the start of the connection for the
    /// first request.
    pub head: Duration,
    /// Time between two requests, with or without HTTP/2 pings.
    pub idle: Duration,
    /// Time for a request and its response on an unauthenticated connection.
    pub unauthenticated: Duration,
    /// Time between two parts of a request body.
    pub body_idle: Duration,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time from shutdown until open connections are cut.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_000,
            per_address: None,
            head_bytes: 16 * 1024,
            headers: 64,
            // Longer than the idle timeout of clients, so that the client closes an idle connection
            // first. Otherwise the client could reuse a connection that the server has just closed.
            idle: Duration::from_secs(120),
            head: Duration::from_secs(10),
            unauthenticated: Duration::from_secs(60),
            body_idle: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

/// State that the connections of one listener share.
struct Connections {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    router: Router,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    stop: CancellationToken,
    cut: CancellationToken,
}

/// Serves until `stop`, then drains the open connections and returns. `name` identifies the
/// listener in log messages.
pub(crate) async fn serve(
    (name, listener): (&'static str, TcpListener),
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let cut = CancellationToken::new();
    let (http1, http2) = builders(&limits);
    // When a body stops arriving, this timeout releases its connection and buffers.
    let router = router.layer(RequestBodyTimeoutLayer::new(limits.body_idle));
    let shared = Arc::new(Connections {
        http1,
        http2,
        router,
        tls,
        limits,
        stop: stop.clone(),
        cut: cut.clone(),
    });
    let (admission, open) =
        (Admission::new(name, limits.connections, limits.per_address), TaskTracker::new());
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(reason) => {
                // The process may have no free file descriptors until open connections end.
                warn!(error = %reason, "Cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(ticket) = admission.admit(peer.ip()) else { continue };
        let shared = Arc::clone(&shared);
        open.spawn(async move { shared.serve_connection(stream, ticket).await });
    }
    drop(listener);
    open.close();
    if timeout(limits.drain, open.wait()).await.is_err() {
        info!(connections = open.len(), "Closing connections that did not end");
        cut.cancel();
        open.wait().await;
    }
}

fn builders(limits: &Limits) -> (http1::Builder, http2::Builder<TokioExecutor>) {
    let (mut http1, mut http2) = (http1::Builder::new(), http2::Builder::new(TokioExecutor::new()));
    http1
        // hyper has no timer here, because `Progress` enforces the deadlines.
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
    /// Serves a connection. TLS negotiates the HTTP version, so the connection needs no buffer to
    /// detect the version.
    async fn serve_connection(&self, stream: TcpStream, ticket: Ticket) {
        // Responses are small and latency matters.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.serve_http1(stream, ticket).await,
            // Boxed, so that the future of a connection without TLS stays small.
            Some(tls) => Box::pin(self.serve_tls(tls, stream, ticket)).await,
        }
    }

    async fn serve_tls(&self, tls: &TlsAcceptor, stream: TcpStream, ticket: Ticket) {
        let accepted = tokio::select! {
            accepted = timeout(self.limits.handshake, tls.accept(stream)) => accepted,
            () = poll_fn(|cx| ticket.progress().poll_evicted(cx)) => return,
        };
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(reason)) => return debug!(error = %reason, "TLS handshake failed"),
            Err(_) => return debug!("TLS handshake timed out"),
        };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let service = service_fn(|request: Request<Incoming>| {
                let (request, in_flight) = with_ticket(request, &ticket);
                let router = self.router.clone();
                async move {
                    let response = router.oneshot(request).await?;
                    Ok::<_, Infallible>(response.map(|body| Tracked::new(body, in_flight)))
                }
            });
            let connection = self.http2.serve_connection(TokioIo::new(stream), service);
            self.drive(&mut Box::pin(connection), &ParkedResponse::default(), ticket.progress())
                .await;
        } else {
            Box::pin(self.serve_http1(stream, ticket)).await;
        }
    }

    /// Serves HTTP/1.1 until a response is deferred. Then drops hyper and creates it again for the
    /// response.
    async fn serve_http1<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        ticket: Ticket,
    ) {
        let mut connection = Rewound::new(stream, Arc::clone(ticket.progress()));
        let mut response = None;
        while let Some((later, rest)) =
            self.serve_until_deferred(connection, response, &ticket).await
        {
            connection = rest;
            let answered = tokio::select! {
                biased;
                answered = later => answered,
                () = connection.disconnected() => return debug!("Caller of a parked connection has disconnected"),
                () = self.cut.cancelled() => return,
            };
            // hyper sends responses to requests only, so a synthetic request stands for the parked
            // request.
            let last = self.stop.is_cancelled();
            connection.rewind(if last { FINAL_RESUME_REQUEST } else { RESUME_REQUEST });
            response = Some(answered);
        }
    }

    /// Serves until the connection ends or a response is deferred. Then returns the deferred
    /// response and the connection. The first request gets `response`, if there is one.
    async fn serve_until_deferred<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        connection: Rewound<S>,
        response: Option<Response>,
        ticket: &Ticket,
    ) -> Option<(Deferred, Rewound<S>)> {
        let (parked, response) = (ParkedResponse::default(), Mutex::new(response));
        let service = service_fn(|request: Request<Incoming>| {
            let (mut request, in_flight) = with_ticket(request, ticket);
            let response = response.lock().unwrap_or_else(PoisonError::into_inner).take();
            let keeps = keeps_alive(&request);
            if keeps {
                request.extensions_mut().insert(parked.clone());
            }
            let (parked, router) = (parked.clone(), self.router.clone());
            let until_sent =
                |response: Response| response.map(|body| Tracked::new(body, in_flight));
            async move {
                if let Some(response) = response {
                    return Ok::<_, Infallible>(until_sent(response));
                }
                let response = router.oneshot(request).await?;
                let Some(mut later) = parked.take() else { return Ok(until_sent(response)) };
                match futures::poll!(&mut later) {
                    Poll::Ready(response) => Ok(until_sent(response)),
                    Poll::Pending => {
                        parked.defer(later);
                        std::future::pending().await
                    }
                }
            }
        });
        let mut exchange = Box::pin(self.http1.serve_connection(TokioIo::new(connection), service));
        let later = self.drive(&mut exchange, &parked, ticket.progress()).await?;
        let Parts { io, read_buf, .. } = Pin::into_inner(exchange).into_parts();
        let mut connection = io.into_inner();
        connection.rewind(&read_buf);
        Some((later, connection))
    }

    /// Serves until the connection ends or a response is deferred.
    async fn drive<C: GracefulConnection<Error = hyper::Error>>(
        &self,
        exchange: &mut Pin<Box<C>>,
        parked: &ParkedResponse,
        progress: &Progress,
    ) -> Option<Deferred> {
        let mut event = tokio::select! {
            biased;
            event = next_event(exchange, parked, progress, Some(&self.limits)) => Some(event),
            () = self.stop.cancelled() => None,
        };
        if let None | Some(Next::Idle) = event {
            exchange.as_mut().graceful_shutdown();
            let rest = self.cut.run_until_cancelled(next_event(exchange, parked, progress, None));
            event = match event {
                None => rest.await,
                // No request is in flight, so there is little left to send.
                Some(_) => timeout(self.limits.drain, rest).await.ok().flatten(),
            };
        }
        match event? {
            Next::Deferred(later) => Some(later),
            Next::Ended(Ok(())) | Next::Idle => None,
            Next::Ended(Err(reason)) => {
                debug!(error = %reason, "Connection ended early");
                None
            }
            Next::Cut => {
                debug!("Closed a connection that was evicted or past its deadline");
                None
            }
        }
    }
}

enum Next {
    /// A response was deferred, so the connection can be parked.
    Deferred(Deferred),
    Ended(Result<(), hyper::Error>),
    /// The connection was idle for too long.
    Idle,
    /// The deadline passed or the connection was evicted.
    Cut,
}

/// Polls the connection until its next event. Without `limits`, the connection has no deadline.
async fn next_event<C: GracefulConnection<Error = hyper::Error>>(
    exchange: &mut Pin<Box<C>>,
    parked: &ParkedResponse,
    progress: &Progress,
    limits: Option<&Limits>,
) -> Next {
    let mut alarm = limits.map(|limits| Box::pin(sleep_until(Instant::now() + limits.head)));
    poll_fn(|cx| {
        if let Poll::Ready(ended) = exchange.as_mut().poll(cx) {
            return Poll::Ready(Next::Ended(ended));
        }
        // The caller must receive an earlier response first.
        if !progress.has_unsent()
            && let Some(later) = parked.take()
        {
            return Poll::Ready(Next::Deferred(later));
        }
        if progress.poll_evicted(cx).is_ready() {
            return Poll::Ready(Next::Cut);
        }
        let (Some(limits), Some(alarm)) = (limits, alarm.as_mut()) else { return Poll::Pending };
        loop {
            let deadline = progress.deadline(limits);
            match (deadline, deadline.at().filter(|at| *at <= Instant::now())) {
                (Deadline::Cut(_), Some(_)) => return Poll::Ready(Next::Cut),
                (Deadline::Close(_), Some(_)) => return Poll::Ready(Next::Idle),
                (Deadline::Cut(_) | Deadline::Close(_) | Deadline::Never, _) => {}
            }
            // Applies a later deadline only when the alarm fires, because most requests move the
            // deadline, and few connections are late.
            if deadline.at().is_some_and(|at| at < alarm.deadline()) {
                alarm.as_mut().reset(deadline.at().unwrap_or_else(Instant::now));
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let again = deadline.at().unwrap_or_else(|| Instant::now() + limits.idle);
            alarm.as_mut().reset(again);
        }
    })
    .await
}

/// Adds the connection's ticket to a request and marks it as in flight.
fn with_ticket(mut request: Request<Incoming>, ticket: &Ticket) -> (Request<Incoming>, InFlight) {
    request.extensions_mut().insert(ticket.clone());
    (request, ticket.progress().request())
}

/// Returns true for an HTTP/1.1 request without a `Connection` header. Its connection stays open
/// after the response.
fn keeps_alive(request: &Request<Incoming>) -> bool {
    request.version() == Version::HTTP_11 && !request.headers().contains_key(header::CONNECTION)
}
