//! Settings of an install: enabled components, stack outputs, automatic approval, enrolment.
use maud::{Markup, html};
use schemas::control::installs::Install;
use serde_json::Value;

use super::{ChangePage, panel, plan_all, reason, target};
use crate::{
    components as parts,
    frame::{self, Caller},
};

/// Names of the components that the config lets an install enable or disable.
fn toggleable(page: &ChangePage) -> Vec<&str> {
    let list = page.config["components"]["list"].as_array().into_iter().flatten();
    // `default_enabled` makes a component toggleable, too, whatever its value is.
    let can = |entry: &&Value| {
        entry["toggleable"].as_bool().unwrap_or_default() || !entry["default_enabled"].is_null()
    };
    list.filter(can).filter_map(|entry| entry["name"].as_str()).collect()
}

/// Components that the install enables or disables.
pub(super) fn components(caller: &Caller, page: &ChangePage) -> Markup {
    let (install, names) = (&page.install, toggleable(page));
    let is_disabled =
        |name: &str| install.components.iter().any(|part| part.name == name && part.disabled);
    panel(
        "Optional components",
        &html! {
            @if names.is_empty() { p.muted { "This version has no components that an install can disable." } }
            @for (n, name) in names.into_iter().enumerate() {
                @let disabled = is_disabled(name);
                details id={ "component-" (n) } {
                    summary { @if disabled { "Enable " } @else { "Disable " } (name) }
                    form.stacked method="post" action=(target(install, "components")) {
                        (frame::change_fields(caller, &format!("component-{n}")))
                        input type="hidden" name="component" value=(name);
                        input type="hidden" name="enabled" value=(disabled);
                        p { @if disabled { "Deploys the component." } @else { "Destroys the component, and deploys skip it." } }
                        (reason())
                        div {
                            @if disabled { button.primary type="submit" { "Enable" } }
                            @else { button.danger type="submit" { "Disable" } }
                        }
                    }
                }
            }
        },
    )
}

/// Outputs of the customer's stack, which the vendor can set.
pub(super) fn stack_outputs(caller: &Caller, install: &Install) -> Markup {
    panel(
        "Stack outputs",
        &html! {
            @if !install.stack_outputs.is_empty() {
                dl.facts.wide { @for (name, value) in &install.stack_outputs { div { dt { (name) } dd { code { (parts::value(value)) } } } } }
            }
            form.stacked id="stack-outputs" method="post" action=(target(install, "stack-outputs")) {
                (frame::change_fields(caller, "output"))
                label { "Name" input type="text" name="name" required maxlength="128" autocomplete="off" placeholder="vpc_id"; }
                label { "Value, not a secret" input type="text" name="value" autocomplete="off"; }
                (reason())
                (plan_all())
                p.muted { "Outputs that the runner reported have precedence. A run plans the components that read the output." }
                div.row {
                    button.primary type="submit" name="change" value="set" { "Set the output" }
                    button type="submit" name="change" value="remove" { "Remove it" }
                }
            }
        },
    )
}

/// Automatic approval of all plans.
pub(super) fn approval(caller: &Caller, install: &Install) -> Markup {
    let automatic = install.auto_approve;
    panel(
        "Approval",
        &html! {
            p { "Plans of this install " @if automatic { "are approved automatically." } @else { "need an approval." } }
            details id="approval" {
                summary { @if automatic { "Require approvals" } @else { "Approve automatically" } }
                form.stacked method="post" action=(target(install, "approval")) {
                    (frame::change_fields(caller, "approval"))
                    input type="hidden" name="automatic" value=(!automatic);
                    (reason())
                    div { button type="submit" { @if automatic { "Require approvals" } @else { "Approve automatically" } } }
                }
            }
        },
    )
}

/// Another enrolment token, for an install without a runner.
pub(super) fn enrolment(caller: &Caller, install: &Install) -> Markup {
    panel(
        "Runner",
        &html! {
            p.muted { "No runner has enrolled. A new token is shown once, with the command for the customer." }
            form method="post" action=(target(install, "enrol")) {
                (frame::change_fields(caller, "enrol"))
                button.primary type="submit" { "Create an enrolment token" }
            }
        },
    )
}

/// Form that accepts a state of a component which the runner refuses.
pub(super) fn accepted_state(caller: &Caller, install: &Install) -> Markup {
    panel(
        "State of a component",
        &html! {
            details id="accept-state" {
                summary { "Accept a state that the runner refuses" }
                form.stacked method="post" action=(target(install, "accept-state")) {
                    (frame::change_fields(caller, "accept-state"))
                    p { "After a restore of a backup or a change outside of Stead, the runner refuses a state that is older or has another lineage. The lineage and the serial are in the refusal." }
                    label {
                        "Component"
                        select name="component" {
                            @for component in install.sandbox.iter().chain(&install.components) { option value=(component.name) { (component.name) } }
                        }
                    }
                    label { "Lineage" input type="text" name="lineage" required maxlength="128"; }
                    label { "Serial" input type="text" name="serial" inputmode="numeric" pattern="[0-9]+" required; }
                    label.check { input type="checkbox" name="force" value="true"; "Accept it even if the server does not have it as the newest state. Later jobs are refused until the runner's host has this state." }
                    label { "Type the name of the install: " (install.name) input type="text" name="confirm" required autocomplete="off"; }
                    label { "Reason" input type="text" name="reason" required maxlength="2000"; }
                    div { button.danger type="submit" { "Accept the state" } }
                }
            }
        },
    )
}
