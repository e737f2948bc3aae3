//! Whose words are kept under whose key. Everything that is sealed is sealed here, before it is hashed; everything that
//! is opened is opened here; what becomes of it once a key is shredded is said in `domain::erasure`.
//!
//! A data key of 32 random bytes for each subject is in the table `subject_key`, wrapped by a key that is not in the
//! database. Keys that were used are kept in memory: an append of a known subject costs no round trip more.
mod aead;
mod held;
mod members;
mod payload;
mod rewrap;
/// The end of a key.
pub mod shred;
mod table;
mod wrap;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use domain::erasure::places;
use sqlx::{PgConnection, PgExecutor, PgPool};

pub use payload::Which;
pub use wrap::WrappingKey;

use crate::{Clock, Commit, LogError, Stored, commit::NewEvent};
use aead::Secret;
use held::Held;

/// The keys of subjects as this process knows them. Clones are the same one; the one that is made by default has none,
/// seals nothing and opens nothing.
#[derive(Clone, Default)]
pub struct KeyRing(Option<Arc<Shared>>);

struct Shared {
    wrapping: WrappingKey,
    /// Those that wrapped before it: what they wrapped is still read.
    former: Vec<WrappingKey>,
    held: Held,
}

/// One subject's key.
#[derive(Clone)]
pub(crate) enum Key {
    /// It opens.
    Open(Arc<Secret>),
    /// It is gone, for ever.
    Shredded,
    /// It should be there, and cannot be had: the reason.
    Missing(Arc<str>),
}

/// Keys that were gathered for some events: sealing and opening ask nobody.
#[derive(Clone, Default)]
pub struct Keys(HashMap<String, Key>);

/// Whether something in a payload is sealed.
pub(crate) fn is_sealed(payload: &str) -> bool {
    payload::seals(payload).map_or(true, |seals| !seals.is_empty())
}

/// What several keys together are.
enum Standing {
    Open(Secret),
    Shredded,
    Missing(String),
}

impl Keys {
    /// Who is erased is erased from what was said of two.
    fn standing(&self, of: &[String]) -> Standing {
        let mut open = vec![];
        for subject in of {
            match self.0.get(subject) {
                Some(Key::Shredded) => return Standing::Shredded,
                Some(Key::Open(key)) => open.push(key.clone()),
                Some(Key::Missing(why)) => return Standing::Missing(why.to_string()),
                None => {
                    return Standing::Missing(format!("the key of {subject} was not asked for"));
                }
            }
        }
        let mut both = zeroize::Zeroizing::new(b"stead/subject-keys/v1\n".to_vec());
        open.iter().for_each(|key| both.extend_from_slice(&key[..]));
        Standing::Open(Secret::new(proof::sha256(&both)))
    }

    /// A payload as it is read today. `None`: as it is kept.
    ///
    /// # Errors
    /// Why not, in words, if it is sealed and the key is not there.
    pub fn open(&self, payload: &str, which: Which<'_>) -> Result<Option<String>, String> {
        payload::open(payload, which, self)
    }
}

impl KeyRing {
    /// The keys that this one wraps, or one of those before it.
    pub fn of(wrapping: WrappingKey, former: Vec<WrappingKey>) -> KeyRing {
        KeyRing(Some(Arc::new(Shared { wrapping, former, held: Held::default() })))
    }

    /// Whether what the database has can be opened with these keys.
    ///
    /// # Errors
    /// [`LogError::WrappingKey`] if it cannot.
    pub async fn check(&self, executor: impl PgExecutor<'_>) -> Result<(), LogError> {
        if self.0.is_some() { self.opens_all(executor).await } else { Ok(()) }
    }

