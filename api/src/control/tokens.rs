//! `/v1/tokens`: who may do what.
use axum::{Json, extract::State};
use chrono::TimeDelta;
use domain::{
    access::{Access, AccessCommand, AccessEvent, IssuedToken, PrincipalKind, Role},
    ids::{PrincipalId, TokenId},
};
use futures::FutureExt as _;
use schemas::control::{
    Done, Listing, Page,
    tokens::{self as wire, CreateToken, Token, TokenCreated},
};
use ulid::Ulid;

use super::{
    ask::{Ask, done, field},
    read,
    read::{History, Part},
};
use crate::{
    auth::secret,
    extract::{self, Path, Query},
    problem::{Answer, Problem},
    state::App,
};

/// All tokens, those of the newest principal first
#[utoipa::path(
    get, path = "/v1/tokens", tag = "access", params(Listing),
    responses((status = 200, body = Page<Token>)),
)]
pub async fn list(State(app): State<App>, Query(part): Query<Listing>) -> Answer<Page<Token>> {
    let owned = &app;
    let part = Part::of::<Access>(part.limit, part.cursor)?;
    let page = read::list::<Access, _, _>(&app, part, |history| async move {
        tokens(owned, &history).map(Some)
    });
    let Page { items, next } = page.await?;
    Ok(Json(Page { items: items.into_iter().flatten().collect(), next }))
}

fn tokens(app: &App, history: &History<Access>) -> Result<Vec<Token>, Problem> {
    let principal: PrincipalId = history.id.parse().map_err(Problem::internal)?;
    let roles: Vec<_> = history.state.roles.iter().map(|role| role.as_str().to_owned()).collect();
    let mut tokens = Vec::new();
    for (stored, event) in &history.events {
        let AccessEvent::TokenIssued(issued) = event else { continue };
        let over = issued.expires_at.is_some_and(|end| end <= app.now());
        let state = match (history.state.revoked.contains(&issued.token), over) {
            (true, _) => "revoked",
            (false, true) => "expired",
            (false, false) => "active",
        };
        tokens.push(Token {
            id: issued.token,
            principal,
            roles: roles.clone(),
            state: state.into(),
            issued_at: stored.recorded_at,
            expires_at: issued.expires_at,
        });
    }
    Ok(tokens)
}

/// Make a principal with one role, and a token for it
///
/// The token is shown only now.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "access", request_body = CreateToken,
    responses((status = 200, body = TokenCreated)),
)]
pub async fn create(
    State(app): State<App>,
    Ask { call, .. }: Ask,
    extract::Json(ask): extract::Json<CreateToken>,
) -> Answer<TokenCreated> {
    let expires_at = match ask.expires_in_s {
        Some(seconds) => {
            let lives = i64::try_from(seconds).ok().and_then(TimeDelta::try_seconds);
            let end = lives.and_then(|lives| app.now().checked_add_signed(lives));
            Some(end.ok_or_else(|| field("expires_in_s", "is too long", "leave it out"))?)
        }
        None => None,
    };
    let (principal, id) = (PrincipalId(Ulid::new()), TokenId(Ulid::new()));
    let clear = secret::token();
    let sha256 = secret::digest(&clear).map_err(Problem::internal)?;
    let issued = IssuedToken { token: id, sha256, expires_at };
    let role = role(ask.role);
    let made = app.engine.transact(&call, move |unit| {
        let issued = issued.clone();
        async move {
            let add = AccessCommand::AddPrincipal { kind: PrincipalKind::Service, name_ref: None };
            unit.tell::<Access>(principal, add).await?;
            unit.tell::<Access>(principal, AccessCommand::GrantRole { role }).await?;
            unit.tell::<Access>(principal, AccessCommand::IssueToken(issued)).await.map(drop)
        }
        .boxed()
    });
    let position = made.await?.position;
    app.people.caught_up(position).await;
    Ok(Json(TokenCreated { id, principal, token: Some(clear), expires_at, position }))
}

fn role(asked: wire::Role) -> Role {
    match asked {
        wire::Role::Owner => Role::Owner,
        wire::Role::Approver => Role::Approver,
        wire::Role::Auditor => Role::Auditor,
        wire::Role::Viewer => Role::Viewer,
    }
}

/// Make a token useless, at once
#[utoipa::path(
    delete, path = "/v1/tokens/{token}", tag = "access",
    params(("token" = String, Path, description = "The token's id, not the token")),
    responses((status = 200, body = Done)),
)]
pub async fn revoke(
    State(app): State<App>,
    Path(token): Path<TokenId>,
    Ask { call, .. }: Ask,
) -> Answer<Done> {
    let of: Option<String> = sqlx::query_scalar(
        "select aggregate_id from log_event where aggregate_type = 'access' \
         and event_type = 'access.token_issued' and payload ->> 'token' = $1",
    )
    .bind(token.to_string())
    .fetch_optional(&app.pool)
    .await?;
    let of = of.ok_or_else(|| Problem::not_found(token))?;
    let principal: PrincipalId = of.parse().map_err(Problem::internal)?;
    let told = app.engine.transact(&call, move |unit| {
        let revoke = AccessCommand::RevokeToken { token };
        async move { unit.tell::<Access>(principal, revoke).await.map(drop) }.boxed()
    });
    let told = told.await?;
    app.people.caught_up(told.position).await;
    Ok(Json(done(&told)))
}
