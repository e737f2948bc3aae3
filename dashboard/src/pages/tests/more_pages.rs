//! Tests of the settings, the builds, and the creation of installs.
use schemas::control::{builds::BuildsQuery, installs::Enrolment};

use super::*;

fn settings_page(text: &str) -> SettingsPage {
    let token = json!({
        "id": format!("tok_{ULID}"), "principal": format!("prn_{ULID}"), "name": text, "roles": [text],
        "state": "active", "issued_at": TIME, "expires_at": TIME,
    });
    let projection = json!({
        "name": text, "class": text, "version": 1, "position": 7, "lag": 2, "as_of_positions": [5], "dead_letters": 1,
    });
    let subject = json!({
        "subject": text, "state": "readable", "by": text, "by_name": text, "reason": text, "shredded_at": TIME,
    });
    let whoami = json!({
        "principal": format!("prn_{ULID}"), "roles": [text], "log": text, "version": text, "position": 7,
    });
    let key = SigningKey {
        usage: text.into(),
        fingerprint: text.into(),
        verifier: Some(text.into()),
        since: TIME.parse().unwrap(),
        until: None,
    };
    let replaced = SigningKey { until: Some(TIME.parse().unwrap()), ..key.clone() };
    SettingsPage {
        whoami: serde_json::from_value(whoami).unwrap(),
        url: text.into(),
        keys: vec![key, replaced],
        tokens: Some(Page {
            items: vec![serde_json::from_value(token).unwrap()],
            next: Some(text.into()),
        }),
        projections: Some(vec![serde_json::from_value(projection).unwrap()]),
        subject: Some(serde_json::from_value(subject).unwrap()),
    }
}

fn new_token_of(text: &str, secret: Option<&str>) -> NewToken {
    NewToken { name: Some(text.into()), role: text.into(), secret: secret.map(str::to_owned) }
}

pub(super) fn build_of(text: &str, state: &str) -> schemas::control::builds::Build {
    serde_json::from_value(json!({
        "id": format!("bld_{ULID}"), "app": format!("app_{ULID}"), "app_name": text,
        "component": format!("cmp_{ULID}"), "component_name": text, "kind": text, "config_version": 1,
        "commit": text, "reused_build": format!("bld_{ULID}"), "state": state, "job": format!("job_{ULID}"),
        "artifact": {"repository": text, "digest": digest(), "size_bytes": 9}, "reason": text, "detail": text,
        "waiting": {"for": text, "detail": text}, "requested_by": text, "requested_by_name": text, "requested_at": TIME,
    }))
    .unwrap()
}

fn new_install_page(text: &str) -> NewInstallPage {
    let secret = format!("{text} secret");
    let config = json!({
        "inputs": {"names": [text, secret], "sensitive": [secret], "required": [text], "with_default": []},
    });
    NewInstallPage { app: app_of(text), version: 1, versions: vec![2, 1], config }
}

fn enrolment_page(text: &str, has_token: bool) -> EnrolmentPage {
    let enrolment: Enrolment = serde_json::from_value(json!({
        "id": format!("tok_{ULID}"), "token": text, "expires_at": TIME, "server_key": text, "runner_url": text,
        "command": text,
    }))
    .unwrap();
    EnrolmentPage {
        install: text.into(),
        is_new: has_token,
        enrolment: has_token.then_some(enrolment),
    }
}

fn webhook_page(text: &str) -> WebhookPage {
    let delivery = json!({
        "position": 7, "topic": text, "state": "failed", "attempts": 11, "status": 500, "error": text,
        "next_attempt_at": TIME, "created_at": TIME,
    });
    WebhookPage {
        webhook: serde_json::from_value(json!({
            "name": text, "origin": text, "topics": [text, "run.failed"], "format": "slack", "configured_at": TIME,
        }))
        .unwrap(),
        deliveries: Page {
            items: vec![serde_json::from_value(delivery).unwrap()],
            next: Some(text.into()),
        },
        state: Some(text.into()),
        tested: Some(
            serde_json::from_value(json!({"delivered": false, "status": 500, "error": text})).unwrap(),
        ),
    }
}

fn configured(text: &str, has_secret: bool) -> ConfiguredWebhook {
    ConfiguredWebhook { name: text.into(), secret: has_secret.then(|| text.into()) }
}

fn find_page(text: &str) -> FindPage {
    let found = || vec![Found { id: format!("ins_{ULID}"), name: text.into() }];
    // A text that no page contains: the pages that match would differ.
    FindPage { text: format!("zz {text}"), installs: found(), apps: found() }
}

