//! Body of the message about an event. It names objects and links to the dashboard, and contains no
//! values of a customer.
use domain::{
    app::App as AppState,
    ids::{InstallId, RunId},
    install::Install,
    job::{Job, Origin},
    run::{Run, Target},
    runner::Runner,
    webhook::{About, Format, Notice, Topic},
};
use projections::event::decode;
use serde_json::{Map, Value, json};

use crate::{problem::Problem, state::App, webhooks::Message};

/// Facts of a message.
struct Facts {
    data: Map<String, Value>,
    /// Names of the objects for a text.
    subject: String,
    /// Path of the dashboard's page.
    page: String,
}

/// Builds the message about the event at a position.
pub(super) async fn build(app: &App, position: u64, format: Format) -> Result<Message, Problem> {
    let missing = || Problem::internal(format!("the event at position {position} has no topic"));
    let stored = app.log().event(position).await?.ok_or_else(missing)?;
    let event = decode(&stored)?.pop().ok_or_else(missing)?;
    let (topic, facts) = match Notice::of(&event.domain_event).ok_or_else(missing)? {
        Notice::Of(topic, about) => (topic, about_object(app, about).await?),
        Notice::Finished(run, outcome) => {
            let state = app.log().reload::<Run>(&run.to_string()).await?.state;
            let topic = Notice::of_finished(&state, outcome).ok_or_else(missing)?;
            let mut facts = of_run(app, run, &state).await?;
            facts.data.insert("outcome".into(), json!(outcome));
            (topic, facts)
        }
    };
    let url = format!("{}{}", app.config.control_url, facts.page);
    let body = match format {
        Format::Standard => {
            let mut data = facts.data;
            data.insert("position".into(), position.into());
            data.insert("url".into(), url.into());
            json!({ "type": topic, "timestamp": event.at, "data": data })
        }
        Format::Slack => {
            let text = format!("{}: <{}|{}>", title(topic), url, escaped(&facts.subject));
            json!({ "text": text })
        }
    };
    Ok(Message { id: format!("evt_{}", stored.event_id), body: body.to_string() })
}

async fn about_object(app: &App, about: About) -> Result<Facts, Problem> {
    match about {
        About::Step(run, step) => {
            let state = app.log().reload::<Run>(&run.to_string()).await?.state;
            let mut facts = of_run(app, run, &state).await?;
            facts.data.insert("step".into(), json!(step));
            let found = state.steps.iter().find(|found| found.spec.step == step);
            let name = match found.map(|found| &found.spec.target) {
                Some(Target::Sandbox { .. }) => Some(("component", "sandbox")),
                Some(Target::Component { name, .. }) => Some(("component", name.as_str())),
                Some(Target::Action { name }) => Some(("action", name.as_str())),
                None => None,
            };
            if let Some((key, name)) = name {
                facts.data.insert(key.into(), name.into());
                facts.subject = format!("{name} in {}", facts.subject);
            }
            Ok(facts)
        }
        About::Job(job) => {
            let state = app.engine.load::<Job>(job).await?;
            let run = state.work.and_then(|work| match work.origin {
                Origin::Preflight { run, .. } | Origin::Step { run, .. } => Some(run),
                Origin::Build { .. } | Origin::Source { .. } => None,
            });
            let mut facts = match run {
                Some(run) => {
                    let state = app.log().reload::<Run>(&run.to_string()).await?.state;
                    of_run(app, run, &state).await?
                }
                None => Facts { data: Map::new(), subject: job.to_string(), page: String::new() },
            };
            facts.data.insert("job".into(), json!(job));
            facts.page = format!("/ui/jobs/{job}");
            Ok(facts)
        }
        About::Runner(runner) => {
            let state = app.engine.load::<Runner>(runner).await?;
            let install = state.identity.and_then(|identity| identity.install);
            let (mut data, mut subject) = (Map::new(), runner.to_string());
            if let Some(install) = install {
                subject = format!("runner of {}", install_facts(app, install, &mut data).await?);
            }
            data.insert("runner".into(), json!(runner));
            Ok(Facts { data, subject, page: format!("/ui/runners/{runner}") })
        }
    }
}

async fn of_run(app: &App, run: RunId, state: &Run) -> Result<Facts, Problem> {
    let (mut data, mut subject) = (Map::new(), run.to_string());
    data.insert("run".into(), json!(run));
    if let Some(request) = &state.request {
        data.insert("kind".into(), json!(request.kind));
        let install = install_facts(app, request.install, &mut data).await?;
        subject = format!("{} of {install}", request.kind);
    }
    Ok(Facts { data, subject, page: format!("/ui/runs/{run}") })
}

/// Adds install and app. Returns the name of the install.
async fn install_facts(
    app: &App,
    id: InstallId,
    data: &mut Map<String, Value>,
) -> Result<String, Problem> {
    let install = app.engine.load::<Install>(id).await?;
    data.insert("install".into(), json!({ "id": id, "name": install.name }));
    if let Some(of) = install.app {
        let name = app.engine.load::<AppState>(of).await?.name;
        data.insert("app".into(), json!({ "id": of, "name": name }));
    }
    Ok(install.name)
}

fn title(topic: Topic) -> &'static str {
    match topic {
        Topic::ApprovalRequested => "Approval requested",
        Topic::RunFailed => "Run failed",
        Topic::RunSucceeded => "Run succeeded",
        Topic::DriftFound => "Drift found",
        Topic::OutcomeUnknown => "Outcome unknown",
        Topic::RunnerDisconnected => "Runner disconnected",
        Topic::RunnerReconnected => "Runner reconnected",
    }
}

/// Escapes the control characters of Slack's format. `|` would end the text of a link.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('|', "¦")
}
