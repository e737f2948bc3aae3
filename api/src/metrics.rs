//! Metrics of this process, for Prometheus.
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, text},
    metrics::{
        MetricType, TypedMetric, counter::Counter, family::Family, gauge, histogram::Histogram,
    },
    registry::{Metric, Registry},
};

/// Media type of [`Metrics::text`].
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets of request durations, in seconds.
const BOUNDS: [f64; 9] = [0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 60.0];

/// Gauge with a value in seconds.
type Seconds = gauge::Gauge<f64, AtomicU64>;

/// Gauge without a sample until it is first set, so that an unknown value is not exposed as 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauge(Arc<OnceLock<AtomicU64>>);

impl Gauge {
    pub(crate) fn set(&self, value: u64) {
        self.0.get_or_init(AtomicU64::default).store(value, Ordering::Relaxed);
    }

    /// Value, if it is set.
    pub(crate) fn get(&self) -> Option<u64> {
        self.0.get().map(|value| value.load(Ordering::Relaxed))
    }
}

impl TypedMetric for Gauge {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for Gauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.get().map_or(Ok(()), |value| encoder.encode_gauge(&value))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }

    fn is_empty(&self) -> bool {
        self.get().is_none()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RunLabels {
    pub kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TaskLabels {
    pub task: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AppLabels {
    pub app: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UploadLabels {
    /// Quota that was used up: `execution` or `runner`.
    pub limit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WebhookLabels {
    /// Result of the attempt: `delivered` or `failed`.
    pub result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    route: String,
    method: String,
    status: u16,
}

macro_rules! metrics {
    ($($field:ident: $kind:ty = $name:literal, $help:literal;)*) => {
        /// Metrics of this process. An update is cheap enough for every request, but not for every
        /// row.
        #[derive(Debug)]
        pub(crate) struct Metrics {
            registry: Registry,
            $(#[doc = $help] pub(crate) $field: $kind,)*
            http_requests: Family<ResponseLabels, Counter>,
            http_request_duration: Family<RequestLabels, Histogram>,
        }

        /// Names in the registry. `true` marks a counter.
        #[cfg(test)]
        const NAMES: &[(&str, bool)] = &[
            ("http_requests", true),
            ("http_request_duration_seconds", false),
            $(($name, matches!(<$kind as TypedMetric>::TYPE, MetricType::Counter)),)*
        ];

        impl Default for Metrics {
            fn default() -> Self {
                let mut registry = Registry::with_prefix("stead");
                $(let $field: $kind = register(&mut registry, $name, $help);)*
                let http_requests = register(&mut registry, "http_requests", "Responses");
                let http_request_duration = Family::new_with_constructor(duration as fn() -> _);
                let (name, help) = ("http_request_duration_seconds", "Duration of requests");
                registry.register(name, help, http_request_duration.clone());
                Metrics { registry, $($field,)* http_requests, http_request_duration }
            }
        }
    };
}

// The exposition appends `_total` to the names of counters.
metrics! {
    runs_failed: Family<RunLabels, Counter> = "runs_failed",
        "Failed runs, by kind; counted by the server that runs the policies";
    approvals_waiting: Gauge = "approvals_waiting", "Plans that wait for an approval";
    approvals_oldest: Seconds = "approvals_oldest_seconds",
        "Time since the oldest pending approval was requested";
    runners_disconnected: Gauge = "runners_disconnected",
        "Runners that are disconnected, although they were neither stopped nor revoked";
    runner_sessions: Gauge = "runner_sessions", "Runners with a session on this server";
    runner_long_polls: Gauge = "runner_long_polls", "Long polls that wait on this server";
    jobs_queued: Gauge = "jobs_queued", "Jobs that wait for a runner";
    jobs_claimed: Gauge = "jobs_claimed", "Jobs that runners have claimed";
    log_position: Gauge = "log_position", "Last position of the log";
    projections_position: Gauge = "projections_position",
        "Position that the projections of this server have reached";
    policies_position: Gauge = "policies_position", "Position that the policies have reached";
    policies_dead_letters: Gauge = "policies_dead_letters", "Events that a policy cannot process";
    checkpoint_position: Gauge = "checkpoint_position", "Size of the newest published checkpoint";
    log_verified_position: Gauge = "log_verified_position",
        "Position up to which this server has verified the log";
    log_corrupt_position: Gauge = "log_corrupt_position",
        "Position of the first difference that the verification of the log found; 0: none";
    log_forged_position: Gauge = "log_forged_position",
        "Position of the first report that its runner did not sign; 0: none";
    log_unsigned_results: Gauge = "log_unsigned_results",
        "Results of jobs without a signature of a runner";
    log_read_age: Seconds = "log_read_age_seconds", "Time since this server last read the log";
    callers_unreadable: Gauge = "callers_unreadable",
        "Principals and runners that this server rejects because it cannot read one of their events";
    task_failures: Family<TaskLabels, Counter> = "task_failures",
        "Panics and unexpected ends of background tasks";
    artifacts_bytes: Family<AppLabels, Gauge> = "artifacts_bytes",
        "Bytes of the artifacts of each app in the data directory, measured every hour";
    uploads_bytes: Gauge = "uploads_bytes", "Bytes of runners' uploads that no report references yet";
    uploads_refused: Family<UploadLabels, Counter> = "uploads_refused",
        "Uploads rejected because of a quota";
    webhook_attempts: Family<WebhookLabels, Counter> = "webhook_attempts",
        "Attempts to send a message to a webhook";
    uploads_collected: Counter = "uploads_collected", "Deleted uploads that no report had referenced";
    database_connections: Gauge = "database_connections",
        "Open connections of this server to the database";
    database_connections_idle: Gauge = "database_connections_idle", "Idle connections of this server to the database";
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn duration() -> Histogram {
    Histogram::new(BOUNDS)
}

impl Metrics {
    /// All metrics in the OpenMetrics text format.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    /// Counts a response by route, method and status, and records its duration by route and method.
    pub(crate) fn observe_request(
        &self,
        route: String,
        method: String,
        status: u16,
        took: Duration,
    ) {
        let request = RequestLabels { route: route.clone(), method: method.clone() };
        self.http_request_duration.get_or_create(&request).observe(took.as_secs_f64());
        self.http_requests.get_or_create(&ResponseLabels { route, method, status }).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_metric_is_documented_with_an_alert() {
        let exposed = |(name, is_counter): &(&str, bool)| match is_counter {
            true => format!("stead_{name}_total"),
            false => format!("stead_{name}"),
        };
        let exposed: BTreeSet<String> = NAMES.iter().map(exposed).collect();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let docs = fs::read_to_string(root.join("../docs/operations.md")).unwrap();
        for metric in &exposed {
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
            assert!(exposed.contains(name), "{name} is documented and does not exist");
        }
    }

    #[test]
    fn log_lines_contain_no_debug_output() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut pending: Vec<_> =
            ["api", "cli", "stead", "event-log", "projections", "runner-agent"]
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
    fn gauge_has_no_sample_until_it_is_set() {
        let metrics = Metrics::default();
        assert!(!metrics.text().contains("stead_log_verified_position"), "{}", metrics.text());
        metrics.log_verified_position.set(0);
        assert!(metrics.text().contains("\nstead_log_verified_position 0\n"), "{}", metrics.text());
    }

    #[test]
    fn exposition_contains_types_labels_and_buckets() {
        let metrics = Metrics::default();
        let failed = RunLabels { kind: "a\"b".into() };
        metrics.runs_failed.get_or_create(&failed).inc();
        metrics.runs_failed.get_or_create(&failed).inc();
        metrics.runner_long_polls.set(3);
        metrics.approvals_oldest.set(0.5);
        let request = RequestLabels { route: "/".into(), method: "GET".into() };
        metrics.http_request_duration.get_or_create(&request).observe(0.03);
        metrics.http_request_duration.get_or_create(&request).observe(100.0);
        let text = metrics.text();
        let duration = "stead_http_request_duration_seconds";
        let labels = r#"route="/",method="GET""#;
        for line in [
            "# TYPE stead_runs_failed counter".into(),
            r#"stead_runs_failed_total{kind="a\"b"} 2"#.into(),
            "# HELP stead_runner_long_polls Long polls that wait on this server.".into(),
            "# TYPE stead_runner_long_polls gauge".into(),
            "stead_runner_long_polls 3".into(),
            "stead_approvals_oldest_seconds 0.5".into(),
            format!("# TYPE {duration} histogram"),
            format!("{duration}_bucket{{le=\"0.025\",{labels}}} 0"),
            format!("{duration}_bucket{{le=\"0.1\",{labels}}} 1"),
            format!("{duration}_bucket{{le=\"60.0\",{labels}}} 1"),
            format!("{duration}_bucket{{le=\"+Inf\",{labels}}} 2"),
            format!("{duration}_count{{{labels}}} 2"),
            format!("{duration}_sum{{{labels}}} 100.03"),
        ] {
            assert!(text.lines().any(|output_line| output_line == line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
