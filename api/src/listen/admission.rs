//! Admission of connections to a listener, and eviction when it is full.
//!
//! A connection counts as unauthenticated until its first authenticated request. Limits per address hold for those
//! only: many runners share one address behind a NAT. Where a limit is reached, the oldest unauthenticated connection
//! makes room, so a caller with a token gets through while others hold connections open. A connection younger than
//! [`GRACE`] is kept: it may be in its TLS handshake, and a fleet that reconnects must not push itself out.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tracing::warn;

use super::progress::Progress;

/// Time that a new connection has to authenticate before it may make room.
const GRACE: Duration = Duration::from_secs(2);
/// Fewest unauthenticated connections that an address may have.
const FEWEST_OF_ADDRESS: usize = 16;
/// Part of a listener's connections that an address may have unauthenticated.
const PART_OF_ADDRESS: usize = 16;
/// Shortest time between two log lines about a full listener.
const QUIET: Duration = Duration::from_secs(10);

/// The connections of one listener.
pub struct Admission {
    listener: &'static str,
    connections: usize,
    of_address: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    open: usize,
    next: u64,
    unauthenticated: BTreeMap<u64, (Address, Instant, Arc<Progress>)>,
    by_address: HashMap<Address, BTreeSet<u64>>,
    dropped: u64,
    logged: Option<Instant>,
}

/// Source of a connection: an IPv4 address, or the /64 network of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Address(u64);

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Address {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Address(u64::from(ip.to_bits())),
            IpAddr::V6(ip) => Address(network(ip)),
        }
    }
}

fn network(ip: Ipv6Addr) -> u64 {
    u64::try_from(ip.to_bits() >> 64).unwrap_or(u64::MAX)
}

impl Admission {
    /// Admits at most this many connections.
    pub fn new(listener: &'static str, connections: usize) -> Arc<Admission> {
        let of_address = (connections / PART_OF_ADDRESS).max(FEWEST_OF_ADDRESS);
        Arc::new(Admission { listener, connections, of_address, inner: Mutex::default() })
    }

    /// Admits a connection, or none when all that are open must be kept.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Ticket> {
        let (address, now, mut inner) = (Address::from(peer), Instant::now(), self.inner());
        let of_address = inner.by_address.get(&address).map_or(0, BTreeSet::len);
        let room = if of_address >= self.of_address {
            let oldest = inner.by_address.get(&address).and_then(|ids| ids.first().copied());
            oldest.is_some_and(|id| inner.evict(id, now))
        } else {
            true
        };
        let room = room && (inner.open < self.connections || inner.evict_oldest(now));
        if !room {
            inner.dropped += 1;
            self.log(&mut inner, now);
            return None;
        }
        let (id, progress) = (inner.next, Progress::new());
        inner.next += 1;
        inner.open += 1;
        inner.unauthenticated.insert(id, (address, now, Arc::clone(&progress)));
        inner.by_address.entry(address).or_default().insert(id);
        self.log(&mut inner, now);
        drop(inner);
        Some(Ticket(Arc::new(Admitted { id, admission: Arc::clone(self), progress })))
    }

    fn log(&self, inner: &mut Inner, now: Instant) {
        let due = inner.logged.is_none_or(|at| now.duration_since(at) >= QUIET);
        if inner.dropped > 0 && due {
            warn!(
                listener = self.listener,
                dropped = inner.dropped,
                open = inner.open,
                unauthenticated = inner.unauthenticated.len(),
                limit = self.connections,
                limit_of_address = self.of_address,
                "Dropped unauthenticated connections: a limit is reached"
            );
            (inner.dropped, inner.logged) = (0, Some(now));
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn evict_oldest(&mut self, now: Instant) -> bool {
        let oldest = self.unauthenticated.keys().next().copied();
        oldest.is_some_and(|id| self.evict(id, now))
    }

    /// Evicts a connection that had time to authenticate. The connection's own task closes it.
    fn evict(&mut self, id: u64, now: Instant) -> bool {
        let old = self.unauthenticated.get(&id).filter(|(_, since, _)| *since + GRACE <= now);
        let Some(progress) = old.map(|(_, _, progress)| Arc::clone(progress)) else { return false };
        self.forget(id);
        self.dropped += 1;
        progress.evict();
        true
    }

    /// Takes a connection out of those that may be evicted.
    fn forget(&mut self, id: u64) {
        let Some((address, ..)) = self.unauthenticated.remove(&id) else { return };
        if let Some(ids) = self.by_address.get_mut(&address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }
}

/// An admitted connection. Its requests carry it among their extensions.
#[derive(Clone)]
pub struct Ticket(Arc<Admitted>);

struct Admitted {
    id: u64,
    admission: Arc<Admission>,
    progress: Arc<Progress>,
}

impl Ticket {
    /// Notes that a request of this connection was authenticated: it is kept from now on.
    pub fn authenticate(&self) {
        if self.0.progress.authenticate() {
            self.0.admission.inner().forget(self.0.id);
        }
    }

    /// Progress of the connection.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.0.progress
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut inner = self.admission.inner();
        inner.open = inner.open.saturating_sub(1);
        inner.forget(self.id);
    }
}
