//! Compares templates of real app directories with the output of Go's own engine.
use app_config::{
    Origin,
    template::{ErrorClass, Template},
};
use serde_json::Value;

use crate::cases;
use crate::support;

use cases::text_of;

#[test]
fn small_templates_match_go() {
    let Some(corpus) = support::corpus() else { return };
    let groups = support::json(&corpus.join("semantics.json"));
    let mut passed = 0;
    for group in groups.as_array().unwrap() {
        for case in group["results"].as_array().unwrap() {
            let template = case["template"].as_str().unwrap();
            let found = outcome(template, &group["state"]);
            assert_eq!(found, expected(case), "{template}");
            passed += 1;
        }
    }
    println!("semantics: {passed} passed");
}

#[test]
fn every_real_template_matches_go() {
    let Some(corpus) = support::corpus() else { return };
    let renders = support::json(&corpus.join("renders.json"));
    let (mut full, mut empty, mut wrong) = (0, 0, Vec::new());
    for (app, facts) in renders.as_object().unwrap() {
        let tree = support::tree(&corpus.join("apps").join(app));
        for case in facts["cases"].as_array().unwrap() {
            let text = text_of(&tree, case);
            let found = outcome(&text, &facts["state"]);
            if found == expected(case) {
                full += 1;
            } else {
                wrong.push(format!(
                    "{app} {}\n  expected {:?}\n  found    {found:?}",
                    case["id"],
                    expected(case)
                ));
            }
            // Over an empty state, only the class of the error is known, not its text.
            let found = match outcome(&text, &serde_json::json!({"nuon": {}})) {
                Ok(_) => "ok",
                Err((ErrorClass::Parse, _)) => "parse",
                Err((ErrorClass::Exec, _)) => "exec",
            };
            if found == case["empty_state"].as_str().unwrap() {
                empty += 1;
            } else {
                wrong.push(format!("{app} {} on an empty state: {found}", case["id"]));
            }
        }
    }
    println!("renders: {full} passed, {empty} on the empty state, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

type Outcome = Result<String, (ErrorClass, String)>;

/// Result in the form of the Go program: the line of a parse error, and the line and byte of other
/// errors.
fn outcome(template: &str, state: &Value) -> Outcome {
    let parsed = Template::parse(template, &Origin::default());
    parsed.and_then(|parsed| parsed.render(state)).map_err(|error| {
        let line = template.split('\n').nth(error.line as usize - 1).unwrap();
        let before: String = line.chars().take(error.column as usize - 1).collect();
        let place = match error.class {
            ErrorClass::Parse => format!("{}", error.line),
            ErrorClass::Exec => format!("{}:{}", error.line, before.len()),
        };
        (error.class, place)
    })
}

fn expected(case: &Value) -> Outcome {
    if let Some(error) = case["text_error"].as_str() {
        let parse = error.starts_with("parse");
        let class = if parse { ErrorClass::Parse } else { ErrorClass::Exec };
        let place = error.split("template: input:").nth(1).unwrap();
        let numbers = place.split(':').take(if parse { 1 } else { 2 });
        return Err((class, numbers.collect::<Vec<_>>().join(":")));
    }
    // A case without a text prints `<no value>`.
    Ok(case["text"].as_str().unwrap_or("<no value>").to_string())
}
