//! Findings have a location and a remedy, and are all reported together.
use std::collections::BTreeMap;

use app_config::{
    Change, File, InputProblem, Limits, Tree, TreeError, diff, graph, read, resolve_inputs,
};
use domain::git::GitSource;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::small;

use small::{COMPONENT, Case, bundle, config, rejection};

/// An action without the table that names the source of its script.
const FETCHED: &str = "name = \"x\"\n[[steps]]\nname = \"s\"\ncommand = \"./s.sh\"\n";

#[test]
fn a_small_app_is_read_without_a_finding() {
    let (config, findings) = read(&bundle(&[])).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(config.components[0].module.source.as_ref().unwrap().directory, ".");
}

#[test]
fn each_rejection_has_its_location() {
    let with = |line: &str| format!("{line}\n{COMPONENT}");
    let vars = |text: &str| format!("{COMPONENT}[vars]\nx = \"{text}\"\n");
    let a = "app/components/a.toml";
    let with_repository = |repo: &str| COMPONENT.replace("x/y", repo);
    let chart = |url: &str, name: &str| {
        format!(
            "name = \"a\"\ntype = \"helm_chart\"\nchart_name = \"a\"\n[helm_repo]\nrepo_url = \"{url}\"\nchart = \"{name}\"\n"
        )
    };
    let cases: Vec<Case> = vec![
        (a, "name = \"a\"\ntype = ".into(), "malformed_file", (2, 8), "invalid TOML"),
        (a, COMPONENT.replace("terraform_module", "typo"), "unknown_kind", (2, 9), "unknown component type `typo`"),
        (a, COMPONENT.replace("\"a\"", "\"a-b\""), "bad_name", (1, 9), "not a valid name for a component"),
        (a, chart("https://me:pw@h/x", "web"), "bad_repository", (5, 13), "\"https://***@h/x\": the URL contains a credential"),
        (a, chart("http://h/x", "web"), "bad_repository", (5, 13), "not an https:// or oci:// URL"),
        (a, chart("https://h/x", "--untar"), "bad_repository", (6, 10), "not the name of a chart"),
        (a, with("dependencies = [\"b\"]"), "unknown_component", (1, 18), "unknown component `b`"),
        (a, with("dependencies = [\"a\"]"), "cycle", (2, 9), "cycle: a → a"),
        (a, with("dependencies = 3"), "wrong_type", (1, 16), "must be a list of strings"),
        (a, vars("{{ .nuon.components.zz.outputs.y }}"), "unknown_component", (6, 26), "reads the component `zz`"),
        (a, vars("{{ .nuon.inputs.inputs.zz }}"), "unknown_input", (6, 29), "reads the input `zz`"),
        (a, vars("{{ nope .nuon.x }}"), "template", (6, 9), "unknown function \"nope\""),
        (a, vars("{{ if .nuon.x }}"), "template", (6, 22), "has no `end`"),
        (a, format!("{COMPONENT}[env_vars]\nTF_VAR_x = \"1\"\nLD_PRELOAD = \"./x.so\"\n"), "reserved_variable", (7, 15), "cannot set the variable `LD_PRELOAD`"),
        ("app/actions/x.toml", "name = \"x\"\n[[steps]]\nname = \"s\"\ncommand = \"c\"\n[steps.env_vars]\nPATH = \"/x\"\n".into(), "reserved_variable", (6, 9), "`PATH`"),
        ("app/runner.toml", "runner_type = \"aws\"\n[env_vars]\nHTTPS_PROXY = \"http://x\"\n".into(), "reserved_variable", (3, 16), "`HTTPS_PROXY`"),
        (a, format!("{COMPONENT}[[var_file]]\ncontents = \"./no.tfvars\""), "missing_file", (6, 13), "components/no.tfvars"),
        (a, format!("{COMPONENT}[[var_file]]\ncontents = \"../../x\""), "path_escape", (6, 13), "leaves the app directory"),
        (a, format!("{COMPONENT}[[var_file]]\ncontents = \"https://x/y\""), "remote_content", (6, 13), "not fetched"),
        (a, COMPONENT.replace("x/y\"", "x/y\"\ndirectory = \"../z\""), "path_escape", (5, 14), "leaves its repository"),
        ("app/metadata.toml", "-".into(), "no_metadata", (0, 0), "this directory has no metadata.toml"),
        ("app/nuon.toml", "x = 1".into(), "legacy_format", (0, 0), "older one-file format"),
        (a, with_repository("file:///srv/x"), "bad_repository", (4, 9), "\"file:///srv/x\": it is not the address of a repository"),
        (a, with_repository("https://me:secret@h/x"), "bad_repository", (4, 9), "\"https://***@h/x\": the URL contains a credential"),
        (a, with_repository("x/z\"\nbranch = \"-x"), "bad_repository", (5, 11), "the ref \"-x\""),
        ("source/b/main.tf", "".into(), "malformed_bundle", (0, 0), "`b`, but no such component exists"),
        ("plugins.json", "{".into(), "malformed_bundle", (0, 0), "plugins.json"),
        ("app/inputs.toml", "[[input]]\nname = \"s\"\ntype = \"int\"".into(), "unknown_input_type", (3, 9), "`int`"),
        ("app/actions/x.toml", "name = \"x\"\ntimeout = \"9h\"\n[[steps]]\nname = \"s\"\ncommand = \"c\"".into(), "bad_timeout", (2, 12), "9h"),
        ("app/actions/x.toml", "name = \"x\"".into(), "no_steps", (1, 1), "has no steps"),
        ("app/actions/x.toml", "name = \"x\"\n[[triggers]]\ntype = \"post-deploy-component\"\ncomponent_name = \"q\"\n[[steps]]\nname = \"s\"\ncommand = \"c\"".into(), "unknown_component", (4, 19), "`q`"),
        ("app/components/b.toml", COMPONENT.into(), "duplicate_name", (1, 9), "also declared in components/a.toml:1"),
        ("app/actions/x.toml", format!("{FETCHED}[steps.public_repo]\nrepo = \"../b\""), "bad_repository", (6, 9), "the source of the scripts in . is not valid: cannot fetch from \"../b\""),
        ("app/actions/x.toml", format!("{FETCHED}[steps.connected_repo]\nrepo = \"a/b\"\nbranch = \"-x\""), "bad_repository", (7, 11), "the ref \"-x\""),
        ("app/actions/x.toml", format!("{FETCHED}[steps.public_repo]\nrepo = \".\"\ndirectory = \"none\""), "missing_module", (7, 14), "the directory of scripts none in . is missing"),
    ];
    for (path, text, code, place, message) in cases {
        // Only a source that the bundle lacks is fetched from git.
        let module = if code == "bad_repository" { "-" } else { "" };
        let findings = read(&bundle(&[("source/a/main.tf", module), (path, &text)])).unwrap_err();
        let found = findings.iter().find(|finding| finding.is_error() && finding.code == code);
        let found = found.unwrap_or_else(|| panic!("no {code}: {findings:?}"));
        assert_eq!((found.line, found.column), place, "{found}");
        assert!(found.message.contains(message), "{found}");
        assert!(!found.remedy.is_empty(), "{found}");
    }
}

