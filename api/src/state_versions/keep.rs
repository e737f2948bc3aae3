//! Versions that are kept: the newest ones, and those that the log names.
use domain::{ids::InstallId, state_version::StateVersion};
use sqlx::{PgConnection, PgPool};

use super::Of;

/// Number of newest versions of a component that are kept. Versions that the log has named are kept
/// as well.
const KEPT: i64 = 10;
/// Number of newest versions of a component that are kept when the quota of the install is used up.
const KEPT_AT_QUOTA: i64 = 2;

/// Version that the log names as the current one of a component, with the name of the component.
pub(crate) type Named = (String, StateVersion);

/// Marks the versions of a component that the log names or will name, so that they are kept.
pub(crate) async fn mark_named(
    pool: &PgPool,
    of: Of<'_>,
    named: &[StateVersion],
) -> Result<(), sqlx::Error> {
    mark_named_in(&mut *pool.acquire().await?, of, named).await
}

pub(super) async fn mark_named_in(
    connection: &mut PgConnection,
    of: Of<'_>,
    named: &[StateVersion],
) -> Result<(), sqlx::Error> {
    let sql = "update state_version v set is_named = true where install = $1 and component = $2 \
               and not is_named \
               and exists (select from unnest($3::text[], $4::int8[]) as named (lineage, serial) \
                 where named.lineage = v.lineage and named.serial = v.serial)";
    let (lineages, serials) = columns(named);
    sqlx::query(sql)
        .bind(of.install.to_string())
        .bind(of.component)
        .bind(lineages)
        .bind(serials)
        .execute(connection)
        .await?;
    Ok(())
}

fn columns(versions: &[StateVersion]) -> (Vec<&str>, Vec<i64>) {
    versions.iter().map(|version| (&*version.lineage, version.serial.cast_signed())).unzip()
}

/// Deletes versions that are neither among the newest nor named by the log.
pub(super) async fn remove_old(tx: &mut PgConnection, of: Of<'_>) -> Result<(), sqlx::Error> {
    let sql = format!(
        "delete from state_version where install = $1 and component = $2 and not is_named \
         and number <= {NEWEST} - $3"
    );
    let delete = sqlx::query(&sql).bind(of.install.to_string()).bind(of.component).bind(KEPT);
    delete.execute(tx).await?;
    Ok(())
}

const NEWEST: &str =
    "(select max(number) from state_version where install = $1 and component = $2)";

/// Makes the versions of the install fit into its quota: deletes the oldest versions that only
/// former deployments name, of any component, and then all but the two newest versions of each
/// component. Returns false if they do not fit.
///
/// Concurrent uploads of other components are not counted. Their number and size are limited.
pub(super) async fn fit(
    tx: &mut PgConnection,
    install: InstallId,
    current: &[Named],
    quota: u64,
) -> Result<bool, sqlx::Error> {
    let install = install.to_string();
    let sum = "select coalesce(sum(size), 0)::int8 from state_version where install = $1";
    let total: i64 = sqlx::query_scalar(sum).bind(&install).fetch_one(&mut *tx).await?;
    let mut total = total.cast_unsigned();
    // Skips versions that a concurrent upload deletes.
    let sql = "delete from state_version where (install, component, number) = \
                 (select install, component, number from state_version v where install = $1 \
                   and number <= (select max(number) from state_version n \
                     where n.install = v.install and n.component = v.component) - $2 \
                   and not exists (select from unnest($3::text[], $4::text[], $5::int8[]) \
                       as named (component, lineage, serial) \
                     where named.component = v.component and named.lineage = v.lineage \
                       and named.serial = v.serial) \
                   order by created_at, number limit 1 for update skip locked) \
               returning size";
    let components: Vec<&str> = current.iter().map(|(component, _)| &**component).collect();
    let versions: Vec<StateVersion> = current.iter().map(|(_, version)| version.clone()).collect();
    let (lineages, serials) = columns(&versions);
    for kept in [KEPT, KEPT_AT_QUOTA] {
        while total > quota {
            let deleted: Option<i64> = sqlx::query_scalar(sql)
                .bind(&install)
                .bind(kept)
                .bind(&components)
                .bind(&lineages)
                .bind(&serials)
                .fetch_optional(&mut *tx)
                .await?;
            let Some(size) = deleted else { break };
            total -= size.cast_unsigned();
        }
    }
    Ok(total <= quota)
}
