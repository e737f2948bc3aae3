//! Changes of one install: deploy, inputs, actions, drift check and teardown.
use maud::{Markup, html};
use schemas::control::installs::Install;
use serde_json::Value;

mod options;

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of the page that changes an install.
#[derive(Debug, Clone)]
pub struct ChangePage {
    /// The install.
    pub install: Install,
    /// Parsed configuration of the version that the install follows.
    pub config: Value,
}

impl ChangePage {
    fn names(&self, of: &str, list: &str) -> Vec<&str> {
        let names = self.config[of][list].as_array().into_iter().flatten();
        names.filter_map(|entry| entry.as_str().or_else(|| entry["name"].as_str())).collect()
    }
}

/// Page with the forms that change an install.
#[must_use]
pub fn change(caller: &Caller, page: &ChangePage) -> Markup {
    let install = &page.install;
    let heading = format!("Change {}", install.name);
    let content = html! {
        (crumbs(install))
        (frame::title(caller, &Updates::None, &heading, &components::badge(&install.state)))
        @if caller.may(&[]) {
            @if install.auto_approve {
                p.note.wait { "This install approves its plans automatically: a change is applied without a review." }
            }
            div.columns {
                div.stack { (inputs(caller, page)) (deploy(caller, install)) (options::stack_outputs(caller, install)) }
                div.stack {
                    @if install.runner.is_none() { (options::enrolment(caller, install)) }
                    (options::components(caller, page))
                    (action(caller, page))
                    (drift(caller, install))
                    (options::approval(caller, install))
                    (options::accepted_state(caller, install))
                    (destroy(caller, install))
                }
            }
        } @else { p.note { "Only owners can change an install." } }
    };
    frame::page(caller, Section::Installs, &heading, &content)
}

pub(super) fn crumbs(install: &Install) -> Markup {
    html! {
        nav.crumbs aria-label="Breadcrumbs" {
            a href="/ui/installs" { "Installs" } span { "/" }
            a href={ "/ui/installs/" (install.id) } { (install.name) }
        }
    }
}

fn target(install: &Install, verb: &str) -> String {
    format!("/ui/installs/{}/{verb}", install.id)
}

/// Field for a reason, which the log stores.
pub(super) fn reason() -> Markup {
    html! { label { "Reason (optional)" input type="text" name="reason" maxlength="2000"; } }
}

/// Choice of a run that makes all its plans first.
pub(super) fn plan_all() -> Markup {
    html! {
        label.check { input type="checkbox" name="plan_all" value="true"; "Make all plans before the first change, to approve them together" }
    }
}

/// Hidden field with the kind of the requested run.
fn kind(name: &str) -> Markup {
    html! { input type="hidden" name="kind" value=(name); }
}

fn panel(heading: &str, body: &Markup) -> Markup {
    html! {
        section.panel aria-label=(heading) {
            header { h2 { (heading) } }
            div.body { (body) }
        }
    }
}

/// Plain inputs as fields. A browser does not encrypt, so sensitive inputs have a command.
fn inputs(caller: &Caller, page: &ChangePage) -> Markup {
    let install = &page.install;
    let sensitive = page.names("inputs", "sensitive");
    let names = page.names("inputs", "names");
    let plain: Vec<_> = names.iter().filter(|name| !sensitive.contains(name)).collect();
    panel(
        "Inputs",
        &html! {
            @if names.is_empty() { p.muted { "This version has no inputs." } }
            @if !plain.is_empty() {
                form.stacked id="inputs" method="post" action=(target(install, "inputs")) {
                    (frame::change_fields(caller, "inputs"))
                    @for name in plain { (field(name, &install.inputs.get(*name).map(components::value).unwrap_or_default())) }
                    (reason())
                    (plan_all())
                    p.muted { "Only changed fields are sent. A run plans the components that read them, and their dependents." }
                    div { button.primary type="submit" { "Save the inputs" } }
                }
            }
            @for name in sensitive {
                p { "Sensitive input " code { (name) } ". The CLI encrypts its value on your computer, so that this server never has it:" }
                (components::command(&["stead", "installs", "set-inputs", &install.name, "--secret", &format!("{name}=FILE")]))
            }
        },
    )
}

/// Field of an input, and its value when the page was made. A value that another user changes in the
/// meantime then stays.
fn field(name: &str, value: &str) -> Markup {
    html! {
        label {
            span { code { (name) } }
            @if value.contains('\n') {
                // A browser ignores the first line break.
                textarea name={ "input." (name) } rows="6" { "\n" (value) }
            } @else { input type="text" name={ "input." (name) } value=(value); }
        }
        input type="hidden" name={ "was." (name) } value=(value);
    }
}

fn deploy(caller: &Caller, install: &Install) -> Markup {
    panel(
        "Deploy",
        &html! {
            p.muted { "Plans the components of version " (install.config_version) " again." }
            form.stacked id="deploy" method="post" action=(target(install, "run")) {
                (frame::change_fields(caller, "deploy"))
                (kind("deploy"))
                label {
                    "Component"
                    select name="component" {
                        option value="" { "All components" }
                        @for component in install.components.iter().filter(|component| !component.disabled) {
                            option value=(component.name) { (component.name) " and its dependents" }
                        }
                    }
                }
                (reason())
                (plan_all())
                div { button.primary type="submit" { "Deploy" } }
            }
            details id="reprovision" {
                summary { "Reprovision" }
                form.stacked method="post" action=(target(install, "run")) {
                    (frame::change_fields(caller, "reprovision"))
                    (kind("reprovision"))
                    p { "Plans and applies the sandbox and all components again, changed or not." }
                    (reason())
                    (plan_all())
                    div { button type="submit" { "Reprovision" } }
                }
            }
        },
    )
}

fn action(caller: &Caller, page: &ChangePage) -> Markup {
    let names = page.names("actions", "list");
    panel(
        "Action",
        &html! {
            @if names.is_empty() { p.muted { "This version has no actions." } }
            @else {
                form.stacked id="action" method="post" action=(target(&page.install, "run")) {
                    (frame::change_fields(caller, "action"))
                    (kind("action"))
                    label { "Action" select name="action" required { @for name in names { option value=(name) { (name) } } } }
                    (reason())
                    div { button type="submit" { "Run the action" } }
                }
            }
        },
    )
}

fn drift(caller: &Caller, install: &Install) -> Markup {
    panel(
        "Drift check",
        &html! {
            p.muted { "Compares the sandbox and all components with the config. It changes nothing." }
            form.stacked id="drift" method="post" action=(target(install, "run")) {
                (frame::change_fields(caller, "drift"))
                (kind("drift"))
                (reason())
                div { button type="submit" { "Check for drift" } }
            }
        },
    )
}

fn destroy(caller: &Caller, install: &Install) -> Markup {
    let form = |verb: &str, heading: &str, effect: &str| {
        html! {
            details id=(verb) {
                summary { (heading) }
                form.stacked method="post" action=(target(install, "run")) {
                    (frame::change_fields(caller, verb))
                    (kind(verb))
                    p { (effect) }
                    label { "Type the name of the install: " (install.name) input type="text" name="confirm" required autocomplete="off"; }
                    (reason())
                    (plan_all())
                    div { button.danger type="submit" { (heading) } }
                }
            }
        }
    };
    panel(
        "Destroy",
        &html! {
            (form("teardown", "Tear down", "Destroys all components, dependents first. The sandbox stays."))
            (form("deprovision", "Deprovision", "Destroys all components and the sandbox. The install ends."))
        },
    )
}