/// The pages of this file, with this text in every place that another party can fill.
pub(super) fn pages(who: &Caller, text: &str) -> Vec<(&'static str, Markup)> {
    let app = app_of(text);
    let query = BuildsQuery { state: Some(text.into()), ..BuildsQuery::default() };
    let list = Page { items: vec![build_of(text, "failed")], next: Some(text.into()) };
    let job = job_of(text);
    vec![
        (
            "webhooks",
            webhooks(
                who,
                &Page { items: vec![webhook_page(text).webhook], next: Some(text.into()) },
            ),
        ),
        ("no webhooks", webhooks(who, &Page { items: vec![], next: None })),
        ("webhook", webhook(who, &webhook_page(text))),
        ("signing secret", configured_webhook(who, &configured(text, true))),
        ("repeated signing secret", configured_webhook(who, &configured(text, false))),
        ("find", find(who, &find_page(text))),
        ("settings", settings(who, &settings_page(text))),
        ("new token", new_token(who, &new_token_of(text, Some(text)))),
        ("repeated token", new_token(who, &new_token_of(text, None))),
        ("builds", builds(who, &app, &query, &list)),
        ("build", build(who, &build_of(text, "failed"), Some(&job), &log_of(text))),
        ("new install", new_install(who, &new_install_page(text))),
        ("enrolment", enrolment(who, &enrolment_page(text, true))),
        ("repeated enrolment", enrolment(who, &enrolment_page(text, false))),
    ]
}

#[test]
fn only_owners_get_the_forms_of_settings_builds_and_installs() {
    for role in ROLES {
        let (who, is_owner) = (caller(role, "a"), role == "owner");
        // The server reads the tokens for owners only, and the projections for auditors.
        let mut page = settings_page("plain");
        if !is_owner {
            page.tokens = None;
        }
        let html = settings(&who, &page).into_string();
        for form in
            ["/settings/tokens\"", "/settings/roles\"", "/settings/revoke\"", "/settings/shred\""]
        {
            assert_eq!(html.contains(form), is_owner, "{form} for {role}");
        }
        let html = build(&who, &build_of("a", "failed"), None, &LogPage::default()).into_string();
        assert_eq!(html.contains("/retry\""), is_owner, "{role}");
        let html = build(&who, &build_of("a", "queued"), None, &LogPage::default()).into_string();
        assert!(!html.contains("/retry\""), "{role}: the build has not failed");
        let html = new_install(&who, &new_install_page("plain")).into_string();
        assert_eq!(html.contains("id=\"new-install\""), is_owner, "{role}");
    }
}

#[test]
fn only_owners_get_the_forms_of_webhooks() {
    for role in ROLES {
        let (who, is_owner) = (caller(role, "a"), role == "owner");
        let html = webhook(&who, &webhook_page("ops")).into_string();
        for form in ["/webhooks\"", "/ops/test\"", "/ops/replay\"", "/ops/delete\""] {
            let action = format!(
                "method=\"post\" action=\"/ui/settings{}",
                match form {
                    "/webhooks\"" => form.to_owned(),
                    form => format!("/webhooks{form}"),
                }
            );
            assert_eq!(html.contains(&action), is_owner, "{action} for {role}");
        }
        assert!(!is_owner || html.contains("name=\"topic:run.failed\" checked"), "{html}");
    }
}

#[test]
fn a_data_subject_is_erased_once_and_only_with_its_typed_id() {
    let who = caller("owner", "a");
    let mut page = settings_page("ins_1");
    let html = settings(&who, &page).into_string();
    assert!(html.contains("name=\"confirm\" required"), "{html}");
    page.subject.as_mut().unwrap().state = "erased".into();
    assert!(!settings(&who, &page).into_string().contains("/settings/shred\""));
}

#[test]
fn a_revoked_token_has_no_form_that_revokes_it() {
    let mut page = settings_page("plain");
    page.tokens.as_mut().unwrap().items[0].state = "revoked".into();
    let html = settings(&caller("owner", "a"), &page).into_string();
    assert!(!html.contains("/settings/revoke\"") && html.contains("/settings/roles\""), "{html}");
}

#[test]
fn new_installs_have_fields_for_plain_inputs_and_commands_for_sensitive_ones() {
    let who = caller("owner", "a");
    let html = new_install(&who, &new_install_page("plain")).into_string();
    assert!(html.contains("name=\"input.plain\" required"), "{html}");
    assert!(!html.contains("input.plain secret"), "{html}");
    assert!(html.contains("set-inputs INSTALL --secret 'plain secret=FILE'"), "{html}");
    let mut page = new_install_page("plain");
    page.config["inputs"]["with_default"] = json!(["plain"]);
    let html = new_install(&who, &page).into_string();
    assert!(!html.contains("name=\"input.plain\" required"), "{html}");
}

#[test]
fn optional_components_have_the_form_of_their_state() {
    let mut page = change_page("plain");
    page.config["components"] = json!({"list": [
        {"name": "plain", "toggleable": true}, {"name": "off", "default_enabled": false}, {"name": "fixed"},
    ]});
    let html = change(&caller("owner", "a"), &page).into_string();
    assert!(html.contains("Disable plain") && html.contains("Disable off"), "{html}");
    assert!(!html.contains("Disable fixed"), "{html}");
    page.install.components[0].disabled = true;
    let html = change(&caller("owner", "a"), &page).into_string();
    assert!(html.contains("Enable plain"), "{html}");
    assert!(html.contains("name=\"component\" value=\"plain\"><input type=\"hidden\" name=\"enabled\" value=\"true\""), "{html}");
}
