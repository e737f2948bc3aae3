//! Benchmarks templates and app directories against targets. Exits with 1 if a target is missed.
//!
//! The templates are those of the corpus or, without it, the stored cases of `tests/go`. Go's own
//! engine renders them in the same run. Stead parses and renders each template in two modes: over a
//! state that is prepared once, as in Go, or prepared for each template. The benchmark also
//! measures the largest directory and the stored templates of the fuzz test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark that cannot start must stop")]
#![allow(clippy::disallowed_methods, reason = "measurements create ids and start tasks themselves")]
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use app_config::{
    Origin, Tree, survey,
    template::{Limits, State, Template},
};
use serde_json::{Value, json};

#[path = "../tests/it/cases.rs"]
mod cases;
#[path = "../tests/it/support.rs"]
mod support;

const ROUNDS: usize = 7;

struct App {
    state: Value,
    templates: Vec<String>,
}

/// Measured figure with its name, its target, and the unit of both.
struct Bar(&'static str, f64, f64, &'static str);

fn main() {
    let go = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go");
    let apps =
        support::corpus().map_or_else(|| stored_templates(&go), |corpus| corpus_templates(&corpus));
    let count: usize = apps.iter().map(|app| app.templates.len()).sum();
    let states: Vec<State<'_>> = apps.iter().map(|app| State::new(&app.state)).collect();
    let prepared = best(|| {
        apps.iter()
            .zip(&states)
            .map(|(app, state)| app.templates.iter().map(|t| bytes(t, state)).sum::<usize>())
            .sum()
    });
    let unprepared = best(|| {
        let one = |app: &App, text: &String| bytes(text, &State::new(&app.state));
        apps.iter().map(|app| app.templates.iter().map(|text| one(app, text)).sum::<usize>()).sum()
    });
    println!("| {count} templates, parsed and rendered | ms | µs each | bytes |");
    println!("|---|---|---|---|");
    line("Stead", prepared, count);
    line("Stead, the state prepared for each", unprepared, count);
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let mut bars = vec![Bar("all templates of the corpus", ms(prepared.0), 250.0, "ms")];
    match env::var_os("STEAD_GO_TEMPLATES") {
        Some(oracle) => {
            let go_result = measure_go(&PathBuf::from(oracle), &go, &apps);
            line("Go", go_result, count);
            let ratio = prepared.0.as_secs_f64() / go_result.0.as_secs_f64();
            bars.push(Bar("Stead ÷ Go", ratio, 2.0, ""));
        }
        None => eprintln!(
            "SKIPPED: no comparison with Go: STEAD_GO_TEMPLATES is not set; see scripts/bench"
        ),
    }
    if let Some((files, took)) = largest() {
        println!("\nthe largest directory has {files} files");
        bars.push(Bar("largest directory, read and validated", ms(took), 100.0, "ms"));
    }
    let (name, took) = slowest(&go);
    println!("the slowest stored template is {name}");
    bars.push(Bar("slowest stored template", ms(took), 100.0, "ms"));
    println!("\n| | measured | limit | |\n|---|---|---|---|");
    let mut met = true;
    for Bar(what, figure, bar, unit) in bars {
        let verdict = if figure < bar { "met" } else { "MISSED" };
        met &= figure < bar;
        println!("| {what} | {figure:.2} {unit} | {bar:.0} {unit} | {verdict} |");
    }
    std::process::exit(i32::from(!met));
}

/// Number of files of the largest directory of the corpus, and the best time to read and validate
/// it. `None` without a corpus.
fn largest() -> Option<(usize, Duration)> {
    let apps = fs::read_dir(support::corpus()?.join("apps")).unwrap();
    let trees = apps.map(|app| support::tree(&app.unwrap().path()));
    let tree = trees.max_by_key(Tree::len)?;
    let (took, _) = best(|| survey(&tree, &[]).diagnostics.len());
    Some((tree.len(), took))
}

/// Returns the stored template of the fuzz test with the longest render time, and that time.
fn slowest(go: &Path) -> (String, Duration) {
    let json = support::json(&go.join("state.json"));
    let state = State::new(&json);
    let files = fs::read_dir(go.with_file_name("fuzz").join("templates")).unwrap();
    let times = files.map(|entry| {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        let start = Instant::now();
        bytes(&text, &state);
        (path.file_name().unwrap().to_string_lossy().into_owned(), start.elapsed())
    });
    times.max_by_key(|(_, took)| *took).unwrap_or_default()
}

fn line(who: &str, (took, length): (Duration, usize), count: usize) {
    let (ms, each) = (took.as_secs_f64() * 1e3, took.as_secs_f64() * 1e6 / count as f64);
    println!("| {who} | {ms:.1} | {each:.1} | {length} |");
}

fn best(mut all: impl FnMut() -> usize) -> (Duration, usize) {
    let round = || {
        let start = Instant::now();
        let length = all();
        (start.elapsed(), length)
    };
    std::iter::repeat_with(round).take(ROUNDS).min().unwrap_or_default()
}

fn bytes(text: &str, state: &State<'_>) -> usize {
    let template = Template::parse(text, &Origin::default());
    let rendered = template.and_then(|t| t.render_within(state, Limits::default()).0);
    rendered.map_or(0, |text| text.len())
}

fn corpus_templates(corpus: &Path) -> Vec<App> {
    let renders = support::json(&corpus.join("renders.json"));
    let apps = renders.as_object().unwrap().iter().map(|(name, facts)| {
        let tree = support::tree(&corpus.join("apps").join(name));
        let cases = facts["cases"].as_array().unwrap().iter();
        let templates = cases.map(|case| cases::text_of(&tree, case)).collect();
        App { state: facts["state"].clone(), templates }
    });
    apps.collect()
}

fn stored_templates(go: &Path) -> Vec<App> {
    let text = fs::read_to_string(go.join("cases.jsonl")).unwrap();
    let template = |line: &str| {
        let case: Value = serde_json::from_str(line).unwrap();
        case["template"].as_str().unwrap().to_string()
    };
    let templates = text.lines().map(template).collect();
    vec![App { state: support::json(&go.join("state.json")), templates }]
}

fn measure_go(oracle: &Path, go: &Path, apps: &[App]) -> (Duration, usize) {
    let mut requests = String::new();
    for app in apps {
        for (at, template) in app.templates.iter().enumerate() {
            let request = match at {
                0 => json!({"template": template, "state": app.state}),
                _ => json!({"template": template}),
            };
            requests.push_str(&format!("{request}\n"));
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
    let writer = thread::spawn(move || stdin.write_all(requests.as_bytes()));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let result: Value = serde_json::from_slice(&out.stdout).unwrap();
    let nanoseconds = result["nanoseconds"].as_u64().unwrap();
    (Duration::from_nanos(nanoseconds), result["bytes"].as_u64().unwrap() as usize)
}
