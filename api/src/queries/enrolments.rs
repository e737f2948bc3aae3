//! Enrolment tokens, without their secrets.
use domain::{decider::Timestamp, enrolment::Purpose};
use projections::views::enrolments as views;
use schemas::control::{Page, PageQuery, runners::EnrolmentToken};

use super::{lookup::Lookup, pagination::PageRequest};
use crate::{extract::Caller, problem::Problem, state::App};

/// Lists enrolment tokens, newest first.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: PageQuery,
) -> Result<Page<EnrolmentToken>, Problem> {
    caller.authorize("GET", "/v1/enrolment-tokens")?;
    let part = PageRequest::of(query.limit, query.cursor)?;
    let rows = views::page(&app.pool, part.after, part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.token);
    let (mut look, mut items, now) = (Lookup::new(app), Vec::new(), app.now());
    for row in &rows {
        let install = match row.issue.purpose {
            Purpose::Install { install } => Some(install),
            Purpose::Build => None,
        };
        let known = match install {
            Some(install) => look.install(install).await?,
            None => None,
        };
        items.push(EnrolmentToken {
            id: row.token,
            install,
            install_name: known.map(|install| install.state.name.clone()),
            state: state(row, now).into(),
            runner: row.redeemed.as_ref().map(|by| by.runner),
            created_at: row.issued_at,
            expires_at: row.issue.expires_at,
        });
    }
    Ok(Page { items, next })
}

fn state(row: &views::Row, now: Timestamp) -> &'static str {
    match (row.revoked, &row.redeemed) {
        (true, _) => "revoked",
        (false, Some(_)) => "used",
        (false, None) if now >= row.issue.expires_at => "expired",
        (false, None) => "unused",
    }
}
