//! Tests of all pages for each role: empty, typical, hostile, failing, and with a graph of 200 steps.
mod changes;
mod history;
mod matrix;
mod more_pages;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use maud::Markup;
use schemas::control::{
    Page,
    apps::{App, ConfigVersion},
    audit::Events,
    installs::{Install, InstallState, InstallsQuery},
    jobs::{Job, LogRecord},
    runners::Runner,
    runs::{Run, RunSummary, RunsQuery, StepPlanDetails},
    tokens::Token,
};
use serde_json::{Value, json};

use self::changes::{change_page, diff_of, upgrade_page};
use super::*;
use crate::Caller;

/// Strings that a page must show as text.
const HOSTILE: [&str; 5] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "</title></textarea><svg onload=alert(1)>",
];
const ROLES: [&str; 4] = ["owner", "approver", "auditor", "viewer"];
const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
const TIME: &str = "2026-01-31T09:00:00Z";

fn caller(role: &str, name: &str) -> Caller {
    Caller {
        name: name.into(),
        roles: vec![role.into()],
        form_token: "f0".into(),
        idempotency_key: "k0".into(),
        position: 7,
        version: "0.1.0".into(),
        now: TIME.parse::<DateTime<Utc>>().unwrap(),
    }
}

fn digest() -> String {
    format!("sha256:{}", "0".repeat(64))
}

fn run_summary(text: &str) -> Value {
    json!({
        "id": format!("run_{ULID}"), "install": format!("ins_{ULID}"), "install_name": text, "kind": text,
        "action": text, "state": text, "requested_by": text, "requested_by_name": text, "reason": text,
        "config_version": 1, "steps": 2, "steps_ended": 1, "requested_at": TIME,
        "waiting_plans": {"plans": 2, "add": 1, "change": 2, "destroy": 3, "since": TIME},
    })
}

fn run_of(text: &str) -> Run {
    let mut run = run_summary(text);
    let step = json!({
        "id": format!("stp_{ULID}"), "kind": text, "name": text, "depends_on": [], "layer": 0,
        "state": "waiting_for_approval", "job": format!("job_{ULID}"), "reason": text,
        "plan": {"digest": digest(), "noop": false, "add": 1, "change": 2, "destroy": 3, "summary": digest()},
        "waiting": {"for": "approval", "detail": text},
        "decision": {"decision": text, "by": text, "reason": text, "at": TIME},
    });
    let preflight = json!({
        "state": text, "reason": text,
        "checks": [{"component": text, "check": text, "status": "failed", "message": text}],
    });
    let members = json!({"preflight": preflight, "dag": [step.clone(), step], "position": 7});
    run.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    serde_json::from_value(run).unwrap()
}

fn details_of(text: &str) -> StepPlanDetails {
    let value = |text: &str| json!({"value": text});
    let attribute = json!({"path": text, "before": value(text), "after": {"truncated": {"text": text, "size_bytes": 9}}});
    let resource = json!({"address": text, "action": "update", "attributes": [attribute]});
    let details = json!({"resources": [resource], "outputs": [resource]});
    serde_json::from_value(json!({"plan": digest(), "state": "available", "details": details}))
        .unwrap()
}

fn run_page(text: &str) -> RunPage {
    RunPage {
        run: run_of(text),
        details: [(format!("stp_{ULID}"), details_of(text))].into(),
        search: None,
    }
}

fn install_of(text: &str) -> Install {
    let component = json!({
        "name": text, "kind": text, "state": text, "config_version": 1, "outputs": {text: text},
        "reserved_by": format!("run_{ULID}"),
    });
    serde_json::from_value(json!({
        "id": format!("ins_{ULID}"), "name": text, "app": format!("app_{ULID}"), "app_name": text,
        "config_version": 1, "state": text, "auto_approve": false, "inputs": {text: text},
        "stack_outputs": {text: text}, "runner_state": text, "components": [component],
        "ignored_settings": [{"severity": "warning", "file": text, "message": text}],
        "runs": [], "created_at": TIME, "position": 7,
    }))
    .unwrap()
}

/// Config of two components.
fn config_of(text: &str) -> Value {
    json!({"layers": [["network"], [text]], "edges": [[text, "network"]]})
}

fn install_page(text: &str) -> InstallPage {
    let newest = vec![serde_json::from_value(run_summary(text)).unwrap()];
    let config = config_of(text);
    InstallPage { install: install_of(text), newest, versions: vec![3, 2, 1], config }
}

