//! Principals, their roles and tokens.
use chrono::TimeDelta;
use domain::{
    access::{Access, AccessCommand, IssuedToken, PrincipalKind, Role},
    decider::Timestamp,
    ids::{PrincipalId, TokenId},
};
use futures::FutureExt as _;
use projections::views::{principals, tokens};

use crate::{
    auth::{names, secret},
    execute::{Call, Done, UnitOfWork},
    ids,
    problem::{Code, Problem},
    state::App,
};

/// New token with its secret value. The log has only a hash of the value.
#[derive(Debug, Clone)]
pub(crate) struct CreatedToken {
    /// Principal that the token identifies.
    pub principal: PrincipalId,
    pub token: TokenId,
    pub secret_text: String,
    /// Time at which the token expires. `None` if the token is valid until it is revoked.
    pub expires_at: Option<Timestamp>,
}

/// Creates a service principal with one role, and a token for it. The token is valid from the next
/// request to this server.
pub(crate) async fn create(
    app: &App,
    call: &Call,
    (name, role): (Option<String>, Role),
    lives: Option<TimeDelta>,
) -> Result<Done<CreatedToken>, Problem> {
    let (principal, token) = (PrincipalId(ids::new_ulid()), TokenId(ids::new_ulid()));
    let clear = secret::token();
    let sha256 = secret::digest(&clear).map_err(Problem::internal)?;
    let expires_at = match lives {
        Some(lives) => Some(app.now().checked_add_signed(lives).ok_or_else(too_long)?),
        None => None,
    };
    let issued = IssuedToken { token, sha256, expires_at };
    // The name is stored first, so that no reader sees the principal without the name.
    if let Some(name) = &name {
        names::set(&app.pool, principal, name, app.now()).await?;
    }
    let created = app.engine.transact(call, move |unit| {
        let issued = issued.clone();
        async move {
            let add = AccessCommand::AddPrincipal { kind: PrincipalKind::Service, name_ref: None };
            unit.create::<Access>(principal, add).await?;
            unit.handle::<Access>(principal, AccessCommand::GrantRole { role }).await?;
            unit.handle::<Access>(principal, AccessCommand::IssueToken(issued)).await.map(drop)
        }
        .boxed()
    });
    let Done { position, events, .. } = match created.await {
        Ok(created) => created,
        Err(problem) => {
            // The commit may be in doubt. A principal that exists keeps its name.
            if principals::principal(&app.pool, principal).await?.is_none() {
                names::remove(&app.pool, principal).await?;
            }
            return Err(problem);
        }
    };
    app.principals.wait_for_position(position).await;
    let value = CreatedToken { principal, token, secret_text: clear, expires_at };
    Ok(Done { value, position, events })
}

/// Sets or removes the name of a principal. Returns true if the name changed.
///
/// A name can be removed even if no such principal exists. The name is stored before the principal
/// is created, and the server may stop in between.
pub(crate) async fn set_name(
    app: &App,
    principal: PrincipalId,
    name: Option<String>,
) -> Result<bool, Problem> {
    let forgotten = name.is_none() && names::remove(&app.pool, principal).await?;
    if !forgotten && principals::principal(&app.pool, principal).await?.is_none() {
        return Err(Problem::not_found(principal));
    }
    match name {
        Some(name) => Ok(names::set(&app.pool, principal, &name, app.now()).await?),
        None => Ok(forgotten),
    }
}

fn too_long() -> Problem {
    Problem::new(
        Code::Invalid,
        "invalid lifetime: the token would end after the last valid time; set a smaller expires_in_s, or omit it",
    )
}

/// Revokes a token, effective from the next request to this server. Rejects the request for the
/// only valid token of the last owner.
pub(crate) async fn revoke(app: &App, call: &Call, token: TokenId) -> Result<Done<()>, Problem> {
    let of = tokens::token(&app.pool, token).await?;
    let principal = of.ok_or_else(|| Problem::not_found(token))?.principal;
    let owners = app.principals.owners();
    let revoked = app.engine.transact(call, move |unit| {
        let (owners, revoke) = (owners.clone(), AccessCommand::RevokeToken { token });
        async move {
            if is_last_of_an_owner(unit, (principal, token), &owners).await? {
                let detail = "cannot revoke the token: it is the only valid token of an owner; create another owner first: \
                              `stead tokens create --role owner`";
                return Err(Problem::new(Code::Rejected, detail));
            }
            unit.handle::<Access>(principal, revoke).await.map(drop)
        }
        .boxed()
    });
    let revoked = revoked.await?;
    app.principals.wait_for_position(revoked.position).await;
    Ok(revoked)
}

/// Grants a role to a principal, effective from the next request to this server.
pub(crate) async fn grant_role(
    app: &App,
    call: &Call,
    principal: PrincipalId,
    role: Role,
) -> Result<Done<()>, Problem> {
    let granted = app.engine.transact(call, move |unit| {
        let grant = AccessCommand::GrantRole { role };
        async move { unit.handle::<Access>(principal, grant).await.map(drop) }.boxed()
    });
    let granted = granted.await?;
    app.principals.wait_for_position(granted.position).await;
    Ok(granted)
}

/// Revokes a role from a principal, effective from the next request to this server. Rejects the
/// request for the owner role of the only owner.
pub(crate) async fn revoke_role(
    app: &App,
    call: &Call,
    principal: PrincipalId,
    role: Role,
) -> Result<Done<()>, Problem> {
    let owners = app.principals.owners();
    let revoked = app.engine.transact(call, move |unit| {
        let (owners, revoke_role) = (owners.clone(), AccessCommand::RevokeRole { role });
        async move {
            let now = unit.now();
            let owns = role == Role::Owner && unit.load::<Access>(principal).await?.is_owner(now);
            if owns && !another_owner_exists(unit, principal, &owners).await? {
                let detail = "cannot revoke the role: this principal is the only owner; create another owner first: \
                              `stead tokens create --role owner`";
                return Err(Problem::new(Code::Rejected, detail));
            }
            unit.handle::<Access>(principal, revoke_role).await.map(drop)
        }
        .boxed()
    });
    let revoked = revoked.await?;
    app.principals.wait_for_position(revoked.position).await;
    Ok(revoked)
}

/// Returns true if another principal has the owner role and a valid token.
async fn another_owner_exists(
    unit: &mut UnitOfWork,
    principal: PrincipalId,
    owners: &[PrincipalId],
) -> Result<bool, Problem> {
    let now = unit.now();
    for other in owners.iter().filter(|other| **other != principal) {
        if unit.load::<Access>(other).await?.is_owner(now) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if no owner would have a valid token without this token. The commit guards all
/// streams that this function reads. If two owners revoke each other's tokens concurrently, one of
/// the revocations is rejected.
async fn is_last_of_an_owner(
    unit: &mut UnitOfWork,
    (principal, token): (PrincipalId, TokenId),
    owners: &[PrincipalId],
) -> Result<bool, Problem> {
    let now = unit.now();
    let access = unit.load::<Access>(principal).await?;
    if !access.roles.contains(&Role::Owner) || !access.is_token_valid(token, now) {
        return Ok(false);
    }
    if access.is_owner_without(token, now) {
        return Ok(false);
    }
    Ok(!another_owner_exists(unit, principal, owners).await?)
}
