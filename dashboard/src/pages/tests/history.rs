//! Tests of the pages about the past, proofs, plugins, and changes of several installs.
use schemas::control::{
    audit::{AsOf, Checkpoint, EventsQuery},
    history::InstallsDiff,
    installs::{Enrolment, InstallsOrder},
    plugins::Plugin,
    runners::JournalHeads,
};

use super::*;

pub(super) fn filters(text: &str) -> InstallsQuery {
    let some = || Some(text.to_owned());
    InstallsQuery {
        app: some(),
        search: some(),
        version: Some(2),
        state: some(),
        runner: some(),
        attention: Some(true),
        sort: Some(InstallsOrder::NameDescending),
        ..InstallsQuery::default()
    }
}

pub(super) fn runner_page(text: &str) -> RunnerPage {
    let envelope =
        json!({"payload": text, "payloadType": text, "signatures": [{"keyid": text, "sig": text}]});
    let head = json!({"journal_id": text, "entries": 3, "received_at": TIME, "head": envelope});
    let journals: JournalHeads = serde_json::from_value(json!({"heads": [head]})).unwrap();
    RunnerPage { runner: runner_of(text), journals }
}

pub(super) fn runners_page(text: &str) -> RunnersPage {
    let runners = Page { items: vec![runner_of(text)], next: Some(text.into()) };
    let token = json!({
        "id": format!("tok_{ULID}"), "install": format!("ins_{ULID}"), "install_name": text, "state": "unused",
        "runner": format!("rnr_{ULID}"), "created_at": TIME, "expires_at": TIME,
    });
    let tokens = vec![serde_json::from_value(token).unwrap()];
    RunnersPage { runners, tokens, revoked: Some(text.into()) }
}

fn earlier_page(subject: Subject, text: &str) -> EarlierPage {
    let step = |id: &str, on: &[&str]| {
        json!({
            "spec": {"step": id, "target": {"type": "component", "name": text}, "operation": text, "depends_on": on},
            "state": {"state": "awaiting_approval", "detail": text, "plan": {"add": 1, "change": 2, "destroy": 3}},
            "jobs": [text],
        })
    };
    let state = match subject {
        Subject::Run => json!({
            "request": {"kind": text, "by": text, "reason": text, "config_version": 2},
            "steps": [step("stp_1", &[]), step("stp_2", &["stp_1"])],
            "cancel": {"by": text, "reason": text}, "outcome": text,
        }),
        Subject::App => {
            json!({"versions": {"1": {"components": [{"name": text}], "bundle": text}, "2": {}}})
        }
        Subject::Job => json!({
            "work": {"kind": text, "class": text}, "state": {"Ended": {"outcome": text, "attempt": 1}},
            "last": [text, text], "lost": [{}],
        }),
    };
    let earlier =
        json!({"stream": text, "position": 5, "recorded_at": TIME, "sequence": 2, "state": state});
    let earlier: AsOf = serde_json::from_value(earlier).unwrap();
    EarlierPage {
        subject,
        heading: text.into(),
        present: format!("/ui/runs/run_{ULID}"),
        earlier,
        events: events_of(text).items,
        has_more_events: true,
    }
}

fn history_page(text: &str) -> HistoryPage {
    let point = |position: u64| json!({"position": position, "recorded_at": TIME});
    let event = json!({
        "position": 5, "recorded_at": TIME, "type": text, "stream": text, "actor": text, "actor_name": text, "reason": text,
    });
    let run = json!({
        "run": format!("run_{ULID}"), "kind": text, "config_version": 2, "requested_by": text,
        "requested_by_name": text, "reason": text, "requested_at": TIME, "outcome": text,
        "interventions": [{"kind": text, "step_name": text, "by": text, "by_name": text, "reason": text, "at": TIME, "position": 6}],
        "jobs": [], "components": [{"name": text, "after": {"config_version": 2, "build": format!("bld_{ULID}")}, "incomplete": true}],
        "events": [event],
    });
    let diff = json!({
        "stream": format!("install/{text}"), "name": text, "from": point(1), "to": point(9),
        "changes": [{"path": text, "before": text}, {"path": text, "after": {text: text}}],
        "runs": [run], "other_events": [event], "complete_through": 8,
    });
    let diff = json!({"from": point(1), "to": point(9), "items": [diff], "next": text});
    let diff: InstallsDiff = serde_json::from_value(diff).unwrap();
    let some = || Some(text.to_owned());
    HistoryPage { from: some(), to: some(), stream: some(), diff: Some(diff) }
}

