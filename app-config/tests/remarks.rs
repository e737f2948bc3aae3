//! What stops nothing is said, too; and what bounds the reader.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says no by panicking")]
use app_config::{read, remote_path, survey};

#[path = "support/small.rs"]
mod small;

use small::{COMPONENT, Case, bundle, config, refusal};

/// What a key gives, and the code, place and words of what is said about it.
type Remark = (&'static str, &'static str, &'static str, (u32, u32), &'static str);

#[test]
fn each_warning_names_the_place() {
    let step = "[[steps]]\nname = \"s\"\ncommand = \"c\"\n";
    let action = |text: &str| format!("name = \"x\"\n{text}\n{step}");
    let cases: Vec<Remark> = vec![
        (
            "app/inputs.toml",
            "[[input]]\nname = \"s\"\nsensitive = true",
            "not_yet",
            (3, 13),
            "takes no value for it",
        ),
        (
            "app/inputs.toml",
            "[[input]]\nname = \"s\"\ngruop = \"g\"",
            "unknown_key",
            (3, 1),
            "did you mean `group`?",
        ),
        (
            "app/inputs.toml",
            "[[input]]\nname = \"s\"\ngroup = \"g\"",
            "unknown_group",
            (3, 10),
            "there is no input group `g`",
        ),
        ("app/inputs.toml", " \n# nothing\n", "empty_file", (0, 0), "says nothing"),
        (
            "app/input.toml",
            "[[input]]\nname = \"s\"",
            "unused_file",
            (0, 0),
            "did you mean `inputs.toml`?",
        ),
        (
            "app/component/b.toml",
            "name = \"s\"",
            "unused_file",
            (0, 0),
            "did you mean `components/`?",
        ),
        (
            "app/actions/x.toml",
            "[[triggers]]\ntype = \"cron\"\nschedule = \"0 3 * * *\"",
            "unknown_key",
            (4, 1),
            "did you mean `cron_schedule`?",
        ),
        (
            "app/actions/x.toml",
            "[[triggers]]\ntype = \"cron\"",
            "no_schedule",
            (3, 9),
            "never fires",
        ),
        (
            "app/actions/x.toml",
            "[[triggers]]\ntype = \"cron\"\ncron_schedule = \"0 0 31 4 *\"",
            "never_fires",
            (4, 18),
            "there is no such day",
        ),
        (
            "app/actions/x.toml",
            "[[triggers]]\ntype = \"manual\"\ncron_schedule = \"0 0 1 4 *\"",
            "never_fires",
            (4, 18),
            "takes no schedule",
        ),
        (
            "app/actions/x.toml",
            "[[triggers]]\ntype = \"post-update-inputs\"",
            "never_fires",
            (3, 9),
            "the app has no input",
        ),
        (
            "app/actions/x.toml",
            "[[triggers]]\ntype = \"post-deploy-all-components\"\ncomponent_name = \"a\"",
            "no_effect",
            (4, 19),
            "is about no single component",
        ),
        (
            "app/actions/x.toml",
            "[[triggers]]\ntype = \"post-secrets-sync\"",
            "never_fires",
            (3, 9),
            "the app has no secret",
        ),
        (
            "app/actions/x.toml",
            "[[triggers]]\ntype = \"post-deploy-all-component\"",
            "unknown_trigger",
            (3, 9),
            "did you mean `post-deploy-all-components`?",
        ),
        (
            "app/actions/x.toml",
            "[[triggers]]\ntype = \"pre-provision\"",
            "not_yet",
            (0, 0),
            "does not fire them: pre-provision",
        ),
        (
            "app/components/a.toml",
            "name = \"a\"\ntype = \"terraform_module\"\ndrift_schedule = \"0 3 * * *\"\n\
             [public_repo]\nrepo = \"x/y\"",
            "not_yet",
            (0, 0),
            "does not look for drift: a",
        ),
        (
            "app/sandbox.toml",
            "drift_schedule = \"0 3 * * *\"\nterraform_version = \"1.11.4\"\n\
             [public_repo]\nrepo = \"x/y\"",
            "not_yet",
            (0, 0),
            "does not look for drift: sandbox",
        ),
        (
            "app/runbooks/r.toml",
            "name = \"r\"\n[[steps]]\ntype = \"command\"\ncommand = \"true\"",
            "not_yet",
            (0, 0),
            "does not run them: r",
        ),
        (
            "app/runbooks/r.toml",
            "name = \"r\"\n[[steps]]\ntype = \"action\"\naction_name = \"x\"",
            "unknown_action",
            (4, 16),
            "no action `x`",
        ),
        (
            "app/installs/i.toml",
            "name = \"i\"\n[[inputs]]\nx = \"1\"",
            "unknown_input",
            (3, 6),
            "no input `x`",
        ),
        (
            "app/metadata.toml",
            "version = \"v2\"\nreadme = \"./no.md\"",
            "missing_file",
            (2, 11),
            "no.md",
        ),
        (
            "app/metadata.toml",
            "version = \"v2\"\nreadme = \"{{ .nuon.secrets.x }}\"",
            "unknown_secret",
            (2, 28),
            "reads the secret `x`",
        ),
        (
            "app/metadata.toml",
            "version = \"v2\"\nreadme = \"{{nuon.install.id}}\"",
            "no_template",
            (2, 11),
            "left as it is",
        ),
    ];
    for (path, text, code, place, message) in cases {
        let text = if path.contains("actions/") { action(text) } else { text.to_string() };
        let (_, findings) = read(&bundle(&[(path, &text)])).unwrap();
        let found = findings.iter().find(|finding| finding.code == code);
        let found = found.unwrap_or_else(|| panic!("no {code}: {findings:?}"));
        assert_eq!((found.line, found.column), place, "{found}");
        assert!(found.to_string().contains(message), "{found}");
    }
}

