//! Compares generated templates with the output of Go's own engine.
//!
//! The stored cases need no Go. `scripts/differential` builds the Go program and compares thousands
//! of new cases. With `UPDATE_GOLDEN=1` it also updates the stored cases.
use std::{
    collections::BTreeMap, env, fs, io::Write, path::PathBuf, process, process::Stdio, thread,
};

use app_config::{
    Origin,
    template::{ErrorClass, Limits, State, Template},
};
use serde_json::{Value, json};

use crate::generator;

use generator::Generator;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/go").join(name)
}

fn state() -> Value {
    serde_json::from_slice(&fs::read(path("state.json")).unwrap()).unwrap()
}

#[test]
fn stored_templates_match_go() {
    let json = state();
    let state = State::new(&json);
    let stored = fs::read_to_string(path("cases.jsonl")).unwrap();
    let mut wrong = Vec::new();
    for line in stored.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        compare(&state, case["template"].as_str().unwrap(), &case, &mut wrong);
    }
    assert!(stored.lines().count() > 1000);
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn new_templates_match_go() {
    let Some(oracle) = env::var_os("STEAD_GO_TEMPLATES") else {
        eprintln!("SKIPPED: STEAD_GO_TEMPLATES is not set; see scripts/differential");
        return;
    };
    let number = |name: &str, otherwise| {
        env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
    };
    let (seed, count) = (number("SEED", 1_u64), number("CASES", 5_000_u64));
    let templates: Vec<String> = (seed..seed + count).map(Generator::template).collect();
    let requests =
        templates.iter().map(|template| json!({"template": template}).to_string() + "\n");
    let responses = evaluate(&PathBuf::from(oracle), requests.collect());
    assert_eq!(responses.len(), templates.len());
    let json = state();
    let state = State::new(&json);
    let mut wrong = Vec::new();
    let mut classes: BTreeMap<String, usize> = BTreeMap::new();
    for (template, response) in templates.iter().zip(&responses) {
        // The Go version of Debian does not support `range` over a number yet. Newer Go versions
        // and Stead do.
        let why = response["why"].as_str().unwrap_or_default();
        if why.contains("range can't iterate over ") && why.ends_with(|c: char| c.is_ascii_digit())
        {
            continue;
        }
        let class = response["error"].as_str().unwrap_or("text").to_string();
        *classes.entry(class).or_default() += 1;
        compare(&state, template, response, &mut wrong);
    }
    println!("{count} templates from seed {seed}: {classes:?}, {} differ", wrong.len());
    let first = wrong.iter().take(25).cloned().collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), first.join("\n"));
    if env::var("UPDATE_GOLDEN").is_ok_and(|update| update == "1") {
        store(&templates, &responses);
    }
}

fn evaluate(oracle: &PathBuf, requests: String) -> Vec<Value> {
    let mut child = process::Command::new(oracle)
        .arg(path("state.json"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A separate thread, so that neither side blocks the other.
    let writer = thread::spawn(move || stdin.write_all(requests.as_bytes()));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn compare(state: &State<'_>, template: &str, expected: &Value, wrong: &mut Vec<String>) {
    let found = found(state, template);
    let same = ["text", "error", "at"].iter().all(|key| found[key] == expected[key]);
    if !same {
        wrong.push(format!("  {template:?}\n    Go    {expected}\n    Stead {found}"));
    }
}

/// Stead's result in the form of the Go program: the line of a parse error, and the line and byte
/// of other errors, from 0.
fn found(state: &State<'_>, template: &str) -> Value {
    let origin = Origin::default();
    let result = Template::parse(template, &origin)
        .and_then(|parsed| parsed.render_within(state, Limits::default()).0);
    match result {
        Ok(text) => json!({"text": text}),
        Err(error) => {
            let (class, at) = match error.class {
                ErrorClass::Parse => ("parse", error.line.to_string()),
                ErrorClass::Exec => {
                    let line = template.split('\n').nth(error.line as usize - 1).unwrap();
                    let before = line.chars().take(error.column as usize - 1);
                    let byte: usize = before.map(char::len_utf8).sum();
                    ("exec", format!("{}:{byte}", error.line))
                }
            };
            json!({"error": class, "at": at, "why": error.message})
        }
    }
}

/// Stores short templates, a limited number of each kind.
fn store(templates: &[String], responses: &[Value]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut stored = String::new();
    for (template, response) in templates.iter().zip(responses) {
        let letters: String = template.chars().filter(|c| c.is_ascii_lowercase()).take(9).collect();
        let times = seen.entry(format!("{letters}{}", response["error"])).or_default();
        *times += 1;
        let number =
            response["why"].as_str().is_some_and(|why| why.contains("range can't iterate over "));
        if template.len() > 220 || *times > 1 || number {
            continue;
        }
        let mut case = response.clone();
        case["template"] = json!(template);
        case.as_object_mut().unwrap().remove("why");
        stored.push_str(&format!("{case}\n"));
        if stored.lines().count() >= 2_500 {
            break;
        }
    }
    fs::write(path("cases.jsonl"), stored).unwrap();
}
