//! Warnings, and the limits of the reader.
use app_config::{read, remote_path, survey};

use crate::small;

use small::{COMPONENT, Case, bundle, config, rejection};

/// A file and its text, with the code, location and text of the warning.
type Warning = (&'static str, &'static str, &'static str, (u32, u32), &'static str);

#[test]
fn each_warning_has_its_location() {
    let step = "[[steps]]\nname = \"s\"\ncommand = \"c\"\n";
    let action = |text: &str| format!("name = \"x\"\n{text}\n{step}");
    let cases: Vec<Warning> = vec![
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
            "unknown input group `g`",
        ),
        (
            "app/components/a.toml",
            "name = \"a\"\ntype = \"terraform_module\"\nkubernetes_context = \"sandbox\"\n[public_repo]\nrepo = \"x/y\"\n",
            "no_effect",
            (3, 23),
            "a `terraform_module` uses no cluster",
        ),
        ("app/inputs.toml", " \n# nothing\n", "empty_file", (0, 0), "is empty"),
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
            "the date does not exist",
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
            "takes no component",
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
            (3, 9),
            "1 x trigger `pre-provision`: this release reads it but does not fire it",
        ),
        (
            "app/components/a.toml",
            "name = \"a\"\ntype = \"terraform_module\"\ndrift_schedule = \"0 3 * * *\"\n\
             [public_repo]\nrepo = \"x/y\"",
            "not_yet",
            (3, 19),
            "1 x `drift_schedule`: this release does not check for drift on a schedule",
        ),
        (
            "app/sandbox.toml",
            "drift_schedule = \"0 3 * * *\"\nterraform_version = \"1.11.4\"\n\
             [public_repo]\nrepo = \"x/y\"",
            "not_yet",
            (1, 19),
            "1 x `drift_schedule`: this release does not check for drift on a schedule",
        ),
        (
            "app/runbooks/r.toml",
            "name = \"r\"\n[[steps]]\ntype = \"command\"\ncommand = \"true\"",
            "not_yet",
            (1, 1),
            "1 x runbook: this release does not run runbooks",
        ),
        (
            "app/runbooks/r.toml",
            "name = \"r\"\n[[steps]]\ntype = \"action\"\naction_name = \"x\"",
            "unknown_action",
            (4, 16),
            "unknown action `x`",
        ),
        (
            "app/installs/i.toml",
            "name = \"i\"\n[[inputs]]\nx = \"1\"",
            "unknown_input",
            (3, 6),
            "unknown input `x`",
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
            "is not rendered",
        ),
    ];
    for (path, text, code, place, message) in cases {
        let text = if path.contains("actions/") { action(text) } else { text.to_string() };
        let (_, findings) = read(&bundle(&[(path, &text)])).unwrap();
        let mut of_code = findings.iter().filter(|finding| finding.code == code);
        let found = of_code.find(|finding| finding.to_string().contains(message));
        let found = found.unwrap_or_else(|| panic!("no {code} {message}: {findings:?}"));
        assert_eq!((found.line, found.column), place, "{found}");
    }
}

#[test]
fn conflicting_options_and_invalid_times_are_rejected() {
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
            "`auto_generate` and `required`",
        ),
        (
            "app/secrets.toml",
            secret("default = \"x\"\nrequired = true"),
            "secret_clash",
            (3, 12),
            "`default` and `required`",
        ),
        (
            "app/secrets.toml",
            secret("kubernetes_sync = true"),
            "secret_clash",
            (3, 19),
            "requires a target secret",
        ),
        (
            "app/components/a.toml",
            format!("drift_schedule = \"0 3 * *\"\n{COMPONENT}"),
            "bad_cron",
            (1, 19),
            "invalid cron expression",
        ),
        (
            "app/components/a.toml",
            format!("timeout = \"5 minutes\"\n{COMPONENT}"),
            "bad_duration",
            (1, 12),
            "invalid duration",
        ),
        (
            "app/components/a.toml",
            kustomize,
            "two_sources",
            (3, 13),
            "`manifest` and `kustomize` are both set",
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
fn a_remote_text_is_read_only_from_its_stored_file() {
    let url = "https://example.com/x.tfvars";
    let text = format!("{COMPONENT}[[var_file]]\ncontents = \"{url}\"\n");
    let files = [("app/components/a.toml", text.as_str())];
    assert_eq!(rejection(&files).code, "remote_content");
    assert_eq!(survey(&bundle(&files).app(), &[]).remotes, [url]);
    let stored = format!("app/{}", remote_path(url));
    let config = config(&[files[0], (&stored, "x = 1")]);
    assert_eq!(config.components[0].module.var_files[0].value, "x = 1");
}

#[test]
fn the_total_size_of_named_files_is_limited() {
    let line = "[[var_file]]\ncontents = \"./large\"\n".repeat(200);
    let (text, large) = (format!("{COMPONENT}{line}"), "x".repeat(1 << 20));
    let files = [("app/components/a.toml", text.as_str()), ("app/components/large", &large)];
    assert!(read(&bundle(&files)).unwrap_err().iter().any(|finding| finding.code == "too_much"));
}

/// Another client may have made the bundle, so the size of its stored remote texts is not trusted.
#[test]
fn the_total_size_of_named_remote_texts_is_limited() {
    let url = "https://example.com/x.tfvars";
    let line = format!("[[var_file]]\ncontents = \"{url}\"\n").repeat(200);
    let (text, large) = (format!("{COMPONENT}{line}"), "x".repeat(1 << 20));
    let stored = format!("app/{}", remote_path(url));
    let files = [("app/components/a.toml", text.as_str()), (stored.as_str(), &large)];
    assert!(read(&bundle(&files)).unwrap_err().iter().any(|finding| finding.code == "too_much"));
}

#[test]
fn ten_thousand_findings_in_one_long_line_are_counted_quickly() {
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
