//! Webhooks: their settings and deliveries, and the page that shows a new signing secret once.
use maud::{Markup, html};
use schemas::control::{
    Page,
    webhooks::{Webhook, WebhookDelivery, WebhookFormat, WebhookTested},
};

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
    pages::runs::next_page,
};

const LIST: &str = "/ui/settings/webhooks";

/// Topics, with their explanations.
const TOPICS: [(&str, &str); 7] = [
    ("run.approval_requested", "A plan waits for an approval"),
    ("run.failed", "A run ended without success"),
    ("run.succeeded", "A run that changes an install succeeded"),
    ("run.drift_found", "A drift check found changes"),
    ("job.outcome_unknown", "A user must resolve the outcome of a job"),
    ("runner.disconnected", "A runner has made no call for minutes"),
    ("runner.reconnected", "A disconnected runner called again"),
];

/// Webhook with a page of its deliveries.
#[derive(Debug, Clone)]
pub struct WebhookPage {
    /// The webhook.
    pub webhook: Webhook,
    /// Its deliveries, newest event first.
    pub deliveries: Page<WebhookDelivery>,
    /// State to which the list is limited.
    pub state: Option<String>,
    /// Result of a test message that the caller just sent.
    pub tested: Option<WebhookTested>,
}

/// Configured webhook, with its new signing secret.
#[derive(Debug, Clone)]
pub struct ConfiguredWebhook {
    /// Name of the webhook.
    pub name: String,
    /// The secret. `None` if an earlier submission of the form created it.
    pub secret: Option<String>,
}

/// List of the webhooks.
#[must_use]
pub fn webhooks(caller: &Caller, page: &Page<Webhook>) -> Markup {
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/settings" { "Settings" } }
        (frame::title(caller, &Updates::None, "Webhooks", &html! {}))
        section.panel aria-label="Webhooks" {
            header { h2 { "Webhooks" } }
            @if page.items.is_empty() {
                (components::empty("No webhooks. A webhook sends messages about approvals, failures and runners to an HTTP endpoint.", &["stead", "webhooks", "set", "--help"]))
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Webhooks" {
                    table {
                        thead { tr { th scope="col" { "Webhook" } th scope="col" { "Endpoint" } th scope="col" { "Format" } th scope="col" { "Topics" } th scope="col" { "Configured" } } }
                        tbody {
                            @for webhook in &page.items {
                                tr {
                                    td.name { a href=(path(&webhook.name)) { (webhook.name) } }
                                    td.long { (webhook.origin) }
                                    td.fit { (format_name(webhook.format)) }
                                    td.long { (topics(webhook)) }
                                    td.fit { (components::time(caller.now, webhook.configured_at)) }
                                }
                            }
                        }
                    }
                }
                (next_page(LIST, &[], page.next.as_deref()))
            }
        }
        @if caller.may(&[]) { (settings_form(caller, None)) }
    };
    frame::page(caller, Section::Settings, "Webhooks", &content)
}

/// Page of one webhook.
#[must_use]
pub fn webhook(caller: &Caller, page: &WebhookPage) -> Markup {
    let WebhookPage { webhook, deliveries, state, tested } = page;
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/settings" { "Settings" } a href=(LIST) { "Webhooks" } }
        (frame::title(caller, &Updates::None, &webhook.name, &html! {}))
        @if let Some(tested) = tested { (test_result(tested)) }
        div.columns {
            div.stack { (deliveries_panel(caller, webhook, deliveries, state.as_deref())) }
            div.stack {
                section.panel aria-label="Endpoint" {
                    header { h2 { "Endpoint" } }
                    div.body {
                        dl.facts.wide {
                            div { dt { "Origin" } dd { (webhook.origin) } }
                            div { dt { "Format" } dd { (format_name(webhook.format)) } }
                            div { dt { "Topics" } dd { (topics(webhook)) } }
                            div { dt { "Configured" } dd { (components::time(caller.now, webhook.configured_at)) } }
                        }
                        @if caller.may(&[]) {
                            form method="post" action={ (path(&webhook.name)) "/test" } {
                                (frame::form_token(caller))
                                button type="submit" { "Send a test message" }
                            }
                        }
                    }
                }
                @if caller.may(&[]) {
                    (settings_form(caller, Some(webhook)))
                    (delete_form(caller, webhook))
                }
            }
        }
    };
    frame::page(caller, Section::Settings, &webhook.name, &content)
}

/// Page after a change that created a signing secret. No other page shows it.
#[must_use]
pub fn configured_webhook(caller: &Caller, configured: &ConfiguredWebhook) -> Markup {
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/settings" { "Settings" } a href=(LIST) { "Webhooks" } }
        (frame::title(caller, &Updates::None, "Signing secret", &html! {}))
        @match &configured.secret {
            Some(secret) => {
                p.note.ok { "Configured the webhook " (configured.name) "." }
                section.panel aria-label="Signing secret" {
                    header { h2 { "Signing secret" } }
                    div.body {
                        p { "Copy the secret to the receiver now. The server does not show it again." }
                        code.command.secret { (secret) }
                        p.muted { "The receiver verifies the header " code { "webhook-signature" } " with it. A former secret also signs for 24 hours." }
                    }
                }
            }
            None => {
                p.note.wait { "This form was submitted before. The server cannot show the secret again. If it is lost, create a new one." }
            }
        }
        p { a href=(path(&configured.name)) { "Back to the webhook" } }
    };
    frame::page(caller, Section::Settings, "Signing secret", &content)
}

