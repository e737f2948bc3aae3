//! Installs and apps by a part of their name, for the palette of the dashboard. The lists of the Control
//! API have no such filter, so each read authorizes by its list.
use crate::{extract::Caller, problem::Problem, state::App};

/// Maximum number of found installs, and of found apps.
const FOUND: i64 = 8;

/// Id and name of an entity.
pub(crate) type Named = (String, String);

/// Returns the first installs whose name contains a text, those that begin with it first.
pub(crate) async fn installs(
    app: &App,
    caller: &Caller,
    text: &str,
) -> Result<Vec<Named>, Problem> {
    caller.authorize("GET", "/v1/installs")?;
    let sql = "select key, name from projection_installs where position($1 in lower(name)) > 0 \
               order by position($1 in lower(name)) > 1, name limit $2";
    Ok(sqlx::query_as(sql).bind(text.to_lowercase()).bind(FOUND).fetch_all(&app.pool).await?)
}

/// Returns the first apps whose name contains a text, those that begin with it first.
pub(crate) async fn apps(app: &App, caller: &Caller, text: &str) -> Result<Vec<Named>, Problem> {
    caller.authorize("GET", "/v1/apps")?;
    let sql = "select key, name from projection_apps where position($1 in lower(name)) > 0 \
               order by position($1 in lower(name)) > 1, name limit $2";
    Ok(sqlx::query_as(sql).bind(text.to_lowercase()).bind(FOUND).fetch_all(&app.pool).await?)
}
