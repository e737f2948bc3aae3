//! Admission of connections to a listener, and eviction when it is full.
//!
//! A connection counts as unauthenticated until its first authenticated request. Limits per address
//! apply only to unauthenticated connections, because many runners share one address behind a NAT.
//!
//! When a limit is reached, the oldest unauthenticated connection is evicted. A caller with a token
//! therefore gets through while others hold connections open. If even the oldest connection is
//! younger than [`GRACE`], a random connection is evicted. A flood from changing addresses
//! therefore rarely evicts a caller before it authenticates.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tracing::warn;

use super::progress::Progress;

/// Time that a new connection has to authenticate before it can be evicted as the oldest.
const GRACE: Duration = Duration::from_secs(2);
/// Minimum for the limit of unauthenticated connections per address.
const MIN_PER_ADDRESS: usize = 16;
/// Divisor of a listener's connections that gives the limit of unauthenticated connections per
/// address.
const ADDRESS_DIVISOR: usize = 16;
/// Maximum number of connections above the limit, because an evicted connection stays open until
/// its task closes it.
const MAX_CLOSING: usize = 64;
/// Shortest interval between two log lines about a full listener.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Connections of one listener.
pub(super) struct Admission {
    listener: &'static str,
    connections: usize,
    per_address: usize,
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
    /// Creates an admission. `connections` limits all connections, and `of_address` limits the
    /// unauthenticated connections per address.
    pub(super) fn new(
        listener: &'static str,
        connections: usize,
        of_address: Option<usize>,
    ) -> Arc<Admission> {
        let usual = (connections / ADDRESS_DIVISOR).max(MIN_PER_ADDRESS);
        let of_address = of_address.unwrap_or(usual).max(1);
        Arc::new(Admission {
            listener,
            connections,
            per_address: of_address,
            inner: Mutex::default(),
        })
    }

    /// Admits a connection. Returns `None` if the listener is full and cannot evict an
    /// unauthenticated connection, or if too many evicted connections are still open.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Ticket> {
        let (address, now, mut inner) = (Address::from(peer), Instant::now(), self.inner());
        let of_address = inner.by_address.get(&address).map_or(0, BTreeSet::len);
        let is_at_limit = of_address >= self.per_address;
        // Evicting a connection of this address also frees capacity of the listener.
        let has_capacity = inner.open < self.connections + MAX_CLOSING
            && match is_at_limit {
                true => inner.evict_of(address, now),
                false => inner.open < self.connections || inner.evict_any(now),
            };
        if !has_capacity {
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
        Some(Ticket(Arc::new(Admitted { id, peer, admission: Arc::clone(self), progress })))
    }

