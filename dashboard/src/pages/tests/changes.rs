//! Tests of the pages and forms that change installs, runs, runners and jobs.
use schemas::control::apps::Diff;

use super::*;

/// Page of an install with a plain and a sensitive input, both with hostile names.
pub(super) fn change_page(text: &str) -> ChangePage {
    let secret = format!("{text} secret");
    let config = json!({
        "inputs": {"names": [text, secret], "sensitive": [secret]},
        "actions": {"list": [{"name": text}]},
        "components": {"list": [{"name": text, "toggleable": true}]},
    });
    ChangePage { install: install_of(text), config }
}

pub(super) fn diff_of(text: &str) -> Diff {
    let field = json!({"field": text, "before": text, "after": text});
    let difference = json!({"name": text, "before": text});
    let impact = |problem: Option<&str>| {
        json!({
            "install": format!("ins_{ULID}"), "name": text, "config_version": 1, "provisioned": true,
            "plans": [{"name": text, "operation": text}], "inputs": [difference], "problem": problem,
        })
    };
    serde_json::from_value(json!({
        "from": 1, "to": 2, "impact": [impact(None), impact(Some(text))], "remaining_installs": 3,
        "changes": [
            {"change": text, "kind": text, "name": text, "fields": [field, {"field": text}]},
            {"change": "added", "kind": text, "name": text},
        ],
        "ignored_settings": [{"severity": "warning", "file": text, "message": text}],
    }))
    .unwrap()
}

pub(super) fn upgrade_page(text: &str, to: u32) -> UpgradePage {
    UpgradePage { install: install_of(text), to, restores_inputs: false, diff: diff_of(text) }
}

#[test]
fn only_owners_get_the_forms_that_change_installs_runners_and_jobs() {
    let mut unknown = job_of("plain");
    unknown.state = "outcome_unknown".into();
    for role in ROLES {
        let (who, is_owner) = (caller(role, "a"), role == "owner");
        let forms = |page: Markup, form: &str| {
            let html = page.into_string();
            assert_eq!(html.contains(form), is_owner, "{form} for {role}");
            assert!(is_owner || !html.contains("name=\"idempotency_key\""), "{role}: {html}");
        };
        forms(install(&who, &install_page("plain")), "/upgrade\"");
        for form in [
            "/inputs\"",
            "/run\"",
            "name=\"confirm\"",
            "/components\"",
            "/stack-outputs\"",
            "/approval\"",
            "/enrol\"",
        ] {
            forms(change(&who, &change_page("plain")), form);
        }
        forms(upgrade(&who, &upgrade_page("plain", 2)), "/upgrade\"");
        forms(diff(&who, &DiffPage { app: app_of("a"), diff: diff_of("a") }), "/upgrade?to=2\"");
        forms(runner(&who, &history::runner_page("plain")), "/control\"");
        forms(job(&who, &unknown, &LogPage::default()), "/resolve\"");
        forms(job(&who, &job_of("plain"), &LogPage::default()), "/cancel\"");
    }
}

#[test]
fn sensitive_inputs_have_a_command_and_no_field() {
    let html = change(&caller("owner", "a"), &change_page("plain")).into_string();
    assert!(html.contains("name=\"input.plain\"") && html.contains("name=\"was.plain\""), "{html}");
    assert!(!html.contains("input.plain secret"), "{html}");
    let command = "</span>stead installs set-inputs plain --secret 'plain secret=FILE'";
    assert!(html.contains(command), "{html}");
}

#[test]
fn a_value_with_lines_keeps_them() {
    let mut page = change_page("plain");
    page.install.inputs = [("plain".to_owned(), json!("\na\nb"))].into();
    let html = change(&caller("owner", "a"), &page).into_string();
    assert!(html.contains("rows=\"6\">\n\na\nb</textarea>"), "{html}");
}

#[test]
fn an_install_moves_only_to_a_version_that_it_can_follow() {
    let has_form = |page: &UpgradePage| {
        upgrade(&caller("owner", "a"), page).into_string().contains("action=\"/ui/installs/ins_")
    };
    let mut page = upgrade_page("plain", 2);
    assert!(has_form(&page));
    page.diff.impact[0].problem = Some("an input is missing".into());
    assert!(!has_form(&page));
    assert!(!has_form(&upgrade_page("plain", 1)), "it follows this version");
    let mut back = upgrade_page("plain", 0);
    let html = upgrade(&caller("owner", "a"), &back).into_string();
    assert!(html.contains("restore_inputs=true\"") && !html.contains("name=\"restore_inputs\""));
    back.restores_inputs = true;
    let html = upgrade(&caller("owner", "a"), &back).into_string();
    assert!(html.contains("name=\"restore_inputs\" value=\"true\""), "{html}");
}

#[test]
fn a_revoked_runner_has_no_control() {
    let mut revoked = history::runner_page("plain");
    revoked.runner.state = "revoked".into();
    let html = runner(&caller("owner", "a"), &revoked).into_string();
    assert!(!html.contains("/control\""), "{html}");
}

/// A run of this many waiting plans, in layers of two.
fn waiting(plans: u32) -> RunPage {
    let mut page = run_page("plain");
    let step = page.run.dag.remove(0);
    page.run.dag = (0..plans)
        .map(|n| {
            let mut step = step.clone();
            step.id = format!("stp_01ARZ3NDEKTSV4RRFFQ69{n:05}").parse().unwrap();
            step.layer = n / 2;
            step
        })
        .collect();
    page
}

#[test]
fn several_waiting_plans_are_decided_together_by_their_digests() {
    for role in ROLES {
        let html = run(&caller(role, "a"), &waiting(4)).into_string();
        let (forms, plans) = match role {
            "owner" | "approver" => (3, 8),
            _ => (0, 0),
        };
        assert_eq!(html.matches("/decide-all\"").count(), forms, "{role}");
        assert_eq!(html.matches("name=\"plan.stp_").count(), plans, "{role}");
    }
    assert!(!run(&caller("owner", "a"), &waiting(1)).into_string().contains("/decide-all\""));
    let mut early = waiting(4);
    early.run.awaits_plans = true;
    assert!(!run(&caller("owner", "a"), &early).into_string().contains("/decide-all\""));
}

#[test]
fn no_form_covers_a_plan_whose_details_are_hidden() {
    let mut page = waiting(3);
    for step in &mut page.run.dag {
        step.plan.as_mut().unwrap().has_details = true;
    }
    let shown = page.run.dag.iter().take(2);
    page.details = shown.map(|step| (step.id.to_string(), details_of("a"))).collect();
    let html = run(&caller("owner", "a"), &page).into_string();
    assert_eq!(html.matches("name=\"plan.stp_").count(), 2);
    assert!(html.contains("Without the 1 plan whose details"), "{html}");
}
