//! Exports a range of the log, preceded by a line that proves its completeness.
use bytes::Bytes;
use futures::StreamExt as _;
use proof::{
    bundle::Base64,
    chain,
    key::VerifierKey,
    range::{FORMAT, Head},
};
use schemas::control::{audit::EventsQuery, bundles::RangeQuery};

use super::{ByteStream, EXPORT_PAGE, aborted, records};
use crate::{
    extract::Caller,
    problem::{Code, Problem},
    state::App,
};

/// Events of a range as NDJSON. The first line has the signed checkpoint and the proofs.
pub(crate) async fn range(
    app: App,
    caller: Caller,
    which: RangeQuery,
) -> Result<ByteStream, Problem> {
    caller.authorize("GET", "/v1/audit/range")?;
    let head = head(&app, &which).await?;
    let all = EventsQuery { after: Some(head.from - 1), ..EventsQuery::default() };
    let mut selection = records::EventSelection::of(&app, &all).await?;
    selection.until = head.to;
    let lines = async_stream::try_stream! {
        let mut first = serde_json::to_vec(&head)?;
        first.push(b'\n');
        yield Bytes::from(first);
        let mut after = selection.after;
        while after < selection.until {
            caller.recheck(&app).map_err(aborted)?;
            let (page, scanned_through) = selection.next(&app, after, EXPORT_PAGE).await.map_err(aborted)?;
            let mut text = Vec::new();
            for event in &page {
                serde_json::to_writer(&mut text, event)?;
                text.push(b'\n');
            }
            after = scanned_through;
            yield Bytes::from(text);
        }
    };
    Ok(lines.boxed())
}

async fn head(app: &App, which: &RangeQuery) -> Result<Head, Problem> {
    let log = app.log();
    let checkpoint = log.head();
    let (since, until) = (which.since, which.until);
    let moments = EventsQuery { since, until, ..EventsQuery::default() };
    // Converts the times to positions in the same way as the list of events does.
    let within = records::EventSelection::of(app, &moments).await?;
    let from = which.from.unwrap_or(1).max(within.after + 1);
    let to = which.to.unwrap_or(checkpoint.size).min(within.until).min(checkpoint.size);
    if from > to || which.from == Some(0) || which.to.is_some_and(|to| to > checkpoint.size) {
        let requested_to = which.to.unwrap_or(to);
        let requested = match (since, until) {
            (None, None) => format!("from position {} to {requested_to}", which.from.unwrap_or(1)),
            _ => "in that time range".into(),
        };
        let detail = format!(
            "no events {requested}: the log has positions 1 to {}; request another range",
            checkpoint.size
        );
        return Err(Problem::new(Code::NotFound, detail));
    }
    let before = match from {
        1 => chain::genesis(&checkpoint.log_id),
        _ => log.read(from - 2, 1).await?.first().map_or([0; 32], |event| event.chain),
    };
    let keys = app.keys.current();
    let key = keys.checkpoints().verifying_key();
    Ok(Head {
        format: FORMAT.into(),
        from,
        to,
        signer: VerifierKey { name: checkpoint.origin(), key }.to_string(),
        checkpoint: checkpoint.sign(keys.checkpoints()),
        edge: log.edge(from - 1).await?.into_iter().map(Base64).collect(),
        consistency: log.consistency(to, checkpoint.size).await?.into_iter().map(Base64).collect(),
        chain: Base64(before),
    })
}