fn proofs_page(text: &str, verification: Verification) -> ProofsPage {
    let checkpoint: Checkpoint = serde_json::from_value(json!({
        "note": text, "size": 9, "key": text, "verifier_key": text, "former_verifier_keys": [text],
    }))
    .unwrap();
    ProofsPage { checkpoint, verification, of: Some(text.into()), file: text.into() }
}

fn audit_page(text: &str) -> AuditPage {
    let some = || Some(text.to_owned());
    let query =
        EventsQuery { stream: some(), event_type: some(), actor: some(), ..EventsQuery::default() };
    AuditPage { query, from: some(), until: some(), events: events_of(text) }
}

fn plugin_of(text: &str) -> Plugin {
    serde_json::from_value(json!({"name": text, "versions": [{
        "version": text, "digest": digest(), "size_bytes": 9, "platforms": [text], "publisher": text, "published_at": TIME,
    }]}))
    .unwrap()
}

fn enrolment_of(text: &str) -> Enrolment {
    serde_json::from_value(json!({
        "id": format!("tok_{ULID}"), "token": text, "expires_at": TIME, "server_key": text, "runner_url": text, "command": text,
    }))
    .unwrap()
}

fn preview_page(verb: BulkVerb, text: &str) -> PreviewPage {
    let impact = diff_of(text).impact.pop();
    let item = |target: Result<String, String>, impact| BulkItem {
        install: format!("ins_{ULID}"),
        name: text.into(),
        target,
        impact,
        auto_approve: true,
    };
    let items = vec![
        item(Ok(text.into()), impact),
        item(Ok(text.into()), None),
        item(Err(text.into()), None),
    ];
    PreviewPage { verb, to: Some(2), reason: text.into(), items }
}

fn bulk_page(text: &str, next: Option<String>) -> BulkPage {
    let page = Page { items: vec![install_of(text)], next };
    BulkPage { query: filters(text), page, is_none_selected: false }
}

fn results_page(text: &str) -> ResultsPage {
    let result =
        |outcome| BulkResult { install: format!("ins_{ULID}"), name: text.into(), outcome };
    let results = vec![result(Ok(Some(text.into()))), result(Ok(None)), result(Err(text.into()))];
    ResultsPage { verb: BulkVerb::Retry, results }
}

/// The pages of this file, with this text in every place that another party can fill.
pub(super) fn pages(who: &Caller, text: &str) -> Vec<(&'static str, Markup)> {
    let verified = Verification { verified: Some(7), corrupt: None };
    let corrupt = Verification { verified: Some(7), corrupt: Some(3) };
    vec![
        ("audit", audit(who, &audit_page(text))),
        ("run as of", earlier(who, &earlier_page(Subject::Run, text))),
        ("app as of", earlier(who, &earlier_page(Subject::App, text))),
        ("job as of", earlier(who, &earlier_page(Subject::Job, text))),
        ("history", history(who, &history_page(text))),
        ("proofs", proofs(who, &proofs_page(text, verified))),
        ("corrupt log", proofs(who, &proofs_page(text, corrupt))),
        ("unverified log", proofs(who, &proofs_page(text, Verification::default()))),
        ("plugins", plugins(who, &Page { items: vec![plugin_of(text)], next: Some(text.into()) })),
        ("plugin", plugin(who, &plugin_of(text))),
        ("build enrolment", build_enrolment(who, Some(&enrolment_of(text)))),
        ("repeated build enrolment", build_enrolment(who, None)),
        ("bulk", bulk(who, &bulk_page(text, Some(text.into())))),
        ("bulk upgrade", bulk_preview(who, &preview_page(BulkVerb::Upgrade, text))),
        ("bulk retry", bulk_preview(who, &preview_page(BulkVerb::Retry, text))),
        ("bulk drain", bulk_preview(who, &preview_page(BulkVerb::Drain, text))),
        ("bulk results", bulk_results(who, &results_page(text))),
    ]
}

