//! One task per process and log writes whatever is waiting, one statement at a time.
//!
//! ```text
//!  queue ─▶ batch (numbered, hashed) ─▶ statement ─┬─ committed ─▶ the next on its way, publish, answer
//!                                                  ├─ culprits  ─▶ answer those, send the rest
//!                                                  ├─ moved     ─▶ read the head, number again, send again
//!                                                  ├─ refused   ─▶ halve until the one to blame is alone
//!                                                  └─ in doubt  ─▶ raise the turn, look, then one of the above
//! ```
mod ack;
pub(crate) mod batch;
mod bind;
mod catch_up;
mod conflicts;
#[cfg(feature = "planted")]
mod fault_injection;
mod head;
mod in_doubt;
mod intake;
mod pipeline;
mod placeholders;
mod queue;
mod sql;
mod statement;
mod versions;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::{PgConnection, postgres::PgConnectOptions};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::{
    AppendError, Appended, Clock, Forget, KeyRing, Stored, SyncView, cache::Cache, nearby::Nearby,
};

pub(crate) use ack::HeadPublisher;
use ack::PendingAcks;
use batch::Batch;
use catch_up::forget_shredded;
use conflicts::Conflicts;
pub(crate) use head::connect as connection;
pub(crate) use head::{Head, PublishedHead};
pub(crate) use intake::Intake;
use pipeline::NumberedBatch;
pub(crate) use pipeline::PreparedBatch;
pub(crate) use queue::{Pending, Queue};
use sql::Check;
pub(crate) use statement::Statement;
use statement::{Early, Sent};
pub(crate) use versions::Versions;

/// How often the same commits are sent again when the database asks for it (deadlock, lock time-out).
const RETRIES: u32 = 20;
/// How often a new connection is tried before the callers are told that the database is away.
const RECONNECTS: u32 = 3;
/// Longest time that commits which write nothing may keep the appender from reading the head.
const UNREAD: Duration = Duration::from_secs(1);

/// The one writer of this process.
pub(crate) struct Appender {
    pub options: PgConnectOptions,
    /// How long the database may take for one answer.
    pub answer: Duration,
    pub clock: Clock,
    pub layout: i32,
    pub key_ttl: Duration,
    pub views: Vec<Arc<dyn SyncView>>,
    pub statement: Statement,
    pub outlet: HeadPublisher,
    pub connection: Option<PgConnection>,
    pub head: Head,
    pub versions: Versions,
    /// States of aggregates, which are of no use when history is another.
    pub cache: Arc<Cache>,
    /// Nodes of the tree, of which the same is true.
    pub nearby: Arc<Nearby>,
    /// What opens the words of subjects.
    pub keys: KeyRing,
    /// Whether the head has to be read before the next statement is sent.
    pub stale: bool,
    /// What goes next, if it was numbered while the last batch was on its way.
    pub next: Option<PreparedBatch>,
    /// What is durable and not told yet. Nobody is waited for before it is, but the next batch's way to the database.
    pub owed: PendingAcks,
}

impl Appender {
    /// Write until nobody can ask any more.
    pub(crate) async fn run(mut self, mut queue: Queue, watch_others: Option<Duration>) {
        loop {
            if let Some(PreparedBatch { commits, numbered, early }) = self.next.take() {
                self.write(commits, Some((numbered, early)), &mut queue).await;
                self.look_if_due(watch_others).await;
                continue;
            }
            self.pay();
            let batch = match watch_others {
                None => queue.next().await,
                Some(period) => match tokio::time::timeout(period, queue.arrival()).await {
                    Ok(()) => queue.next().await,
                    Err(_) => {
                        self.look_around().await;
                        continue;
                    }
                },
            };
            let Some(batch) = batch else { return };
            self.write(batch, None, &mut queue).await;
            self.look_if_due(watch_others).await;
        }
    }

