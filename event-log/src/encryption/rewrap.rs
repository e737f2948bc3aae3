//! Rotation of the wrapping key. The current key wraps every subject key that an earlier key
//! wrapped, so that the earlier key can be deleted.
use sqlx::{PgPool, Row};

use super::{KeyRing, wrap::WrappingKey};
use crate::LogError;

/// Maximum number of keys that are rewrapped at once.
const PAGE: i64 = 1_000;

impl KeyRing {
    /// Rewraps every key that an earlier wrapping key wrapped. Returns their number. Several
    /// servers may call this concurrently.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn rewrap(&self, pool: &PgPool) -> Result<u64, LogError> {
        let Some(shared) = &self.0 else { return Ok(0) };
        let former: Vec<&str> = shared.former.iter().map(WrappingKey::name).collect();
        let mut done = 0;
        loop {
            let rows = sqlx::query(
                "select subject, wrapped, wrapped_by from subject_key \
                 where wrapped is not null and wrapped_by = any($1) limit $2",
            )
            .bind(&former)
            .bind(PAGE)
            .fetch_all(pool)
            .await?;
            if rows.is_empty() {
                return Ok(done);
            }
            let (mut subjects, mut wrapped, mut by) = (vec![], vec![], vec![]);
            for row in &rows {
                let (subject, former): (String, String) = (row.try_get(0)?, row.try_get(2)?);
                let bytes: Vec<u8> = row.try_get(1)?;
                let key = shared.former.iter().find(|key| key.name() == former);
                let key = key.and_then(|key| key.unwrap(&subject, &bytes));
                let again = key.and_then(|key| shared.wrapping.wrap(&subject, &key));
                let changed = || {
                    LogError::Database(sqlx::Error::Decode(
                        format!("the wrapped key of {subject} is corrupt").into(),
                    ))
                };
                wrapped.push(again.ok_or_else(changed)?);
                subjects.push(subject);
                by.push(former);
            }
            // Skips keys that were shredded or rewrapped meanwhile.
            let again = sqlx::query(
                "update subject_key k set wrapped = u.wrapped, wrapped_by = $4 \
                 from unnest($1::text[], $2::bytea[], $3::text[]) as u(subject, wrapped, by) \
                 where k.subject = u.subject and k.wrapped_by = u.by",
            )
            .bind(&subjects)
            .bind(&wrapped)
            .bind(&by)
            .bind(shared.wrapping.name())
            .execute(pool)
            .await?;
            done += again.rows_affected();
        }
    }
}