/// Nobody deploys them in this release; who wrote them hears of it all the same.
#[test]
fn templates_around_the_components_are_looked_at() {
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
fn a_role_that_nobody_describes_is_said_and_one_is_known_however_its_name_is_written() {
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
    let nobody = "there is no role `{{.nuon.install.id}}-opps`";
    let cases: Vec<Case> = vec![
        (x, action("role = \"{{.nuon.install.id}}-opps\""), "unknown_role", (1, 9), nobody),
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
            "no operation `fly`",
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
        let (_, findings) = read(&bundle(&files)).unwrap();
        assert!(findings.is_empty(), "{role}: {findings:?}");
    }
}

#[test]
fn two_of_one_name_are_said() {
    let branch = "name = \"main\"\n";
    let stack = "[[custom_nested_stacks]]\nname = \"n\"\ntemplate_url = \"x\"\n".repeat(2);
    let steps = "[[steps]]\nname = \"s\"\ntype = \"command\"\ncommand = \"c\"\n".repeat(2);
    let glass = "name = \"{{.nuon.install.id}}-ops\"\n";
    let (stack, steps) =
        (format!("type = \"azure-bicep\"\n{stack}"), format!("name = \"x\"\n{steps}"));
    let roles = [("app/permissions/a.toml", ROLES), ("app/permissions/b.toml", ROLES)];
    let cases: Vec<(Vec<(&str, &str)>, &str)> = vec![
        (roles.to_vec(), "the role `{{ .nuon.install.id }}-ops`"),
        (vec![("app/break_glass/a.toml", glass), ("app/break_glass/b.toml", glass)], "the role"),
        (
            vec![("app/branches/a.toml", branch), ("app/branches/b.toml", branch)],
            "the branch `main`",
        ),
        (vec![("app/stack.toml", &stack)], "the nested stack `n`"),
        (vec![("app/runbooks/x.toml", &steps)], "the step `s`"),
        (vec![("app/actions/x.toml", &steps)], "the step `s`"),
    ];
    for (files, message) in cases {
        let (_, findings) = read(&bundle(&files)).unwrap();
        let found: Vec<_> = findings.iter().filter(|one| one.code == "duplicate_name").collect();
        let [found] = found.as_slice() else { panic!("{message}: {findings:?}") };
        assert!(found.message.starts_with(message) && found.line > 0, "{found}");
    }
}

#[test]
fn a_word_that_is_none_of_a_few_is_said_with_the_nearest() {
    let role = ROLES.to_string() + "cloud_platform = \"gpc\"";
    let cases: Vec<(&str, &str, &str)> = vec![
        ("app/metadata.toml", "version = \"v99\"", "use one of: v1, v2"),
        ("app/stack.toml", "type = \"aws-cloudformtion\"", "did you mean `aws-cloudformation`?"),
        ("app/runner.toml", "runner_type = \"nonsense\"", "type of a runner `nonsense`"),
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

#[test]
fn options_that_exclude_each_other_and_times_that_are_none_are_refused() {
    let kustomize = format!(
        "{}[kustomize]\npath = \"x\"\n",
        COMPONENT.replace("repo = \"x/y\"", "repo = \"x/y\"\n")
    );
    let kustomize =
        kustomize.replace("terraform_module\"", "kubernetes_manifest\"\nmanifest = \"a: 1\"");
    let secret = |keys: &str| format!("[[secret]]\nname = \"s\"\n{keys}");
    let cases: Vec<Case> = vec![
        (
            "app/secrets.toml",
            secret("required = true\nauto_generate = true"),
            "secret_clash",
            (4, 17),
            "both `auto_generate` and `required`",
        ),
        (
            "app/secrets.toml",
            secret("default = \"x\"\nrequired = true"),
            "secret_clash",
            (3, 12),
            "both `default` and `required`",
        ),
        (
            "app/secrets.toml",
            secret("kubernetes_sync = true"),
            "secret_clash",
            (3, 19),
            "needs to know which secret",
        ),
        (
            "app/components/a.toml",
            format!("drift_schedule = \"0 3 * *\"\n{COMPONENT}"),
            "bad_cron",
            (1, 19),
            "no cron expression",
        ),
        (
            "app/components/a.toml",
            format!("timeout = \"5 minutes\"\n{COMPONENT}"),
            "bad_duration",
            (1, 12),
            "no duration",
        ),
        (
            "app/components/a.toml",
            kustomize,
            "two_sources",
            (3, 13),
            "both a `manifest` and a `kustomize`",
        ),
    ];
    for (path, text, code, place, message) in cases {
        let findings = read(&bundle(&[(path, &text)])).unwrap_err();
        let found = findings.iter().find(|finding| finding.is_error() && finding.code == code);
        let found = found.unwrap_or_else(|| panic!("no {code}: {findings:?}"));
        assert_eq!((found.line, found.column), place, "{found}");
        assert!(found.message.contains(message), "{found}");
    }
}

#[test]
fn a_remote_text_is_read_only_from_where_it_was_put() {
    let url = "https://example.com/x.tfvars";
    let text = format!("{COMPONENT}[[var_file]]\ncontents = \"{url}\"\n");
    let files = [("app/components/a.toml", text.as_str())];
    assert_eq!(refusal(&files).code, "remote_content");
    assert_eq!(survey(&bundle(&files).app(), &[]).remotes, [url]);
    let kept = format!("app/{}", remote_path(url));
    let config = config(&[files[0], (&kept, "x = 1")]);
    assert_eq!(config.components[0].module.var_files[0].value, "x = 1");
}

#[test]
fn a_short_file_does_not_name_a_large_one_without_end() {
    let line = "[[var_file]]\ncontents = \"./large\"\n".repeat(200);
    let (text, large) = (format!("{COMPONENT}{line}"), "x".repeat(1 << 20));
    let files = [("app/components/a.toml", text.as_str()), ("app/components/large", &large)];
    assert!(read(&bundle(&files)).unwrap_err().iter().any(|finding| finding.code == "too_much"));
}

/// A bundle need not be made by our CLI, so nobody says how large what it kept of a URL is.
#[test]
fn a_short_file_does_not_name_a_large_remote_text_without_end() {
    let url = "https://example.com/x.tfvars";
    let line = format!("[[var_file]]\ncontents = \"{url}\"\n").repeat(200);
    let (text, large) = (format!("{COMPONENT}{line}"), "x".repeat(1 << 20));
    let kept = format!("app/{}", remote_path(url));
    let files = [("app/components/a.toml", text.as_str()), (kept.as_str(), &large)];
    assert!(read(&bundle(&files)).unwrap_err().iter().any(|finding| finding.code == "too_much"));
}

#[test]
fn ten_thousand_findings_in_one_long_line_take_no_time_and_are_counted() {
    let keys: Vec<String> = (0..10_000).map(|n| format!("k{n} = 'é'")).collect();
    let text = format!("{COMPONENT}x = {{ {} }}", keys.join(", "));
    let text = text.replace("repo = \"x/y\"\nx = {", "repo = \"x/y\"\nbranch = {");
    let many: String = (0..10_000).map(|n| format!("k{n} = 1\n")).collect();
    let text = format!("{many}{text}");
    let started = std::time::Instant::now();
    let findings = read(&bundle(&[("app/components/a.toml", &text)])).unwrap_err();
    assert_eq!(findings.iter().filter(|finding| finding.code == "too_many").count(), 1);
    assert!(findings.len() < 1100, "{}", findings.len());
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