    /// Read the head although there is work. Every write reads it; commits that write nothing do not.
    async fn look_if_due(&mut self, watch_others: Option<Duration>) {
        let is_due = self.outlet.read_at.borrow().elapsed() >= UNREAD;
        // The next batch mends a broken connection.
        if watch_others.is_some() && is_due && self.connection.is_some() {
            self.pay();
            self.look_around().await;
        }
    }

    /// Bring a batch to its end: every commit in it is answered when this returns.
    async fn write(
        &mut self,
        commits: Vec<Pending>,
        mut numbered: Option<(NumberedBatch, Option<Early>)>,
        queue: &mut Queue,
    ) {
        #[cfg(feature = "planted")]
        fault_injection::panics();
        let mut parts = VecDeque::from([commits]);
        let (mut tries, mut check) = (0, Check::Trusted);
        while let Some(mut part) = parts.pop_front() {
            if part.is_empty() {
                continue;
            }
            let tried = self.try_once(&mut part, &mut check, numbered.take(), queue).await;
            if tried.is_err() {
                self.pay();
            }
            match tried {
                Ok(true) => (tries, check) = (0, Check::Trusted),
                Ok(false) => parts.push_front(part),
                Err(error) if statement::is_transient(&error) && tries < RETRIES => {
                    // Nothing was written: the database chose us to give way.
                    tries += 1;
                    sleep(Duration::from_millis(u64::from(tries) * 2)).await;
                    parts.push_front(part);
                }
                Err(error)
                    if part.len() > 1
                        && statement::is_refusal(&error)
                        && !statement::is_transient(&error) =>
                {
                    // One of them is to blame; the others must not suffer more than a round trip.
                    let rest = part.split_off(part.len() / 2);
                    parts.push_front(rest);
                    parts.push_front(part);
                }
                Err(error) if !statement::is_refusal(&error) && tries < RECONNECTS => {
                    // Nothing was sent: only the way to the database is broken.
                    self.connection = None;
                    tries += 1;
                    sleep(Duration::from_millis(u64::from(tries) * 20)).await;
                    parts.push_front(part);
                }
                Err(error) => {
                    warn!("{} commits were not written: {error}", part.len());
                    if !statement::is_refusal(&error) {
                        self.connection = None;
                    }
                    tries = 0;
                    let error = Arc::new(error);
                    for pending in part {
                        pending.answer(Err(AppendError::Database(error.clone())));
                    }
                }
            }
        }
    }

