//! Parks a connection while its response waits for data.
//!
//! hyper keeps two 8 KiB buffers per connection, and the future of a handler is as large as its
//! longest path. A handler that only waits therefore hands over a future of its response. The
//! connection drops hyper and creates it again for the response.
use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use axum::response::{IntoResponse as _, Response};
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::progress::Progress;

pub(super) type Deferred = BoxFuture<'static, Response>;

/// Slot for a deferred response. A request has the slot among its extensions if its connection can
/// be parked. Without the slot, the handler itself waits. The handler must read the whole body
/// first, because the rest of a body would be parsed as the next request.
#[derive(Clone, Default)]
pub(crate) struct ParkedResponse(Arc<Mutex<Option<Deferred>>>);

impl ParkedResponse {
    /// Defers the response. The response that this function returns is never sent.
    pub(crate) fn defer(&self, later: Deferred) -> Response {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(later);
        ().into_response()
    }

    /// Takes the deferred response, if a handler left one.
    pub(crate) fn take(&self) -> Option<Deferred> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Connection with bytes that are read again before the bytes of the stream.
pub(super) struct Rewound<S> {
    rewound: Vec<u8>,
    stream: S,
    progress: Arc<Progress>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Rewound<S> {
    /// Creates a connection without bytes that are read again.
    pub(super) fn new(stream: S, progress: Arc<Progress>) -> Self {
        Rewound { rewound: Vec::new(), stream, progress }
    }

    /// Adds bytes that are read before all others.
    pub(super) fn rewind(&mut self, head: &[u8]) {
        self.rewound.splice(..0, head.iter().copied());
    }

    /// Waits until the caller disconnects. A caller that already sends the next request is still
    /// connected, and that request waits.
    pub(super) async fn disconnected(&mut self) {
        let mut byte = [0];
        if self.rewound.is_empty() {
            match self.stream.read(&mut byte).await {
                Ok(1..) => self.rewound.extend(byte),
                Ok(0) | Err(_) => return,
            }
        }
        std::future::pending().await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rewound.is_empty() {
            let filled = into.filled().len();
            let read = Pin::new(&mut self.stream).poll_read(cx, into);
            if into.filled().len() > filled {
                self.progress.received();
            }
            return read;
        }
        let some = self.rewound.len().min(into.remaining());
        into.put_slice(&self.rewound[..some]);
        self.rewound.drain(..some);
        if self.rewound.is_empty() {
            self.rewound = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.progress.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.progress.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
