//! Directories with unusual contents that the corpus does not cover.
use app_config::{Diagnostic, File, Reading, Tree, graph, inspect, survey};

fn directory(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::default();
    let metadata = [("metadata.toml", "version = \"v2\"\n")];
    for (path, text) in metadata.iter().chain(files) {
        tree.insert(path, File { bytes: text.as_bytes().to_vec(), executable: false }).unwrap();
    }
    tree
}

fn read(files: &[(&str, &str)]) -> Reading {
    let tree = directory(files);
    let reading = survey(&tree, &[]);
    // `inspect` must accept every directory.
    inspect("odd", &tree, &reading);
    reading
}

fn dependencies(reading: &Reading, name: &str) -> Vec<String> {
    graph(&reading.config).dependencies(name).into_iter().collect()
}

fn errors(reading: &Reading) -> Vec<&Diagnostic> {
    reading.diagnostics.iter().filter(|finding| finding.is_error()).collect()
}

fn component(name: &str, kind: &str, rest: &str) -> String {
    format!("name = \"{name}\"\ntype = \"{kind}\"\n{rest}")
}

const REPO: &str = "[public_repo]\nrepo = \"x/y\"\n";

#[test]
fn reads_of_a_named_file_are_dependencies_of_its_component() {
    let reads = |name: &str| format!("a: 1\n---\nb: {{{{ .nuon.components.{name}.outputs.x }}}}\n");
    let tf = component(
        "tf",
        "terraform_module",
        &format!("{REPO}[[var_file]]\ncontents = \"./tf/v.tfvars\"\n"),
    );
    let helm = format!(
        "chart_name = \"c\"\n{REPO}[[values_file]]\nsource = \"./deep/v.yaml\"\n[[values_file]]\n\
         contents = \"./deep/w.yaml\"\n[values]\nx = \"{{{{ index .nuon.components \\\"e\\\" }}}}\"\n"
    );
    let manifest = "namespace = \"n\"\nmanifest = \"./deep/m.yaml\"\n";
    let kustomize = "namespace = \"{{ .nuon.components.a.outputs.ns }}\"\n[public_repo]\nrepo = \".\"\n\
                     directory = \"deploy\"\n[kustomize]\npath = \"base\"\n\
                     patches = [\"{{ .nuon.components.b.outputs.x }}\"]\n";
    let mut files: Vec<(String, String)> = vec![
        ("components/deep/er/tf.toml".into(), tf),
        ("components/helm.toml".into(), component("helm", "helm_chart", &helm)),
        ("components/m.toml".into(), component("m", "kubernetes_manifest", manifest)),
        ("components/k.toml".into(), component("k", "kubernetes_manifest", kustomize)),
        ("components/tf/v.tfvars".into(), "x = \"{{ .nuon.components.a.outputs.x }}\"\n".into()),
        ("components/deep/v.yaml".into(), reads("b")),
        ("components/deep/w.yaml".into(), reads("c")),
        ("components/deep/m.yaml".into(), reads("d")),
        ("deploy/base/kustomization.yaml".into(), reads("c")),
        ("deploy/base/part/x.yml".into(), reads("d")),
        ("deploy/other/x.yaml".into(), reads("e")),
    ];
    for name in ["a", "b", "c", "d", "e"] {
        files.push((format!("components/{name}.toml"), component(name, "terraform_module", REPO)));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let reading = read(&files);
    assert!(errors(&reading).is_empty(), "{:?}", reading.diagnostics);
    assert_eq!(dependencies(&reading, "tf"), ["a"]);
    assert_eq!(dependencies(&reading, "helm"), ["b", "c", "e"]);
    assert_eq!(dependencies(&reading, "m"), ["d"]);
    assert_eq!(dependencies(&reading, "k"), ["a", "b", "c", "d"]);
    // Changed bytes of a kustomization file change the component's digest.
    let module = &reading.config.component("k").unwrap().module;
    assert!(module.files.contains_key("deploy/base/part/x.yml"), "{:?}", module.files);
}

#[test]
fn an_invalid_kustomization_path_is_not_read() {
    for path in ["../../etc", "/etc", "..", ".", "", "base/../../../x"] {
        let rest = format!("[public_repo]\nrepo = \".\"\n[kustomize]\npath = \"{path}\"\n");
        let text = component("k", "kubernetes_manifest", &rest);
        let reading =
            read(&[("components/k.toml", &text), ("x.yaml", "{{ .nuon.components.no }}")]);
        let unknown = reading.diagnostics.iter().any(|finding| finding.code == "unknown_component");
        assert!(!unknown, "{path}: {:?}", reading.diagnostics);
        let escapes: Vec<_> = errors(&reading)
            .iter()
            .filter(|finding| finding.code == "path_escape")
            .map(|finding| (finding.line, finding.column))
            .collect();
        let leaves = path.contains("..");
        assert_eq!(escapes, if leaves { vec![(6, 9)] } else { vec![] }, "{path}");
    }
}

#[test]
fn a_kustomization_reads_the_files_that_it_names() {
    let rest = "[public_repo]\nrepo = \".\"\n[kustomize]\npath = \"overlays/prod\"\n";
    let reading = read(&[
        ("components/k.toml", &component("k", "kubernetes_manifest", rest)),
        ("components/a.toml", &component("a", "terraform_module", REPO)),
        ("components/b.toml", &component("b", "terraform_module", REPO)),
        ("overlays/prod/kustomization.yaml", "resources:\n- \"../../base\"\n"),
        ("base/kustomization.yml", "components: [../part, ../overlays/prod]\n"),
        ("base/x.yaml", "x: {{ .nuon.components.a.outputs.x }}\n"),
        ("part/y.yaml", "y: {{ .nuon.components.b.outputs.y }}\n"),
        ("other/z.yaml", "z: {{ .nuon.components.no.outputs.z }}\n"),
    ]);
    assert_eq!(dependencies(&reading, "k"), ["a", "b"]);
    assert!(errors(&reading).is_empty(), "{:?}", reading.diagnostics);
}

#[test]
fn a_directory_from_windows_is_read() {
    let text = component("web", "terraform_module", REPO).replace('\n', "\r\n");
    let text = format!("\u{feff}#:schema https://x/y?source=helm\r\n{text}");
    let manifest = "name = \"m\"\r\ntype = \"kubernetes_manifest\"\r\nnamespace = 'n'\r\nmanifest = \"\"\"\r\n\
                    a: {{ .nuon.components.web.outputs.x }}\r\n\"\"\"";
    let reading = read(&[("components/web.toml", &text), ("components/Q Ü.toml", manifest)]);
    assert!(errors(&reading).is_empty(), "{:?}", reading.diagnostics);
    assert_eq!(dependencies(&reading, "m"), ["web"]);
    let at = &reading.config.component("m").unwrap().module.at;
    let span = reading.config.span(at, "manifest").unwrap();
    assert_eq!((span.line, span.column), (5, 1));
}

#[test]
fn scalars_of_any_type_are_read_as_their_text() {
    let rest = format!(
        "{REPO}[vars]\na = 8\nb = true\nc = 1.50\nd = \"x\"\n\"aws:region\" = 'r'\ne.f = 1\n[env_vars]\nA_B = 0x10\n"
    );
    let reading = read(&[("components/a.toml", &component("a", "terraform_module", &rest))]);
    let vars = &reading.config.component("a").unwrap().module.vars;
    let shown: Vec<_> = vars.iter().map(|(name, text)| format!("{name}={}", text.value)).collect();
    assert_eq!(shown, ["a=8", "aws:region=r", "b=true", "c=1.50", "d=x"]);
    // A table is not a variable.
    let found: Vec<_> = errors(&reading).iter().map(|finding| finding.code).collect();
    assert_eq!(found, ["wrong_type"], "{:?}", reading.diagnostics);
}

#[test]
fn invalid_names_are_rejected_at_their_location() {
    for name in ["../x", "a-b", "a.b", "", " ", "sandbox", "é", "a\\u0000", "1a"] {
        let text = component(name, "terraform_module", REPO);
        let reading = read(&[("components/x.toml", &text)]);
        let found = errors(&reading);
        assert!(!found.is_empty(), "{name:?} passed");
        assert_eq!(found[0].file, "components/x.toml", "{name:?}: {found:?}");
        assert!(found[0].line <= 1, "{name:?}: {found:?}");
    }
}

#[test]
fn all_findings_are_reported_once() {
    let bad = "name = 7\ntype = [\"x\"]\ndependencies = [\"no\", 3, {}]\nvars = \"x\"\n[[public_repo]]\nrepo = 1\n";
    let action = "name = \"x\"\ntimeout = \"-1m\"\n[[triggers]]\ntype = \"cron\"\ncron_schedule = \"99 * * * *\"\n\
                  [[triggers]]\ntype = \"pre-deploy-components\"\ncomponent_name = \"no\"\n[[steps]]\nname = \"s\"\n";
    let inputs =
        "[[input]]\nname = \"a\"\ntype = \"number\"\ndefault = \"x\"\n[[input]]\nname = \"a\"\n";
    let reading = read(&[
        ("components/bad.toml", bad),
        ("components/broken.toml", "name = \n"),
        ("actions/a/b/c.toml", action),
        ("inputs.toml", inputs),
        ("inputs/b.toml", "name = \"b\"\n"),
        ("secrets.toml", "[[secret]]\nname = \"s\"\nrequired = true\ndefault = \"x\"\n"),
    ]);
    let mut codes: Vec<&str> = reading.diagnostics.iter().map(|finding| finding.code).collect();
    codes.sort_unstable();
    codes.dedup();
    for code in [
        "bad_cron",
        "bad_default",
        "bad_timeout",
        "both_forms",
        "duplicate_name",
        "malformed_file",
        "no_script",
        "secret_clash",
        "unknown_trigger",
        "wrong_type",
    ] {
        assert!(codes.contains(&code), "{code} is missing from {codes:?}");
    }
    let mut places: Vec<_> = reading
        .diagnostics
        .iter()
        .map(|d| (&d.file, d.line, d.column, d.code, &d.message))
        .collect();
    let count = places.len();
    places.dedup();
    assert_eq!(places.len(), count);
}

#[test]
fn empty_files_are_warnings() {
    let names = [
        "actions/a.toml",
        "break_glass.toml",
        "branch.toml",
        "components/a.toml",
        "inputs.toml",
        "installer.toml",
        "installs.toml",
        "kubernetes_contexts.toml",
        "operation_roles.toml",
        "permissions.toml",
        "policies.toml",
        "runbooks/a.toml",
        "runner.toml",
        "sandbox.toml",
        "secrets.toml",
        "stack.toml",
    ];
    for text in ["", "\n", "# only a word\n", "\u{feff}", " \t\r\n"] {
        let files: Vec<(&str, &str)> = names.iter().map(|name| (*name, text)).collect();
        let reading = read(&files);
        assert!(errors(&reading).is_empty(), "{text:?}: {:?}", errors(&reading));
        let empty = reading.diagnostics.iter().filter(|d| d.code == "empty_file").count();
        assert_eq!(empty, names.len(), "{text:?}: {:?}", reading.diagnostics);
    }
}

#[test]
fn a_syntax_error_causes_no_finding_in_other_files() {
    let reads = "{{ .nuon.components.base.outputs.id }} {{ .nuon.inputs.inputs.size }}";
    let rest = format!("dependencies = [\"base\"]\n{REPO}[vars]\nx = \"{reads}\"\n");
    let web = component("web", "terraform_module", &rest);
    // One mistake, after which a parser finds an error on nearly every line.
    let broken = "name = \"base\ntype = \"terraform_module\"\n[vars]\nx = \"1\"\ny = \"2\"\n";
    let findings = |base: &str, inputs: &str| -> Vec<(String, &'static str, u32)> {
        let reading = read(&[
            ("components/web.toml", &web),
            ("components/base.toml", base),
            ("inputs.toml", inputs),
        ]);
        let errors = reading.diagnostics.into_iter().filter(Diagnostic::is_error);
        errors.map(|found| (found.file.clone(), found.code, found.line)).collect()
    };
    let malformed = |file: &str, line| (file.to_owned(), "malformed_file", line);
    assert_eq!(
        findings(broken, "[[input]\n"),
        [malformed("components/base.toml", 1), malformed("inputs.toml", 1)]
    );
    // Names that are absent from readable files are still reported.
    let base = component("base", "terraform_module", REPO);
    let named: Vec<_> = findings(&base, "").into_iter().map(|(_, code, _)| code).collect();
    assert!(named.contains(&"unknown_input"), "{named:?}");
}
