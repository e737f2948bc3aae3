//! Tests that a module of `api` depends only on modules of lower layers. For example, use cases
//! must not depend on front ends.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Layers of `api`, the lowest first. A module may depend only on modules of lower layers.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "foundation",
        &[
            "changed_installs",
            "clock",
            "ids",
            "keys",
            "listen",
            "metrics",
            "postgres",
            "problem",
            "reach",
            "recent_changes",
            "tasks",
        ],
    ),
    (
        "engine",
        &[
            "auth",
            "configs",
            "dispatch",
            "execute",
            "logs",
            "registry",
            "rejection",
            "sensitive",
            "state_versions",
            "webhooks",
            "wrapped_seeds",
            "write_behind",
        ],
    ),
    // `state::App` contains the engine. Modules of higher layers receive the `App`.
    ("state", &["state"]),
    ("rendering and erasure", &["erasure", "render"]),
    ("use cases", &["usecases"]),
    ("reactions and maintenance", &["maintenance", "reactions"]),
    ("extraction of requests", &["extract"]),
    ("reads", &["queries"]),
    ("front ends", &["artifacts", "control", "docs", "ops", "runner", "ui"]),
    ("routes", &["router"]),
    ("server", &["server"]),
    ("operator commands", &["archives", "backup"]),
];

/// Reference of one module to another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    from: String,
    to: String,
    file: String,
    line: usize,
}

/// Returns the index of a module's layer.
fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|(_, modules)| modules.contains(&module))
}

/// Blanks comments and items that only tests compile. Keeps the line numbers.
fn without_tests(text: &str) -> String {
    let (mut out, mut is_cut, mut is_next_cut) = (String::new(), false, false);
    for line in text.lines() {
        let is_attribute = line.starts_with("#[");
        is_next_cut |= line.starts_with("#[cfg(");
        let is_comment = line.trim_start().starts_with("//");
        if !is_cut && !is_next_cut && !is_comment {
            out.push_str(line);
        }
        out.push('\n');
        if is_cut {
            is_cut = line != "}";
        } else if is_next_cut && !is_attribute && !is_comment {
            // The item after the attributes is one line, or a block that ends in the first column.
            (is_next_cut, is_cut) = (false, line.ends_with('{'));
        }
    }
    out
}

/// Returns the modules that the text names after `prefix`, and their offsets: `crate::a::B`, or
/// each part of `crate::{a::B, c::{D, E}}`.
fn referenced_modules<'t>(text: &'t str, prefix: &str) -> Vec<(usize, &'t str)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let word = |at: usize| {
        let rest = &text[at..];
        &rest[..rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())]
    };
    let mut found = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        let is_part_of_a_path = text[..at].ends_with(|c: char| is_word(c) || c == ':');
        let start = at + prefix.len();
        if is_part_of_a_path {
            continue;
        }
        if !text[start..].starts_with('{') {
            found.push((start, word(start)));
            continue;
        }
        let (mut depth, mut is_start) = (0, false);
        for (offset, c) in text[start..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ if is_start && !c.is_whitespace() => {
                    found.push((start + offset, word(start + offset)));
                    is_start = false;
                }
                _ => {}
            }
            is_start = (is_start && c.is_whitespace()) || (depth == 1 && matches!(c, '{' | ','));
            if depth == 0 {
                break;
            }
        }
    }
    found
}

/// Collects the files that a module declares and that a plain build compiles, with their paths from
/// `src`.
fn files(src: &Path, module: &str, out: &mut Vec<(String, String)>) {
    let text = without_tests(&fs::read_to_string(src.join(format!("{module}.rs"))).unwrap());
    let declared = text.lines().filter_map(|line| {
        let line = line.strip_suffix(';')?;
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
        line.strip_prefix("mod ")
    });
    for name in declared {
        let path = if module == "lib" { name.into() } else { format!("{module}/{name}") };
        files(src, &path, out);
    }
    out.push((module.into(), text));
}

fn references() -> Vec<Reference> {
    let src: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/src");
    let mut sources = Vec::new();
    files(&src, "lib", &mut sources);
    let modules: BTreeSet<&str> = sources.iter().map(|(path, _)| module_of(path)).collect();
    let mut references = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| path != "lib") {
        let from = module_of(path);
        // `super` leaves the module only if it is repeated for each directory.
        let outside = "super::".repeat(path.split('/').count());
        let all = referenced_modules(text, "crate::")
            .into_iter()
            .chain(referenced_modules(text, &outside));
        for (at, to) in all.filter(|(_, to)| modules.contains(to) && *to != from) {
            let line = text[..at].lines().count();
            let (from, to, file) = (from.into(), to.into(), format!("api/src/{path}.rs"));
            references.push(Reference { from, to, file, line });
        }
    }
    references
}

/// Returns the top-level module of a file.
fn module_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

#[test]
fn every_module_of_api_has_one_layer() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/src");
    let mut sources = Vec::new();
    files(&src, "lib", &mut sources);
    let modules: BTreeSet<&str> =
        sources.iter().map(|(path, _)| module_of(path)).filter(|module| *module != "lib").collect();
    let listed: Vec<&str> =
        LAYERS.iter().flat_map(|(_, modules)| modules.iter().copied()).collect();
    let unique: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(unique.len(), listed.len(), "a module has two layers: {listed:?}");
    assert_eq!(unique, modules, "LAYERS and api/src/lib.rs list different modules");
}

#[test]
fn modules_of_api_depend_only_on_lower_layers() {
    let references = references();
    assert!(references.len() > 300, "the test finds too few references: {}", references.len());
    let upward =
        references.iter().filter(|reference| layer(&reference.to) >= layer(&reference.from));
    let broken: Vec<String> = upward
        .map(|Reference { from, to, file, line }| {
            format!("module {from} must not depend on {to} ({file}:{line})")
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn finds_references_in_groups_and_in_paths() {
    let text = "use crate::{\n    auth::{Caller, names},\n    state::App,\n};\nfn f(at: crate::keys::Keys) {}\n\
                use not_crate::logs;\n// crate::render\n#[cfg(test)]\nmod tests {\n    use crate::server;\n}\nuse super::router;\n";
    let text = without_tests(text);
    let names = |prefix| {
        referenced_modules(&text, prefix).into_iter().map(|(_, name)| name).collect::<Vec<_>>()
    };
    assert_eq!(names("crate::"), ["auth", "state", "keys"]);
    assert_eq!(names("super::"), ["router"]);
    let (at, _) = referenced_modules(&text, "crate::")[1];
    assert_eq!(text[..at].lines().count(), 3);
}
