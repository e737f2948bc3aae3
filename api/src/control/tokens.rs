//! `/v1/tokens`: who may do what.
use axum::{Json, extract::State};
use chrono::TimeDelta;
use domain::{
    access::{Access, AccessCommand, IssuedToken, PrincipalKind, Role},
    ids::{PrincipalId, TokenId},
};
use futures::FutureExt as _;
use projections::views::{principals, tokens};
use schemas::control::{
    Done, Page,
    tokens::{self as wire, CreateToken, Token, TokenCreated},
};
use ulid::Ulid;

use super::ask::{Ask, done, field};
use crate::{
    auth::secret,
    extract::{self, Path},
    problem::{Answer, Problem},
    state::App,
};

/// All tokens
#[utoipa::path(
    get, path = "/v1/tokens", tag = "access",
    responses((status = 200, body = Page<Token>)),
)]
pub async fn list(State(app): State<App>) -> Answer<Page<Token>> {
    let principals = principals::all(&app.pool).await?;
    let roles = |principal: PrincipalId| {
        let of = principals.iter().find(|row| row.principal == principal);
        of.map(|row| row.roles.iter().map(|role| role.as_str().to_owned()).collect())
    };
    let now = app.now();
    let token = |row: tokens::Row| Token {
        id: row.token,
        principal: row.principal,
        roles: roles(row.principal).unwrap_or_default(),
        state: match (row.revoked, row.is_heard(now)) {
            (true, _) => "revoked",
            (false, false) => "expired",
            (false, true) => "active",
        }
        .into(),
        issued_at: row.issued_at,
        expires_at: row.expires_at,
    };
    Ok(Json(Page::whole(tokens::all(&app.pool, None).await?.into_iter().map(token).collect())))
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
    let of = tokens::token(&app.pool, token).await?;
    let principal = of.ok_or_else(|| Problem::not_found(token))?.principal;
    let told = app.engine.transact(&call, move |unit| {
        let revoke = AccessCommand::RevokeToken { token };
        async move { unit.tell::<Access>(principal, revoke).await.map(drop) }.boxed()
    });
    let told = told.await?;
    app.people.caught_up(told.position).await;
    Ok(Json(done(&told)))
}