    /// Like [`KeyRing::check`], but also for a ring without any key, which opens nothing.
    ///
    /// # Errors
    /// [`LogError::WrappingKey`] with the name of a key that is missing.
    pub async fn opens_all(&self, executor: impl PgExecutor<'_>) -> Result<(), LogError> {
        let known: Vec<&str> =
            self.0.iter().flat_map(|shared| shared.wraps()).map(WrappingKey::name).collect();
        let other = "select wrapped_by from subject_key where wrapped is not null \
             and not wrapped_by = any($1) limit 1";
        let other = sqlx::query_scalar(other).bind(known).fetch_optional(executor).await?;
        match other {
            Some(name) => Err(LogError::WrappingKey(name)),
            None => Ok(()),
        }
    }

    /// Nobody reads anything of this subject any more, whatever the database still has.
    pub fn forget(&self, subject: &str) {
        if let Some(shared) = &self.0 {
            shared.held.put(subject.to_owned(), Key::Shredded);
        }
    }

    /// Nothing is known of what became of keys meanwhile.
    pub(crate) fn forget_all(&self) {
        if let Some(shared) = &self.0 {
            shared.held.clear();
        }
    }

    /// The keys that a commit is sealed with; made where there are none yet.
    pub(crate) async fn to_seal(
        &self,
        pool: &PgPool,
        commit: &Commit,
        clock: &Clock,
    ) -> Result<Option<Keys>, sqlx::Error> {
        let Some(shared) = &self.0 else { return Ok(None) };
        let mut subjects = BTreeSet::new();
        for event in commit.writes.iter().flat_map(|write| &write.events) {
            let (customer, author) = event.subjects();
            subjects.extend(customer.into_iter().chain(author));
        }
        let (mut keys, missing) = shared.held.known(subjects);
        if !missing.is_empty() {
            shared.make(pool, &missing, clock).await?;
            keys.0.extend(shared.fetch(&mut *pool.acquire().await?, &missing).await?);
        }
        Ok(Some(keys))
    }

    /// The keys that these payloads are opened with.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn to_open<'p>(
        &self,
        connection: &mut PgConnection,
        payloads: impl IntoIterator<Item = &'p str>,
    ) -> Result<Keys, sqlx::Error> {
        // An `encrypted` member that cannot be read is an error later, when it is decrypted.
        let seals = payloads.into_iter().flat_map(|text| payload::seals(text).unwrap_or_default());
        let subjects: BTreeSet<String> = seals.flat_map(|seal| seal.subjects).collect();
        let Some(shared) = &self.0 else {
            let none: Arc<str> = "it is encrypted, and the key file `keys/subjects.key` was not given; pass its data directory with --data".into();
            let missing = |subject| (subject, Key::Missing(none.clone()));
            return Ok(Keys(subjects.into_iter().map(missing).collect()));
        };
        let (mut keys, missing) = shared.held.known(subjects);
        if !missing.is_empty() {
            keys.0.extend(shared.fetch(connection, &missing).await?);
        }
        Ok(keys)
    }

    /// Open what was read of the log.
    pub(crate) async fn open(
        &self,
        connection: &mut PgConnection,
        events: &mut [Stored],
    ) -> Result<(), sqlx::Error> {
        let keys = self.to_open(connection, events.iter().map(|event| &*event.payload)).await?;
        events.iter_mut().for_each(|event| event.open(&keys));
        Ok(())
    }
}

impl Shared {
    fn wraps(&self) -> impl Iterator<Item = &WrappingKey> {
        std::iter::once(&self.wrapping).chain(&self.former)
    }
}

impl NewEvent {
    fn subjects(&self) -> (Option<String>, Option<String>) {
        let places = places(&self.event_type);
        match places.is_empty() {
            true => (None, None),
            false => {
                let customer = self.customer.map(|install| install.to_string());
                payload::subjects(&self.payload, places, customer)
            }
        }
    }

    /// The payload as it is kept, and as it is read today. `None`: nothing in it is anybody's.
    pub(crate) fn sealed(
        &self,
        keys: &Keys,
        which: Which<'_>,
    ) -> Result<Option<(String, String)>, String> {
        let subjects = self.subjects();
        match subjects {
            (None, None) => Ok(None),
            _ => payload::seal(&self.payload, places(&self.event_type), subjects, which, keys),
        }
    }
}
