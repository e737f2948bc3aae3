//! Counters and gauges of this process, as Prometheus reads them. Names end in their unit.
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    panic::AssertUnwindSafe,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use futures::FutureExt as _;

use crate::{
    listen::Aside,
    router::{headers, panicked},
    state::App,
};

/// Upper bounds of the request durations, seconds.
const BOUNDS: [f64; 9] = [0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 60.0];

/// What is counted. Cheap enough for every call; not for every row.
#[derive(Default)]
pub struct Metrics(Mutex<BTreeMap<&'static str, Family>>);

/// Samples by their labels, as they are written between the braces.
enum Family {
    Counter(BTreeMap<String, f64>),
    Gauge(BTreeMap<String, f64>),
    Histogram(BTreeMap<String, Histogram>),
}

/// How many took so long, each counted once: in the first bucket that it fits into.
#[derive(Default)]
struct Histogram {
    buckets: [u64; BOUNDS.len()],
    longer: u64,
    seconds: f64,
}

impl Metrics {
    /// Add one to a counter with these labels.
    pub fn count(&self, name: &'static str, labels: &[(&str, &str)]) {
        self.add(name, labels, 1.0);
    }

    /// Add to a counter with these labels.
    pub fn add(&self, name: &'static str, labels: &[(&str, &str)], by: f64) {
        let labels = text_of(labels);
        let mut families = self.families();
        let family = families.entry(name).or_insert_with(|| Family::Counter(BTreeMap::new()));
        match family {
            Family::Counter(samples) => *samples.entry(labels).or_default() += by,
            Family::Gauge(_) | Family::Histogram(_) => {
                debug_assert!(false, "{name} is of another kind")
            }
        }
    }

    /// Set a gauge.
    pub fn set(&self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        let labels = text_of(labels);
        let mut families = self.families();
        let family = families.entry(name).or_insert_with(|| Family::Gauge(BTreeMap::new()));
        match family {
            Family::Gauge(samples) => drop(samples.insert(labels, value)),
            Family::Counter(_) | Family::Histogram(_) => {
                debug_assert!(false, "{name} is of another kind")
            }
        }
    }

    /// Count one duration in buckets; the name ends in `_seconds`.
    pub fn observe(&self, name: &'static str, labels: &[(&str, &str)], took: Duration) {
        let (labels, seconds) = (text_of(labels), took.as_secs_f64());
        let mut families = self.families();
        let family = families.entry(name).or_insert_with(|| Family::Histogram(BTreeMap::new()));
        let histogram = match family {
            Family::Histogram(samples) => samples.entry(labels).or_default(),
            Family::Counter(_) | Family::Gauge(_) => {
                return debug_assert!(false, "{name} is of another kind");
            }
        };
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound);
        *bucket.map_or(&mut histogram.longer, |at| &mut histogram.buckets[at]) += 1;
        histogram.seconds += seconds;
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<&'static str, Family>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything, in the text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in self.families().iter() {
            let kind = match family {
                Family::Counter(_) => "counter",
                Family::Gauge(_) => "gauge",
                Family::Histogram(_) => "histogram",
            };
            let _ = writeln!(text, "# TYPE {name} {kind}");
            match family {
                Family::Counter(samples) | Family::Gauge(samples) => {
                    for (labels, value) in samples {
                        let _ = writeln!(text, "{name}{} {value}", braced(labels));
                    }
                }
                Family::Histogram(samples) => {
                    for (labels, histogram) in samples {
                        histogram.write(&mut text, name, labels);
                    }
                }
            }
        }
        text
    }
}

impl Histogram {
    /// Buckets count what is in the smaller ones, too.
    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut count = 0;
        for (bound, number) in BOUNDS.iter().zip(self.buckets) {
            count += number;
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
        }
        count += self.longer;
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let labels = braced(labels);
        let _ = writeln!(text, "{name}_sum{labels} {}", self.seconds);
        let _ = writeln!(text, "{name}_count{labels} {count}");
    }
}

fn braced(labels: &str) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
}

fn text_of(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (key, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
        let _ = write!(text, "{comma}{key}=\"{value}\"");
    }
    text
}

