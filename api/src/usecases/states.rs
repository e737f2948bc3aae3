//! Decisions of users about states of components.
use domain::{
    job::{Job, State as JobState},
    state_version::StateVersion,
};
use schemas::manifest::Fence;

use crate::{
    problem::{Code, Problem},
    state::App,
    state_versions::{self, Begun, Of},
};

/// Checks that no running job can write the state of the component, so that a user may choose one.
/// Returns the last execution that could, and a fence that rejects all executions claimed until now.
///
/// A job whose outcome is unknown does not count: the decision may be the way to continue.
pub(crate) async fn check_unused(app: &App, of: Of<'_>) -> Result<(Option<Begun>, Fence), Problem> {
    let position = state_versions::log_position(&app.pool).await?;
    let until = Fence { epoch: app.log().epoch(), position };
    let begun = state_versions::begun(&app.pool, of).await?;
    if let Some(id) = begun.and_then(|begun| begun.job) {
        let job = app.log().reload::<Job>(&id.to_string()).await?.state;
        if let JobState::Claimed(_) | JobState::Running(_) = job.state {
            let detail = format!(
                "cannot choose a state of {}: {id} uses it; wait until the job ends, or cancel it",
                of.component
            );
            return Err(Problem::new(Code::StateInUse, detail).with("job", id.to_string()));
        }
    }
    Ok((begun, until))
}

/// Prepares the acceptance of a state: it is kept, and executions claimed until now store no other
/// one. Each later job reads the newest state of the server, so another one must be forced: jobs are
/// refused until the runner's host has it.
pub(crate) async fn accept(
    app: &App,
    of: Of<'_>,
    state: &StateVersion,
    force: bool,
) -> Result<(), Problem> {
    let (known, until) = check_unused(app, of).await?;
    state_versions::mark_named(&app.pool, of, std::slice::from_ref(state)).await?;
    let newest = state_versions::newest(&app.pool, of).await?.map(|newest| newest.version());
    let is_newest =
        |newest: &StateVersion| (&newest.lineage, newest.serial) == (&state.lineage, state.serial);
    if !force && !newest.as_ref().is_some_and(is_newest) {
        let newest = newest.map_or_else(|| "none".to_owned(), |newest| newest.to_string());
        let detail = format!(
            "cannot accept {state}: the newest state of {} at the server is {newest}, and jobs read that one; choose a state on the \
             runner's host (stead-runner state resolve {}), or force the acceptance if that host has this state",
            of.component, of.component
        );
        return Err(Problem::new(Code::Rejected, detail));
    }
    match state_versions::decide(&app.pool, of, known, until).await? {
        true => Ok(()),
        false => {
            let detail = "cannot accept the state: another one is being stored; try again";
            Err(Problem::new(Code::Busy, detail).retry_after(1))
        }
    }
}