#[test]
fn a_source_that_the_bundle_lacks_is_fetched_from_git() {
    let git = |changes: &[(&str, &str)]| config(changes).components[0].module.git.clone();
    let a = "app/components/a.toml";
    assert_eq!(git(&[]), None);
    let expected = |directory: &str, reference: &str| {
        let (repo, reference) = ("x/y".into(), reference.into());
        Some(GitSource { repo, directory: directory.into(), reference })
    };
    assert_eq!(git(&[("source/a/main.tf", "-")]), expected(".", "HEAD"));
    let branch = format!("{COMPONENT}directory = \"m/a\"\nbranch = \"v1\"\n");
    assert_eq!(git(&[("source/a/main.tf", "-"), (a, &branch)]), expected("m/a", "v1"));
    // A type without a plugin cannot be deployed, so nothing fetches its repository.
    let chart =
        format!("chart_name = \"c\"\n{}", COMPONENT.replace("terraform_module", "helm_chart"));
    assert_eq!(git(&[("source/a/main.tf", "-"), (a, &chart)]), None);
}

/// Settings that this release does not support are warnings at their location. They do not prevent
/// publishing.
#[test]
fn settings_of_later_releases_are_warnings() {
    let a = "app/components/a.toml";
    let kind =
        |kind: &str, rest: &str| format!("{}{rest}", COMPONENT.replace("terraform_module", kind));
    let cases: Vec<Case> = vec![
        (
            a,
            kind("helm_chart", "").replace("[pub", "chart_name = \"x\"\n[pub"),
            "no_plugin",
            (2, 9),
            "1 x type `helm_chart`: the component is published and shown",
        ),
        (
            a,
            kind("job", "").replace("[pub", "image_url = \"x\"\ntag = \"1\"\n[pub"),
            "not_supported",
            (2, 9),
            "no longer part of the format",
        ),
        (
            a,
            "name = \"a\"\ntype = \"kubernetes_manifest\"\nmanifest = \"https://x/y.yaml\"".into(),
            "remote_content",
            (3, 13),
            "not fetched",
        ),
        (
            "app/actions/x.toml",
            "name = \"x\"\n[[steps]]\nname = \"s\"\ninline_contents = \"https://x/y\"".into(),
            "remote_content",
            (4, 20),
            "not fetched",
        ),
    ];
    for (path, text, code, place, message) in cases {
        for with_its_module in [true, false] {
            let gone = [(path, text.as_str()), ("source/a/main.tf", "-")];
            let keeps = with_its_module || path != a;
            let (config, findings) = read(&bundle(&gone[..if keeps { 1 } else { 2 }])).unwrap();
            let found = findings.iter().find(|finding| finding.code == code);
            let found = found.unwrap_or_else(|| panic!("no {code}: {findings:?}"));
            assert_eq!((found.line, found.column), place, "{found}");
            assert!(found.message.contains(message), "{found}");
            assert_eq!(config.lacks_plugin("a").is_some(), path == a);
        }
    }
    // A deployed part requires its text, and a component of a plugin requires its module.
    let pinned =
        "[{\"name\": \"kubernetes_manifest\", \"version\": \"1\", \"digest\": \"sha256:DIGEST\"}]";
    let pinned = pinned.replace("DIGEST", &"0".repeat(64));
    let manifest = "name = \"a\"\ntype = \"kubernetes_manifest\"\nmanifest = \"https://x/y.yaml\"";
    let found = rejection(&[(a, manifest), ("plugins.json", &pinned)]);
    assert_eq!(found.code, "remote_content");
}

