//! What of a directory is different is said, also what nobody builds or plans.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says no by panicking")]
use app_config::{Change, diff};

#[path = "support/small.rs"]
mod small;

use small::config;

const POLICY: &str = "[[policy]]\ntype = \"kubernetes_cluster\"\ncontents = \"./p.rego\"\n";

#[test]
fn what_surrounds_the_components_is_in_the_difference() {
    let secret = |about: &str| format!("[[secret]]\nname = \"key\"\ndescription = \"{about}\"\n");
    let role = "type = \"maintenance\"\nname = \"ops\"\ndescription = \"o\"\n";
    let runbook = "name = \"restore\"\n[[steps]]\ntype = \"command\"\ncommand = \"true\"\n";
    let (old, new) = (secret("old"), secret("new"));
    let before = config(&[
        ("app/secrets.toml", &old),
        ("app/policies.toml", POLICY),
        ("app/p.rego", "package a\n\nallow = true\n"),
        ("app/runbooks/r.toml", runbook),
    ]);
    let after = config(&[
        ("app/secrets.toml", &new),
        ("app/policies.toml", POLICY),
        ("app/p.rego", "package a\n\nallow = false\n"),
        ("app/permissions/ops.toml", role),
        ("app/metadata.toml", "version = \"v2\"\ndisplay_name = \"Shop\"\n"),
    ]);
    assert!(diff(&before, &before).is_empty());
    let difference = diff(&before, &after);
    let found: Vec<(&str, &str, Change)> =
        difference.around.iter().map(|one| (one.kind, &*one.part.name, one.part.change)).collect();
    let expected = [
        ("metadata", "metadata", Change::Changed),
        ("policy", "kubernetes_cluster", Change::Changed),
        ("role", "ops", Change::Added),
        ("runbook", "restore", Change::Removed),
        ("secret", "key", Change::Changed),
    ];
    assert_eq!(found, expected);
    assert!(!difference.is_empty() && difference.to_plan().is_empty());
    // A page of text is not printed twice over.
    let text = difference.to_string();
    assert!(text.contains("~ key\n      description: \"old\" -> \"new\""), "{text}");
    assert!(text.contains("contents: another text") && !text.contains("allow"), "{text}");
}

/// Two parts of one name are told apart, whatever they are called.
#[test]
fn policies_of_one_type_do_not_hide_each_other() {
    let two = |second: &str| {
        format!(
            "[[policy]]\ntype = \"x\"\ncontents = \"a\"\n[[policy]]\ntype = \"x\"\ncontents = \"{second}\"\n"
        )
    };
    let (old, new) = (two("b"), two("c"));
    let difference =
        diff(&config(&[("app/policies.toml", &old)]), &config(&[("app/policies.toml", &new)]));
    let [one] = &difference.around[..] else { panic!("{difference:?}") };
    assert_eq!((one.kind, one.part.name.as_str()), ("policy", "x (2)"));
}