fn job_of(text: &str) -> Job {
    let attempt = json!({
        "attempt": 1, "execution": format!("exe_{ULID}"), "runner": format!("rnr_{ULID}"), "phase": text,
        "claimed_at": TIME, "exit_code": 1, "warnings": [text],
    });
    serde_json::from_value(json!({
        "id": format!("job_{ULID}"), "kind": text, "class": text, "state": text, "cancelling": false,
        "manifest": digest(), "name": text, "attempts": [attempt], "reason": text, "detail": text,
        "waiting": {"for": text, "detail": text}, "queued_at": TIME,
    }))
    .unwrap()
}

fn runner_of(text: &str) -> Runner {
    serde_json::from_value(json!({
        "id": format!("rnr_{ULID}"), "mode": text, "install": format!("ins_{ULID}"), "install_name": text,
        "state": text, "reason": text, "version": text, "host": text, "jobs": [], "enrolled_at": TIME,
        "last_contact": TIME,
    }))
    .unwrap()
}

fn app_of(text: &str) -> App {
    let app = json!({"id": format!("app_{ULID}"), "name": text, "version": 1, "components": 1, "installs": 1});
    serde_json::from_value(app).unwrap()
}

fn app_page(text: &str) -> AppPage {
    let versions = Page { items: vec![version_of(text)], next: Some(text.into()) };
    let builds = vec![more_pages::build_of(text, text)];
    let followers = Some([(1, 3)].into());
    AppPage { app: app_of(text), versions, builds, followers, config: config_of(text) }
}

fn version_of(text: &str) -> ConfigVersion {
    serde_json::from_value(json!({
        "version": 1, "bundle": digest(), "published_at": TIME, "published_by": text, "position": 7, "state": text,
        "sources": [{"repo": text, "ref": text, "state": "failed", "detail": text}],
        "components": [{"id": format!("cmp_{ULID}"), "name": text, "kind": text, "definition": digest(), "commit": text}],
    }))
    .unwrap()
}

fn events_of(text: &str) -> Events {
    let event = json!({
        "position": 7, "event_id": format!("evt_{ULID}"), "stream": text, "sequence": 1, "type": text,
        "version": "1", "recorded_at": TIME, "actor": text, "actor_name": text, "payload": {text: text},
        "metadata": {}, "salt": "", "leaf": "", "chain": "",
    });
    // `RawValue` needs the text of the JSON.
    serde_json::from_str(&json!({"items": [event], "scanned_through": 7, "head": 9}).to_string())
        .unwrap()
}

fn log_of(text: &str) -> LogPage {
    let record = json!({"n": 1, "t": 5, "s": text, "p": text, "m": text});
    let record: LogRecord = serde_json::from_value(record).unwrap();
    let phase = LogPhase { name: text.into(), first: 1, last: 2, micros: 9 };
    LogPage {
        attempt: 1,
        records: vec![record.clone()],
        more: true,
        last: 9,
        phases: vec![phase.clone(), phase],
        follows: true,
        search: Some(LogSearch {
            text: text.into(),
            from: 0,
            through: 7,
            matches: vec![record],
            more: true,
        }),
        ..LogPage::default()
    }
}

fn token_of(text: &str) -> Token {
    serde_json::from_value(json!({
        "id": format!("tok_{ULID}"), "principal": format!("prn_{ULID}"), "name": text, "roles": [text],
        "state": text, "issued_at": TIME, "created_at": TIME, "expires_at": TIME,
    }))
    .unwrap()
}

fn attempts_page(text: &str) -> AttemptsPage {
    let logs = vec![log_of(text), LogPage { attempt: 2, ..LogPage::default() }];
    AttemptsPage { job: job_of(text), logs, is_start: false }
}