    /// Send what is left of a batch once. True: all answered. False: send again. Culprits are answered and taken
    /// out.
    async fn try_once(
        &mut self,
        part: &mut Vec<Pending>,
        check: &mut Check,
        numbered: Option<(NumberedBatch, Option<Early>)>,
        queue: &mut Queue,
    ) -> Result<bool, sqlx::Error> {
        self.ready().await?;
        if self.head.layout != self.layout {
            let (known, found) = (self.layout, self.head.layout);
            for pending in part.drain(..) {
                pending.answer(Err(AppendError::Layout { known, found }));
            }
            return Ok(true);
        }
        let numbered = numbered.filter(|(it, _)| it.holds(&self.head, part, &mut self.versions));
        let (NumberedBatch { batch, late, .. }, early) = numbered.unwrap_or_else(|| {
            let key_ttl = self.key_ttl;
            (numbered_on(&self.head, part, &mut self.versions, &self.clock, key_ttl), None)
        });
        if batch.is_empty() {
            let mut culprits = Conflicts::default();
            culprits.blame(late);
            culprits.take_out(part);
            return Ok(true);
        }
        let Some(connection) = self.connection.as_mut() else { return Ok(false) };
        let Appender { head, owed, nearby, outlet, statement, versions, clock, .. } = self;
        let pay = |owed: &mut PendingAcks| owed.pay(head, nearby, outlet);
        let rides = head::within(self.answer, batch.rides(&self.views, connection));
        let rides = pipeline::waiting(rides, || pay(owed)).await?;
        #[cfg(feature = "planted")]
        fault_injection::answer_before_commit(&batch, part, &late);
        let sending = statement.of_batch(head, &batch, early, rides, (self.layout, *check));
        let sent = pipeline::paying(sending.send(connection, self.answer), || pay(owed));
        let after = if batch.writes { &batch.head } else { &*head };
        let read_at = batch.writes.then(Instant::now);
        let (key_ttl, layout) = (self.key_ttl, self.layout);
        let ready = |commits: Vec<Pending>| {
            let numbered = numbered_on(after, &commits, versions, clock, key_ttl);
            let early = statement.early(after, &numbered.batch, layout);
            PreparedBatch { commits, numbered, early }
        };
        match pipeline::during(sent, queue, &mut self.next, ready).await {
            Sent::Distrusted => {
                *check = Check::Asked;
                Ok(false)
            }
            Sent::Committed(mut culprits) => {
                culprits.blame(late);
                culprits.take_out(part);
                self.committed(batch, part, read_at);
                Ok(true)
            }
            Sent::Conflicts(mut culprits) => {
                self.versions.correct(&culprits.stale);
                culprits.blame(late);
                culprits.take_out(part);
                Ok(part.is_empty())
            }
            Sent::Moved => {
                self.stale = true;
                Ok(false)
            }
            Sent::Refused(error) => Err(error),
            #[cfg(feature = "planted")]
            Sent::InDoubt(_) if fault_injection::retries_in_doubt() => {
                self.connection = None;
                Ok(false)
            }
            Sent::InDoubt(error) => {
                warn!("The log does not know whether its last batch was written, asking: {error}");
                self.connection = None;
                if self.resolve_in_doubt(&batch).await {
                    info!("The batch in doubt was written");
                    // Those that come too late ask for their keys again.
                    let rest: Vec<_> = part.extract_if(.., |pending| late.is(pending)).collect();
                    self.committed(batch, part, None);
                    part.extend(rest);
                    // Others may have written since.
                    self.stale = true;
                    Ok(part.is_empty())
                } else {
                    info!("The batch in doubt was not written, sending it again");
                    self.stale = true;
                    Ok(false)
                }
            }
        }
    }

    /// Take in what is durable now. Everyone hears of it when the next batch is on its way, at once if there is none.
    fn committed(&mut self, batch: Batch, part: &mut Vec<Pending>, read_at: Option<Instant>) {
        let Batch { head, events, spans, writes, .. } = batch;
        let recorded_at = head.recorded_at;
        if writes {
            self.head = head;
        }
        let commit_no = self.head.commit_no;
        if !events.is_empty() {
            for view in &self.views {
                view.committed(&events);
            }
            self.obey(&events);
            self.versions.learn(&events);
        }
        let appended =
            spans.into_iter().map(|(first, last)| Appended { first, last, commit_no, recorded_at });
        self.owed.add(events, part.drain(..).zip(appended), read_at);
        if self.next.is_none() {
            self.pay();
        }
    }

    /// Tell what is durable.
    fn pay(&mut self) {
        self.owed.pay(&self.head, &self.nearby, &self.outlet);
    }

    /// Who is shredded from these events on is read by nobody here: not from a key, a state or a row in memory.
    fn obey(&self, events: &[Stored]) {
        if forget_shredded(&self.keys, events) {
            self.cache.clear();
            self.views.iter().for_each(|view| view.forget(Forget::All));
        }
    }
}

/// Commits in their places after that head.
fn numbered_on(
    head: &Head,
    commits: &[Pending],
    versions: &mut Versions,
    clock: &Clock,
    key_ttl: Duration,
) -> NumberedBatch {
    let late = versions.late(commits);
    let batch = Batch::number(head, commits, &late, clock.now(), key_ttl);
    NumberedBatch { batch, late, before: head.clone() }
}
