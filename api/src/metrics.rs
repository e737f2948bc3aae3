//! Counters and gauges of this process, as Prometheus reads them. Names end in their unit.
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    panic::AssertUnwindSafe,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use futures::FutureExt as _;

use crate::{listen::Aside, router::panicked, state::App};

/// Upper bounds of the request durations, seconds.
const BOUNDS: [f64; 9] = [0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 60.0];

/// What is counted. Cheap enough for every call; not for every row.
#[derive(Default)]
pub struct Metrics(Mutex<BTreeMap<&'static str, Family>>);

struct Family {
    kind: Kind,
    samples: BTreeMap<String, f64>,
}

/// What Prometheus is told that a name is.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

impl Metrics {
    /// Add one to a counter with these labels.
    pub fn count(&self, name: &'static str, labels: &[(&str, &str)]) {
        self.add(name, labels, 1.0);
    }

    /// Add to a counter with these labels.
    pub fn add(&self, name: &'static str, labels: &[(&str, &str)], by: f64) {
        let key = text_of(labels);
        self.change(name, Kind::Counter, |samples| *samples.entry(key).or_default() += by);
    }

    /// Set a gauge.
    pub fn set(&self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        let key = text_of(labels);
        self.change(name, Kind::Gauge, |samples| {
            samples.insert(key, value);
        });
    }

    /// Count one duration in buckets; the name ends in `_seconds`.
    pub fn observe(&self, name: &'static str, labels: &[(&str, &str)], took: Duration) {
        let seconds = took.as_secs_f64();
        let plain = text_of(labels);
        self.change(name, Kind::Histogram, |samples| {
            for bound in BOUNDS {
                let add = if seconds <= bound { 1.0 } else { 0.0 };
                *samples.entry(bucket(labels, &bound.to_string())).or_default() += add;
            }
            *samples.entry(bucket(labels, "+Inf")).or_default() += 1.0;
            *samples.entry(format!("_sum{plain}")).or_default() += seconds;
            *samples.entry(format!("_count{plain}")).or_default() += 1.0;
        });
    }

    fn change(&self, name: &'static str, kind: Kind, how: impl FnOnce(&mut BTreeMap<String, f64>)) {
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let family =
            families.entry(name).or_insert_with(|| Family { kind, samples: BTreeMap::new() });
        how(&mut family.samples);
    }

    /// Everything, in the text format.
    pub fn text(&self) -> String {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for (name, family) in families.iter() {
            let _ = writeln!(text, "# TYPE {name} {}", family.kind.word());
            let mut samples: Vec<_> = family.samples.iter().collect();
            samples.sort_by(|(one, _), (other, _)| {
                let (one, other) = (bound(one), bound(other));
                one.0.cmp(other.0).then(one.1.total_cmp(&other.1))
            });
            for (labels, value) in samples {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        }
        text
    }
}

/// What a bucket counts up to, which is its last label: as text, 10 would come before 2.
fn bound(labels: &str) -> (&str, f64) {
    match labels.rsplit_once("le=\"") {
        Some((rest, bound)) => {
            (rest, bound.trim_end_matches("\"}").parse().unwrap_or(f64::INFINITY))
        }
        None => (labels, 0.0),
    }
}

fn bucket(labels: &[(&str, &str)], bound: &str) -> String {
    let mut labels = labels.to_vec();
    labels.push(("le", bound));
    format!("_bucket{}", text_of(&labels))
}

fn text_of(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let quoted = labels.iter().map(|(key, value)| {
        format!("{key}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " "))
    });
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}

/// Counts every call by route, method and status.
pub async fn measure(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_string());
    let route = route.unwrap_or_else(|| "none".into());
    let method = request.method().clone();
    let (started, aside) = (Instant::now(), request.extensions().get::<Aside>().cloned());
    let counted = move |response: Response| {
        let status = response.status();
        let labels = [("route", route.as_str()), ("method", method.as_str())];
        app.metrics.observe("stead_http_request_seconds", &labels, started.elapsed());
        let labels = [labels[0], labels[1], ("status", status.as_str())];
        app.metrics.count("stead_http_requests_total", &labels);
        response
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
    use super::*;

    #[test]
    fn what_was_counted_is_written_as_prometheus_reads_it() {
        let metrics = Metrics::default();
        metrics.count("stead_claims_total", &[("outcome", "a\"b")]);
        metrics.count("stead_claims_total", &[("outcome", "a\"b")]);
        metrics.set("stead_runners_parked", &[], 3.0);
        metrics.observe("stead_x_seconds", &[], Duration::from_millis(30));
        let text = metrics.text();
        assert!(text.contains("# TYPE stead_claims_total counter\n"), "{text}");
        assert!(text.contains("stead_claims_total{outcome=\"a\\\"b\"} 2\n"), "{text}");
        assert!(text.contains("stead_runners_parked 3\n"), "{text}");
        assert!(text.contains("stead_x_seconds_bucket{le=\"0.1\"} 1\n"), "{text}");
        assert!(text.contains("stead_x_seconds_bucket{le=\"0.025\"} 0\n"), "{text}");
        assert!(text.contains("stead_x_seconds_count 1\n"), "{text}");
        let at = |le| text.find(&format!("stead_x_seconds_bucket{{le=\"{le}\"}}"));
        assert!(at("0.025") < at("0.1") && at("0.1") < at("+Inf"), "{text}");
    }
}
