//! Supporting parts are checked, too: their templates, the names in them, and their fixed values.
use app_config::read;

use crate::small;

use small::{COMPONENT, Case, bundle};

/// This release does not deploy these parts, but the vendor still gets warnings.
#[test]
fn templates_of_supporting_parts_are_checked() {
    let input = |name: &str, default: &str| {
        format!("[[input]]\nname = \"{name}\"\ndefault = \"{default}\"\n")
    };
    let stack = |rest: &str| format!("type = \"azure-bicep\"\n{rest}");
    let nested = "[[custom_nested_stacks]]\nname = \"n\"\ntemplate_url = \"x\"\n[custom_nested_stacks.parameters]\n";
    let secret = |rest: &str| format!("[[secret]]\nname = \"s\"\n{rest}");
    let step = |rest: &str| format!("name = \"r\"\n[[steps]]\ntype = \"command\"\n{rest}");
    let unknown = "{{ .nuon.inputs.inputs.nope }}";
    let open = "{{ .nuon.install.id";
    let pair = |name: &str| format!("{{{{ .nuon.inputs.inputs.{name} }}}}");
    let both = input("k", &pair("l")) + &input("l", &pair("k"));
    let sensitive = format!("{}sensitive = true\n", input("i", "hunter2 {{ .nuon.x | nosuch }}"));
    let cases: Vec<(&str, String, &str, u32)> = vec![
        ("app/stack.toml", stack(&format!("name = \"{unknown}\"")), "unknown_input", 2),
        ("app/stack.toml", stack("description = \"{{ nosuch .nuon.x }}\""), "template", 2),
        ("app/stack.toml", stack(&format!("{nested}P = \"{open}\"")), "template", 6),
        ("app/secrets.toml", secret(&format!("description = \"{unknown}\"")), "unknown_input", 3),
        (
            "app/secrets.toml",
            secret(&format!("kubernetes_secret_namespace = \"{open}\"")),
            "template",
            3,
        ),
        (
            "app/operation_roles.toml",
            format!("[[rules]]\noperation = \"deploy\"\nrole = \"{open}\""),
            "template",
            3,
        ),
        (
            "app/runbooks/r.toml",
            step(&format!("inline_contents = \"{unknown}\"")),
            "unknown_input",
            4,
        ),
        ("app/runbooks/r.toml", step(&format!("[steps.env_vars]\nA = \"{open}\"")), "template", 5),
        ("app/inputs.toml", input("i", unknown), "unknown_input", 3),
        ("app/inputs.toml", input("i", "{{ .nuon.install.id | nosuch }"), "template", 3),
        ("app/inputs.toml", both, "bad_default", 3),
        ("app/inputs.toml", sensitive, "template", 0),
    ];
    for (path, text, code, line) in cases {
        let (_, findings) = read(&bundle(&[(path, &text)])).unwrap();
        let found = findings.iter().find(|found| found.code == code);
        let found = found.unwrap_or_else(|| panic!("no {code}: {text}\n{findings:?}"));
        assert_eq!((found.file.as_str(), found.line), (&path[4..], line), "{found}");
        assert_eq!(findings.iter().filter(|one| one.line == line && one.code == code).count(), 1);
        assert!(!found.to_string().contains("hunter2"), "{found}");
    }
}

const ROLES: &str = "type = \"custom\"\nname = \"{{ .nuon.install.id }}-ops\"\n";