/// Counts every call by route, method and status, and adds the headers that every response has.
pub async fn measure(
    State((app, https)): State<(App, bool)>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_string());
    let route = route.unwrap_or_else(|| "none".into());
    let method = request.method().clone();
    let (started, aside) = (Instant::now(), request.extensions().get::<Aside>().cloned());
    let counted = move |response: Response| {
        let status = response.status();
        let labels = [("route", route.as_str()), ("method", method.as_str())];
        app.metrics.observe("stead_http_request_duration_seconds", &labels, started.elapsed());
        let labels = [labels[0], labels[1], ("status", status.as_str())];
        app.metrics.count("stead_http_requests_total", &labels);
        headers::secure(response, https)
    };
    let response = next.run(request).await;
    // What was put aside is over when its answer comes.
    match aside.and_then(|aside| Some((aside.take()?, aside))) {
        Some((later, aside)) => {
            // Nothing is around it any more that would catch a panic.
            let answered = AssertUnwindSafe(later).catch_unwind();
            let answered = answered.map(|answer| answer.unwrap_or_else(panicked));
            aside.put(answered.map(counted).boxed())
        }
        None => counted(response),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Texts that begin like a metric and name something else.
    const OTHERS: [&str; 7] = [
        "stead_app",
        "stead_owner",
        "stead_enrol_",
        "stead_enrol_x",
        "stead_none",
        "stead_nothing",
        "stead_",
    ];

    fn named_in(path: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                named_in(&path, found);
                continue;
            }
            let is_test = path.components().any(|part| {
                let name = part.as_os_str().to_string_lossy();
                ["tests", "tests.rs", "testing.rs"].contains(&&*name)
            });
            if is_test || path.extension().is_none_or(|is| is != "rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
            for (at, _) in code.match_indices("\"stead_") {
                let name = code[at + 1..].split('"').next().unwrap();
                let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                if is_name && !OTHERS.contains(&name) {
                    found.insert(name.to_owned());
                }
            }
        }
    }

    #[test]
    fn every_metric_is_documented_with_an_alert() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = BTreeSet::new();
        named_in(&root.join("src"), &mut found);
        assert!(found.contains("stead_runs_failed_total"), "{found:?}");
        let docs = fs::read_to_string(root.join("../docs/operations.md")).unwrap();
        for metric in &found {
            let row = docs.lines().find(|line| {
                let rest = line.strip_prefix(&format!("| `{metric}"));
                rest.is_some_and(|rest| rest.starts_with(['`', '{']))
            });
            let row = row.unwrap_or_else(|| panic!("docs/operations.md has no row of {metric}"));
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!(cells.len(), 3, "name, meaning and alert: {row}");
            assert!(cells[2].contains(metric.as_str()), "an alert in PromQL: {row}");
        }
        for row in docs.lines().filter(|line| line.starts_with("| `stead_")) {
            let name = row.split('`').nth(1).unwrap().split('{').next().unwrap();
            assert!(found.contains(name), "{name} is documented and does not exist");
        }
    }

    #[test]
    fn no_log_line_has_the_debug_form_of_a_value() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut pending: Vec<_> = ["api", "event-log", "projections", "runner-agent"]
            .map(|name| root.join(name).join("src"))
            .into();
        let mut seen = 0;
        while let Some(path) = pending.pop() {
            if path.is_dir() {
                pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            for level in ["info!(", "warn!(", "error!("] {
                for (at, _) in text.match_indices(level) {
                    let call = text[at..].split(");").next().unwrap();
                    seen += 1;
                    let is_debug = call.contains(":?}") || call.contains("= ?");
                    assert!(!is_debug, "{}: {call}", path.display());
                }
            }
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn what_was_counted_is_written_as_prometheus_reads_it() {
        let metrics = Metrics::default();
        metrics.count("stead_claims_total", &[("outcome", "a\"b")]);
        metrics.count("stead_claims_total", &[("outcome", "a\"b")]);
        metrics.set("stead_runners_parked", &[], 3.0);
        metrics.observe("stead_x_seconds", &[], Duration::from_millis(30));
        metrics.observe("stead_x_seconds", &[], Duration::from_secs(100));
        metrics.observe("stead_y_seconds", &[("route", "/")], Duration::from_secs(1));
        let text = metrics.text();
        assert!(text.contains("# TYPE stead_claims_total counter\n"), "{text}");
        assert!(text.contains("stead_claims_total{outcome=\"a\\\"b\"} 2\n"), "{text}");
        assert!(text.contains("stead_runners_parked 3\n"), "{text}");
        assert!(text.contains("stead_x_seconds_bucket{le=\"0.1\"} 1\n"), "{text}");
        assert!(text.contains("stead_x_seconds_bucket{le=\"0.025\"} 0\n"), "{text}");
        assert!(text.contains("stead_x_seconds_bucket{le=\"60\"} 1\n"), "{text}");
        assert!(text.contains("stead_x_seconds_bucket{le=\"+Inf\"} 2\n"), "{text}");
        assert!(text.contains("stead_x_seconds_count 2\n"), "{text}");
        assert!(text.contains("stead_x_seconds_sum 100.03\n"), "{text}");
        assert!(text.contains("stead_y_seconds_bucket{route=\"/\",le=\"1\"} 1\n"), "{text}");
        assert!(text.contains("stead_y_seconds_bucket{route=\"/\",le=\"0.25\"} 0\n"), "{text}");
        let at = |le| text.find(&format!("stead_x_seconds_bucket{{le=\"{le}\"}}"));
        assert!(at("0.025") < at("0.1") && at("0.1") < at("+Inf"), "{text}");
    }
}
