//! Published plugins.
use projections::views::plugins::{self as view, Row};
use schemas::control::{
    Page, PageQuery,
    plugins::{Plugin, PluginVersion},
};

use super::pagination::PageRequest;
use crate::{extract::Caller, problem::Problem, state::App};

/// Lists the plugins by name.
pub(crate) async fn list(
    app: &App,
    caller: &Caller,
    query: PageQuery,
) -> Result<Page<Plugin>, Problem> {
    caller.authorize("GET", "/v1/plugins")?;
    let part = PageRequest::<String>::of(query.limit, query.cursor)?;
    let rows = view::page(&app.pool, part.after.as_deref(), part.query_limit()).await?;
    let (rows, next) = part.page(rows, |row| row.name.clone());
    Ok(Page { items: rows.into_iter().map(plugin).collect(), next })
}

/// Returns a plugin by its name.
pub(crate) async fn get(app: &App, caller: &Caller, name: &str) -> Result<Plugin, Problem> {
    caller.authorize("GET", "/v1/plugins/{plugin}")?;
    let row = view::plugin(&app.pool, name).await?;
    row.map(plugin).ok_or_else(|| Problem::not_found(format!("the plugin {name:?}")))
}

fn plugin(row: Row) -> Plugin {
    let version = |(version, published_at): (domain::plugin::PluginVersion, _)| PluginVersion {
        version: version.version,
        digest: version.digest,
        size_bytes: version.size_bytes,
        platforms: version.platforms,
        publisher: version.publisher,
        published_at,
    };
    let versions = row.versions.into_iter().rev().map(|v| version((v.version, v.published_at)));
    Plugin { name: row.name, versions: versions.collect() }
}
