//! Encryption of personal data fields with subject keys. Fields are encrypted before the event is
//! hashed, and decrypted after it is read. `domain::erasure` defines the values that replace
//! shredded fields.
//!
//! The table `subject_key` has a data key of 32 random bytes for each subject. A wrapping key that
//! is not in the database encrypts these keys. Used keys are cached, so an append for a subject
//! with a cached key needs no further round trip.
mod aead;
pub mod data;
mod key_cache;
mod members;
mod payload;
mod rewrap;
pub mod shred;
mod table;
mod wrap;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use domain::erasure::personal_fields;
use sqlx::{PgConnection, PgExecutor, PgPool};

pub use payload::EventContext;
pub use wrap::WrappingKey;

use crate::{Clock, Commit, LogError, StoredEvent, commit::NewEvent};
use aead::Secret;
use key_cache::KeyCache;

/// The subject keys of this process. Clones share them. The default has no keys and neither
/// encrypts nor decrypts.
#[derive(Clone, Default)]
pub struct KeyRing(Option<Arc<Shared>>);

struct Shared {
    wrapping: WrappingKey,
    /// Earlier wrapping keys, which still unwrap the keys that they wrapped.
    former: Vec<WrappingKey>,
    cache: KeyCache,
}

/// State of one subject's key.
#[derive(Clone)]
pub(crate) enum Key {
    /// The key is available.
    Open(Arc<Secret>),
    Shredded,
    /// The key should exist but is not available, for this reason.
    Missing(Arc<str>),
}

/// Subject keys that were loaded for several events. Encryption and decryption with them need no
/// further query.
#[derive(Clone, Default)]
pub struct Keys(HashMap<String, Key>);

/// Returns true if a payload has encrypted fields, or a malformed member `encrypted`.
pub(crate) fn is_encrypted(payload: &str) -> bool {
    payload::encrypted_fields(payload).map_or(true, |fields| !fields.is_empty())
}

/// Combined state of several keys.
enum KeyState {
    Open(Secret),
    Shredded,
    Missing(String),
}

impl Keys {
    /// Returns the combined state of these subjects' keys. A field of two subjects is erased if
    /// either key was shredded.
    fn combined_state(&self, of: &[String]) -> KeyState {
        let mut open = vec![];
        for subject in of {
            match self.0.get(subject) {
                Some(Key::Shredded) => return KeyState::Shredded,
                Some(Key::Open(key)) => open.push(key.clone()),
                Some(Key::Missing(why)) => return KeyState::Missing(why.to_string()),
                None => {
                    return KeyState::Missing(format!("the key of {subject} was not loaded"));
                }
            }
        }
        let mut both = zeroize::Zeroizing::new(b"stead/subject-keys/v1\n".to_vec());
        open.iter().for_each(|key| both.extend_from_slice(&key[..]));
        KeyState::Open(Secret::new(proof::sha256(&both)))
    }

    /// Returns the payload with decrypted fields, or `None` if no field is encrypted.
    ///
    /// # Errors
    /// The reason, if a key is not available.
    pub fn open(&self, payload: &str, which: EventContext<'_>) -> Result<Option<String>, String> {
        payload::open(payload, which, self)
    }
}

impl KeyRing {
    /// Creates a ring. `wrapping` encrypts new subject keys. `former` wrapping keys decrypt the
    /// subject keys that they encrypted earlier.
    pub fn of(wrapping: WrappingKey, former: Vec<WrappingKey>) -> KeyRing {
        KeyRing(Some(Arc::new(Shared { wrapping, former, cache: KeyCache::default() })))
    }

    /// Checks that the ring has the wrapping key of every subject key in the database. A ring
    /// without keys passes.
    ///
    /// # Errors
    /// [`LogError::WrappingKey`] with the name of a missing wrapping key.
    pub async fn check(&self, executor: impl PgExecutor<'_>) -> Result<(), LogError> {
        if self.0.is_some() { self.check_all(executor).await } else { Ok(()) }
    }

    /// Checks as [`KeyRing::check`] does, but a ring without keys fails if the database has subject
    /// keys.
    ///
    /// # Errors
    /// [`LogError::WrappingKey`] with the name of a missing wrapping key.
    pub async fn check_all(&self, executor: impl PgExecutor<'_>) -> Result<(), LogError> {
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

    /// Marks the key of a subject as shredded, so that this process no longer decrypts with it.
    pub fn mark_shredded(&self, subject: &str) {
        if let Some(shared) = &self.0 {
            shared.cache.put(subject.to_owned(), Key::Shredded);
        }
    }

    /// Clears the cache, because other servers may have shredded keys.
    pub(crate) fn forget_all(&self) {
        if let Some(shared) = &self.0 {
            shared.cache.clear();
        }
    }

    /// Loads the keys that encrypt a commit, and creates missing ones.
    pub(crate) async fn encryption_keys(
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
        let (mut keys, missing) = shared.cache.cached(subjects);
        if !missing.is_empty() {
            shared.make(pool, &missing, clock).await?;
            keys.0.extend(shared.fetch(&mut *pool.acquire().await?, &missing).await?);
        }
        Ok(Some(keys))
    }

    /// Loads the keys that decrypt these payloads.
    ///
    /// # Errors
    /// If a database operation fails.
    pub async fn decryption_keys<'p>(
        &self,
        connection: &mut PgConnection,
        payloads: impl IntoIterator<Item = &'p str>,
    ) -> Result<Keys, sqlx::Error> {
        // Skips a malformed `encrypted` member. Its decryption reports the error.
        let fields = payloads
            .into_iter()
            .flat_map(|text| payload::encrypted_fields(text).unwrap_or_default());
        let subjects: BTreeSet<String> = fields.flat_map(|field| field.subjects).collect();
        let Some(shared) = &self.0 else {
            let none: Arc<str> = "the payload is encrypted, but the program has no key file `keys/subjects.key`; pass the server's data directory with --data".into();
            let missing = |subject| (subject, Key::Missing(none.clone()));
            return Ok(Keys(subjects.into_iter().map(missing).collect()));
        };
        let (mut keys, missing) = shared.cache.cached(subjects);
        if !missing.is_empty() {
            keys.0.extend(shared.fetch(connection, &missing).await?);
        }
        Ok(keys)
    }

    /// Decrypts the payloads of events.
    pub(crate) async fn open(
        &self,
        connection: &mut PgConnection,
        events: &mut [StoredEvent],
    ) -> Result<(), sqlx::Error> {
        let keys =
            self.decryption_keys(connection, events.iter().map(|event| &*event.payload)).await?;
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
        let fields = personal_fields(&self.event_type);
        match fields.is_empty() {
            true => (None, None),
            false => {
                let customer = self.customer.map(|install| install.to_string());
                payload::subjects(&self.payload, fields, customer)
            }
        }
    }

    /// Returns the encrypted payload and the payload to read, or `None` if no field has personal
    /// data.
    pub(crate) fn encrypted(
        &self,
        keys: &Keys,
        which: EventContext<'_>,
    ) -> Result<Option<(String, String)>, String> {
        let subjects = self.subjects();
        match subjects {
            (None, None) => Ok(None),
            _ => payload::encrypt_payload(
                &self.payload,
                personal_fields(&self.event_type),
                subjects,
                which,
                keys,
            ),
        }
    }
}