#[test]
fn a_cycle_through_templates_is_shown_completely() {
    let part = |name: &str, reads: &str| {
        let vars = format!("[vars]\nx = \"{{{{ .nuon.components.{reads}.outputs.y }}}}\"\n");
        format!("{}{vars}", COMPONENT.replace("\"a\"", &format!("{name:?}")))
    };
    let (a, b, c) = (part("a", "b"), part("b", "c"), part("c", "a"));
    let found = rejection(&[
        ("app/components/a.toml", &a),
        ("app/components/b.toml", &b),
        ("app/components/c.toml", &c),
        ("source/b/main.tf", ""),
        ("source/c/main.tf", ""),
    ]);
    assert!(found.message.ends_with("a → b → c → a"), "{found}");
}

#[test]
fn keys_of_other_versions_are_warnings() {
    let text = format!("colour = \"red\"\nlabels = {{ a = \"b\" }}\n{COMPONENT}");
    let (_, findings) = read(&bundle(&[("app/components/a.toml", &text)])).unwrap();
    assert_eq!(findings.len(), 1);
    assert_eq!(
        findings[0].to_string(),
        "warning: unknown key `colour`: it has no effect\n  --> \
         components/a.toml:1:1\n  = remove the key, or correct its spelling"
    );
}

#[test]
fn an_empty_file_counts_as_absent() {
    config(&[("app/inputs.toml", "\n"), ("app/inputs/x.toml", "name = \"x\"")]);
    let found = rejection(&[
        ("app/inputs.toml", "[[input]]\nname = \"y\""),
        ("app/inputs/x.toml", "name = \"x\""),
    ]);
    assert_eq!(found.code, "both_forms");
}

const INPUTS: &str = r#"
[[input]]
name = "who"
required = true
[[input]]
name = "many"
type = "number"
default = "2"
[[input]]
name = "open"
type = "bool"
[[input]]
name = "tags"
type = "list"
[[input]]
name = "extra"
type = "json"
"#;

