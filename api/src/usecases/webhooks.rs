//! Settings of webhooks, test messages and replays.
use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::{
    ids::EndpointId,
    webhook::{Format, Topic, Webhook, WebhookCommand, WebhookSettings},
};
use futures::FutureExt as _;
use serde_json::json;

use crate::{
    auth::secret,
    execute::{Call, Done},
    ids,
    problem::{Code, Problem},
    state::App,
    webhooks::{self, Destination, Endpoint, Filter, Message, Outcome, Sending},
};

/// Maximum number of webhooks.
const MAX_WEBHOOKS: u32 = 50;

/// Requested settings.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub url: Option<String>,
    pub topics: BTreeSet<Topic>,
    pub format: Format,
    pub rotate_secret: bool,
}

/// Creates a webhook, or replaces its settings. Returns the new signing secret, if there is one.
pub(crate) async fn configure(
    app: &App,
    call: &Call,
    name: &str,
    request: Request,
) -> Result<Done<Option<String>>, Problem> {
    check_name(name)?;
    let known = app.log().reload::<Webhook>(name).await?.state.settings.clone();
    let former = match &known {
        Some(settings) => webhooks::endpoint(&app.pool, settings.endpoint).await?,
        None => None,
    };
    let url = match (&request.url, &former) {
        (Some(url), _) => url.clone(),
        (None, Some(former)) => former.url.clone(),
        (None, None) => {
            return Err(Problem::invalid_field(
                "url",
                "is missing",
                "send the URL of the endpoint",
            ));
        }
    };
    let destination = Destination::parse(&url, app.config.webhooks_reach);
    let destination = destination.map_err(|why| {
        let detail = format!("cannot configure the webhook {name}: its URL is not valid: {why}");
        Problem::new(Code::Invalid, detail)
    })?;
    let new = match &former {
        Some(former) if former.url == url && !request.rotate_secret => None,
        Some(_) | None => Some(Endpoint {
            id: EndpointId(ids::new_ulid()),
            url,
            secret: match &former {
                Some(former) if !request.rotate_secret => former.secret.clone(),
                Some(_) | None => secret::bytes().to_vec(),
            },
        }),
    };
    if known.is_none() {
        check_count(app).await?;
        // The consumer begins at the current head: a webhook gets no events from before its creation.
        webhooks::create_consumer(&app.pool, app.log().current_position().await?).await?;
    }
    if let Some(new) = &new {
        webhooks::put(&app.pool, name, new, app.now()).await?;
    }
    let endpoint = match (&new, &former) {
        (Some(new), _) => new.id,
        (None, Some(former)) => former.id,
        (None, None) => return Err(Problem::internal("a webhook has no endpoint")),
    };
    let settings = WebhookSettings {
        endpoint,
        origin: destination.origin,
        topics: request.topics,
        format: request.format,
    };
    let configured = app.engine.transact(call, |unit| {
        let (settings, known, name) = (settings.clone(), known.clone(), name.to_owned());
        async move {
            // The endpoint was derived from these settings, which another request may have replaced.
            if unit.load::<Webhook>(&name).await?.settings != known {
                let detail =
                    "cannot configure the webhook: a concurrent request changed it; try again";
                return Err(Problem::new(Code::Conflict, detail));
            }
            unit.handle::<Webhook>(&name, WebhookCommand::Configure(settings)).await.map(drop)
        }
        .boxed()
    });
    match configured.await {
        Ok(Done { position, events, .. }) => {
            let is_new_secret =
                |new: &&Endpoint| former.as_ref().is_none_or(|former| former.secret != new.secret);
            let value = new.as_ref().filter(is_new_secret);
            let value = value.map(|new| format!("whsec_{}", STANDARD.encode(&new.secret)));
            app.webhook_wakeup.notify_one();
            Ok(Done { value, position, events })
        }
        Err(problem) => {
            // The commit may be in doubt. An endpoint without an event is deleted after a day.
            if let (Some(new), true) = (&new, problem.code.status() < 500) {
                webhooks::discard(&app.pool, new.id).await?;
            }
            Err(problem)
        }
    }
}

/// Deletes a webhook with its deliveries.
pub(crate) async fn delete(app: &App, call: &Call, name: &str) -> Result<Done<()>, Problem> {
    check_name(name)?;
    let deleted = app.engine.transact(call, |unit| {
        let name = name.to_owned();
        async move { unit.handle::<Webhook>(&name, WebhookCommand::Delete).await.map(drop) }.boxed()
    });
    let done = deleted.await?;
    app.webhook_wakeup.notify_one();
    Ok(done)
}

/// Sends a message of the type `webhook.test`, once.
pub(crate) async fn test(app: &App, name: &str) -> Result<Outcome, Problem> {
    let settings = require(app, name).await?;
    let endpoint = webhooks::endpoint(&app.pool, settings.endpoint).await?;
    let endpoint = endpoint.ok_or_else(|| Problem::internal("the webhook has no endpoint"))?;
    let Endpoint { url, secret, .. } = endpoint;
    let sending = Sending { url, secrets: vec![secret], format: settings.format };
    let text = format!("Test message of the webhook {name}");
    let body = match sending.format {
        Format::Standard => {
            json!({ "type": "webhook.test", "timestamp": app.now(), "data": { "webhook": name } })
        }
        Format::Slack => json!({ "text": text }),
    };
    let message = Message { id: format!("test_{}", ids::new_ulid()), body: body.to_string() };
    Ok(app.webhook_sender.send(&sending, &message, app.now()).await)
}

/// Sends deliveries again. Returns their number.
pub(crate) async fn replay(app: &App, name: &str, filter: &Filter) -> Result<u64, Problem> {
    require(app, name).await?;
    let count = webhooks::replay(&app.pool, name, filter, app.now()).await?;
    app.webhook_wakeup.notify_one();
    Ok(count)
}

async fn require(app: &App, name: &str) -> Result<WebhookSettings, Problem> {
    check_name(name)?;
    let webhook = app.log().reload::<Webhook>(name).await?;
    let settings = webhook.state.settings.clone();
    settings.ok_or_else(|| Problem::not_found(format!("the webhook {name:?}")))
}

fn check_name(name: &str) -> Result<(), Problem> {
    if domain::name::is_valid(name) {
        return Ok(());
    }
    let detail = format!(
        "{name:?} is not a valid name of a webhook: use lower-case letters, digits, - and _, at most {} characters",
        domain::name::MAX_LENGTH
    );
    Err(Problem::new(Code::Invalid, detail))
}

/// Limits the work for one event. Concurrent requests can exceed the limit by a few.
async fn check_count(app: &App) -> Result<(), Problem> {
    let known = projections::views::webhooks::page(&app.pool, None, MAX_WEBHOOKS).await?;
    if known.len() < MAX_WEBHOOKS as usize {
        return Ok(());
    }
    let detail =
        format!("cannot create the webhook: there are {MAX_WEBHOOKS} webhooks; delete one first");
    Err(Problem::new(Code::Rejected, detail))
}
