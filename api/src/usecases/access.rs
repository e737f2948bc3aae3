//! Who may do what: principals, their roles and tokens.
use chrono::TimeDelta;
use domain::{
    access::{Access, AccessCommand, IssuedToken, PrincipalKind, Role},
    decider::Timestamp,
    ids::{PrincipalId, TokenId},
};
use futures::FutureExt as _;
use projections::views::{principals, tokens};
use ulid::Ulid;

use crate::{
    auth::{names, secret},
    execute::{Call, Done, Unit},
    problem::{Code, Problem},
    state::App,
};

/// A token that was just made. Its text is shown once and kept nowhere.
#[derive(Debug, Clone)]
pub struct Made {
    /// For whom it speaks.
    pub principal: PrincipalId,
    /// Names it.
    pub token: TokenId,
    /// The secret.
    pub clear: String,
    /// After this moment it is heard no more.
    pub expires_at: Option<Timestamp>,
}

/// Make a service with one role, and a token for it. It is heard from the next call on.
pub async fn create(
    app: &App,
    call: &Call,
    (name, role): (Option<String>, Role),
    lives: Option<TimeDelta>,
) -> Result<Done<Made>, Problem> {
    let (principal, token) = (PrincipalId(Ulid::new()), TokenId(Ulid::new()));
    let clear = secret::token();
    let sha256 = secret::digest(&clear).map_err(Problem::internal)?;
    let expires_at = match lives {
        Some(lives) => Some(app.now().checked_add_signed(lives).ok_or_else(too_long)?),
        None => None,
    };
    let issued = IssuedToken { token, sha256, expires_at };
    // Before the principal is there: whoever sees it sees what it is called.
    if let Some(name) = &name {
        names::keep(&app.pool, principal, name, app.now()).await?;
    }
    let made = app.engine.transact(call, move |unit| {
        let issued = issued.clone();
        async move {
            let add = AccessCommand::AddPrincipal { kind: PrincipalKind::Service, name_ref: None };
            unit.begin::<Access>(principal, add).await?;
            unit.tell::<Access>(principal, AccessCommand::GrantRole { role }).await?;
            unit.tell::<Access>(principal, AccessCommand::IssueToken(issued)).await.map(drop)
        }
        .boxed()
    });
    let Done { position, events, .. } = match made.await {
        Ok(made) => made,
        Err(problem) => {
            // Whether it was written may be in doubt. Who is there keeps the name.
            if principals::principal(&app.pool, principal).await?.is_none() {
                names::forget(&app.pool, principal).await?;
            }
            return Err(problem);
        }
    };
    app.people.caught_up(position).await;
    let answer = Made { principal, token, clear, expires_at };
    Ok(Done { answer, position, events })
}

/// Call a principal this, or nothing but its id. Whether it was called otherwise.
///
/// A name can be forgotten also where no principal is: it is kept before the principal is made, and a server
/// may end in between.
pub async fn name(
    app: &App,
    principal: PrincipalId,
    name: Option<String>,
) -> Result<bool, Problem> {
    let forgotten = name.is_none() && names::forget(&app.pool, principal).await?;
    if !forgotten && principals::principal(&app.pool, principal).await?.is_none() {
        return Err(Problem::not_found(principal));
    }
    match name {
        Some(name) => Ok(names::keep(&app.pool, principal, &name, app.now()).await?),
        None => Ok(forgotten),
    }
}

fn too_long() -> Problem {
    Problem::new(Code::Invalid, "the token would live longer than time is counted")
}

/// Make a token useless, from the next call on. The last one of an owner stays.
pub async fn revoke(app: &App, call: &Call, token: TokenId) -> Result<Done<()>, Problem> {
    let of = tokens::token(&app.pool, token).await?;
    let principal = of.ok_or_else(|| Problem::not_found(token))?.principal;
    let owners = app.people.owners();
    let told = app.engine.transact(call, move |unit| {
        let (owners, revoke) = (owners.clone(), AccessCommand::RevokeToken { token });
        async move {
            if is_last_of_an_owner(unit, (principal, token), &owners).await? {
                let detail = "this is the only token by which an owner is heard; make another one \
                              first: `stead tokens create --role owner`";
                return Err(Problem::new(Code::Rejected, detail));
            }
            unit.tell::<Access>(principal, revoke).await.map(drop)
        }
        .boxed()
    });
    let told = told.await?;
    app.people.caught_up(told.position).await;
    Ok(told)
}

/// Let a principal do more, from the next call on.
pub async fn grant(
    app: &App,
    call: &Call,
    principal: PrincipalId,
    role: Role,
) -> Result<Done<()>, Problem> {
    let told = app.engine.transact(call, move |unit| {
        let grant = AccessCommand::GrantRole { role };
        async move { unit.tell::<Access>(principal, grant).await.map(drop) }.boxed()
    });
    let told = told.await?;
    app.people.caught_up(told.position).await;
    Ok(told)
}

/// Let a principal do less, from the next call on. The last owner stays one.
pub async fn take_back(
    app: &App,
    call: &Call,
    principal: PrincipalId,
    role: Role,
) -> Result<Done<()>, Problem> {
    let owners = app.people.owners();
    let told = app.engine.transact(call, move |unit| {
        let (owners, take_back) = (owners.clone(), AccessCommand::RevokeRole { role });
        async move {
            let now = unit.now();
            let owns = role == Role::Owner && unit.load::<Access>(principal).await?.owns(now);
            if owns && !another_owns(unit, principal, &owners).await? {
                let detail = "this is the only owner; make another one first: \
                              `stead tokens create --role owner`";
                return Err(Problem::new(Code::Rejected, detail));
            }
            unit.tell::<Access>(principal, take_back).await.map(drop)
        }
        .boxed()
    });
    let told = told.await?;
    app.people.caught_up(told.position).await;
    Ok(told)
}

/// Whether somebody else is heard as an owner.
async fn another_owns(
    unit: &mut Unit,
    principal: PrincipalId,
    owners: &[PrincipalId],
) -> Result<bool, Problem> {
    let now = unit.now();
    for other in owners.iter().filter(|other| **other != principal) {
        if unit.load::<Access>(other).await?.owns(now) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether nobody could change anything any more without this token. What is read is guarded: of two owners
/// who revoke each other at once, one is refused.
async fn is_last_of_an_owner(
    unit: &mut Unit,
    (principal, token): (PrincipalId, TokenId),
    owners: &[PrincipalId],
) -> Result<bool, Problem> {
    let now = unit.now();
    let access = unit.load::<Access>(principal).await?;
    if !access.roles.contains(&Role::Owner) || !access.hears(token, now) {
        return Ok(false);
    }
    if access.owns_without(token, now) {
        return Ok(false);
    }
    Ok(!another_owns(unit, principal, owners).await?)
}