#[test]
fn an_undeclared_role_is_reported_and_a_declared_role_is_found_in_any_spelling() {
    let action =
        |role: &str| format!("{role}\nname = \"x\"\n[[steps]]\nname = \"s\"\ncommand = \"c\"\n");
    let rule = |rule: &str| {
        format!("[[rules]]\nprincipal = \"nuon::sandbox\"\noperation = \"deploy\"\n{rule}\n")
    };
    let own =
        |text: &str| format!("{COMPONENT}[[operation_roles]]\noperation = \"deploy\"\n{text}\n");
    let (x, a) = ("app/actions/x.toml", "app/components/a.toml");
    let (rules, book) = ("app/operation_roles.toml", "app/runbooks/r.toml");
    let step = |text: &str| {
        format!("name = \"r\"\n[[steps]]\ntype = \"command\"\ncommand = \"c\"\n{text}\n")
    };
    let unknown = "unknown role `{{.nuon.install.id}}-opps`";
    let cases: Vec<Case> = vec![
        (x, action("role = \"{{.nuon.install.id}}-opps\""), "unknown_role", (1, 9), unknown),
        (x, action("break_glass_role = \"nobody\""), "unknown_role", (1, 21), "`nobody`"),
        (rules, rule("role = \"nobody\""), "unknown_role", (4, 9), "`nobody`"),
        (a, own("role = \"nobody\""), "unknown_role", (7, 9), "`nobody`"),
        (book, step("role = \"nobody\""), "unknown_role", (5, 9), "`nobody`"),
        (
            rules,
            rule("role = \"ops\"").replace("sandbox", "action:nope"),
            "unknown_action",
            (2, 14),
            "`nope`",
        ),
        (
            rules,
            rule("role = \"ops\"").replace("sandbox", "box"),
            "bad_value",
            (2, 14),
            "nuon::box",
        ),
        (
            rules,
            rule("role = \"ops\"").replace("deploy", "fly"),
            "bad_value",
            (3, 14),
            "unknown operation `fly`",
        ),
    ];
    for (path, text, code, place, message) in cases {
        let files = [("app/permissions/ops.toml", ROLES), (path, text.as_str())];
        let (_, findings) = read(&bundle(&files)).unwrap();
        let found = findings.iter().find(|finding| finding.code == code);
        let found = found.unwrap_or_else(|| panic!("no {code}: {findings:?}"));
        assert_eq!((found.line, found.column), place, "{found}");
        assert!(found.message.contains(message), "{found}");
    }
    for role in [
        "{{.nuon.install.id}}-ops",
        "{{- .nuon.install.id -}}-ops",
        "ops",
        "arn:aws:iam::1:role/x",
        "{{ .nuon.inputs.inputs.role }}",
    ] {
        let text = action(&format!("role = \"{role}\""));
        let inputs = "[[input]]\nname = \"role\"\n";
        let files = [("app/permissions/ops.toml", ROLES), (x, &text), ("app/inputs.toml", inputs)];
        let (_, mut findings) = read(&bundle(&files)).unwrap();
        findings.retain(|found| !found.is_about_ignored_setting());
        assert!(findings.is_empty(), "{role}: {findings:?}");
    }
}

#[test]
fn duplicate_names_are_reported() {
    let branch = "name = \"main\"\n";
    let stack = "[[custom_nested_stacks]]\nname = \"n\"\ntemplate_url = \"x\"\n".repeat(2);
    let steps = "[[steps]]\nname = \"s\"\ntype = \"command\"\ncommand = \"c\"\n".repeat(2);
    let glass = "name = \"{{.nuon.install.id}}-ops\"\n";
    let (stack, steps) =
        (format!("type = \"azure-bicep\"\n{stack}"), format!("name = \"x\"\n{steps}"));
    let roles = [("app/permissions/a.toml", ROLES), ("app/permissions/b.toml", ROLES)];
    let cases: Vec<(Vec<(&str, &str)>, &str)> = vec![
        (roles.to_vec(), "duplicate role `{{ .nuon.install.id }}-ops`"),
        (
            vec![("app/break_glass/a.toml", glass), ("app/break_glass/b.toml", glass)],
            "duplicate role",
        ),
        (
            vec![("app/branches/a.toml", branch), ("app/branches/b.toml", branch)],
            "duplicate branch `main`",
        ),
        (vec![("app/stack.toml", &stack)], "duplicate nested stack `n`"),
        (vec![("app/runbooks/x.toml", &steps)], "duplicate step `s`"),
        (vec![("app/actions/x.toml", &steps)], "duplicate step `s`"),
    ];
    for (files, message) in cases {
        let (_, findings) = read(&bundle(&files)).unwrap();
        let found: Vec<_> = findings.iter().filter(|one| one.code == "duplicate_name").collect();
        let [found] = found.as_slice() else { panic!("{message}: {findings:?}") };
        assert!(found.message.starts_with(message) && found.line > 0, "{found}");
    }
}

#[test]
fn unknown_values_are_reported_with_a_suggestion() {
    let role = ROLES.to_string() + "cloud_platform = \"gpc\"";
    let cases: Vec<(&str, &str, &str)> = vec![
        ("app/metadata.toml", "version = \"v99\"", "use one of: v1, v2"),
        ("app/stack.toml", "type = \"aws-cloudformtion\"", "did you mean `aws-cloudformation`?"),
        ("app/runner.toml", "runner_type = \"nonsense\"", "runner type `nonsense`"),
        ("app/runner.toml", "runner_type = \"aws\"\nhelm_driver = \"configmp\"", "`configmap`?"),
        ("app/policies/p.toml", "type = \"sandbx\"\ncontents = \"x\"", "did you mean `sandbox`?"),
        ("app/policies/p.toml", "type = \"sandbox\"\nengine = \"opaa\"", "did you mean `opa`?"),
        ("app/permissions/p.toml", &role, "did you mean `gcp`?"),
        (
            "app/runbooks/r.toml",
            "name = \"r\"\n[[steps]]\ntype = \"acton\"",
            "did you mean `action`?",
        ),
    ];
    for (path, text, message) in cases {
        let (_, findings) = read(&bundle(&[(path, text)])).unwrap();
        let found: Vec<_> = findings.iter().filter(|found| found.code == "bad_value").collect();
        let [found] = found.as_slice() else { panic!("{text}: {findings:?}") };
        assert!(found.to_string().contains(message) && found.line > 0, "{found}");
    }
}
