//! Events of the log.
use maud::{Markup, html};
use schemas::control::audit::{EventRecord, Events, EventsQuery};

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Audit page: events that match the filters, oldest first.
#[must_use]
pub fn audit(caller: &Caller, query: &EventsQuery, events: &Events) -> Markup {
    let content = html! {
        (frame::title(caller, &Updates::None, "Audit", &html! { span.muted { (components::count(events.head, "event")) } }))
        form.inline method="get" action="/ui/audit" role="search" {
            label { "Stream" input type="search" name="stream" value=[query.stream.as_deref()] placeholder="run/run_…"; }
            label { "Type" input type="search" name="type" value=[query.event_type.as_deref()] placeholder="run.approved"; }
            label { "Actor" input type="search" name="actor" value=[query.actor.as_deref()] placeholder="prn_…"; }
            label { "After position" input type="text" name="after" inputmode="numeric" pattern="[0-9]*" value=[query.after]; }
            button type="submit" { "Filter" }
        }
        section.panel aria-label="Events" {
            @if events.items.is_empty() && events.scanned_through < events.head {
                (components::empty(&format!("No events up to position {} match. The next page continues there.", events.scanned_through), &[]))
            } @else if events.items.is_empty() { (components::empty("No events match.", &[])) }
            @else {
                div.scroll tabindex="0" role="region" aria-label="Events" {
                    table {
                        thead { tr { th.number scope="col" { "Position" } th scope="col" { "Time" } th scope="col" { "Type" } th scope="col" { "Stream" } th scope="col" { "Actor" } th scope="col" { "Payload" } } }
                        tbody { @for event in &events.items { (row(event)) } }
                    }
                }
            }
            @if events.scanned_through < events.head {
                form.pages method="get" action="/ui/audit" {
                    @for (name, value) in [("stream", &query.stream), ("type", &query.event_type), ("actor", &query.actor)] {
                        @if let Some(value) = value { input type="hidden" name=(name) value=(value); }
                    }
                    input type="hidden" name="after" value=(events.scanned_through);
                    button type="submit" { "Next page" }
                }
            }
        }
    };
    frame::page(caller, Section::Audit, "Audit", &content)
}

fn row(event: &EventRecord) -> Markup {
    let payload = event.readable_payload.as_ref().unwrap_or(&event.payload);
    html! {
        tr id={ "event-" (event.position) } {
            td.number { (event.position) }
            td.fit { (components::exact(event.recorded_at)) }
            td.fit { (filter("type", &event.event_type, &event.event_type)) }
            td.fit { (filter("stream", &event.stream, &short(&event.stream))) }
            td { (filter("actor", &event.actor, event.actor_name.as_deref().unwrap_or(&event.actor))) }
            td.payload { details id={ "payload-" (event.position) } { summary { "Show" span.visually-hidden { " the payload of event " (event.position) } } code { (payload.get()) } } }
        }
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