/// Every page with this text in every place that a vendor, a customer or a job can fill.
fn pages_with(role: &str, text: &str) -> Vec<(&'static str, Markup)> {
    let who = caller(role, text);
    let runs_of: Vec<RunSummary> = vec![serde_json::from_value(run_summary(text)).unwrap()];
    let attention = Attention {
        waiting: runs_of.clone(),
        failed: runs_of.clone(),
        unknown: vec![job_of(text)],
        disconnected: vec![runner_of(text)],
        expiring: vec![token_of(text)],
        compared_runners: Some(1000),
        newest: runs_of.clone(),
        days: vec![RunDay { day: who.now.date_naive(), succeeded: 3, failed: 1, other: 2 }],
        versions: vec![AppVersions {
            app: format!("app_{ULID}"),
            name: text.into(),
            newest: 2,
            counts: vec![(2, 1), (1, 4)],
        }],
        are_versions_partial: true,
        verification: Verification { verified: Some(7), corrupt: None },
    };
    let some = || Some(text.to_owned());
    let runs_query = RunsQuery { install: some(), state: some(), ..RunsQuery::default() };
    let installs_query = history::filters(text);
    let page = |items: Vec<RunSummary>| Page { items, next: some() };
    let component = json!({"status": text, "outputs": {text: text}});
    let earlier = json!({
        "inputs": {"inputs": {text: text}}, "sandbox": component, "components": {text: component},
        "install_stack": {"outputs": {text: text}},
    });
    let earlier = json!({"id": format!("ins_{ULID}"), "position": 5, "state": {"stead": earlier}});
    let earlier: InstallState = serde_json::from_value(earlier).unwrap();
    let listed = vec![
        ("login", login(Some(text), Some(text))),
        ("problem", problem(text, text, text, &[], "/ui/")),
        ("home", home(&who, &attention)),
        ("runs", runs(&who, &runs_query, &page(runs_of.clone()))),
        ("run", run(&who, &run_page(text))),
        ("search", run(&who, &RunPage { search: some(), ..run_page(text) })),
        (
            "installs",
            installs(&who, &installs_query, &Page { items: vec![install_of(text)], next: some() }),
        ),
        ("install", install(&who, &install_page(text))),
        ("change", change(&who, &change_page(text))),
        ("upgrade", upgrade(&who, &upgrade_page(text, 2))),
        ("rollback", upgrade(&who, &upgrade_page(text, 0))),
        ("diff", diff(&who, &DiffPage { app: app_of(text), diff: diff_of(text) })),
        ("runner", runner(&who, &history::runner_page(text))),
        ("install as of", install_as_of(&who, &install_of(text), &earlier, Some(who.now))),
        ("job", job(&who, &job_of(text), &log_of(text))),
        ("attempts", attempts(&who, &attempts_page(text))),
        ("catalog", catalog(&who)),
        ("apps", apps(&who, &Page { items: vec![app_of(text)], next: some() })),
        ("app", app(&who, &app_page(text))),
        ("runners", runners(&who, &history::runners_page(text))),
    ];
    listed
        .into_iter()
        .chain(more_pages::pages(&who, text))
        .chain(history::pages(&who, text))
        .collect()
}

#[test]
fn hostile_text_stays_text_on_every_page_for_every_role() {
    for role in ROLES {
        // The tags and attributes of a page do not depend on its text.
        let expected: BTreeMap<_, _> = pages_with(role, "plain")
            .into_iter()
            .map(|(name, page)| (name, tags(&page.into_string())))
            .collect();
        for text in HOSTILE {
            for (name, page) in pages_with(role, text) {
                assert_eq!(
                    tags(&page.into_string()),
                    expected[name],
                    "{name} for {role} with {text}"
                );
            }
        }
    }
}

#[test]
fn characters_that_hide_or_reverse_text_are_replaced() {
    for (name, page) in pages_with("owner", "a\u{202e}b\u{200b}c\u{1b}[2Jd") {
        let html = page.into_string();
        assert!(!html.contains(['\u{202e}', '\u{200b}', '\u{1b}']), "{name}");
    }
}

#[test]
fn pages_have_no_inline_script_or_style() {
    for (name, page) in pages_with("owner", "plain") {
        let html = page.into_string();
        assert!(!html.contains(" style=") && !html.contains("<style"), "{name}");
        assert!(!html.contains(" onclick=") && !html.contains("javascript:"), "{name}");
        for script in html.split("<script").skip(1) {
            assert!(script.trim_start().starts_with("src=\"/ui/assets/"), "{name}: {script:.60}");
        }
    }
}

#[test]
fn only_approvers_and_owners_get_the_form_of_a_decision() {
    for (role, expected) in
        [("owner", true), ("approver", true), ("auditor", false), ("viewer", false)]
    {
        let html = run(&caller(role, "a"), &run_page("plain")).into_string();
        assert_eq!(html.contains("/decide\""), expected, "{role}");
    }
}

