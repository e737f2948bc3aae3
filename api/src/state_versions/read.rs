//! Reads a stored version in parts, so that a large state is never complete in memory.
use std::io;

use bytes::Bytes;
use domain::state_version::StateVersion;
use futures::Stream;
use schemas::runner::StateHead;
use sqlx::{PgPool, Row as _};
use tokio::time::timeout_at;

use super::{COLUMNS, Of, Transfer, head, uploads::PART};

/// Stored version without its ciphertext.
#[derive(Debug)]
pub(crate) struct Stored {
    pub head: StateHead,
    /// Size of the ciphertext in bytes.
    pub size: u64,
    install: String,
    component: String,
    number: i64,
}

/// Returns a version: the newest one, or the last one with this lineage and serial.
pub(crate) async fn find(
    pool: &PgPool,
    of: Of<'_>,
    version: Option<(&str, u64)>,
) -> Result<Option<Stored>, sqlx::Error> {
    let sql = format!(
        "select {COLUMNS}, number, octet_length(ciphertext)::int8 as bytes from state_version \
         where install = $1 and component = $2 \
         and ($3::text is null or (lineage = $3 and serial = $4)) order by number desc limit 1"
    );
    let (install, component) = (of.install.to_string(), of.component.to_owned());
    let row = sqlx::query(&sql)
        .bind(&install)
        .bind(&component)
        .bind(version.map(|(lineage, _)| lineage))
        .bind(version.map_or(0, |(_, serial)| serial.cast_signed()))
        .fetch_optional(pool)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let size = row.try_get::<i64, _>("bytes")?.cast_unsigned();
    let number = row.try_get("number")?;
    Ok(Some(Stored { head: head(&row)?, size, install, component, number }))
}

/// Returns whether the newest version at the server includes this one, and no version with its
/// serial has other content.
pub(crate) async fn has(
    pool: &PgPool,
    of: Of<'_>,
    version: &StateVersion,
) -> Result<bool, sqlx::Error> {
    let Some(newest) = find(pool, of, None).await? else { return Ok(false) };
    if !newest.head.version().includes(version) {
        return Ok(false);
    }
    let same = find(pool, of, Some((&version.lineage, version.serial))).await?;
    Ok(same.is_none_or(|same| same.head.version().includes(version)))
}

impl Stored {
    /// Returns the part of the ciphertext from this offset. `None` if the version was deleted.
    async fn part(&self, pool: &PgPool, offset: u64) -> Result<Option<Bytes>, sqlx::Error> {
        // Postgres counts from 1, and reads only the blocks of the part.
        let sql = "select substring(ciphertext from $4::int4 for $5::int4) from state_version \
                   where install = $1 and component = $2 and number = $3";
        let from = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
        let part: Option<Vec<u8>> = sqlx::query_scalar(sql)
            .bind(&self.install)
            .bind(&self.component)
            .bind(self.number)
            .bind(from(offset + 1))
            .bind(from(PART))
            .fetch_optional(pool)
            .await?;
        Ok(part.map(Bytes::from))
    }

    /// Returns the first part of the ciphertext, and a stream of the others. The transfer counts
    /// until the stream is dropped, and limits its time.
    pub(crate) async fn parts(
        self,
        pool: &PgPool,
        transfer: Transfer,
    ) -> Result<Option<impl Stream<Item = io::Result<Bytes>> + use<>>, sqlx::Error> {
        let Some(first) = self.part(pool, 0).await? else { return Ok(None) };
        let pool = pool.clone();
        Ok(Some(async_stream::stream! {
            let mut sent = first.len() as u64;
            yield Ok(first);
            while sent < self.size {
                let part = timeout_at(transfer.deadline(), self.part(&pool, sent)).await;
                match part {
                    Ok(Ok(Some(part))) if !part.is_empty() => {
                        sent += part.len() as u64;
                        yield Ok(part);
                    }
                    Ok(Ok(_)) => {
                        yield Err(io::Error::other("the version was deleted during the transfer"));
                        return;
                    }
                    Ok(Err(error)) => {
                        yield Err(io::Error::other(error));
                        return;
                    }
                    Err(_too_slow) => {
                        yield Err(io::Error::other("the caller reads too slowly"));
                        return;
                    }
                }
            }
        }))
    }
}
