//! Progress of one connection, and its deadline.
//!
//! ```text
//! accepted ─▶ reading a head ─▶ requests in flight ─▶ idle ─▶ reading a head …
//!              10 s, then cut    no limit, or 60 s     120 s, then closed
//!                                while unauthenticated
//! ```
use std::{
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use futures::task::AtomicWaker;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::Limits;

/// Origin of the clock that measures progress.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now_ms() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Progress of a connection, shared by its task, its stream and its requests.
#[derive(Debug)]
pub(crate) struct Progress {
    /// True if hyper has bytes that it could not write to the connection yet.
    unsent: AtomicBool,
    reading_head: AtomicBool,
    authenticated: AtomicBool,
    evicted: AtomicBool,
    in_flight: AtomicU32,
    /// Time of the last change, in milliseconds after [`START`].
    since: AtomicU64,
    waker: AtomicWaker,
}

/// Deadline of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// Time at which a slow connection is cut.
    Cut(Instant),
    /// Time at which an idle connection is closed gracefully.
    Close(Instant),
    /// No deadline: an authenticated caller has a request in flight.
    Never,
}

impl Deadline {
    /// Time of the deadline, if there is one.
    pub(crate) fn at(self) -> Option<Instant> {
        match self {
            Deadline::Cut(at) | Deadline::Close(at) => Some(at),
            Deadline::Never => None,
        }
    }
}

impl Progress {
    /// Creates the progress of a newly accepted connection.
    pub(crate) fn new() -> Arc<Progress> {
        Arc::new(Progress {
            unsent: AtomicBool::new(false),
            reading_head: AtomicBool::new(true),
            authenticated: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            since: AtomicU64::new(now_ms()),
            waker: AtomicWaker::new(),
        })
    }

    /// Returns true if hyper has bytes that it could not write yet. These bytes are lost if hyper
    /// is dropped.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Records the result of a write.
    pub(crate) fn wrote<T>(&self, written: &Poll<T>) {
        self.unsent.store(written.is_pending(), Ordering::Relaxed);
    }

    /// Records received bytes. Bytes between two requests start a new request head.
    pub(crate) fn received(&self) {
        let begins = self.in_flight.load(Ordering::Relaxed) == 0;
        if begins && !self.reading_head.swap(true, Ordering::Relaxed) {
            self.touch();
        }
    }

    /// Records a complete request head. The request ends when the guard is dropped.
    pub(crate) fn request(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.reading_head.store(false, Ordering::Relaxed);
        self.touch();
        InFlight(Arc::clone(self))
    }

    /// Records an authenticated request. Returns true if it is the connection's first authenticated
    /// request.
    pub(crate) fn authenticate(&self) -> bool {
        !self.authenticated.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn evict(&self) {
        self.evicted.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Returns `Ready` when the connection is evicted. Until then, registers the task to wake.
    pub(crate) fn poll_evicted(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.evicted.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns the deadline for the current phase of the connection.
    pub(crate) fn deadline(&self, limits: &Limits) -> Deadline {
        let since = *START + Duration::from_millis(self.since.load(Ordering::Relaxed));
        let authenticated = self.authenticated.load(Ordering::Relaxed);
        if self.reading_head.load(Ordering::Relaxed) {
            Deadline::Cut(since + limits.head)
        } else if self.in_flight.load(Ordering::Relaxed) == 0 {
            Deadline::Close(since + limits.idle)
        } else if authenticated {
            Deadline::Never
        } else {
            Deadline::Cut(since + limits.unauthenticated)
        }
    }

    fn touch(&self) {
        self.since.store(now_ms(), Ordering::Relaxed);
    }
}

/// Guard of a request, from its head to the last byte of its response.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Progress>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.touch();
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Response body that keeps its request in flight until the body is sent.
pub(super) struct Tracked {
    body: Body,
    _in_flight: InFlight,
}

impl Tracked {
    pub(super) fn new(body: Body, in_flight: InFlight) -> Tracked {
        Tracked { body, _in_flight: in_flight }
    }
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