fn test_result(tested: &WebhookTested) -> Markup {
    let status =
        tested.status.map_or_else(|| "no response".to_owned(), |status| status.to_string());
    html! {
        @if tested.delivered {
            p.note.ok { "The endpoint accepted the test message (" (status) ")." }
        } @else {
            p.note.fail { "The endpoint did not accept the test message: " (tested.error.as_deref().unwrap_or(&status)) }
        }
    }
}

fn deliveries_panel(
    caller: &Caller,
    webhook: &Webhook,
    deliveries: &Page<WebhookDelivery>,
    state: Option<&str>,
) -> Markup {
    let here = path(&webhook.name);
    html! {
        section.panel aria-label="Deliveries" {
            header { h2 { "Deliveries" } }
            div.body {
                form.inline method="get" action=(here) {
                    label {
                        "State"
                        select name="state" {
                            option value="" selected[state.is_none()] { "all" }
                            @for name in ["pending", "delivered", "failed"] { option value=(name) selected[state == Some(name)] { (name) } }
                        }
                    }
                    button type="submit" { "Filter" }
                }
            }
            @if deliveries.items.is_empty() {
                p.empty { "No deliveries." }
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Deliveries" {
                    table {
                        thead { tr { th.number scope="col" { "Event" } th scope="col" { "Topic" } th scope="col" { "State" } th.number scope="col" { "Attempts" } th scope="col" { "Last response" } th scope="col" { "Queued" } } }
                        tbody {
                            @for delivery in &deliveries.items { (row(caller, delivery)) }
                        }
                    }
                }
                (next_page(&here, &[("state", state)], deliveries.next.as_deref()))
                @if caller.may(&[]) {
                    div.body {
                        form.inline method="post" action={ (here) "/replay" } {
                            (frame::change_fields(caller, "replay"))
                            label { "Send again" select name="state" { option value="failed" { "failed deliveries" } option value="pending" { "pending deliveries, now" } option value="" { "all deliveries" } } }
                            label { "From event" input type="number" name="from" min="1"; }
                            label { "To event" input type="number" name="to" min="1"; }
                            button type="submit" { "Replay" }
                        }
                        p.muted { "Messages keep their ids, so receivers recognize the ones that they got already." }
                    }
                }
            }
        }
    }
}

fn row(caller: &Caller, delivery: &WebhookDelivery) -> Markup {
    html! {
        tr {
            td.number { (delivery.position) }
            td.fit { (delivery.topic) }
            td.fit { (components::badge(&delivery.state)) }
            td.number { (delivery.attempts) }
            td.long {
                @if let Some(status) = delivery.status { (status) " " }
                @if let Some(error) = &delivery.error { span.muted { (error) } }
                @if let Some(next) = delivery.next_attempt_at { div.muted { "next attempt " (components::time(caller.now, next)) } }
            }
            td.fit { (components::time(caller.now, delivery.created_at)) }
        }
    }
}

/// Form that creates a webhook, or replaces the settings of this one.
fn settings_form(caller: &Caller, webhook: Option<&Webhook>) -> Markup {
    let heading = match webhook {
        Some(_) => "Settings",
        None => "New webhook",
    };
    html! {
        section.panel aria-label=(heading) {
            header { h2 { (heading) } }
            div.body {
                form.stacked id="configure" method="post" action=(LIST) {
                    (frame::change_fields(caller, "configure"))
                    @match webhook {
                        Some(webhook) => { input type="hidden" name="name" value=(webhook.name); }
                        None => { label { "Name" input type="text" name="name" required maxlength="63" autocomplete="off" placeholder="ops"; } }
                    }
                    label {
                        @match webhook { Some(_) => "URL (empty to keep the present one)", None => "URL" }
                        input type="url" name="url" required[webhook.is_none()] maxlength="2000" autocomplete="off" placeholder="https://ops.example.com/stead";
                    }
                    fieldset {
                        legend { "Topics" }
                        @for (topic, meaning) in TOPICS {
                            label.check {
                                input type="checkbox" name={ "topic:" (topic) } checked[webhook.is_some_and(|webhook| webhook.topics.contains(topic))];
                                span { (topic) span.muted { " – " (meaning) } }
                            }
                        }
                    }
                    label {
                        "Format"
                        select name="format" {
                            @for format in [WebhookFormat::Standard, WebhookFormat::Slack] {
                                option value=(format_name(format)) selected[webhook.is_some_and(|webhook| webhook.format == format)] { (format_name(format)) }
                            }
                        }
                    }
                    @if webhook.is_some() {
                        label.check { input type="checkbox" name="rotate_secret" value="true"; span { "Create a new signing secret" } }
                    }
                    div { button.primary type="submit" { @match webhook { Some(_) => "Save", None => "Create the webhook" } } }
                }
            }
        }
    }
}

fn delete_form(caller: &Caller, webhook: &Webhook) -> Markup {
    html! {
        section.panel aria-label="Delete" {
            header { h2 { "Delete" } }
            div.body {
                form.stacked id="delete" method="post" action={ (path(&webhook.name)) "/delete" } {
                    (frame::change_fields(caller, "delete"))
                    label { "Type the name of the webhook: " (webhook.name) input type="text" name="confirm" required autocomplete="off"; }
                    div { button.danger type="submit" { "Delete the webhook and its deliveries" } }
                }
            }
        }
    }
}

fn path(name: &str) -> String {
    format!("{LIST}/{}", components::encoded(name))
}

fn topics(webhook: &Webhook) -> String {
    webhook.topics.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn format_name(format: WebhookFormat) -> &'static str {
    match format {
        WebhookFormat::Standard => "standard",
        WebhookFormat::Slack => "slack",
    }
}
