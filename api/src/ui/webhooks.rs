//! Pages and forms of webhooks.
use std::collections::{BTreeMap, BTreeSet};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use dashboard::pages::{self, ConfiguredWebhook, WebhookPage};
use domain::webhook::{Format, Topic, UnknownTopic};
use schemas::control::{
    PageQuery,
    webhooks::{DeliveriesQuery, WebhookTested},
};
use serde::Deserialize;

use super::{
    change::{FormToken, once},
    pages::caller_of,
    response::{Form, Page, PageProblem, PageResult, Ui, see_other},
};
use crate::{
    auth::sessions::Session,
    execute::Done,
    extract::{Caller, Path, Query},
    problem::{Code, Problem},
    queries::{min_position, webhooks as queries},
    state::App,
    usecases::webhooks,
    webhooks::Filter,
};

const LIST: &str = "/ui/settings/webhooks";
const ROUTE: &str = "/v1/webhooks/{webhook}";

/// Part of the list.
#[derive(Deserialize)]
pub(super) struct List {
    cursor: Option<String>,
    min_position: Option<u64>,
}

/// Shows the webhooks.
pub(super) async fn list(
    State(app): State<App>,
    Ui(Query(query)): Ui<Query<List>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    let part = PageQuery { cursor: query.cursor, ..PageQuery::default() };
    let page = queries::list(&app, &caller, part).await?;
    Ok(Page(pages::webhooks(&caller_of(&app, &caller, &session).await?, &page)))
}

/// Part of the deliveries.
#[derive(Deserialize)]
pub(super) struct Deliveries {
    #[serde(default)]
    state: String,
    cursor: Option<String>,
    min_position: Option<u64>,
}

/// Shows a webhook with its deliveries.
pub(super) async fn show(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    Ui(Query(query)): Ui<Query<Deliveries>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, query.min_position).await?;
    page_of(&app, &caller, &session, &name, (query, None)).await
}

async fn page_of(
    app: &App,
    caller: &Caller,
    session: &Session,
    name: &str,
    (query, tested): (Deliveries, Option<WebhookTested>),
) -> PageResult {
    let webhook = queries::get(app, caller, name).await?;
    let state = Some(query.state).filter(|state| !state.is_empty());
    let part = DeliveriesQuery {
        state: state.clone(),
        cursor: query.cursor,
        ..DeliveriesQuery::default()
    };
    let deliveries = queries::deliveries(app, caller, name, part).await?;
    let page = WebhookPage { webhook, deliveries, state, tested };
    Ok(Page(pages::webhook(&caller_of(app, caller, session).await?, &page)))
}

/// Settings of a webhook. An empty URL keeps the present one.
#[derive(Deserialize)]
pub(super) struct Configure {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    name: String,
    url: String,
    format: Format,
    #[serde(default)]
    rotate_secret: bool,
    /// `topic:NAME` for each chosen topic.
    #[serde(flatten)]
    fields: BTreeMap<String, String>,
}

/// Creates a webhook, or replaces its settings. A response with a new secret shows it, because no
/// later page can.
pub(super) async fn configure(
    State(app): State<App>,
    caller: Caller,
    session: Session,
    Form(form): Form<Configure>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let chosen = form.fields.keys().filter_map(|field| field.strip_prefix("topic:"));
    let topics: Result<BTreeSet<Topic>, UnknownTopic> = chosen.map(str::parse).collect();
    let topics = topics.map_err(|error| Problem::new(Code::Invalid, error.to_string()))?;
    let Configure { idempotency_key, name, url, format, rotate_secret, .. } = form;
    let name = name.trim().to_owned();
    let content = format!("{name}\n{url}\n{topics:?}\n{format:?}\n{rotate_secret}");
    let url = Some(url.trim().to_owned()).filter(|url| !url.is_empty());
    let request = webhooks::Request { url, topics, format, rotate_secret };
    let (mut secret, mut is_first) = (None, false);
    let key = (("PUT", ROUTE), idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
        let done = webhooks::configure(&app, call, &name, request).await?;
        (secret, is_first) = (done.value.clone(), true);
        Ok(done)
    });
    let position = position.await?;
    if secret.is_none() && is_first {
        return Ok(see_other(&format!("{LIST}/{name}"), position));
    }
    let frame = caller_of(&app, &caller, &session).await?;
    let configured = ConfiguredWebhook { name, secret };
    Ok(Page(pages::configured_webhook(&frame, &configured)).into_response())
}

/// Form without fields.
#[derive(Deserialize)]
pub(super) struct Test {
    #[serde(flatten)]
    token: FormToken,
}

/// Sends a test message, and shows its result.
pub(super) async fn test(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Test>,
) -> PageResult {
    form.token.check(&session)?;
    caller.authorize("POST", "/v1/webhooks/{webhook}/test")?;
    let tested = queries::tested(webhooks::test(&app, &name).await?);
    let all = Deliveries { state: String::new(), cursor: None, min_position: None };
    page_of(&app, &caller, &session, &name, (all, Some(tested))).await
}

/// Deliveries to send again. Empty fields do not limit them.
#[derive(Deserialize)]
pub(super) struct Replay {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    state: String,
    from: String,
    to: String,
}

pub(super) async fn replay(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Replay>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let position = |field: &str, text: &str| match text.trim() {
        "" => Ok(None),
        text => text.parse::<u64>().map(Some).map_err(|_| {
            Problem::invalid_field(field, "is not a position", "enter the number of an event")
        }),
    };
    let state = Some(form.state.as_str()).filter(|state| !state.is_empty());
    let filter = Filter {
        state: state.map(queries::state).transpose()?,
        from: position("from", &form.from)?,
        to: position("to", &form.to)?,
    };
    let content = format!("{name}\n{}\n{}\n{}", form.state, form.from, form.to);
    let key = (("POST", "/v1/webhooks/{webhook}/replay"), form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |_| {
        webhooks::replay(&app, &name, &filter).await?;
        Ok(Done { value: (), position: app.log().position(), events: 0 })
    });
    Ok(see_other(&format!("{LIST}/{name}"), position.await?))
}

/// Deletion of a webhook.
#[derive(Deserialize)]
pub(super) struct Delete {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    /// Name of the webhook, typed by the user who deletes it.
    confirm: String,
}

pub(super) async fn delete(
    State(app): State<App>,
    Ui(Path(name)): Ui<Path<String>>,
    caller: Caller,
    session: Session,
    Form(form): Form<Delete>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let key = (("DELETE", ROUTE), form.idempotency_key.as_str(), name.clone());
    let position = once(&app, &caller, key, async |call| {
        if form.confirm.trim() != name {
            let detail = format!(
                "nothing was deleted: the typed name is not {name}; type the name of the webhook"
            );
            return Err(Problem::new(Code::Invalid, detail));
        }
        webhooks::delete(&app, call, &name).await
    });
    Ok(see_other(LIST, position.await?))
}
