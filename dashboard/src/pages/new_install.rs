//! Creation of an install, and the command with which its customer starts the runner.
use maud::{Markup, html};
use schemas::control::{apps::App, installs::Enrolment};
use serde_json::Value;

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of the page that creates an install.
#[derive(Debug, Clone)]
pub struct NewInstallPage {
    /// App of the install.
    pub app: App,
    /// Config version that the install follows.
    pub version: u32,
    /// Newest versions of the app.
    pub versions: Vec<u32>,
    /// Parsed configuration of the version.
    pub config: Value,
}

impl NewInstallPage {
    fn inputs(&self, list: &str) -> Vec<&str> {
        let names = self.config["inputs"][list].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).collect()
    }
}

/// Page that creates an install.
#[must_use]
pub fn new_install(caller: &Caller, page: &NewInstallPage) -> Markup {
    let NewInstallPage { app, version, versions, .. } = page;
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/apps" { "Apps" } span { "/" } a href={ "/ui/apps/" (app.id) } { (app.name) } }
        (frame::title(caller, &Updates::None, "Create an install", &html! {}))
        @if caller.may(&[]) {
            @if versions.len() > 1 {
                form.inline.compare method="get" action={ "/ui/apps/" (app.id) "/new-install" } {
                    label {
                        "Version of " (app.name)
                        select name="version" {
                            @for of in versions { option value=(of) selected[of == version] { "v" (of) @if of == &app.version { " (newest)" } } }
                        }
                    }
                    button type="submit" { "Show its inputs" }
                }
            }
            (form(caller, page))
        } @else { p.note { "Only owners can create an install." } }
    };
    frame::page(caller, Section::Apps, "Create an install", &content)
}

fn form(caller: &Caller, page: &NewInstallPage) -> Markup {
    let NewInstallPage { app, version, .. } = page;
    let sensitive = page.inputs("sensitive");
    let names = page.inputs("names");
    let plain: Vec<&str> = names.into_iter().filter(|name| !sensitive.contains(name)).collect();
    let (required, with_default) = (page.inputs("required"), page.inputs("with_default"));
    html! {
        section.panel.narrow aria-label="New install" {
            header { h2 { (app.name) " v" (version) } }
            div.body {
                form.stacked id="new-install" method="post" action={ "/ui/apps/" (app.id) "/new-install" } {
                    (frame::change_fields(caller, "install"))
                    input type="hidden" name="version" value=(version);
                    label {
                        "Name of the install: lower-case letters, digits, - and _"
                        input type="text" name="name" required maxlength="63" autocomplete="off" placeholder="acme";
                    }
                    label {
                        "Approval of plans"
                        select name="approval" {
                            option value="required" { "Required for each plan" }
                            option value="first" { "Automatic for the first provision only" }
                            option value="automatic" { "Automatic for each plan" }
                        }
                    }
                    @if !plain.is_empty() {
                        fieldset {
                            legend { "Inputs. An empty field has the default of the app." }
                            @for name in plain {
                                @let is_required = required.contains(&name) && !with_default.contains(&name);
                                label {
                                    span { code { (name) } @if is_required { " (required)" } }
                                    input type="text" name={ "input." (name) } required[is_required] autocomplete="off";
                                }
                            }
                        }
                    }
                    @if !sensitive.is_empty() {
                        p { "After the runner has enrolled, the CLI encrypts the sensitive inputs on your computer, so that this server never has their values:" }
                        @for name in &sensitive {
                            (components::command(&["stead", "installs", "set-inputs", "INSTALL", "--secret", &format!("{name}=FILE")]))
                        }
                    }
                    div { button.primary type="submit" { "Create the install" } }
                }
            }
        }
    }
}

/// Enrolment token of an install.
#[derive(Debug, Clone)]
pub struct EnrolmentPage {
    /// Name of the install.
    pub install: String,
    /// True if the form also created the install.
    pub is_new: bool,
    /// Token with its command. `None` if an earlier submission of the form created it.
    pub enrolment: Option<Enrolment>,
}

/// Page with the command for the customer. No other page shows the token.
#[must_use]
pub fn enrolment(caller: &Caller, page: &EnrolmentPage) -> Markup {
    let EnrolmentPage { install, is_new, enrolment } = page;
    let heading = format!("Start the runner of {install}");
    let url = format!("/ui/installs/{}", components::encoded(install));
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/installs" { "Installs" } span { "/" } a href=(url) { (install) } }
        (frame::title(caller, &Updates::None, &heading, &html! {}))
        @match enrolment {
            Some(enrolment) => {
                @if *is_new { p.note.ok { "Created install " (install) "." } }
                (for_customer(caller, enrolment))
            }
            None => {
                p.note.wait { "This form was submitted before. The server cannot show that enrolment token again. If it is lost, create another one:" }
                (components::command(&["stead", "installs", "create-enrolment-token", install]))
            }
        }
        p { a href=(url) { "Open the install" } }
    };
    frame::page(caller, Section::Installs, &heading, &content)
}

/// Page with the command of a new build runner. No other page shows the token. `None` if an earlier submission of
/// the form created it.
#[must_use]
pub fn build_enrolment(caller: &Caller, enrolment: Option<&Enrolment>) -> Markup {
    let heading = "Start a build runner";
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/runners" { "Runners" } }
        (frame::title(caller, &Updates::None, heading, &html! {}))
        @match enrolment {
            Some(enrolment) => (command_panel(caller, enrolment, "Command for the build runner", "Run this command on the machine of the build runner.")),
            None => {
                p.note.wait { "This form was submitted before. The server cannot show that enrolment token again. If it is lost, create another one:" }
                (components::command(&["stead", "runners", "create-enrolment-token"]))
            }
        }
    };
    frame::page(caller, Section::Runners, heading, &content)
}

fn for_customer(caller: &Caller, enrolment: &Enrolment) -> Markup {
    command_panel(
        caller,
        enrolment,
        "Command for the customer",
        "The customer runs this command in their account.",
    )
}

fn command_panel(caller: &Caller, enrolment: &Enrolment, heading: &str, who: &str) -> Markup {
    html! {
        section.panel aria-label=(heading) {
            header { h2 { (heading) } }
            div.body {
                p { (who) " It reads the token from standard input, so that the shell history does not contain it." }
                (components::command_line(&enrolment.command))
                p { "Enrolment token, for one runner, valid until " (components::exact(enrolment.expires_at)) " (" (components::time(caller.now, enrolment.expires_at)) "):" }
                code.command.secret { (enrolment.token) }
                p.muted { "Copy both now. The server stores only the digest of the token, so it cannot show the token again." }
                dl.facts.wide {
                    div { dt { "Fingerprint of this server's key, which the customer can compare" } dd { code { (enrolment.server_key) } } }
                    div { dt { "Id of the token" } dd { code { (enrolment.id) } } }
                }
            }
        }
    }
}
