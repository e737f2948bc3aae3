//! Every template of real app directories, against what Go's own engine made of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says no by panicking")]
use app_config::{
    Origin, Tree,
    template::{ErrorClass, Template},
};
use serde_json::Value;

mod support;

#[test]
fn small_templates_give_exactly_what_go_gives() {
    let Some(corpus) = support::corpus() else { return };
    let groups = support::json(&corpus.join("semantics.json"));
    let mut held = 0;
    for group in groups.as_array().unwrap() {
        for case in group["results"].as_array().unwrap() {
            let template = case["template"].as_str().unwrap();
            let found = outcome(template, &group["state"]);
            assert_eq!(found, expected(case), "{template}");
            held += 1;
        }
    }
    println!("semantics: {held} held");
}

#[test]
fn every_real_template_gives_what_go_gives() {
    let Some(corpus) = support::corpus() else { return };
    let renders = support::json(&corpus.join("renders.json"));
    let (mut full, mut empty, mut wrong) = (0, 0, Vec::new());
    for (app, said) in renders.as_object().unwrap() {
        let tree = support::tree(&corpus.join("apps").join(app));
        for case in said["cases"].as_array().unwrap() {
            let text = text_of(&tree, case);
            let found = outcome(&text, &said["state"]);
            if found == expected(case) {
                full += 1;
            } else {
                wrong.push(format!(
                    "{app} {}\n  expected {:?}\n  found    {found:?}",
                    case["id"],
                    expected(case)
                ));
            }
            // Over a state that holds nothing the class of the error is known, not its words.
            let found = match outcome(&text, &serde_json::json!({"nuon": {}})) {
                Ok(_) => "ok",
                Err(ErrorClass::Parse) => "parse",
                Err(ErrorClass::Exec) => "exec",
            };
            if found == case["empty_state"].as_str().unwrap() {
                empty += 1;
            } else {
                wrong.push(format!("{app} {} on an empty state: {found}", case["id"]));
            }
        }
    }
    println!("renders: {full} held, {empty} on the empty state, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn outcome(template: &str, state: &Value) -> Result<String, ErrorClass> {
    let template = Template::parse(template, &Origin::default()).map_err(|error| error.class)?;
    template.render(state).map_err(|error| error.class)
}

fn expected(case: &Value) -> Result<String, ErrorClass> {
    if let Some(error) = case["text_error"].as_str() {
        return Err(if error.starts_with("parse") { ErrorClass::Parse } else { ErrorClass::Exec });
    }
    // A case that is empty or prints nothing has no text.
    Ok(case["text"].as_str().unwrap_or("<no value>").to_string())
}

/// The template of a case: a whole file, or a string at a path inside a TOML file.
fn text_of(tree: &Tree, case: &Value) -> String {
    let file = tree.text(case["file"].as_str().unwrap()).unwrap();
    let Some(key) = case["key"].as_str().filter(|key| !key.is_empty()) else {
        return file.to_string();
    };
    let document: toml::Value = toml::from_str(file).unwrap();
    find(&document, key).unwrap_or_else(|| panic!("{key} in {}", case["file"])).to_string()
}

/// Keys may hold dots themselves, so every way to cut the path is tried.
fn find<'v>(value: &'v toml::Value, path: &str) -> Option<&'v str> {
    if path.is_empty() {
        return value.as_str();
    }
    let cuts = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    cuts.into_iter().find_map(|cut| {
        let (head, rest) = (&path[..cut], path[cut..].trim_start_matches('.'));
        let inner = match value {
            toml::Value::Table(table) => table.get(head)?,
            toml::Value::Array(items) => items.get(head.parse::<usize>().ok()?)?,
            _ => return None,
        };
        find(inner, rest)
    })
}
