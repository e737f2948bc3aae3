//! A call that waits for long, put aside until there is something to say.
//!
//! As long as hyper has a connection it keeps two buffers of 8 KiB for it, and the handler's future keeps everything
//! that its longest path needs: five times what a parked runner is worth. A handler that only waits hands over what it
//! waits for; hyper is then given up, and made again for the answer.
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

/// An answer that is yet to come.
pub type Later = BoxFuture<'static, Response>;

/// Where a handler may leave its answer to come. Among a request's extensions where the connection can wait without
/// hyper; a handler that finds none waits by itself. It has read the whole body before it leaves anything here: what is
/// left of a body would be taken for the next call.
#[derive(Clone, Default)]
pub struct Aside(Arc<Mutex<Option<Later>>>);

impl Aside {
    /// Give the answer later. What this answers at once is never sent.
    pub fn put(&self, later: Later) -> Response {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(later);
        ().into_response()
    }

    /// What a handler left here.
    pub fn take(&self) -> Option<Later> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A connection, and bytes that come before what it still has to say.
pub struct Line<S> {
    before: Vec<u8>,
    stream: S,
    progress: Arc<Progress>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    /// One that has said nothing yet.
    pub fn new(stream: S, progress: Arc<Progress>) -> Self {
        Line { before: Vec::new(), stream, progress }
    }

    /// Put bytes before everything that is still to be read.
    pub fn put_back(&mut self, head: &[u8]) {
        self.before.splice(..0, head.iter().copied());
    }

    /// Wait until the caller has left. One who sends the next call already has not; that call waits.
    pub async fn left(&mut self) {
        let mut byte = [0];
        if self.before.is_empty() {
            match self.stream.read(&mut byte).await {
                Ok(1..) => self.before.extend(byte),
                Ok(0) | Err(_) => return,
            }
        }
        std::future::pending().await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.before.is_empty() {
            let filled = into.filled().len();
            let read = Pin::new(&mut self.stream).poll_read(cx, into);
            if into.filled().len() > filled {
                self.progress.received();
            }
            return read;
        }
        let some = self.before.len().min(into.remaining());
        into.put_slice(&self.before[..some]);
        self.before.drain(..some);
        if self.before.is_empty() {
            self.before = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
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
