//! How long templates take, beside Go's own engine in the same run: every template of the corpus, or,
//! without it, the kept cases of `tests/go`. Parsed and rendered anew each time, over states that are
//! prepared before, as Go's are; and once more with the states prepared each time anew.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement that cannot begin has nothing to say"
)]
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use app_config::{
    Origin,
    template::{Limits, State, Template},
};
use serde_json::{Value, json};

#[path = "../tests/support/cases.rs"]
mod cases;
#[path = "../tests/support/mod.rs"]
mod support;

const ROUNDS: usize = 7;

struct App {
    state: Value,
    templates: Vec<String>,
}

fn main() {
    let go = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go");
    let apps = support::corpus().map_or_else(|| kept(&go), |corpus| real(&corpus));
    let count: usize = apps.iter().map(|app| app.templates.len()).sum();
    let states: Vec<State<'_>> = apps.iter().map(|app| State::new(&app.state)).collect();
    let prepared = best(|| {
        apps.iter()
            .zip(&states)
            .map(|(app, state)| app.templates.iter().map(|t| bytes(t, state)).sum::<usize>())
            .sum()
    });
    let anew = best(|| {
        let one = |app: &App, text: &String| bytes(text, &State::new(&app.state));
        apps.iter().map(|app| app.templates.iter().map(|text| one(app, text)).sum::<usize>()).sum()
    });
    println!("| {count} templates, parsed and rendered | ms | µs each | bytes made |");
    println!("|---|---|---|---|");
    line("Stead", prepared, count);
    line("Stead, the state prepared for each", anew, count);
    let Some(oracle) = env::var_os("STEAD_GO_TEMPLATES") else {
        eprintln!(
            "SKIPPED: without STEAD_GO_TEMPLATES there is no Go to compare with; see scripts/bench"
        );
        return;
    };
    let theirs = ask(&PathBuf::from(oracle), &go, &apps);
    line("Go", theirs, count);
    println!("\nStead ÷ Go: {:.2}", prepared.0.as_secs_f64() / theirs.0.as_secs_f64());
}

fn line(who: &str, (took, made): (Duration, usize), count: usize) {
    let (ms, each) = (took.as_secs_f64() * 1e3, took.as_secs_f64() * 1e6 / count as f64);
    println!("| {who} | {ms:.1} | {each:.1} | {made} |");
}

fn best(mut all: impl FnMut() -> usize) -> (Duration, usize) {
    let round = || {
        let start = Instant::now();
        let made = all();
        (start.elapsed(), made)
    };
    std::iter::repeat_with(round).take(ROUNDS).min().unwrap_or_default()
}

fn bytes(text: &str, state: &State<'_>) -> usize {
    let template = Template::parse(text, &Origin::default());
    let rendered = template.and_then(|t| t.render_within(state, Limits::default()).0);
    rendered.map_or(0, |text| text.len())
}

fn real(corpus: &Path) -> Vec<App> {
    let renders = support::json(&corpus.join("renders.json"));
    let apps = renders.as_object().unwrap().iter().map(|(name, said)| {
        let tree = support::tree(&corpus.join("apps").join(name));
        let cases = said["cases"].as_array().unwrap().iter();
        let templates = cases.map(|case| cases::text_of(&tree, case)).collect();
        App { state: said["state"].clone(), templates }
    });
    apps.collect()
}

fn kept(go: &Path) -> Vec<App> {
    let text = fs::read_to_string(go.join("cases.jsonl")).unwrap();
    let template = |line: &str| {
        let case: Value = serde_json::from_str(line).unwrap();
        case["template"].as_str().unwrap().to_string()
    };
    let templates = text.lines().map(template).collect();
    vec![App { state: support::json(&go.join("state.json")), templates }]
}

fn ask(oracle: &Path, go: &Path, apps: &[App]) -> (Duration, usize) {
    let mut questions = String::new();
    for app in apps {
        for (at, template) in app.templates.iter().enumerate() {
            let question = match at {
                0 => json!({"template": template, "state": app.state}),
                _ => json!({"template": template}),
            };
            questions.push_str(&format!("{question}\n"));
        }
    }
    let mut child = Command::new(oracle)
        .arg(go.join("state.json"))
        .args(["-bench", &ROUNDS.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn(move || stdin.write_all(questions.as_bytes()));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    let nanoseconds = said["nanoseconds"].as_u64().unwrap();
    (Duration::from_nanos(nanoseconds), said["bytes"].as_u64().unwrap() as usize)
}
