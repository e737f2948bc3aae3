//! Measures snapshots: the state of an install after 100,000 events, encoded as a snapshot
//! and as JSON.
//!
//!     cargo bench -p event-log --bench snapshot -- --events 100000
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark that fails has no result")]
use std::{fs, hint::black_box, path::Path, time::Instant};

use domain::{
    decider::Decider,
    install::{Install, InstallEvent},
};
use event_log::{StreamId, snapshot};
use serde_json::{Value, json};

/// Number of repetitions, of which the median counts.
const ROUNDS: usize = 2_001;
/// Number of components of the install.
const COMPONENTS: u64 = 40;

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--events").skip(1);
    let events = arguments.next().and_then(|value| value.parse().ok()).unwrap_or(100_000);
    let events_of_install = story(events);
    let began = Instant::now();
    let mut install = Install::default();
    events_of_install.into_iter().for_each(|event| install.evolve(event));
    let folded = began.elapsed().as_secs_f64() * 1e3;
    let (stream, version) = (StreamId::new("install", "ins_1"), events);
    let encoded = snapshot::encode(&stream, version, &install).unwrap();
    let json = serde_json::to_vec(&install).unwrap();
    assert_eq!(snapshot::decode::<Install>(&stream, version, &encoded).unwrap(), install);
    println!(
        "an install of {events} events and {COMPONENTS} components, computed in {folded:.0} ms"
    );
    println!("| encoding | bytes | encoded in µs | decoded in µs |");
    println!("|---|---|---|---|");
    let write = median(|| drop(black_box(snapshot::encode(&stream, version, black_box(&install)))));
    let read = median(|| {
        drop(black_box(snapshot::decode::<Install>(&stream, version, black_box(&encoded))))
    });
    println!("| bincode after a digest | {} | {write:.1} | {read:.1} |", encoded.len());
    let write = median(|| drop(black_box(serde_json::to_vec(black_box(&install)))));
    let read = median(|| drop(black_box(serde_json::from_slice::<Install>(black_box(&json)))));
    println!("| JSON | {} | {write:.1} | {read:.1} |", json.len());
}

fn median(mut once: impl FnMut()) -> f64 {
    let mut took: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            once();
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[ROUNDS / 2]
}

/// Returns events that deploy each component in turn, repeatedly, with outputs.
fn story(events: u64) -> Vec<InstallEvent> {
    let example = |name: &str| -> Value {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/events").join(name);
        serde_json::from_str(&fs::read_to_string(directory.join("1.example.json")).unwrap())
            .unwrap()
    };
    let created = example("install.created");
    let [reserved, deployed] =
        ["install.component_reserved", "install.component_deployed"].map(example);
    let next = |number: u64| {
        let (round, is_deployed) = (number / 2, number % 2 == 1);
        let name = format!("component-{}", round % COMPONENTS);
        let mut event = if is_deployed { deployed.clone() } else { reserved.clone() };
        event["name"] = json!(name);
        if is_deployed {
            event["outputs"] = json!({"url": format!("https://{name}.example.com/{round}"),
                "id": round, "zones": ["a", "b", "c"], "ready": true});
        }
        event
    };
    let all = [created].into_iter().chain((1..events).map(next));
    all.map(|event| serde_json::from_value(event).unwrap()).collect()
}
