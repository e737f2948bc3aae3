//! Finds pages, installs and apps by name, and anything by id. The palette shows the list of this page.
use maud::{Markup, html};

use crate::{
    components,
    frame::{self, Caller, SECTIONS, Section, Updates},
};

/// Content of the page.
#[derive(Debug, Clone, Default)]
pub struct FindPage {
    /// Searched text.
    pub text: String,
    /// First installs whose name contains the text.
    pub installs: Vec<Found>,
    /// First apps whose name contains the text.
    pub apps: Vec<Found>,
}

/// Found entity.
#[derive(Debug, Clone)]
pub struct Found {
    /// Id.
    pub id: String,
    /// Name.
    pub name: String,
}

/// Prefixes of ids, with the path of their pages.
const IDS: [(&str, &str, &str); 6] = [
    ("ins_", "/ui/installs/", "Install"),
    ("run_", "/ui/runs/", "Run"),
    ("job_", "/ui/jobs/", "Job"),
    ("app_", "/ui/apps/", "App"),
    ("bld_", "/ui/builds/", "Build"),
    ("rnr_", "/ui/runners/", "Runner"),
];

/// Page with a search, and the entries that match.
#[must_use]
pub fn find(caller: &Caller, page: &FindPage) -> Markup {
    let text = page.text.to_lowercase();
    let sections = SECTIONS.iter().filter(|section| {
        section.is_visible(caller) && section.label.to_lowercase().contains(&text)
    });
    let ids = IDS.iter().filter(|(prefix, ..)| is_id(&page.text, prefix));
    let entry = |href: &str, kind: &str, name: &Markup| html! { li { a href=(href) { span.name { (name) } span.muted { (kind) } } } };
    let entries = html! {
        @for (_, path, kind) in ids { (entry(&format!("{path}{}", page.text), kind, &html! { code { (page.text) } })) }
        @for section in sections { (entry(section.path, "Page", &html! { (section.label) })) }
        @for install in &page.installs { (entry(&format!("/ui/installs/{}", install.id), "Install", &html! { (install.name) })) }
        @for app in &page.apps { (entry(&format!("/ui/apps/{}", app.id), "App", &html! { (app.name) })) }
    };
    let content = html! {
        (frame::title(caller, &Updates::None, "Go to", &html! {}))
        section.panel.narrow aria-label="Search" {
            div.body {
                form.inline role="search" method="get" action="/ui/find" {
                    label { "Page, install, app or id" input type="search" name="q" value=(page.text) maxlength="100"; }
                    button type="submit" { "Find" }
                }
            }
            @if entries.0.is_empty() { (components::empty("No page, install or app has this name.", &["stead", "installs", "list"])) }
            @else { ul.found id="found" { (entries) } }
        }
    };
    frame::page(caller, None::<Section>, "Go to", &content)
}

/// Returns true if the text is an id with this prefix: a ULID has 26 letters and digits.
fn is_id(text: &str, prefix: &str) -> bool {
    let rest = text.strip_prefix(prefix);
    rest.is_some_and(|ulid| ulid.len() == 26 && ulid.bytes().all(|c| c.is_ascii_alphanumeric()))
}
