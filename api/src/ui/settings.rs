//! Settings page, and its forms: tokens, roles, names and erasure.
use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use chrono::TimeDelta;
use dashboard::pages::{self, NewToken, SettingsPage, SigningKey};
use domain::{
    access::Role,
    ids::{PrincipalId, TokenId},
    subject::SubjectId,
};
use schemas::{
    control::{PageQuery, tokens as wire},
    keys::KeyUse,
};
use serde::Deserialize;

use super::{
    change::{FormToken, once},
    pages::caller_of,
    response::{Form, Page, PageProblem, PageResult, Ui, see_other},
};
use crate::{
    auth::{names, sessions::Session},
    extract::{Caller, Query},
    keys::PublicKey,
    problem::{Code, Problem},
    queries::{min_position, projections, subjects, tokens},
    state::App,
    usecases::{access, reason, subjects as erasure},
};

const SETTINGS: &str = "/ui/settings";

/// Page of tokens, and the data subject to show.
#[derive(Deserialize)]
pub(super) struct View {
    cursor: Option<String>,
    subject: Option<String>,
    min_position: Option<u64>,
}

/// Shows what the caller may read.
pub(super) async fn settings(
    State(app): State<App>,
    Ui(Query(view)): Ui<Query<View>>,
    caller: Caller,
    session: Session,
) -> PageResult {
    min_position::wait(&app, view.min_position).await?;
    let frame = caller_of(&app, &caller, &session).await?;
    let tokens = match frame.may(&[]) {
        true => {
            let query = PageQuery { cursor: view.cursor, ..PageQuery::default() };
            Some(tokens::list(&app, &caller, query).await?)
        }
        false => None,
    };
    let projections = match frame.may(&["auditor"]) {
        true => Some(projections::list(&app, &caller).await?.items),
        false => None,
    };
    let subject = match view.subject.as_deref().map(str::trim).filter(|id| !id.is_empty()) {
        Some(id) => Some(subjects::get(&app, &caller, subject_of(id)?).await?),
        None => None,
    };
    let log_id = app.log().log_id().to_string();
    let keys = app.keys.current().public_of(Some(&log_id)).into_iter().map(shown_key).collect();
    let whoami = tokens::whoami(&app, &caller).await?;
    let url = app.config.control_url.clone();
    let page = SettingsPage { whoami, url, keys, tokens, projections, subject };
    Ok(Page(pages::settings(&frame, &page)))
}

fn shown_key(key: PublicKey) -> SigningKey {
    let usage = match key.usage {
        KeyUse::Tokens => "tokens",
        KeyUse::Manifests => "manifests",
        KeyUse::Checkpoints => "checkpoints",
        KeyUse::Other => "other documents",
    };
    SigningKey {
        usage: usage.into(),
        fingerprint: key.fingerprint,
        verifier: key.verifier_key,
        since: key.not_before,
        until: key.not_after,
    }
}

fn subject_of(id: &str) -> Result<SubjectId, Problem> {
    id.parse().map_err(|_| {
        let detail = format!(
            "invalid subject {id:?}: it is the id of neither an install nor a principal; use ins_… or prn_…"
        );
        Problem::new(Code::BadRequest, detail)
    })
}

fn role_of(role: wire::Role) -> Role {
    match role {
        wire::Role::Owner => Role::Owner,
        wire::Role::Approver => Role::Approver,
        wire::Role::Auditor => Role::Auditor,
        wire::Role::Viewer => Role::Viewer,
    }
}

/// New principal with a token. Without days, the token is valid until it is revoked.
#[derive(Deserialize)]
pub(super) struct Create {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    name: String,
    role: wire::Role,
    days: String,
}

/// Creates a token. The response shows it, because no later page can.
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    session: Session,
    Form(form): Form<Create>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let Create { name, role, days, .. } = form;
    let content = format!("{name}\n{role:?}\n{days}");
    let key = (("POST", "/v1/tokens"), form.idempotency_key.as_str(), content);
    let (mut secret, role) = (None, role_of(role));
    let name = Some(name).filter(|name| !name.trim().is_empty());
    once(&app, &caller, key, async |call| {
        let name = name.as_deref().map(names::validated).transpose()?;
        let done = access::create(&app, call, (name, role), lifetime(&days)?).await?;
        secret = Some(done.value.secret_text.clone());
        Ok(done)
    })
    .await?;
    let token = NewToken { name, role: role.as_str().to_owned(), secret };
    let frame = caller_of(&app, &caller, &session).await?;
    Ok(Page(pages::new_token(&frame, &token)).into_response())
}

