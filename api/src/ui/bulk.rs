//! Changes of several installs: their choice, the preview, and the change of each one.
use std::collections::BTreeMap;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use dashboard::pages::{self, BulkItem, BulkPage, BulkResult, BulkVerb, PreviewPage, ResultsPage};
use domain::ids::InstallId;
use schemas::control::{
    apps::DiffQuery,
    installs::{Install, InstallsQuery},
    runs::RunsQuery,
};

use super::{
    change::{FormToken, once},
    changes::PATCH,
    installs::Filters,
    pages::caller_of,
    response::{Form, Page, PageProblem, PageResult, Ui},
};
use crate::{
    auth::sessions::Session,
    extract::{Caller, Query},
    problem::{Code, Problem},
    queries::{apps, installs, min_position, runs as run_queries},
    state::App,
    usecases::{
        installs as changes, reason,
        runners::{self, RunnerControl},
        runs,
    },
};

/// Maximum number of installs that one form changes.
const INSTALLS: usize = 100;

/// Change of several installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Upgrade,
    Retry,
    Drain,
}

impl Verb {
    fn shown(self) -> BulkVerb {
        match self {
            Verb::Upgrade => BulkVerb::Upgrade,
            Verb::Retry => BulkVerb::Retry,
            Verb::Drain => BulkVerb::Drain,
        }
    }

    /// Route of the Control API with the same effect.
    fn route(self) -> (&'static str, &'static str) {
        match self {
            Verb::Upgrade => PATCH,
            Verb::Retry => ("POST", "/v1/runs/{run}/retry"),
            Verb::Drain => ("POST", "/v1/runners/{runner}/drain"),
        }
    }
}

pub(super) async fn choose(
    State(app): State<App>,
    Ui(Query(filters)): Ui<Query<Filters>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, None).await?;
    let limit = u32::try_from(INSTALLS).ok();
    let is_none_selected = filters.select.as_deref() == Some("none");
    let query = InstallsQuery { limit, cursor: None, ..filters.query()? };
    let page = installs::list(&app, &caller, query.clone()).await?;
    let page = BulkPage { query, page, is_none_selected };
    Ok(Page(pages::bulk(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Returns the value of a field that a form has once.
fn field<'f>(fields: &'f [(String, String)], name: &str) -> &'f str {
    fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.trim())
}

fn invalid(detail: &str) -> Problem {
    Problem::new(Code::BadRequest, detail)
}

/// Parses the change of a form. An upgrade without a version moves to the newest one.
fn verb_of(fields: &[(String, String)]) -> Result<(Verb, Option<u32>), Problem> {
    let verb = match field(fields, "do") {
        "upgrade" => Verb::Upgrade,
        "retry" => Verb::Retry,
        "drain" => Verb::Drain,
        _ => return Err(invalid("form rejected: it names no change; choose one")),
    };
    let to = match field(fields, "to") {
        "" => None,
        text => Some(text.trim_start_matches('v').parse().map_err(|_| {
            invalid(
                "form rejected: the version is not a number; type the number of a config version",
            )
        })?),
    };
    Ok((verb, to.filter(|_| verb == Verb::Upgrade)))
}

/// Shows what a change would do to each chosen install.
pub(super) async fn preview(
    State(app): State<App>,
    Ui(Query(fields)): Ui<Query<Vec<(String, String)>>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    let (verb, to) = verb_of(&fields)?;
    caller.authorize(verb.route().0, verb.route().1)?;
    let chosen: Vec<&str> =
        fields.iter().filter(|(name, _)| name == "install").map(|(_, id)| id.as_str()).collect();
    if chosen.is_empty() || chosen.len() > INSTALLS {
        return Err(
            invalid("form rejected: it names no install, or more than 100; choose others").into()
        );
    }
    min_position::wait(&app, None).await?;
    let mut items = Vec::with_capacity(chosen.len());
    for id in chosen {
        let install = installs::get(&app, &caller, id).await?;
        items.push(item(&app, &caller, (verb, to), install).await?);
    }
    let reason = field(&fields, "reason").to_owned();
    let page = PreviewPage { verb: verb.shown(), to, reason, items };
    Ok(Page(pages::bulk_preview(&caller_of(&app, &caller, &session).await?, &page)))
}

async fn item(
    app: &App,
    caller: &Caller,
    (verb, to): (Verb, Option<u32>),
    install: Install,
) -> Result<BulkItem, Problem> {
    let (target, impact) = match verb {
        Verb::Upgrade => upgrade(app, caller, &install, to).await?,
        Verb::Retry => {
            let install = Some(install.id.to_string());
            let query = RunsQuery { install, limit: Some(1), ..RunsQuery::default() };
            let newest = run_queries::list(app, caller, query).await?.items.pop();
            let failed = newest.filter(|run| run.state == "failed");
            (failed.map(|run| run.id.to_string()).ok_or("its newest run did not fail".into()), None)
        }
        Verb::Drain => match (install.runner, install.runner_state.as_deref()) {
            (None, _) => (Err("it has no runner".into()), None),
            (Some(_), Some(state @ ("drained" | "revoked"))) => {
                (Err(format!("its runner is {state}")), None)
            }
            (Some(runner), _) => (Ok(runner.to_string()), None),
        },
    };
    let (name, auto_approve) = (install.name, install.auto_approve);
    Ok(BulkItem { install: install.id.to_string(), name, target, impact, auto_approve })
}

type Planned = (Result<String, String>, Option<schemas::control::apps::Impact>);