fn resolve(given: Value) -> Result<BTreeMap<String, String>, Vec<InputProblem>> {
    let given = given.as_object().unwrap().clone().into_iter().collect();
    resolve_inputs(&config(&[("app/inputs.toml", INPUTS)]), &given)
}

#[test]
fn inputs_become_texts_with_their_defaults() {
    let resolved = resolve(json!({"who": "me", "open": true, "tags": ["a"], "extra": {"k": 1}}));
    let texts = [
        ("extra", "{\"k\":1}"),
        ("many", "2"),
        ("open", "true"),
        ("tags", "[\"a\"]"),
        ("who", "me"),
    ];
    let texts = texts.map(|(name, text)| (name.to_string(), text.to_string()));
    assert_eq!(resolved, Ok(texts.into()));
    assert_eq!(resolve(json!({"who": "me"})).unwrap()["open"], "");
    assert_eq!(resolve(json!({"who": "me", "many": 8})).unwrap()["many"], "8");
    assert_eq!(resolve(json!({"who": "me", "tags": "a,b"})).unwrap()["tags"], "a,b");
}

#[test]
fn every_wrong_input_is_reported() {
    let problems =
        resolve(json!({"mny": 1, "open": "yes", "many": "two", "tags": "[", "extra": "{"}));
    let messages: Vec<String> = problems.unwrap_err().iter().map(|p| p.to_string()).collect();
    assert_eq!(
        messages,
        [
            "unknown input `mny`; did you mean `many`?",
            "invalid value of the input `extra`: must be JSON, not \"{\"",
            "invalid value of the input `many`: must be a number, not \"two\"",
            "invalid value of the input `open`: must be true or false, not \"yes\"",
            "invalid value of the input `tags`: must be a list, not \"[\"",
            "the input `who` is required but was not given",
        ]
    );
    assert!(resolve(json!({"who": ""})).is_err());
    assert!(resolve(json!({"who": {"a": 1}})).is_err());
    assert!(resolve(json!({"who": "me", "open": 1})).is_err());
}

#[test]
fn a_default_may_read_other_inputs() {
    let input =
        |name: &str, default: &str| format!("[[input]]\nname = {name:?}\ndefault = {default:?}\n");
    let inputs = input("root", "a.b") + &input("url", "https://{{ .nuon.inputs.inputs.root }}/x");
    let vars = format!("{COMPONENT}[vars]\nx = \"{{{{ .nuon.inputs.inputs.url }}}}\"\n");
    let config = config(&[("app/inputs.toml", &inputs), ("app/components/a.toml", &vars)]);
    let given = |root: &str| [("root".to_string(), json!(root))].into();
    assert_eq!(resolve_inputs(&config, &given("c.d")).unwrap()["url"], "https://c.d/x");
    let reached = graph(&config).readers_of_inputs(&["root".to_string()].into());
    assert_eq!(reached, ["a".to_string()].into());
}

#[test]
fn a_diff_lists_its_reasons() {
    let vars = |text: &str| format!("{COMPONENT}[vars]\nx = \"{text}\"\n");
    let (old, new) = (vars("{{ .nuon.inputs.inputs.n }}"), vars("{{ .nuon.inputs.inputs.n }}!"));
    let input = |n: &str| format!("[[input]]\nname = \"n\"\ndefault = \"{n}\"");
    let a = "app/components/a.toml";
    let b = COMPONENT.replace("\"a\"", "\"b\"");
    let before = config(&[(a, &old), ("app/inputs.toml", &input("1"))]);
    let after = config(&[
        (a, &new),
        ("app/inputs.toml", &input("2")),
        ("source/a/main.tf", "# new"),
        ("app/components/b.toml", &b),
        ("source/b/main.tf", ""),
    ]);
    let difference = diff(&before, &after);
    assert_eq!(
        difference.to_string(),
        "components\n  ~ a\n      its source\n      vars.x: \"{{ .nuon.inputs.inputs.n }}\" -> \
         \"{{ .nuon.inputs.inputs.n }}!\"\n      the default of input n: \"1\" -> \"2\"\n  + \
         b\ninputs\n  ~ n\n      default: \"1\" -> \"2\""
    );
    assert_eq!(difference.to_build(), ["a", "b"].map(String::from).into());
    let back = diff(&after, &before);
    assert_eq!(back.components[1].change, Change::Removed);
    assert_eq!(diff(&after, &after).to_string(), "no changes");
}

