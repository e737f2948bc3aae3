//! Validates list filters. An unknown value is an error, because an empty list would look like a
//! valid result.
use std::fmt::Display;

use domain::{
    access::Access,
    actor::Actor,
    app::App as AppState,
    decider::Decider,
    ids::{AppId, InstallId, RunId},
    install::Install,
    policy::POLICIES,
    run::Run,
    runner::Runner,
};
use event_log::StreamId;

use crate::{
    problem::{Code, Problem},
    state::App,
    usecases::{apps, installs},
};

/// Timers that can be the actor of an event.
const TIMERS: [&str; 3] = ["approval_expiry", "auto_retry", "liveness"];
/// All event types, one per line.
const EVENT_TYPES: &str = include_str!("../../../schemas/event-types.txt");

/// Checks a value against the allowed values of a filter.
pub(super) fn one_of(filter: &str, value: Option<&str>, allowed: &[&str]) -> Result<(), Problem> {
    match value {
        Some(value) if !allowed.contains(&value) => Err(unknown(filter, value, allowed)),
        Some(_) | None => Ok(()),
    }
}

fn unknown(filter: &str, value: &str, allowed: &[&str]) -> Problem {
    let detail = format!(
        "invalid filter `{filter}`: {value:?} does not exist; use one of: {}",
        allowed.join(", ")
    );
    Problem::new(Code::BadRequest, detail)
}

/// Resolves the name or id of an install.
pub(super) async fn install(app: &App, name: &str) -> Result<InstallId, Problem> {
    let id = installs::find(app, name).await?;
    exists::<Install>(app, id).await?;
    Ok(id)
}

/// Resolves the name or id of an app.
pub(super) async fn app(app: &App, name: &str) -> Result<AppId, Problem> {
    let id = apps::find(app, name).await?;
    exists::<AppState>(app, id).await?;
    Ok(id)
}

/// Checks that a run exists.
pub(super) async fn run(app: &App, id: RunId) -> Result<(), Problem> {
    exists::<Run>(app, id).await
}

/// Checks that the actor of a filter exists.
pub(super) async fn actor(app: &App, text: &str) -> Result<(), Problem> {
    let actor: Actor = text.parse().map_err(|error| {
        Problem::new(Code::BadRequest, format!("invalid filter `actor`: {error}"))
    })?;
    match actor {
        Actor::Principal(id) => exists::<Access>(app, id).await,
        Actor::Runner(id) => exists::<Runner>(app, id).await,
        Actor::Policy(name) => {
            let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
            one_of("actor", Some(&name), &names)
        }
        Actor::Timer(name) => one_of("actor", Some(&name), &TIMERS),
        Actor::System => Ok(()),
    }
}

/// Checks an event type, or a prefix that ends with a dot.
pub(super) fn event_type(value: &str) -> Result<(), Problem> {
    let all: Vec<&str> = EVENT_TYPES.lines().collect();
    let is_known = match value.strip_suffix('.') {
        Some(kind) => all.iter().any(|known| known.split('.').next() == Some(kind)),
        None => all.contains(&value),
    };
    if is_known {
        return Ok(());
    }
    let kind = value.split('.').next().unwrap_or_default();
    let near: Vec<&str> =
        all.iter().copied().filter(|known| known.split('.').next() == Some(kind)).collect();
    Err(match near.is_empty() {
        true => {
            let mut kinds: Vec<String> = all
                .iter()
                .filter_map(|known| known.split('.').next())
                .map(|kind| format!("{kind}."))
                .collect();
            kinds.dedup();
            unknown("type", value, &kinds.iter().map(String::as_str).collect::<Vec<_>>())
        }
        false => unknown("type", value, &near),
    })
}

/// Checks that the log has this stream. Reads the database, because another server may have written
/// it.
async fn exists<D: Decider>(app: &App, id: impl Display) -> Result<(), Problem> {
    match app.log().version(&StreamId::of::<D>(id.to_string())).await? {
        0 => Err(Problem::not_found(id)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use domain::testing::golden;

    use super::*;

    #[test]
    fn event_type_list_is_complete() {
        let events = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/events"));
        let names: BTreeSet<String> = events
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap() + "\n")
            .collect();
        golden("event-types.txt", &names.into_iter().collect::<String>());
        assert!(event_type("run.approved").is_ok() && event_type("run.").is_ok());
        let message = event_type("run.aproved").unwrap_err().detail;
        assert!(message.contains("run.aproved") && message.contains("run.approved"), "{message}");
        let message = event_type("rum.approved").unwrap_err().detail;
        assert!(message.contains("run.") && !message.contains("run.approved"), "{message}");
    }

    fn sources(dir: &Path) -> Vec<PathBuf> {
        let all = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        all.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn timer_list_is_complete() {
        let mut timers = BTreeSet::new();
        for path in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/reactions"))) {
            let text = fs::read_to_string(path).unwrap();
            let after = text.split("Actor::Timer(\"").skip(1);
            timers.extend(after.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
        assert_eq!(timers, TIMERS.map(str::to_owned).into());
    }
}
