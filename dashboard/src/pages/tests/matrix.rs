//! Every page for every role in every state: well-formed, with one heading and unique landmarks.
use schemas::control::audit::EventsQuery;

use super::*;

/// Elements without an end tag.
const VOID: [&str; 4] = ["meta", "link", "input", "br"];

/// Checks that each element ends, in order, and that the page has one main element and one first heading.
fn check(name: &str, html: &str) {
    assert!(html.starts_with("<!DOCTYPE html><html lang=\"en\">"), "{name}");
    let mut open = Vec::new();
    for tag in tags(html) {
        let word = tag.split([' ', '>']).next().unwrap_or_default();
        match word.strip_prefix('/') {
            Some(end) => assert_eq!(open.pop(), Some(end.to_owned()), "{name}: </{end}>"),
            None if word.starts_with('!') || VOID.contains(&word) => {}
            None => open.push(word.to_owned()),
        }
    }
    assert_eq!(open, Vec::<String>::new(), "{name}");
    assert_eq!(html.matches("<main").count(), 1, "{name}");
    assert_eq!(html.matches("<h1").count(), 1, "{name}");
    for heading in ["<th", "<input type=\"text\""] {
        assert!(!html.contains(&format!("{heading}>")), "{name}: {heading} without a name");
    }
}

fn empty(role: &str) -> Vec<(&'static str, Markup)> {
    let who = caller(role, "a");
    let events: Events =
        serde_json::from_value(json!({"items": [], "scanned_through": 0, "head": 0})).unwrap();
    let mut run = run_page("plain");
    (run.run.dag, run.details) = (vec![], BTreeMap::new());
    let mut install = install_page("plain");
    install.install.components.clear();
    (install.newest, install.versions) = (vec![], vec![]);
    let mut job = job_of("queued");
    job.attempts.clear();
    let mut app_page = app_page("plain");
    (app_page.versions.items, app_page.builds) = (vec![], vec![]);
    vec![
        ("home", home(&who, &Attention::default())),
        ("runs", runs(&who, &RunsQuery::default(), &Page { items: vec![], next: None })),
        ("run", super::super::run(&who, &run)),
        (
            "installs",
            installs(&who, &InstallsQuery::default(), &Page { items: vec![], next: None }),
        ),
        ("install", super::super::install(&who, &install)),
        ("job", super::super::job(&who, &job, &LogPage::default())),
        ("apps", apps(&who, &Page { items: vec![], next: None })),
        ("app", app(&who, &app_page)),
        ("runners", runners(&who, &runners_with(vec![]))),
        ("webhooks", webhooks(&who, &Page { items: vec![], next: None })),
        ("find", find(&who, &FindPage { text: "zz".into(), ..FindPage::default() })),
        ("audit", audit(&who, &audit_with(events))),
    ]
}

fn runners_with(items: Vec<Runner>) -> RunnersPage {
    RunnersPage { runners: Page { items, next: None }, tokens: vec![], revoked: None }
}

fn audit_with(events: Events) -> AuditPage {
    AuditPage { query: EventsQuery::default(), from: None, until: None, events }
}

/// Lists with this many rows. The API returns at most 200 at a time.
fn long(role: &str, rows: usize) -> Vec<(&'static str, Markup)> {
    let who = caller(role, "a");
    let run: RunSummary = serde_json::from_value(run_summary("plain")).unwrap();
    let mut events = events_of("plain");
    events.items = vec![events.items[0].clone(); rows];
    let mut log = log_of("plain");
    log.records = vec![log.records[0].clone(); rows];
    vec![
        ("runs", runs(&who, &RunsQuery::default(), &Page { items: vec![run; rows], next: None })),
        (
            "installs",
            installs(
                &who,
                &InstallsQuery::default(),
                &Page { items: vec![install_of("plain"); rows], next: None },
            ),
        ),
        ("apps", apps(&who, &Page { items: vec![app_of("plain"); rows], next: None })),
        ("runners", runners(&who, &runners_with(vec![runner_of("plain"); rows]))),
        ("audit", audit(&who, &audit_with(events))),
        ("job", super::super::job(&who, &job_of("plain"), &log)),
    ]
}

#[test]
fn every_page_is_well_formed_for_every_role_in_every_state() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut check_all = |state: &'static str, role: &str, pages: Vec<(&'static str, Markup)>| {
        *counts.entry(state).or_default() += pages.len();
        for (name, page) in pages {
            check(&format!("{name} for {role}, {state}"), &page.into_string());
        }
    };
    for role in ROLES {
        check_all("empty", role, empty(role));
        check_all("typical", role, pages_with(role, "plain"));
        check_all("everything failing", role, pages_with(role, "failed"));
        for text in HOSTILE {
            check_all("hostile strings", role, pages_with(role, text));
        }
        let graph = vec![("run", run(&caller(role, "a"), &graph_page()))];
        check_all("graph of 200 nodes", role, graph);
    }
    // The rows of a list do not depend on the role.
    let pages = long("owner", 10_000);
    for (name, page) in &pages {
        let rows = page.0.matches("<tr id=").count()
            + page.0.matches("class=\"record").count()
            + page.0.matches("<tr><td").count();
        assert!(rows >= 10_000, "{name}: {rows}");
    }
    check_all("10,000 rows", "owner", pages);
    let all: usize = counts.values().sum();
    eprintln!("{all} pages: {counts:?}");
}
