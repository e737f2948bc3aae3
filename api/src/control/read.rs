//! Reading things for an answer: a stream, folded, with the moments at which it moved.
//!
//! Ids are ULIDs, so the order of a type's ids is the order in which the things came to be; that is the
//! order of every list, the newest first, and a cursor is the last id that was given.
use domain::decider::{Decider, Timestamp};
use event_log::{Stored, StreamId};
use futures::{StreamExt, TryStreamExt, stream};
use schemas::control::Page;

use crate::{
    problem::{Code, Problem},
    state::App,
};

/// Without a limit.
const USUAL: u32 = 50;
/// The highest limit.
const MOST: u32 = 200;
/// How many streams one call looks at before it hands out a cursor, found something or not.
const LOOKS: usize = 2000;
/// How many streams are read at once.
const AT_ONCE: usize = 8;

/// A thing, and how it came to be what it is.
pub struct History<D: Decider> {
    /// Its id.
    pub id: String,
    /// What it is.
    pub state: D,
    /// What happened to it.
    pub events: Vec<(Stored, D::Event)>,
}

impl<D: Decider> History<D> {
    fn of(id: String, stored: Vec<Stored>) -> Result<Self, Problem> {
        let mut history = History { id, state: D::default(), events: Vec::new() };
        for one in stored {
            let event: D::Event = one.decode()?;
            history.state.evolve(event.clone());
            history.events.push((one, event));
        }
        Ok(history)
    }

    /// When it came to be.
    pub fn began(&self) -> Timestamp {
        self.events.first().map_or(Timestamp::UNIX_EPOCH, |(stored, _)| stored.recorded_at)
    }

    /// When something of this kind happened last.
    pub fn last(&self, is: impl Fn(&D::Event) -> bool) -> Option<Timestamp> {
        self.events.iter().rfind(|(_, event)| is(event)).map(|(stored, _)| stored.recorded_at)
    }
}

/// One thing, or 404.
pub async fn one<D: Decider>(app: &App, id: impl ToString) -> Result<History<D>, Problem> {
    let id = id.to_string();
    let stored = app.engine.log().read_stream(&StreamId::of::<D>(&id), 0).await?;
    if stored.is_empty() {
        return Err(Problem::not_found(id));
    }
    History::of(id, stored)
}

/// Which part of a list.
pub struct Part {
    limit: usize,
    before: Option<String>,
}

impl Part {
    /// Checked.
    pub fn of<D: Decider>(limit: Option<u32>, cursor: Option<String>) -> Result<Part, Problem> {
        let limit = limit.unwrap_or(USUAL);
        if limit == 0 || limit > MOST {
            return Err(Problem::new(Code::BadRequest, format!("limit takes 1 to {MOST}")));
        }
        let ours = |cursor: &String| {
            cursor.len() <= 64 && cursor.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        if cursor.as_ref().is_some_and(|cursor| !ours(cursor)) {
            let detail = "pass `next` of the answer before as it is";
            return Err(Problem::new(Code::BadCursor, detail));
        }
        Ok(Part { limit: usize::try_from(limit).unwrap_or(1), before: cursor })
    }
}

/// A part of all things of a type, the newest first; `show` says how one is answered, or leaves it out.
pub async fn list<D, T, F>(
    app: &App,
    part: Part,
    show: impl Fn(History<D>) -> F,
) -> Result<Page<T>, Problem>
where
    D: Decider,
    F: Future<Output = Result<Option<T>, Problem>>,
{
    let (mut items, mut before, mut looks) = (Vec::new(), part.before, 0);
    loop {
        let ids = ids::<D>(app, before.as_deref(), part.limit).await?;
        let exhausted = ids.len() < part.limit;
        let histories = stream::iter(ids).map(|id| one::<D>(app, id)).buffered(AT_ONCE);
        let mut histories = std::pin::pin!(histories);
        while let Some(history) = histories.try_next().await? {
            before = Some(history.id.clone());
            looks += 1;
            items.extend(show(history).await?);
            if items.len() == part.limit {
                return Ok(Page { items, next: before });
            }
        }
        if exhausted {
            return Ok(Page::whole(items));
        }
        if looks >= LOOKS {
            return Ok(Page { items, next: before });
        }
    }
}

async fn ids<D: Decider>(
    app: &App,
    before: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, Problem> {
    // "{" sorts after every character of an id.
    let found = sqlx::query_scalar(
        "select aggregate_id from log_stream where aggregate_type = $1 and aggregate_id < $2 \
         and version > 0 order by aggregate_id desc limit $3",
    )
    .bind(D::NAME)
    .bind(before.unwrap_or("{"))
    .bind(i64::try_from(limit).unwrap_or(1))
    .fetch_all(&app.pool)
    .await?;
    Ok(found)
}
