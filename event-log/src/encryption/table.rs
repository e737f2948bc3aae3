//! Subject keys in the database, wrapped or deleted.
use std::{collections::HashMap, sync::Arc};

use sqlx::{PgConnection, PgPool, Row};

use super::{Key, Shared, aead::Secret};
use crate::{Clock, LogError};

impl Shared {
    /// Creates keys. If two servers create a key of the same subject, the first key remains.
    pub(super) async fn make(
        &self,
        pool: &PgPool,
        subjects: &[String],
        clock: &Clock,
    ) -> Result<(), sqlx::Error> {
        let mut wrapped = Vec::with_capacity(subjects.len());
        for subject in subjects {
            let fresh = Secret::new(rand::random());
            let encrypted = self.wrapping.wrap(subject, &fresh);
            wrapped.push(encrypted.ok_or(sqlx::Error::Encode("cannot wrap a key".into()))?);
        }
        sqlx::query(
            "insert into subject_key (subject, wrapped, wrapped_by, created_at) \
             select subject, wrapped, $3, $4 from unnest($1::text[], $2::bytea[]) as u(subject, wrapped) \
             on conflict (subject) do nothing",
        )
        .bind(subjects)
        .bind(wrapped)
        .bind(self.wrapping.name())
        .bind(clock.now())
        .execute(pool)
        .await?;
        Ok(())
    }

    pub(super) async fn fetch(
        &self,
        connection: &mut PgConnection,
        subjects: &[String],
    ) -> Result<Vec<(String, Key)>, sqlx::Error> {
        let rows = sqlx::query(
            "select subject, wrapped, wrapped_by from subject_key where subject = any($1)",
        )
        .bind(subjects)
        .fetch_all(connection)
        .await?;
        let mut found = HashMap::new();
        for row in &rows {
            let (subject, by): (String, Option<String>) = (row.try_get(0)?, row.try_get(2)?);
            let key = match row.try_get::<Option<Vec<u8>>, _>(1)? {
                None => Key::Shredded,
                Some(wrapped) => {
                    self.unwrapped(&subject, &wrapped, by.as_deref().unwrap_or_default())
                }
            };
            found.insert(subject, key);
        }
        let keys = subjects.iter().map(|subject| {
            let lost =
                || Key::Missing(format!("the key of {subject} is not in the database").into());
            let key = found.remove(subject).unwrap_or_else(lost);
            (subject.clone(), self.cache.keep(subject, key))
        });
        Ok(keys.collect())
    }

    fn unwrapped(&self, subject: &str, wrapped: &[u8], by: &str) -> Key {
        let Some(key) = self.wraps().find(|key| key.name() == by) else {
            return Key::Missing(LogError::WrappingKey(by.to_owned()).to_string().into());
        };
        match key.unwrap(subject, wrapped) {
            Some(key) => Key::Open(Arc::new(key)),
            None => Key::Missing(format!("the wrapped key of {subject} is corrupt").into()),
        }
    }
}
