//! Differences include parts that need no build and no plan.
use app_config::{Change, diff};

use crate::small;

use small::config;

const POLICY: &str = "[[policy]]\ntype = \"kubernetes_cluster\"\ncontents = \"./p.rego\"\n";

#[test]
fn supporting_parts_are_in_the_difference() {
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
    // Long texts are not printed.
    let text = difference.to_string();
    assert!(text.contains("~ key\n      description: \"old\" -> \"new\""), "{text}");
    assert!(text.contains("contents: text changed") && !text.contains("allow"), "{text}");
}

/// Parts with equal names stay distinct.
#[test]
fn policies_of_one_type_are_compared_separately() {
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

/// A setting that this release does not act on also makes a new version.
#[test]
fn keys_without_effect_are_in_the_difference() {
    let files = |other: &str| {
        [
            (
                "app/runbooks/r.toml",
                format!("name = \"r\"\n[[steps]]\ntype = \"x\"\nrole = \"{other}\"\n"),
            ),
            ("app/branches/m.toml", format!("name = \"m\"\ninstall_groups = [\"{other}\"]\n")),
            (
                "app/secrets.toml",
                format!(
                    "[[secret]]\nname = \"s\"\nuser_configurable = \"{other}\"\n[[secret]]\nname = \"t\"\n[[secret.kubernetes_sync_targets]]\nname = \"n\"\nnamespace = \"{other}\"\n"
                ),
            ),
            (
                "app/installs/i.toml",
                format!("name = \"i\"\n[aws_account]\niam_role_arn = \"{other}\"\n"),
            ),
            (
                "app/metadata.toml",
                format!("version = \"v2\"\nslack_webhook_url = \"https://hook/{other}\"\n"),
            ),
        ]
    };
    let read = |other: &str| {
        let files = files(other);
        config(&files.each_ref().map(|(path, text)| (*path, text.as_str())))
    };
    let difference = diff(&read("one"), &read("two"));
    let found: Vec<(&str, &str)> =
        difference.around.iter().map(|one| (one.kind, &*one.part.name)).collect();
    let kinds = [("branch", "m"), ("install", "i"), ("metadata", "metadata"), ("runbook", "r")];
    assert_eq!(found, [&kinds[..], &[("secret", "s"), ("secret", "t")]].concat());
    let text = difference.to_string();
    assert!(
        text.contains("steps.0.role: \"one\" -> \"two\"") && !text.contains("https:"),
        "{text}"
    );
}
