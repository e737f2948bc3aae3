//! Events of the log.
use maud::{Markup, html};
use schemas::control::audit::{EventRecord, Events, EventsQuery};

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of the audit page.
#[derive(Debug, Clone)]
pub struct AuditPage {
    /// Filters.
    pub query: EventsQuery,
    /// Start of the list, as the user typed it.
    pub from: Option<String>,
    /// End of the list, as the user typed it.
    pub until: Option<String>,
    /// Events that match the filters, oldest first.
    pub events: Events,
}

/// Audit page.
#[must_use]
pub fn audit(caller: &Caller, page: &AuditPage) -> Markup {
    let AuditPage { query, events, .. } = page;
    let filters = [
        ("stream", query.stream.as_deref()),
        ("type", query.event_type.as_deref()),
        ("actor", query.actor.as_deref()),
        ("until", page.until.as_deref()),
    ];
    let content = html! {
        (frame::title(caller, &Updates::None, "Audit", &html! {
            span.muted { (components::count(events.head, "event")) }
            div.actions { a href="/ui/audit/diff" { "Compare two times" } a href="/ui/audit/proofs" { "Checkpoint and proofs" } }
        }))
        form.inline method="get" action="/ui/audit" role="search" {
            label { "Type" input type="search" name="type" value=[query.event_type.as_deref()] placeholder="run.approved"; }
            label { "Stream" input type="search" name="stream" value=[query.stream.as_deref()] placeholder="run/run_…"; }
            label { "Actor" input type="search" name="actor" value=[query.actor.as_deref()] placeholder="prn_…"; }
            label { "From time or position" input type="text" name="from" maxlength="64" value=[page.from.as_deref()] placeholder="tuesday, 7d ago or 1234"; }
            label { "Until time" input type="text" name="until" maxlength="64" value=[page.until.as_deref()] placeholder="today"; }
            button type="submit" { "Filter" }
        }
        section.panel aria-label="Events" {
            @if events.items.is_empty() && events.scanned_through < events.head {
                (components::empty(&format!("No events up to position {} match. The next page continues there.", events.scanned_through), &[]))
            } @else if events.items.is_empty() { (components::empty("No events match.", &[])) }
            @else { (table(&events.items)) }
            @if events.scanned_through < events.head {
                form.pages method="get" action="/ui/audit" {
                    @for (name, value) in filters {
                        @if let Some(value) = value { input type="hidden" name=(name) value=(value); }
                    }
                    input type="hidden" name="from" value=(events.scanned_through + 1);
                    button type="submit" { "Next page" }
                }
            }
        }
    };
    frame::page(caller, Section::Audit, "Audit", &content)
}

/// Table of events. Each value is a link that filters the audit page by it.
pub(super) fn table(events: &[EventRecord]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Events" {
            table {
                thead { tr { th.number scope="col" { "Position" } th scope="col" { "Time" } th scope="col" { "Type" } th scope="col" { "Stream" } th scope="col" { "Actor" } th scope="col" { "Payload" } } }
                tbody { @for event in events { (row(event)) } }
            }
        }
    }
}

fn row(event: &EventRecord) -> Markup {
    let payload = event.readable_payload.as_ref().unwrap_or(&event.payload);
    html! {
        tr id={ "event-" (event.position) } {
            td.number { (event.position) }
            td.fit { (components::exact(event.recorded_at)) }
            td.fit { (filter("type", &event.event_type, &event.event_type)) }
            td.fit { (filter("stream", &event.stream, &short(&event.stream))) }
            td.actor { (filter("actor", &event.actor, event.actor_name.as_deref().unwrap_or(&event.actor))) }
            td.payload {
                details id={ "payload-" (event.position) } {
                    summary { "Show" span.visually-hidden { " the payload of event " (event.position) } }
                    code { (payload.get()) }
                    div.row {
                        @if let Some(page) = page_of(&event.stream) {
                            a href={ (page) "as_of=" (event.position) } { "State after" span.visually-hidden { " event " (event.position) } }
                        }
                        a href={ "/ui/audit/proofs?of=" (event.position) } { "Proof" span.visually-hidden { " of event " (event.position) } }
                    }
                }
            }
        }
    }
}

/// Start of the URL that shows a stream as of a position. None if its aggregate has no such page.
fn page_of(stream: &str) -> Option<String> {
    let (kind, id) = stream.split_once('/')?;
    let id = components::encoded(id);
    match kind {
        "install" => Some(format!("/ui/installs/{id}?")),
        "run" => Some(format!("/ui/runs/{id}/as-of?")),
        "app" => Some(format!("/ui/apps/{id}/as-of?")),
        "job" => Some(format!("/ui/jobs/{id}/as-of?")),
        _ => None,
    }
}

/// Stream with the end of its id. The link has the whole id.
fn short(stream: &str) -> String {
    match stream.char_indices().rev().nth(5) {
        Some((end, _)) if stream.len() > 30 => {
            let (kind, _) = stream.split_once('_').unwrap_or((stream, ""));
            format!("{kind}_…{}", &stream[end..])
        }
        Some(_) | None => stream.to_owned(),
    }
}

/// Link that filters the events by this value.
fn filter(name: &str, value: &str, label: &str) -> Markup {
    html! { a title=(value) href={ "/ui/audit?" (name) "=" (components::encoded(value)) } { (label) } }
}