async fn upgrade(
    app: &App,
    caller: &Caller,
    install: &Install,
    to: Option<u32>,
) -> Result<Planned, Problem> {
    let of = install.app.to_string();
    let newest = apps::get(app, caller, &of).await?.version;
    let to = to.unwrap_or(newest);
    if to == install.config_version || install.state == "deprovisioned" {
        let why = if to == install.config_version {
            "it already follows the version"
        } else {
            "it is deprovisioned"
        };
        return Ok((Err(why.into()), None));
    }
    if to == 0 || to > newest {
        return Ok((Err(format!("its app has no version {to}")), None));
    }
    let query = DiffQuery {
        from: Some(install.config_version),
        to: Some(to),
        install: Some(install.id.to_string()),
        inputs_of: None,
        min_position: None,
    };
    let impact = apps::diff(app, caller, &of, query).await?.impact.pop();
    let problem = impact.as_ref().and_then(|impact| impact.problem.clone());
    Ok(match problem {
        Some(problem) => (Err(problem), None),
        None => (Ok(format!("{}>{to}", install.config_version)), impact),
    })
}

/// Confirmed change. Field `item.INSTALL` has the values that the preview showed: the versions, the run or the runner.
pub(super) async fn change(
    State(app): State<App>,
    caller: Caller,
    session: Session,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, PageProblem> {
    FormToken::of(field(&fields, "form_token")).check(&session)?;
    let (verb, _) = verb_of(&fields)?;
    let reason = reason::required(field(&fields, "reason"))?;
    let items = items(&fields)?;
    caller.authorize(verb.route().0, verb.route().1)?;
    let mut results = Vec::with_capacity(items.len());
    for (at, (install, target)) in items.iter().enumerate() {
        let key = format!("{}-{at}", field(&fields, "idempotency_key"));
        let content = format!("{install}\n{target}\n{reason}");
        let key = (verb.route(), key.as_str(), content);
        let target = (*install, target.as_str());
        let outcome = change_one(&app, &caller, key, (verb, target, &reason)).await;
        let name = installs::get(&app, &caller, &install.to_string()).await?.name;
        let outcome = outcome.map_err(|problem| problem.detail);
        results.push(BulkResult { install: install.to_string(), name, outcome });
    }
    let frame = caller_of(&app, &caller, &session).await?;
    let page = ResultsPage { verb: verb.shown(), results };
    Ok(Page(pages::bulk_results(&frame, &page)).into_response())
}

/// Installs of a form with the value that each change depends on.
fn items(fields: &[(String, String)]) -> Result<BTreeMap<InstallId, String>, Problem> {
    let named = fields.iter().filter_map(|(field, target)| {
        let install = field.strip_prefix("item.")?;
        Some(install.parse().ok().map(|id: InstallId| (id, target.clone())))
    });
    match named.collect::<Option<BTreeMap<_, _>>>() {
        Some(items) if (1..=INSTALLS).contains(&items.len()) => Ok(items),
        Some(_) | None => Err(invalid(
            "form rejected: it names no install, or an invalid one; open the page again",
        )),
    }
}

type Target<'t> = (Verb, (InstallId, &'t str), &'t str);

/// Changes one install. Returns the run that the change requested.
async fn change_one(
    app: &App,
    caller: &Caller,
    key: ((&str, &str), &str, String),
    (verb, (install, target), reason): Target<'_>,
) -> Result<Option<String>, Problem> {
    let stale = || invalid("form rejected: it names an invalid object; open the page again");
    let reason = Some(reason.to_owned());
    let mut run = None;
    match verb {
        Verb::Upgrade => {
            let versions = target
                .split_once('>')
                .and_then(|(from, to)| from.parse().ok().zip(to.parse().ok()));
            let (from, to): (u32, u32) = versions.ok_or_else(stale)?;
            once(app, caller, key, async |call| {
                let update = changes::Update {
                    config_version: Some(to),
                    compared_version: Some(from),
                    reason: reason.clone(),
                    ..changes::Update::default()
                };
                let done = changes::update(app, call, install, update).await?;
                run = done.value;
                Ok(done)
            })
            .await?;
        }
        Verb::Retry => {
            let failed = target.parse().map_err(|_| stale())?;
            once(app, caller, key, async |call| {
                let done = runs::retry(app, call, failed, reason.clone()).await?;
                run = Some(done.value);
                Ok(done)
            })
            .await?;
        }
        Verb::Drain => {
            let runner = target.parse().map_err(|_| stale())?;
            once(app, caller, key, async |call| {
                runners::apply_control(app, call, runner, RunnerControl::Drain, reason.clone())
                    .await
            })
            .await?;
        }
    }
    Ok(run.map(|run| run.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn form_names_a_change_and_valid_installs() {
        let install = "item.ins_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        assert_eq!(items(&fields(&[(install, "3"), ("other", "x")])).unwrap().len(), 1);
        for invalid in [&[][..], &[("item.run_1", "3")], &[(install, "3"), ("item.", "3")]] {
            assert!(items(&fields(invalid)).is_err(), "{invalid:?}");
        }
        assert_eq!(
            verb_of(&fields(&[("do", "upgrade"), ("to", "v7")])).unwrap(),
            (Verb::Upgrade, Some(7))
        );
        assert_eq!(verb_of(&fields(&[("do", "drain"), ("to", "7")])).unwrap(), (Verb::Drain, None));
        for invalid in [&[][..], &[("do", "destroy")], &[("do", "upgrade"), ("to", "x")]] {
            assert!(verb_of(&fields(invalid)).is_err(), "{invalid:?}");
        }
    }
}
