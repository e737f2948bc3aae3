//! Tokens with their principals, and the caller itself.
use domain::{access::Role, decider::Timestamp};
use projections::views::{principals::Principals, tokens};
use schemas::control::{
    Page, PageQuery,
    tokens::{Token, Whoami},
};

use super::pagination::PageRequest;
use crate::{auth::names, extract::Caller, problem::Problem, state::App};

/// Returns the principal of the token and the head of the log.
pub(crate) async fn whoami(app: &App, caller: &Caller) -> Result<Whoami, Problem> {
    caller.authorize("GET", "/v1/whoami")?;
    let log = app.engine.log();
    let name = names::get(&app.pool, [caller.principal]).await?.remove(&caller.principal);
    Ok(Whoami {
        principal: caller.principal,
        name,
        roles: caller.roles.iter().map(|role| role.as_str().to_owned()).collect(),
        log: log.head().origin(),
        version: env!("CARGO_PKG_VERSION").into(),
        position: log.position(),
    })
}

/// Lists tokens, oldest first.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: PageQuery,
) -> Result<Page<Token>, Problem> {
    caller.authorize("GET", "/v1/tokens")?;
    let part = PageRequest::of(query.limit, query.cursor)?;
    let rows = tokens::page(&app.pool, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.token);
    let holders = rows.iter().map(|row| row.principal.to_string()).collect();
    let holders = projections::many::<Principals>(&app.pool, holders).await?;
    let names = names::get(&app.pool, rows.iter().map(|row| row.principal)).await?;
    let now = app.now();
    let shown = |row: &tokens::Row| {
        let roles = holders.get(&row.principal.to_string()).map(|holder| &holder.roles);
        let name = names.get(&row.principal).cloned();
        Token { name, ..token(row, roles.into_iter().flatten(), now) }
    };
    Ok(Page { items: rows.iter().map(shown).collect(), next })
}

fn token<'r>(row: &tokens::Row, roles: impl Iterator<Item = &'r Role>, now: Timestamp) -> Token {
    Token {
        id: row.token,
        principal: row.principal,
        name: None,
        roles: roles.map(|role| role.as_str().to_owned()).collect(),
        state: match (row.revoked, row.is_valid(now)) {
            (true, _) => "revoked",
            (false, false) => "expired",
            (false, true) => "active",
        }
        .into(),
        issued_at: row.issued_at,
        expires_at: row.expires_at,
    }
}