#[test]
fn comments_and_inputs_do_not_change_the_digest_of_a_component() {
    let first = config(&[]);
    let commented = format!("# a note\n{COMPONENT}");
    let second = config(&[
        ("app/components/a.toml", &commented),
        ("app/inputs.toml", "[[input]]\nname = \"n\""),
        ("app/README.md", "other"),
    ]);
    assert_eq!(first.components[0].module.digest, second.components[0].module.digest);
    let files = |text: &str| {
        let named = format!("{COMPONENT}[[var_file]]\ncontents = \"./a.tfvars\"\n");
        config(&[("app/components/a.toml", &named), ("app/components/a.tfvars", text)])
    };
    let (one, two) = (files("x = 1"), files("x = 2"));
    assert_ne!(one.components[0].module.digest, two.components[0].module.digest);
    assert_eq!(one.components[0].module.var_files[0].value, "x = 1");
}

#[test]
fn a_component_that_is_read_with_dig_may_be_absent() {
    let text = format!(
        "{COMPONENT}[vars]\nx = '{{{{ dig \"zz\" \"outputs\" \"\" .nuon.components }}}}'\n"
    );
    let config = config(&[("app/components/a.toml", &text)]);
    assert!(graph(&config).dependencies("a").is_empty());
}

#[test]
fn hostile_toml_is_an_error() {
    let deep = format!("x = {}1{}", "[".repeat(50_000), "]".repeat(50_000));
    let dotted = format!("{} = 1", vec!["a"; 20_000].join("."));
    let tables = format!("[{}]\nx = 1", vec!["a"; 20_000].join("."));
    let large = format!("x = \"{}\"", "a".repeat(2 << 20));
    for text in [deep, dotted, tables, large] {
        let found = rejection(&[("app/components/a.toml", &text), ("source/a/main.tf", "-")]);
        assert_eq!((found.code, found.file.as_str()), ("malformed_file", "components/a.toml"));
        assert!(found.message.len() < 400, "{}", found.message);
    }
    let mut tree = bundle(&[]);
    let bytes = vec![0xff, 0xfe];
    tree.insert("app/runner.toml", File { bytes, executable: false }).unwrap();
    assert!(read(&tree).unwrap_err()[0].message.contains("not UTF-8"));
}

#[test]
fn an_invalid_bundle_is_rejected_before_it_is_read() {
    let error = Tree::decode(b"x", Limits::default()).unwrap_err();
    assert!(matches!(error, TreeError::Malformed(_) | TreeError::NotCanonical), "{error}");
}

proptest! {
    #[test]
    fn no_file_crashes_the_reader(
        kind in prop::sample::select(vec!["metadata.toml", "inputs.toml", "sandbox.toml",
            "components/x.toml", "actions/x.toml", "permissions.toml", "secrets/s.toml",
            "policies.toml", "break_glass.toml", "installs/i.toml", "runner.toml", "stack.toml"]),
        lines in prop::collection::vec(prop::sample::select(vec![
            "name = \"x\"", "name = 3", "type = \"terraform_module\"", "type = []", "[vars]",
            "[[steps]]", "[[triggers]]", "[[input]]", "[[group]]", "[public_repo]", "repo = \"a/b\"",
            "directory = \"../..\"", "contents = \"./x\"", "x = \"{{ .nuon.components.x.outputs.y }}\"",
            "timeout = \"\"", "[[role]]", "[[policies]]", "vars = 1", "dependencies = [\"x\"]",
            "[env_vars]", "required = \"maybe\"", "[aws_account]", "default = 1.5", "d = 1979-05-27",
            "[[var_file]]", "x = \"{{ .nuon\"", "index = true", "é = 'ü'"]), 0..12),
    ) {
        let text = lines.join("\n");
        let path = format!("app/{kind}");
        let _ = read(&bundle(&[(path.as_str(), text.as_str())]));
    }
}
