//! Reads a stream's events from archives. The index names their frames, and their sequences must
//! have no gap.
use std::sync::Arc;

use sqlx::{PgConnection, Row};

use super::{ArchiveRecord, Archives, catalog::unreadable, list, store::Store};
use crate::{LogError, StoredEvent, StreamId, stored::number};

impl Archives {
    /// Returns the events of a stream after a sequence and up to a position that only archives
    /// have, in order, at most `limit`. Fails if an event between the returned events and the first
    /// row of the database is missing.
    ///
    /// # Errors
    /// [`LogError::Archived`].
    pub async fn stream(
        &self,
        connection: &mut PgConnection,
        stream: &StreamId,
        (after_sequence, to): (u64, u64),
        limit: u32,
    ) -> Result<Vec<Arc<StoredEvent>>, LogError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (since, until) = archived_part(&mut *connection, stream).await?;
        let (mut found, mut next) = (Vec::new(), after_sequence.saturating_add(1));
        if next > until {
            return Ok(found);
        }
        let mut last = None;
        let dropped = list(connection).await?.into_iter().filter(|one| one.dropped_at.is_some());
        for listed in dropped.filter(|one| one.last >= since && one.first <= to) {
            if next > until {
                break;
            }
            let store = self.open(&listed).await?;
            let frames = store.frames_of(stream, next);
            for number in frames.map_err(|why| unreadable(&store.directory, &listed, &why))? {
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                for event in self.frame(&store, &listed, number).await?.iter() {
                    if event.stream != *stream || event.sequence < next {
                        continue;
                    }
                    // This check comes first, because the missing event may be at or before the
                    // requested position.
                    if event.sequence != next {
                        return Err(index_gap(&store, &listed, stream, next));
                    }
                    if event.position > to || found.len() == limit {
                        return Ok(found);
                    }
                    next += 1;
                    found.push(event.clone());
                }
            }
            last = Some((store, listed));
        }
        match last {
            // If the requested position is within the archives, the last event may be in a frame
            // that the index does not list. The next event of the stream shows that none is
            // missing.
            Some((store, listed)) if next <= until && listed.last >= to => {
                self.follows(connection, (stream, next, to), (&store, &listed)).await?;
            }
            Some((store, listed)) if next <= until => {
                return Err(index_gap(&store, &listed, stream, next));
            }
            Some(_) | None => {}
        }
        Ok(found)
    }

    /// Checks that the stream's event with this sequence is after the position.
    async fn follows(
        &self,
        connection: &mut PgConnection,
        (stream, sequence, position): (&StreamId, u64, u64),
        (store, listed): (&Store, &ArchiveRecord),
    ) -> Result<(), LogError> {
        for one in list(connection).await?.iter().filter(|one| one.last >= position) {
            if one.dropped_at.is_none() {
                continue;
            }
            let later = self.open(one).await?;
            let frames = later.frames_of(stream, sequence);
            for number in frames.map_err(|why| unreadable(&later.directory, one, &why))? {
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                let frame = self.frame(&later, one, number).await?;
                let is = |event: &&Arc<StoredEvent>| {
                    event.stream == *stream && event.sequence == sequence
                };
                if let Some(event) = frame.iter().find(is) {
                    return if event.position > position {
                        Ok(())
                    } else {
                        Err(index_gap(store, listed, stream, sequence))
                    };
                }
            }
        }
        Err(index_gap(store, listed, stream, sequence))
    }
}

/// Returns a lower bound of the stream's first position, and the last sequence whose event has no
/// row in the database.
async fn archived_part(
    connection: &mut PgConnection,
    stream: &StreamId,
) -> Result<(u64, u64), sqlx::Error> {
    let row = sqlx::query(
        "select first_position, coalesce((select min(e.sequence) - 1 from log_event e \
           where e.aggregate_type = $1 and e.aggregate_id = $2 and e.position >= s.first_position), version) \
         from log_stream s where s.aggregate_type = $1 and s.aggregate_id = $2",
    )
    .bind(&stream.aggregate_type)
    .bind(&stream.aggregate_id)
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok((0, 0)) };
    Ok((number(row.try_get(0)?), number(row.try_get(1)?)))
}

fn index_gap(store: &Store, listed: &ArchiveRecord, stream: &StreamId, sequence: u64) -> LogError {
    let why = format!("its index does not lead to event {sequence} of {stream}");
    unreadable(&store.directory, listed, &why)
}