#[test]
fn roles_see_only_what_they_may_do() {
    let mut failed = run_page("plain");
    failed.run.run.state = "failed".into();
    let mut running = run_page("plain");
    running.run.run.state = "running".into();
    for role in ROLES {
        let is_owner = role == "owner";
        let html = run(&caller(role, "a"), &failed).into_string();
        assert_eq!(html.contains("/retry\""), is_owner, "{role}");
        assert!(!html.contains("/cancel\""), "{role}: the run has ended");
        let html = run(&caller(role, "a"), &running).into_string();
        assert_eq!(html.contains("/cancel\""), is_owner, "{role}");
        let sees_audit = is_owner || role == "auditor";
        assert_eq!(html.contains("/ui/audit"), sees_audit, "{role}");
    }
}

#[test]
fn plans_of_a_run_that_awaits_more_plans_cannot_be_decided_yet() {
    let mut page = run_page("plain");
    page.run.awaits_plans = true;
    assert!(!run(&caller("owner", "a"), &page).into_string().contains("/decide\""));
}

/// Run with a graph of 200 steps.
fn graph_page() -> RunPage {
    let mut page = run_page("plain");
    let step = page.run.dag.remove(0);
    let id = |n: u32| format!("stp_01ARZ3NDEKTSV4RRFFQ69{n:05}");
    page.run.dag = (0..200)
        .map(|n| {
            let mut step = step.clone();
            step.id = id(n).parse().unwrap();
            (step.name, step.layer) = (format!("component-{n}"), n / 20);
            step.depends_on =
                n.checked_sub(20).map(|on| id(on).parse().unwrap()).into_iter().collect();
            step
        })
        .collect();
    page
}

#[test]
fn graph_of_200_steps_has_a_node_and_a_row_for_each() {
    let page = graph_page();
    for role in ROLES {
        let html = run(&caller(role, "a"), &page).into_string();
        assert_eq!(html.matches("<rect").count(), 200, "{role}");
        assert_eq!(html.matches("class=\"edge\"").count(), 180, "{role}");
        assert_eq!(html.matches("<article").count(), 200, "{role}");
        assert_eq!(html.contains("/decide\""), matches!(role, "owner" | "approver"), "{role}");
    }
}

#[test]
fn ids_of_a_page_are_unique_and_forms_post_only_to_this_server() {
    for role in ROLES {
        for (name, page) in pages_with(role, "plain") {
            // Both steps of the example have one id.
            let html = page.into_string().replacen(&format!("stp_{ULID}"), "stp_other", 2);
            let mut seen = std::collections::BTreeSet::new();
            for id in html.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
                let is_step = id.contains("stp_");
                assert!(seen.insert(id) || is_step, "{name} for {role}: {id}");
            }
        }
        let texts = HOSTILE.iter().copied().chain(["plain"]);
        for (name, page) in texts.flat_map(|text| pages_with(role, text)) {
            let html = page.into_string();
            for action in html.split(" action=\"").skip(1) {
                assert!(action.starts_with("/ui/"), "{name}: {action:.40}");
            }
            for address in html.split(" href=\"").skip(1) {
                assert!(
                    address.starts_with("/ui/") || address.starts_with('#'),
                    "{name}: {address:.40}"
                );
            }
        }
    }
}

#[test]
fn decision_names_the_digest_that_the_page_shows() {
    let html = run(&caller("approver", "a"), &run_page("plain")).into_string();
    assert!(html.contains(&format!("name=\"digest\" value=\"{}\"", digest())), "{html}");
}

#[test]
fn empty_pages_name_the_next_command_for_every_role() {
    for role in ROLES {
        let who = caller(role, "a");
        let none = || Page { items: Vec::new(), next: None };
        for html in [
            home(&who, &Attention::default()),
            installs(&who, &InstallsQuery::default(), &Page { items: vec![], next: None }),
            runs(&who, &RunsQuery::default(), &none()),
            apps(&who, &Page { items: vec![], next: None }),
            runners(
                &who,
                &RunnersPage {
                    runners: Page { items: vec![], next: None },
                    tokens: vec![],
                    revoked: None,
                },
            ),
        ] {
            assert!(html.into_string().contains("</span>stead "), "{role}");
        }
    }
}

/// Tags of a document with the names of their attributes, without their values and the text.
fn tags(html: &str) -> Vec<String> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some((_, from)) = rest.split_once('<') {
        let mut quoted = false;
        let end = from.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let (tag, after) = from.split_at(end.unwrap_or(from.len()));
        tags.push(tag.split('"').step_by(2).collect());
        rest = after;
    }
    tags
}
