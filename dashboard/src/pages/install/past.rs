//! Past of an install: its newest events, and the changes of its inputs.
use maud::{Markup, html};
use schemas::control::{audit::EventRecord, installs::Install};
use serde_json::Value;

use crate::{components, frame::Caller};

/// Events of an install.
#[derive(Debug, Clone, Default)]
pub struct InstallPast {
    /// The creation and the changes of the inputs, oldest first.
    pub inputs: Vec<EventRecord>,
    /// Newest events, newest first.
    pub timeline: Vec<EventRecord>,
}

/// Value of an input since an event. Without a value, the input has its default.
struct Setting<'e> {
    event: &'e EventRecord,
    value: Option<String>,
}

/// Inputs with their values. Auditors and owners see who set each value and when, and the earlier values.
pub(super) fn inputs(caller: &Caller, install: &Install, past: Option<&InstallPast>) -> Markup {
    html! {
        @if !install.inputs.is_empty() {
            section.panel aria-label="Inputs" {
                header { h2 { "Inputs" } @if past.is_some() { span.muted { "with the user who set each value" } } }
                div.body {
                    dl.facts.wide {
                        @for (name, value) in &install.inputs {
                            @let settings = past.map(|past| settings(name, &past.inputs)).unwrap_or_default();
                            div {
                                dt { (name) }
                                dd {
                                    code { (components::value(value)) }
                                    @if past.is_some() {
                                        @match settings.last() {
                                            Some(newest) => { div.muted { (by(caller, newest)) } }
                                            None => div.muted { "default of the version" },
                                        }
                                    }
                                    @if settings.len() > 1 { (earlier(caller, name, &settings)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn by(caller: &Caller, setting: &Setting<'_>) -> Markup {
    let event = setting.event;
    let actor = event.actor_name.as_deref().unwrap_or(&event.actor);
    html! {
        @if setting.value.is_some() { "set by " } @else { "reset to the default by " }
        (components::actor(actor)) " " (components::time(caller.now, event.recorded_at))
    }
}

/// Fold with the earlier values, newest first.
fn earlier(caller: &Caller, name: &str, settings: &[Setting<'_>]) -> Markup {
    html! {
        details id={ "input-" (name) } {
            summary { (components::count(settings.len() as u64 - 1, "earlier value")) }
            ul.plain {
                @for setting in settings.iter().rev().skip(1) {
                    li {
                        @if let Some(value) = &setting.value { code { (value) } " " }
                        span.muted { (by(caller, setting)) }
                    }
                }
            }
        }
    }
}

/// Values of an input, oldest first.
fn settings<'e>(name: &str, events: &'e [EventRecord]) -> Vec<Setting<'e>> {
    let setting = |event: &'e EventRecord| {
        let payload = payload(event);
        let set = payload["set"].get(name).or_else(|| payload["inputs"].get(name));
        let unset =
            || payload["unset"].as_array().is_some_and(|names| names.iter().any(|of| of == name));
        match set {
            Some(value) => Some(Setting { event, value: Some(components::value(value)) }),
            None => unset().then_some(Setting { event, value: None }),
        }
    };
    events.iter().filter_map(setting).collect()
}

fn payload(event: &EventRecord) -> Value {
    serde_json::from_str(event.payload.get()).unwrap_or_default()
}

/// Newest events of the install.
pub(super) fn timeline(caller: &Caller, install: &Install, past: &InstallPast) -> Markup {
    let stream = components::encoded(&format!("install/{}", install.id));
    html! {
        section.panel aria-label="Timeline" {
            header { h2 { "Timeline" } a.more href={ "/ui/audit?stream=" (stream) } { "All events" span.visually-hidden { " of the install" } } }
            @if past.timeline.is_empty() { (components::empty("The server has no recent event of this install.", &[])) }
            @else {
                div.scroll tabindex="0" role="region" aria-label="Timeline" {
                    table {
                        thead { tr { th scope="col" { "When" } th scope="col" { "Event" } th scope="col" { "By" } th scope="col" { "State" } } }
                        tbody id="timeline-rows" data-rows="rows" {
                            @for event in &past.timeline {
                                tr id={ "timeline-" (event.position) } {
                                    td.fit { (components::time(caller.now, event.recorded_at)) }
                                    td { (description(event)) }
                                    td.actor { (components::actor(event.actor_name.as_deref().unwrap_or(&event.actor))) }
                                    td.fit { a href={ "/ui/installs/" (install.id) "?as_of=" (event.position) } { "as of " (event.position) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Name of the event, with the component, the version, the inputs or the run that it names.
fn description(event: &EventRecord) -> Markup {
    let payload = payload(event);
    let name = event.event_type.strip_prefix("install.").unwrap_or(&event.event_type);
    let text = |member: &str| payload[member].as_str().map(str::to_owned);
    let mut details: Vec<String> =
        ["name", "outcome"].iter().filter_map(|member| text(member)).collect();
    details.extend(payload["config_version"].as_u64().map(|version| format!("v{version}")));
    details.extend(payload["set"].as_object().into_iter().flat_map(|set| set.keys().cloned()));
    let run = text("run").filter(|run| {
        run.starts_with("run_") && run.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    });
    html! {
        (components::kind(name))
        @if !details.is_empty() { " " code { (details.join(", ")) } }
        @if let Some(run) = run { " " (components::run_link(&run)) }
        @if let Some(reason) = text("reason") { div.muted { (reason) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, payload: &Value) -> EventRecord {
        let text = serde_json::json!({
            "position": 7, "event_id": "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", "stream": "install/ins_1", "sequence": 1,
            "type": kind, "version": "1", "recorded_at": "2026-01-31T09:00:00Z", "actor": "prn_1", "payload": payload,
            "metadata": {}, "salt": "", "leaf": "", "chain": "",
        });
        serde_json::from_str(&text.to_string()).unwrap()
    }

    #[test]
    fn history_of_an_input_has_each_value_and_its_reset() {
        let events = [
            event("install.created", &serde_json::json!({"inputs": {"size": "1", "other": "x"}})),
            event("install.inputs_changed", &serde_json::json!({"set": {"other": "y"}})),
            event("install.inputs_changed", &serde_json::json!({"set": {"size": "2"}})),
            event("install.inputs_changed", &serde_json::json!({"unset": ["size"]})),
        ];
        let values: Vec<_> = settings("size", &events).into_iter().map(|of| of.value).collect();
        assert_eq!(values, [Some("1".to_owned()), Some("2".to_owned()), None]);
        assert!(settings("missing", &events).is_empty());
    }

    #[test]
    fn event_names_its_run_only_if_it_is_an_id() {
        let of = |run: &str| {
            description(&event(
                "install.run_finished",
                &serde_json::json!({"run": run, "outcome": "failed"}),
            ))
        };
        assert!(of("run_01ARZ3").into_string().contains("/ui/runs/run_01ARZ3"));
        assert!(!of("run_/../x").into_string().contains("href"));
    }
}
