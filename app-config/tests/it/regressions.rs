//! Regression tests for problems that an adversarial review of the checks found, one test each.
use app_config::{Diagnostic, graph, survey};

use crate::small;

use small::{COMPONENT, bundle};

fn findings(files: &[(&str, &str)]) -> Vec<Diagnostic> {
    survey(&bundle(files).app(), &[]).diagnostics
}

fn places(found: &[Diagnostic], code: &str) -> Vec<(u32, u32, u32)> {
    let of = found.iter().filter(|finding| finding.code == code);
    of.map(|finding| (finding.line, finding.column, finding.length)).collect()
}

#[test]
fn a_finding_in_a_string_with_escapes_has_the_right_location() {
    let vars = r#"[vars]
a = "one\ntwo {{ .nuon.x | nosuch }}"
b = "say \"no\" {{ .nuon.inputs.inputs.zz }}"
c = """one \
   two \\ {{ .nuon.components.zy.outputs.x }}"""
d = "\"{{nuon.install.id}}\""
"#;
    let text = format!("{COMPONENT}{vars}");
    let found = findings(&[("app/components/a.toml", &text)]);
    assert_eq!(places(&found, "template"), [(6, 28, 1)], "{found:?}");
    assert_eq!(places(&found, "unknown_input"), [(7, 40, 2)], "{found:?}");
    assert_eq!(places(&found, "unknown_component"), [(9, 31, 2)], "{found:?}");
    assert_eq!(places(&found, "no_template"), [(10, 6, 23)], "{found:?}");
}

#[test]
fn variables_of_steps_are_templates_and_names_and_sources_are_not() {
    let step = "[[steps]]\nname = \"{{ .nuon.install.id\"\ncommand = \"./x.sh\"\n[steps.env_vars]\n\
                name = \"{{ .nuon.inputs.inputs.zz }}\"\n[steps.public_repo]\n\
                repo = \"a/{{ .nuon.components.nope.outputs.x }}\"\n";
    let text = format!("name = \"x\"\n{step}");
    let found = findings(&[("app/actions/x.toml", &text)]);
    let errors: Vec<_> = found.iter().filter(|finding| finding.is_error()).collect();
    let [only] = errors[..] else { panic!("{found:?}") };
    assert_eq!((only.code, only.line), ("unknown_input", 6));
    let one = format!("name = \"x\"\n{}", step.replace("[[steps]]", "[steps]"));
    let found = findings(&[("app/actions/x.toml", &one)]);
    assert_eq!(found.iter().filter(|finding| finding.is_error()).count(), 1, "{found:?}");
}

#[test]
fn a_text_that_is_only_an_address_is_remote_in_any_spelling() {
    for (address, remote) in [
        ("git://example.com/x.git//values.yaml", true),
        ("github.com/a/b//values.yaml", true),
        ("HTTPS://example.com/v.yaml", true),
        ("Git::ssh://x/y", true),
        ("s3::bucket/key", true),
        ("ssh://git@x/y", true),
        ("url = \\\"https://x/y\\\"", false),
        ("github: a", false),
        ("1://x", false),
    ] {
        let text = format!("{COMPONENT}[[var_file]]\ncontents = \"{address}\"\n");
        let found = findings(&[("app/components/a.toml", &text)]);
        assert_eq!(places(&found, "remote_content").len(), usize::from(remote), "{address}");
    }
}

#[test]
fn sandbox_reads_of_later_parts_are_reported() {
    let reads = |name: &str| format!("{{{{ .nuon.components.{name}.outputs.x }}}}");
    let b = COMPONENT.replace("\"a\"", "\"b\"");
    let sandbox =
        format!("[public_repo]\nrepo = \"x/y\"\n[vars]\nx = \"{}{}\"\n", reads("a"), reads("b"));
    let found = findings(&[("app/components/b.toml", &b), ("app/sandbox.toml", &sandbox)]);
    assert_eq!(places(&found, "sandbox_first"), [(4, 26, 1), (4, 60, 1)], "{found:?}");
}

#[test]
fn a_step_has_one_script_and_a_trigger_has_only_known_keys() {
    let action = "name = \"x\"\n[[triggers]]\ntype = \"manual\"\nindx = 3\n[[steps]]\nname = \"q\"\n\
                  command = \"x\"\ninline_contents = \"y\"\n";
    let found = findings(&[("app/actions/x.toml", action)]);
    assert_eq!(places(&found, "two_scripts"), [(7, 12, 1)], "{found:?}");
    let unknown = found.iter().find(|finding| finding.code == "unknown_key").unwrap();
    assert_eq!(unknown.remedy, "did you mean `index`?");
}

#[test]
fn all_steps_of_an_action_have_the_same_access_to_the_cluster() {
    let mixed = |action: &str, first: &str, second: &str| {
        let step = |flag: &str| format!("[[steps]]\nname = \"q\"\ncommand = \"x\"\n{flag}\n");
        let text = format!("name = \"x\"\n{action}\n{}{}", step(first), step(second));
        let found = findings(&[("app/actions/x.toml", &text)]);
        places(&found, "mixed_cluster_access")
            .into_iter()
            .map(|(line, ..)| line)
            .collect::<Vec<_>>()
    };
    let (on, off) = ("enable_kube_config = true", "enable_kube_config = false");
    for (action, first, second) in [("", "", ""), ("", off, off), (off, on, on), (off, off, "")] {
        assert!(mixed(action, first, second).is_empty(), "{action} {first} {second}");
    }
    assert_eq!(mixed("", on, off), [10]);
    assert_eq!(mixed("", off, ""), [6]);
    assert_eq!(mixed(off, "", on), [10]);
}

/// A component that iterates over all others is deployed after them. Several such components form
/// no cycle.
#[test]
fn components_that_iterate_over_all_are_deployed_last() {
    let part = |name: &str, rest: &str| {
        format!("{}{rest}", COMPONENT.replace("\"a\"", &format!("{name:?}")))
    };
    let all = "[vars]\nx = \"{{ range .nuon.components }}{{ .outputs.u }}{{ end }}\"\n";
    let computed = "[vars]\nx = '{{ (index .nuon.components (printf \"%s\" \"b\")).outputs.u }}'\n";
    let needs_c = "[vars]\nx = \"{{ .nuon.components.c.outputs.u }}\"\n";
    let texts = [part("a", needs_c), part("b", ""), part("c", all), part("d", computed)];
    let names = ["a", "b", "c", "d"].map(|name| format!("app/components/{name}.toml"));
    let files: Vec<(&str, &str)> =
        names.iter().zip(&texts).map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let graph = graph(&survey(&bundle(&files).app(), &[]).config);
    assert_eq!(graph.cycle, None);
    let dependencies =
        |name: &str| graph.dependencies(name).into_iter().collect::<Vec<_>>().join(" ");
    let found = ["a", "b", "c", "d"].map(dependencies);
    assert_eq!(found, ["c", "", "b d", "b"]);
}
