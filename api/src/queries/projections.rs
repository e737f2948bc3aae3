//! Projections with their positions, and their rows as of a position.
mod as_of_rows;

use std::collections::HashMap;

use projections::Class;
use schemas::control::{Page, projections::Projection};

pub(crate) use as_of_rows::rows;

use crate::{
    extract::Caller,
    problem::Problem,
    reactions::{
        dead_letters::{self, Progress},
        policies,
    },
    state::App,
};

/// Lists projections with their positions and lag.
pub(crate) async fn list(app: &App, caller: &Caller) -> Result<Page<Projection>, Problem> {
    caller.authorize("GET", "/v1/projections")?;
    let mut connection = app.pool.acquire().await?;
    let all = projections::list(&mut connection).await?;
    let mut as_of_positions = HashMap::new();
    for name in all.iter().map(|status| status.name) {
        as_of_positions
            .insert(name, projections::as_of_table::positions(&mut connection, name).await?);
    }
    let mut to_item = |status: projections::Status| Projection {
        name: status.name.into(),
        class: match status.class {
            Class::Synchronous => "synchronous",
            Class::Asynchronous => "asynchronous",
        }
        .into(),
        version: status.version.unsigned_abs(),
        position: status.position,
        lag: status.lag,
        as_of_positions: as_of_positions.remove(status.name).unwrap_or_default(),
        dead_letters: None,
    };
    let mut items: Vec<Projection> = all.into_iter().map(&mut to_item).collect();
    drop(connection);
    items.push(policies_status(app).await?);
    Ok(Page::whole(items))
}

/// Returns the position of the policies as a projection. Policies consume the log as projections
/// do, so operators look for their lag here.
async fn policies_status(app: &App) -> Result<Projection, Problem> {
    let Progress { position, dead_letters } = dead_letters::progress(&app.pool).await?;
    let (name, _, version) = policies::CONSUMER;
    Ok(Projection {
        name: name.into(),
        class: "policy".into(),
        version: version.unsigned_abs(),
        position,
        lag: app.log().position().saturating_sub(position),
        as_of_positions: vec![],
        dead_letters: Some(dead_letters),
    })
}

pub(crate) async fn projection_names(app: &App) -> Result<Vec<&'static str>, Problem> {
    let mut connection = app.pool.acquire().await?;
    let all = projections::list(&mut connection).await?;
    Ok(all.iter().map(|status| status.name).collect())
}

pub(crate) async fn check_exists(app: &App, name: &str) -> Result<(), Problem> {
    let all = projection_names(app).await?;
    if all.contains(&name) { Ok(()) } else { Err(unknown_projection(name, &all)) }
}

/// Problem for a projection that does not exist.
pub(crate) fn unknown_projection(name: &str, all: &[&str]) -> Problem {
    Problem::not_found(format!("the projection {name:?} (existing: {})", all.join(", ")))
}