fn lifetime(days: &str) -> Result<Option<TimeDelta>, Problem> {
    if days.trim().is_empty() {
        return Ok(None);
    }
    let lives = days.trim().parse().ok().filter(|days| *days > 0).and_then(TimeDelta::try_days);
    let invalid = || Problem::invalid_field("days", "is not a number of days", "choose a lifetime");
    lives.map(Some).ok_or_else(invalid)
}

/// Revocation of a token.
#[derive(Deserialize)]
pub(super) struct Revoke {
    #[serde(flatten)]
    form: FormToken,
    idempotency_key: String,
    token: TokenId,
}

pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    session: Session,
    Form(form): Form<Revoke>,
) -> Result<Response, PageProblem> {
    form.form.check(&session)?;
    let token = form.token;
    let route = ("DELETE", "/v1/tokens/{token}");
    let key = (route, form.idempotency_key.as_str(), token.to_string());
    let position =
        once(&app, &caller, key, async |call| access::revoke(&app, call, token).await).await?;
    Ok(see_other(SETTINGS, position))
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RoleChange {
    Grant,
    Revoke,
}

/// Grant or revocation of a role.
#[derive(Deserialize)]
pub(super) struct Roles {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    principal: PrincipalId,
    role: wire::Role,
    change: RoleChange,
}

pub(super) async fn roles(
    State(app): State<App>,
    caller: Caller,
    session: Session,
    Form(form): Form<Roles>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let Roles { principal, role, change, .. } = form;
    let method = match change {
        RoleChange::Grant => "PUT",
        RoleChange::Revoke => "DELETE",
    };
    let route = (method, "/v1/principals/{principal}/roles/{role}");
    let key = (route, form.idempotency_key.as_str(), format!("{principal}\n{role:?}"));
    let role = role_of(role);
    let position = once(&app, &caller, key, async |call| match change {
        RoleChange::Grant => access::grant_role(&app, call, principal, role).await,
        RoleChange::Revoke => access::revoke_role(&app, call, principal, role).await,
    });
    Ok(see_other(SETTINGS, position.await?))
}

/// Name of a principal. An empty name removes it.
#[derive(Deserialize)]
pub(super) struct Rename {
    #[serde(flatten)]
    token: FormToken,
    principal: PrincipalId,
    name: String,
}

/// Renames a principal. The log has no names, so a repeated submission needs no key.
pub(super) async fn rename(
    State(app): State<App>,
    caller: Caller,
    session: Session,
    Form(form): Form<Rename>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    caller.authorize("PUT", "/v1/principals/{principal}/name")?;
    let name = Some(form.name).filter(|name| !name.trim().is_empty());
    let name = name.as_deref().map(names::validated).transpose()?;
    access::set_name(&app, form.principal, name).await?;
    Ok(see_other(SETTINGS, app.log().position()))
}

/// Erasure of a data subject.
#[derive(Deserialize)]
pub(super) struct Shred {
    #[serde(flatten)]
    token: FormToken,
    idempotency_key: String,
    subject: String,
    /// Id of the subject, typed by the user who erases it.
    confirm: String,
    reason: String,
}

pub(super) async fn shred(
    State(app): State<App>,
    caller: Caller,
    session: Session,
    Form(form): Form<Shred>,
) -> Result<Response, PageProblem> {
    form.token.check(&session)?;
    let subject = subject_of(&form.subject)?;
    let content = format!("{subject}\n{}", form.reason);
    let route = ("POST", "/v1/subjects/{subject}/shred");
    let key = (route, form.idempotency_key.as_str(), content);
    let position = once(&app, &caller, key, async |call| {
        if form.confirm.trim() != subject.to_string() {
            let detail = format!(
                "nothing was erased: the typed id is not {subject}; type the id of the subject"
            );
            return Err(Problem::new(Code::Invalid, detail));
        }
        erasure::shred(&app, call, subject, reason::required(&form.reason)?).await
    });
    Ok(see_other(SETTINGS, position.await?))
}