    fn log(&self, inner: &mut Inner, now: Instant) {
        let due = inner.logged.is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL);
        if inner.dropped > 0 && due {
            warn!(
                listener = self.listener,
                dropped = inner.dropped,
                open = inner.open,
                unauthenticated = inner.unauthenticated.len(),
                limit = self.connections,
                limit_of_address = self.per_address,
                "Dropped unauthenticated connections because a limit is reached"
            );
            (inner.dropped, inner.logged) = (0, Some(now));
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Evicts one unauthenticated connection of any address. Returns `false` if there is none.
    fn evict_any(&mut self, now: Instant) -> bool {
        let all = &self.unauthenticated;
        let ends = all.keys().next().copied().zip(all.keys().next_back().copied());
        let at_or_after = |id| all.range(id..).next().map(|(id, _)| *id);
        let chosen = ends.and_then(|ends| self.choose(ends, now, at_or_after));
        chosen.is_some_and(|id| self.evict(id))
    }

    /// Evicts one unauthenticated connection of this address. Returns `false` if there is none.
    fn evict_of(&mut self, address: Address, now: Instant) -> bool {
        let Some(ids) = self.by_address.get(&address) else { return false };
        let ends = ids.first().copied().zip(ids.last().copied());
        let at_or_after = |id| ids.range(id..).next().copied();
        let chosen = ends.and_then(|ends| self.choose(ends, now, at_or_after));
        chosen.is_some_and(|id| self.evict(id))
    }

    /// Chooses the oldest connection if it had time to authenticate, and otherwise a random
    /// connection.
    fn choose(
        &self,
        (first, last): (u64, u64),
        now: Instant,
        at_or_after: impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        let had_time = |(_, since, _): &(Address, Instant, Arc<Progress>)| *since + GRACE <= now;
        match self.unauthenticated.get(&first).is_some_and(had_time) {
            true => Some(first),
            false => at_or_after(first + rand::random::<u64>() % (last - first + 1)),
        }
    }

    /// Evicts a connection. Its own task closes the socket shortly afterwards.
    fn evict(&mut self, id: u64) -> bool {
        let Some((_, _, progress)) = self.unauthenticated.get(&id) else { return false };
        let progress = Arc::clone(progress);
        self.forget(id);
        self.dropped += 1;
        progress.evict();
        true
    }

    /// Excludes a connection from eviction.
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

/// Admitted connection. Each of its requests has the ticket among its extensions.
#[derive(Clone)]
pub(crate) struct Ticket(Arc<Admitted>);

struct Admitted {
    id: u64,
    peer: IpAddr,
    admission: Arc<Admission>,
    progress: Arc<Progress>,
}

impl Ticket {
    /// Records that a request of this connection was authenticated. The connection is no longer
    /// evicted.
    pub(crate) fn authenticate(&self) {
        if self.0.progress.authenticate() {
            self.0.admission.inner().forget(self.0.id);
        }
    }

    /// Address of the peer, which is the proxy if there is one.
    pub(crate) fn peer(&self) -> IpAddr {
        self.0.peer
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn from(number: u32) -> IpAddr {
        // Each number gives an address in a different network.
        IpAddr::V6(Ipv6Addr::from((0x2001_0db8_0000_0000 + u128::from(number)) << 64))
    }

    fn is_open(ticket: &Ticket) -> bool {
        let known = ticket.0.admission.inner();
        known.unauthenticated.contains_key(&ticket.0.id)
    }

    #[tokio::test(start_paused = true)]
    async fn flood_from_changing_networks_locks_out_no_caller() {
        let admission = Admission::new("test", 100, None);
        let mut held: Vec<Ticket> =
            (0..100).map(|number| admission.admit(from(number)).unwrap()).collect();
        let mut stayed = 0;
        for round in 0..200 {
            // given a full listener with new connections only, when another caller connects
            let new_caller = admission.admit(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))).unwrap();
            held.retain(is_open);
            // then the caller's connection usually survives 50 further connections, half of the
            // listener's limit
            for number in 0..50 {
                held.extend(admission.admit(from(1_000 + round * 50 + number)));
                held.retain(is_open);
            }
            stayed += u32::from(is_open(&new_caller));
        }
        // With uniform random eviction, a caller would stay with a probability of 0.99 to the power
        // of 50.
        assert!(stayed >= 80, "{stayed} of 200 stayed");
    }

    #[tokio::test(start_paused = true)]
    async fn address_at_its_limit_evicts_only_its_own_connections() {
        let admission = Admission::new("test", 20, Some(4));
        let mut own: Vec<Ticket> = (0..4).map(|_| admission.admit(from(1)).unwrap()).collect();
        let others: Vec<Ticket> =
            (0..16).map(|number| admission.admit(from(100 + number)).unwrap()).collect();
        for _ in 0..50 {
            own.extend(admission.admit(from(1)));
            own.retain(is_open);
        }
        assert!(others.iter().all(is_open));
        assert_eq!(own.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn unauthenticated_connections_of_an_address_are_limited() {
        for (limit, expected) in [(None, 16), (Some(40), 40), (Some(0), 1)] {
            let admission = Admission::new("test", 100, limit);
            let mut held = Vec::new();
            for _ in 0..60 {
                held.extend(admission.admit(from(1)));
                held.retain(is_open);
            }
            assert_eq!(held.len(), expected);
        }
    }
}
