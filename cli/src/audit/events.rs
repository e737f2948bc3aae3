//! `stead audit events`: prints and follows events.
use std::time::Duration;

use crate::client::{ClientError, sanitize, server_events};
use clap::Args;
use futures::{StreamExt, pin_mut};
use schemas::control::audit::{ChangesQuery, EventRecord, EventsQuery};

use crate::{
    failure::Failure,
    point_in_time::Moment,
    render::{Output, Screen, Table, moment, write},
    settings::CommandContext,
};

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only events of this stream (such as `install/acme`) or stream type (such as `install`)
    #[arg(long)]
    stream: Option<String>,
    /// Only events of this install: name or id
    #[arg(long, conflicts_with = "stream")]
    install: Option<String>,
    /// Only events of this type (such as `run.approved`) or of all types of an aggregate (such as
    /// `run.`)
    #[arg(long = "type")]
    event_type: Option<String>,
    /// Only events by this actor: prn_…, rnr_…, policy:…, timer:…, system
    #[arg(long)]
    actor: Option<String>,
    /// Only events recorded at or after this time: RFC 3339, a date, `2h ago`, `tuesday`
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Only events recorded before this time
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Only events after this position
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    after: u64,
    /// Maximum number of events [default: all]
    #[arg(long)]
    limit: Option<u64>,
    /// Continue with new events
    #[arg(long, short)]
    follow: bool,
}

pub(crate) async fn print(context: &CommandContext, args: Events) -> Result<(), Failure> {
    let mut printer =
        Printer { screen: context.screen, left: args.limit, all: Vec::new(), headed: false };
    let stream = match args.install {
        Some(install) => Some(format!("install/{install}")),
        None => args.stream,
    };
    let mut query = EventsQuery {
        after: Some(args.after),
        stream,
        event_type: args.event_type,
        actor: args.actor,
        since: args.since.map(|Moment(time)| time),
        until: args.until.map(|Moment(time)| time),
        limit: Some(200),
        min_position: None,
    };
    if args.follow {
        // An endless stream cannot be one JSON document, so print one document per event.
        if printer.screen.output == Output::Json {
            printer.screen.output = Output::Ndjson;
        }
        return follow(context, &mut printer, query).await;
    }
    page(context, &mut printer, &mut query).await?;
    match (context.screen.output, printer.all.is_empty()) {
        // JSON output is one document, even without events.
        (Output::Json, _) => context.screen.print_list(&printer.all, "", |_| Table::default()),
        (Output::Table, true) => {
            context.screen.remark("No events match.");
            Ok(())
        }
        (Output::Table, false) | (Output::Ndjson, _) => printer.table(),
    }
}

/// Reads all events up to the head, page by page.
async fn page(
    context: &CommandContext,
    printer: &mut Printer,
    query: &mut EventsQuery,
) -> Result<(), Failure> {
    loop {
        let page = context.client.events(query).await?;
        for event in page.items {
            if !printer.event(event)? {
                return Ok(());
            }
        }
        query.after = Some(page.scanned_through);
        if page.scanned_through >= page.head {
            return Ok(());
        }
    }
}

/// Subscribes to changes before reading, so that the command misses no event.
async fn follow(
    context: &CommandContext,
    printer: &mut Printer,
    mut query: EventsQuery,
) -> Result<(), Failure> {
    loop {
        match context.client.changes(&ChangesQuery::default()).await {
            Ok(response) => {
                let changes = server_events(response);
                pin_mut!(changes);
                loop {
                    page(context, printer, &mut query).await?;
                    printer.table()?;
                    if printer.left == Some(0) {
                        return Ok(());
                    }
                    match changes.next().await {
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => break,
                    }
                }
            }
            Err(ClientError::Unreachable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

struct Printer {
    screen: Screen,
    left: Option<u64>,
    all: Vec<EventRecord>,
    headed: bool,
}

impl Printer {
    /// Adds an event and returns `true`. Returns `false` if the limit has been reached.
    fn event(&mut self, event: EventRecord) -> Result<bool, Failure> {
        if self.left == Some(0) {
            return Ok(false);
        }
        self.left = self.left.map(|left| left - 1);
        match self.screen.output {
            Output::Ndjson => write(&format!("{}\n", serde_json::to_string(&event)?))?,
            Output::Table | Output::Json => self.all.push(event),
        }
        Ok(true)
    }

    /// Prints the collected events. Prints the heading of the table only once.
    fn table(&mut self) -> Result<(), Failure> {
        if self.screen.output == Output::Ndjson || self.all.is_empty() {
            return Ok(());
        }
        let all = std::mem::take(&mut self.all);
        if self.screen.output == Output::Json {
            return self.screen.print_list(&all, "", |_| Table::default());
        }
        let mut table = Table::new(["POSITION", "RECORDED", "EVENT", "STREAM", "ACTOR", "PAYLOAD"]);
        for event in &all {
            table.row([
                event.position.to_string(),
                moment(&event.recorded_at),
                sanitize(&event.event_type),
                sanitize(&event.stream),
                sanitize(&actor(event)),
                sanitize(&short(event.readable_payload.as_ref().unwrap_or(&event.payload).get())),
            ]);
        }
        let text = table.text(&self.screen);
        let headed = std::mem::replace(&mut self.headed, true);
        let rows = text.split_once('\n').map_or("", |(_, rows)| rows);
        write(if headed { rows } else { &text })
    }
}

/// Actor as recorded in the log, with the current display name.
fn actor(event: &EventRecord) -> String {
    let name = event.actor_name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("{}{name}", event.actor)
}

/// Start of a payload, without its first member, the type. JSON output contains the complete
/// payload.
fn short(payload: &str) -> String {
    let body = payload.split_once(',').map_or("", |(_, rest)| rest.trim_end_matches('}'));
    let mut text: String = body.chars().take(72).collect();
    if text.len() < body.len() {
        text.push('…');
    }
    text
}
