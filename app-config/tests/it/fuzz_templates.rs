//! Fuzzes the template engine with arbitrary text, with limits.
//!
//! Known hard cases in `tests/fuzz/templates` run first. Then the test generates templates from the
//! grammar for `FUZZ_SECONDS` (`scripts/fuzz --seconds N`). It cuts, splices and repeats them, and
//! inserts random bytes. A template that breaks the engine is stored as `found-…`.
use std::{
    env, fs, panic,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use app_config::{
    Origin,
    template::{Limits, State, Template},
};
use serde_json::Value;

use crate::generator;

use generator::{Generator, Random};

/// Limits that a larger template exceeds, to test the budget.
const SMALL: Limits = Limits { steps: 200, bytes: 2_000 };
const ROOM: Limits = Limits { steps: 20_000, bytes: 1 << 20 };
/// Stack size of a worker thread of the server.
const STACK: usize = 2 << 20;

fn test_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

#[test]
fn no_text_crashes_the_engine_or_exceeds_its_limits() {
    let fuzz = thread::Builder::new().stack_size(STACK).spawn(fuzz).unwrap();
    if let Err(payload) = fuzz.join() {
        panic::resume_unwind(payload);
    }
}

fn fuzz() {
    let json: Value =
        serde_json::from_slice(&fs::read(test_file("go/state.json")).unwrap()).unwrap();
    let state = State::new(&json);
    let mut seeds = Vec::new();
    for entry in fs::read_dir(test_file("fuzz/templates")).unwrap() {
        let text = String::from_utf8_lossy(&fs::read(entry.unwrap().path()).unwrap()).into_owned();
        run(&text, &json, &state, &[Limits::default(), SMALL]);
        seeds.push(text);
    }
    let seconds = env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(now);
    let mut random = Random::new(seed);
    let (start, mut executions) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        let text = text(&mut random, &seeds);
        let result = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            run(&text, &json, &state, &[SMALL, ROOM])
        }));
        if let Err(payload) = result {
            let file = test_file("fuzz/templates").join(format!("found-{seed}-{executions}.txt"));
            fs::write(&file, &text).unwrap();
            eprintln!("stored as {}", file.display());
            panic::resume_unwind(payload);
        }
        executions += 1;
    }
    println!("{executions} texts from seed {seed} in {seconds} s");
}

/// Runs the lexer and parser, then the analysis of reads, then the evaluator with small and with
/// full limits.
fn run(text: &str, json: &Value, state: &State<'_>, limits: &[Limits]) {
    let lines = text.split('\n').count() as u32;
    let fits = |error: &app_config::TemplateError| {
        assert!((1..=lines).contains(&error.line), "{error:?}");
        assert!(!error.message.is_empty());
    };
    let template = match Template::parse(text, &Origin::default()) {
        Ok(template) => template,
        Err(error) => return fits(&error),
    };
    template.variables(json);
    for limits in limits {
        let (result, steps) = template.render_within(state, *limits);
        match result {
            Ok(out) => assert!(out.len() <= limits.bytes && steps <= limits.steps),
            Err(error) => fits(&error),
        }
    }
}

fn text(random: &mut Random, seeds: &[String]) -> String {
    let mut text = match random.below(4) {
        0 if !seeds.is_empty() => seeds[random.below(seeds.len())].clone(),
        _ => Generator::template(random.next()),
    };
    // A template of a few thousand bytes finds the same errors as one of a million, a thousand
    // times faster.
    truncate(&mut text, 4_000);
    for _ in 0..random.below(4) {
        damage(&mut text, random);
    }
    text
}

fn damage(text: &mut String, random: &mut Random) {
    let (a, b) = (place(text, random), place(text, random));
    let (from, to) = (a.min(b), a.max(b));
    match random.below(6) {
        0 => text.replace_range(from..to, ""),
        1 => {
            let part = text[from..to].repeat(random.below(300));
            text.insert_str(from, &part);
            truncate(text, 60_000);
        }
        2 => {
            let other = Generator::template(random.next());
            let (start, end) = (place(&other, random), place(&other, random));
            text.replace_range(from..to, &other[start.min(end)..start.max(end)]);
        }
        3 => {
            let bytes: Vec<u8> = (0..random.below(8)).map(|_| random.next() as u8).collect();
            text.insert_str(from, &String::from_utf8_lossy(&bytes));
        }
        4 => {
            let pieces = [
                "{{",
                "}}",
                "{{- ",
                " -}}",
                "(",
                ")",
                "|",
                "$x := ",
                "\"",
                "`",
                "'",
                "\\",
                "%*[3]v",
                "%#+0-9.9x",
                "{{end}}",
                "{{else}}",
                "{{range 9}}",
                "{{define \"a\"}}",
                "{{template \"a\" .}}",
                "{{template \"input\" .}}",
                "9999999999",
                "-9223372036854775808",
                "1e308",
                "0x1p-1074",
                "nil",
                ".nuon",
                "set .nuon.m \"k\" .nuon",
                "toPrettyJson $",
                "print $ $",
                "list $ $",
                "\u{0}",
                "\u{feff}",
                "\u{2028}",
            ];
            text.insert_str(from, pieces[random.below(pieces.len())]);
        }
        _ => {
            let part = text[from..to].to_string();
            let at = place(text, random);
            text.insert_str(at, &part);
        }
    }
}

fn place(text: &str, random: &mut Random) -> usize {
    let mut at = random.below(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn truncate(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}
