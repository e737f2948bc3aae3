//! `stead projections show`: prints rows, now or at an earlier point.
use crate::client::{sanitize, server_events};
use futures::{StreamExt, pin_mut};
use schemas::control::projections::{ProjectionRow, RowsProgress, RowsQuery};

use crate::{
    failure::Failure,
    point_in_time::PointInTime,
    render::{Output, Table, moment, write},
    settings::CommandContext,
};

pub(crate) async fn run(
    context: &CommandContext,
    name: &str,
    key: Option<String>,
    as_of: Option<PointInTime>,
) -> Result<(), Failure> {
    let (position, time) = as_of.map_or((None, None), PointInTime::parts);
    let row_key = key.clone();
    let query = RowsQuery { key, position, time, min_position: None };
    let looks = server_events(context.client.projection_rows(name, &query).await?);
    pin_mut!(looks);
    let bar = context.screen.bar(0, name);
    let (mut rows, mut last) = (Vec::<ProjectionRow>::new(), None::<RowsProgress>);
    while let Some(event) = looks.next().await {
        let mut look: RowsProgress = serde_json::from_str(&event?.data)?;
        let more = std::mem::take(&mut look.rows);
        match (look.state.as_str(), context.screen.output) {
            ("replaying", _) => {
                bar.set_length(look.total);
                bar.set_position(look.events);
            }
            (_, Output::Ndjson) => {
                for row in &more {
                    write(&format!("{}\n", serde_json::to_string(row)?))?;
                }
            }
            (_, Output::Table | Output::Json) => rows.extend(more),
        }
        last = Some(look).filter(|look| matches!(look.state.as_str(), "done" | "failed"));
    }
    bar.finish_and_clear();
    let cut = || {
        Failure::Unreachable(format!(
            "cannot read all rows of {name}: the connection was lost; run the command again"
        ))
    };
    let last = last.ok_or_else(cut)?;
    if let Some(detail) = &last.detail {
        return Err(Failure::Outcome(format!(
            "cannot read the rows of {name}: {}",
            sanitize(detail)
        )));
    }
    let at = last.recorded_at.as_ref().map(|at| format!(" ({})", moment(at))).unwrap_or_default();
    context.screen.remark(&format!("{name} as of position {}{at}:", last.position));
    match (row_key, rows.as_slice(), context.screen.output) {
        (_, _, Output::Ndjson) => Ok(()),
        (Some(key), [], _) => {
            let position = last.position;
            Err(Failure::NotFound(format!(
                "cannot find the row {key:?} of {name}: it did not exist at position {position}\n  try: another --key, or omit --key for all rows"
            )))
        }
        (Some(_), [row], Output::Table) => {
            let row: serde_json::Value = serde_json::from_str(row.row.get())?;
            write(&format!("{}\n", sanitize(&serde_json::to_string_pretty(&row)?)))
        }
        (_, rows, Output::Table | Output::Json) => {
            context.screen.print_list(rows, "No rows.", |_| table(rows))
        }
    }
}

fn table(rows: &[ProjectionRow]) -> Table {
    let mut table = Table::new(["KEY", "ROW"]);
    for ProjectionRow { key, row } in rows {
        table.row([sanitize(key), sanitize(row.get())]);
    }
    table
}
