//! Names of principals. The log has only ids. A name is stored outside the log, so it can be
//! changed and removed without an effect on proofs.
use std::collections::HashMap;

use domain::{decider::Timestamp, ids::PrincipalId};
use schemas::{problem::FieldProblem, sanitize::sanitize};
use sqlx::PgExecutor;

use crate::problem::Problem;

/// Maximum length of a name, in characters.
const MAX_CHARACTERS: usize = 80;

/// Returns the name without surrounding spaces. A name must not look like an id, because outputs
/// show the name of an actor instead of its id.
///
/// # Errors
///
/// 422 if the name is invalid.
pub(crate) fn validated(name: &str) -> Result<String, Problem> {
    let name = name.trim();
    let reason = if name.is_empty() || name.chars().count() > MAX_CHARACTERS {
        "must have 1 to 80 characters"
    } else if sanitize(name) != name || name.contains('\t') {
        "has an invisible character"
    } else if name.contains(':')
        || ["prn_", "rnr_"].iter().any(|id| name.starts_with(id))
        || name == "system"
    {
        // Ids such as `policy:auto_approve` and `prn_…` identify actors.
        "looks like the id of an actor"
    } else {
        return Ok(name.to_owned());
    };
    let error = FieldProblem {
        field: Some("name".into()),
        message: format!("invalid name: it {reason}"),
        remedy: Some("use a plain name, such as Ann Lee or ci".into()),
        ..FieldProblem::default()
    };
    Err(Problem::invalid(format!("invalid name: it {reason}"), vec![error]))
}

/// Sets the name of a principal. Returns true if the name changed.
///
/// # Errors
/// If a database operation fails.
pub(crate) async fn set(
    executor: impl PgExecutor<'_>,
    principal: PrincipalId,
    name: &str,
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    // A principal whose name was erased cannot get another name.
    let sql = "insert into principal_name (principal, name, updated_at) \
               select $1::text, $2::text, $3::timestamptz where not exists ( \
                 select from subject_key where subject = $1 and shredded_at is not null) \
               on conflict (principal) do update set name = excluded.name, updated_at = excluded.updated_at \
               where principal_name.name <> excluded.name";
    let row = sqlx::query(sql).bind(principal.to_string()).bind(name).bind(now);
    Ok(row.execute(executor).await?.rows_affected() > 0)
}

/// Removes the name of a principal. Returns true if there was a name.
///
/// # Errors
/// If a database operation fails.
pub(crate) async fn remove(
    executor: impl PgExecutor<'_>,
    principal: PrincipalId,
) -> Result<bool, sqlx::Error> {
    let sql = "delete from principal_name where principal = $1";
    let row = sqlx::query(sql).bind(principal.to_string());
    Ok(row.execute(executor).await?.rows_affected() > 0)
}

/// Returns the names of these principals with one statement. Omits principals without a name.
///
/// # Errors
/// If a database operation fails.
pub(crate) async fn get(
    executor: impl PgExecutor<'_>,
    principals: impl IntoIterator<Item = PrincipalId>,
) -> Result<HashMap<PrincipalId, String>, sqlx::Error> {
    let ids: Vec<_> = principals.into_iter().map(|id| id.to_string()).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = "select principal, name from principal_name where principal = any($1)";
    let rows: Vec<(String, String)> = sqlx::query_as(sql).bind(ids).fetch_all(executor).await?;
    Ok(rows.into_iter().filter_map(|(id, name)| Some((id.parse().ok()?, name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_differs_from_ids_of_actors() {
        for good in ["Ann Lee", "Ann", "ci", "Ümit Çelik", "deploy_bot 2"] {
            assert_eq!(validated(&format!(" {good} ")).unwrap(), good);
        }
        let long = "x".repeat(MAX_CHARACTERS + 1);
        let actor = "prn_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let hidden = format!("\u{200b}{actor}");
        for bad in ["", "  ", &long, "policy:auto_approve", "system", actor] {
            let problem = validated(bad).unwrap_err();
            assert_eq!(problem.errors[0].field.as_deref(), Some("name"), "{bad:?}");
        }
        for bad in ["a\u{1b}[2Jb", "a\tb", "nnA\u{202e}", "\u{200b}system", &hidden] {
            let problem = validated(bad).unwrap_err();
            assert_eq!(problem.errors[0].field.as_deref(), Some("name"), "{bad:?}");
        }
    }
}