#[test]
fn pages_about_the_past_have_a_link_to_the_present_and_no_form_that_changes_something() {
    for role in ROLES {
        let who = caller(role, "a");
        for subject in [Subject::Run, Subject::App, Subject::Job] {
            let html = earlier(&who, &earlier_page(subject, "plain")).into_string();
            assert!(html.contains("Earlier state.") && html.contains("Show the current state"));
            let main = html.split_once("<main").unwrap().1;
            assert!(!main.contains("method=\"post\""), "{subject:?} for {role}");
        }
    }
}

#[test]
fn only_auditors_and_owners_get_the_forms_of_the_past() {
    for role in ROLES {
        let sees = matches!(role, "owner" | "auditor");
        let html = run(&caller(role, "a"), &run_page("plain")).into_string();
        assert_eq!(html.contains("/as-of\""), sees, "{role}");
        let html = install(&caller(role, "a"), &install_page("plain")).into_string();
        assert_eq!(html.contains("/ui/audit/proofs?of="), sees, "{role}");
    }
}

#[test]
fn only_owners_get_the_forms_of_runners_and_of_several_installs() {
    for role in ROLES {
        let (who, is_owner) = (caller(role, "a"), role == "owner");
        let html = runners(&who, &runners_page("plain")).into_string();
        assert_eq!(html.contains("/ui/runners/enrol\""), is_owner, "{role}");
        assert_eq!(html.contains("/ui/runners/revoke-token\""), is_owner, "{role}");
        let html = installs(&who, &filters("plain"), &Page { items: vec![], next: None });
        assert_eq!(html.into_string().contains("/ui/bulk?"), is_owner, "{role}");
        let html = bulk(&who, &bulk_page("plain", None)).into_string();
        assert_eq!(html.contains("type=\"checkbox\""), is_owner, "{role}");
        let html = bulk_preview(&who, &preview_page(BulkVerb::Drain, "plain")).into_string();
        assert_eq!(html.contains("id=\"bulk\""), is_owner, "{role}");
    }
}

#[test]
fn a_preview_changes_only_the_installs_that_it_includes() {
    let mut page = preview_page(BulkVerb::Upgrade, "3>4");
    let html = bulk_preview(&caller("owner", "a"), &page).into_string();
    assert_eq!(html.matches("name=\"item.ins_").count(), 2, "{html}");
    assert!(html.contains("v3 → v4") && html.contains("Left out: 3&gt;4"), "{html}");
    page.items.retain(|item| item.target.is_err());
    let html = bulk_preview(&caller("owner", "a"), &page).into_string();
    assert!(!html.contains("id=\"bulk\"") && html.contains("No install can be changed"), "{html}");
}

#[test]
fn filters_of_installs_follow_to_the_next_page_the_download_and_the_bulk_change() {
    let page = Page { items: vec![install_of("plain")], next: Some("c".into()) };
    let html = installs(&caller("owner", "a"), &filters("a&b=c"), &page).into_string();
    let query = "search=a%26b%3Dc&amp;app=a%26b%3Dc&amp;version=2&amp;state=a%26b%3Dc&amp;runner=a%26b%3Dc&amp;attention=true&amp;sort=%2Dname";
    for path in ["/ui/installs.csv", "/ui/bulk"] {
        assert!(html.contains(&format!("href=\"{path}?{query}\"")), "{html}");
    }
    assert!(html.contains("type=\"hidden\" name=\"attention\" value=\"true\""), "{html}");
}

#[test]
fn a_command_of_a_proof_is_one_command() {
    let html =
        proofs(&caller("auditor", "a"), &proofs_page("x; rm -rf ~", Verification::default()));
    let html = html.into_string();
    assert!(
        html.contains("</span>stead audit check &#39;x; rm -rf ~&#39;")
            || html.contains("</span>stead audit check 'x; rm -rf ~'"),
        "{html}"
    );
}

#[test]
fn a_search_shows_matching_resources_and_no_form_of_a_decision() {
    let of = |search: &str| {
        let page = RunPage { search: Some(search.into()), ..run_page("plain") };
        run(&caller("approver", "a"), &page).into_string()
    };
    let html = of("PLAI");
    assert!(html.contains("2 of 2 resources match."), "{html}");
    assert!(!html.contains("/decide") && html.contains("Show all"), "{html}");
    let html = of("other");
    assert!(html.contains("0 of 2 resources match."), "{html}");
}
