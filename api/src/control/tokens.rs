//! `/v1/tokens`: tokens, principals and their roles.
use axum::{Json, extract::State};
use chrono::TimeDelta;
use domain::{
    access::Role,
    ids::{PrincipalId, TokenId},
};
use schemas::control::{
    ChangeResult, Page, PageQuery,
    tokens::{self as wire, CreateToken, RenamePrincipal, Token, TokenCreated},
};

use super::change_request::{ChangeRequest, change_result};
use crate::{
    auth::names,
    extract::{self, Caller, Path, Query},
    problem::{ApiResult, Problem},
    queries::tokens as queries,
    state::App,
    usecases::access,
};

/// List tokens, oldest first
#[utoipa::path(
    get, path = "/v1/tokens", tag = "access", params(PageQuery),
    responses((status = 200, body = Page<Token>)),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> ApiResult<Page<Token>> {
    queries::list(&app, &caller, query).await.map(Json)
}

/// Create a principal with one role, and a token for it
///
/// The token is shown only once.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "access", request_body = CreateToken,
    responses((status = 200, body = TokenCreated)),
)]
pub(super) async fn create(
    State(app): State<App>,
    ChangeRequest { call, .. }: ChangeRequest,
    extract::Json(body): extract::Json<CreateToken>,
) -> ApiResult<TokenCreated> {
    let lives = match body.expires_in_s {
        Some(seconds) => {
            let lives = i64::try_from(seconds).ok().and_then(TimeDelta::try_seconds);
            Some(lives.ok_or_else(|| {
                Problem::invalid_field("expires_in_s", "is too large", "send fewer seconds")
            })?)
        }
        None => None,
    };
    let name = body.name.as_deref().map(names::validated).transpose()?;
    let created = access::create(&app, &call, (name, role(body.role)), lives).await?;
    let access::CreatedToken { principal, token: id, secret_text, expires_at } = created.value;
    let (token, position) = (Some(secret_text), created.position);
    Ok(Json(TokenCreated { id, principal, token, expires_at, position }))
}

fn role(requested: wire::Role) -> Role {
    match requested {
        wire::Role::Owner => Role::Owner,
        wire::Role::Approver => Role::Approver,
        wire::Role::Auditor => Role::Auditor,
        wire::Role::Viewer => Role::Viewer,
    }
}

/// Grant a role to a principal
#[utoipa::path(
    put, path = "/v1/principals/{principal}/roles/{role}", tag = "access",
    params(
        ("principal" = String, Path, description = "The principal's id"),
        ("role" = wire::Role, Path, description = "`owner`, `approver`, `auditor`, `viewer`"),
    ),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn grant_role(
    State(app): State<App>,
    Path((principal, named)): Path<(PrincipalId, wire::Role)>,
    ChangeRequest { call, .. }: ChangeRequest,
) -> ApiResult<ChangeResult> {
    Ok(Json(change_result(&access::grant_role(&app, &call, principal, role(named)).await?)))
}

/// Revoke a role from a principal, effective immediately
///
/// Rejected with 409 for the role `owner` of the only owner with a valid token.
#[utoipa::path(
    delete, path = "/v1/principals/{principal}/roles/{role}", tag = "access",
    params(
        ("principal" = String, Path, description = "The principal's id"),
        ("role" = wire::Role, Path, description = "`owner`, `approver`, `auditor`, `viewer`"),
    ),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn revoke_role(
    State(app): State<App>,
    Path((principal, named)): Path<(PrincipalId, wire::Role)>,
    ChangeRequest { call, .. }: ChangeRequest,
) -> ApiResult<ChangeResult> {
    Ok(Json(change_result(&access::revoke_role(&app, &call, principal, role(named)).await?)))
}

/// Set or remove the name of a principal
///
/// Records no event: the log has only the ids of principals.
#[utoipa::path(
    put, path = "/v1/principals/{principal}/name", tag = "access", request_body = RenamePrincipal,
    params(("principal" = String, Path, description = "The principal's id")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn name(
    State(app): State<App>,
    Path(principal): Path<PrincipalId>,
    extract::Json(body): extract::Json<RenamePrincipal>,
) -> ApiResult<ChangeResult> {
    let name = body.name.as_deref().map(names::validated).transpose()?;
    let changed = access::set_name(&app, principal, name).await?;
    Ok(Json(ChangeResult { position: app.log().position(), changed }))
}

/// Revoke a token, effective immediately
///
/// Rejected with 409 for the only valid token of the last owner.
#[utoipa::path(
    delete, path = "/v1/tokens/{token}", tag = "access",
    params(("token" = String, Path, description = "The token's id, not the token")),
    responses((status = 200, body = ChangeResult)),
)]
pub(super) async fn revoke(
    State(app): State<App>,
    Path(token): Path<TokenId>,
    ChangeRequest { call, .. }: ChangeRequest,
) -> ApiResult<ChangeResult> {
    Ok(Json(change_result(&access::revoke(&app, &call, token).await?)))
}
