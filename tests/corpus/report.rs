//! Result of one app, and the progress to it.
use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    journey::{Place, travel},
    rules::Rules,
    session::{Failure, short},
};

/// Steps so far, each with its start.
#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    steps: RefCell<Vec<(&'static str, Instant)>>,
}

impl Progress {
    fn start() -> Progress {
        Progress { started: Instant::now(), steps: RefCell::default() }
    }

    /// Begins the next step.
    pub(crate) fn begin(&self, step: &'static str) {
        self.note(step);
        self.steps.borrow_mut().push((step, Instant::now()));
    }

    /// Prints a line with the time.
    pub(crate) fn note(&self, text: &str) {
        eprintln!("[{:5.1} s] {text}", self.started.elapsed().as_secs_f64());
    }

    pub(crate) fn deadline(&self, timeout: Duration) -> Instant {
        self.started + timeout
    }

    fn current(&self) -> &'static str {
        self.steps.borrow().last().map_or("start", |(step, _)| step)
    }

    /// Returns the duration of each step, in seconds.
    fn durations(&self) -> Vec<(&'static str, f64)> {
        let steps = self.steps.borrow();
        let ends = steps.iter().skip(1).map(|(_, start)| *start).chain([Instant::now()]);
        let duration = |((step, start), end): (&(&'static str, Instant), Instant)| {
            (*step, (end - *start).as_secs_f64())
        };
        steps.iter().zip(ends).map(duration).collect()
    }
}

/// Runs the lifecycle of one app, and returns its report.
pub(crate) fn of_app(place: &Place) -> Value {
    let (rules, progress) = (Rules::load(&place.work), Progress::start());
    let result = catch_unwind(AssertUnwindSafe(|| travel(place, &rules, &progress)));
    let result = result.unwrap_or_else(|panic| Err(Failure::new(short(&message(&*panic)))));
    let (result, detail) = match result {
        Ok(()) => ("up", String::new()),
        Err(Failure(reasons)) => {
            let waits = reasons.iter().map(|reason| rules.waits_for(reason));
            match waits.collect::<Option<std::collections::BTreeSet<_>>>() {
                Some(waits) if !waits.is_empty() => {
                    ("waits", waits.into_iter().collect::<Vec<_>>().join(", "))
                }
                _ => ("failed", format!("{}: {}", progress.current(), reasons.join("; "))),
            }
        }
    };
    json!({
        "app": place.app.file_name().unwrap().to_string_lossy(),
        "result": result,
        "detail": detail,
        "substitutions": rules.used(),
        "seconds": progress.started.elapsed().as_secs_f64(),
        "steps": progress.durations(),
    })
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
