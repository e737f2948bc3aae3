//! Manifests whose commit failed: no event refers to them, and an erasure deletes them.
use schemas::control::runs::{RequestRun, RequestedKind};

use super::*;

/// Makes every commit fail that queues the job of a preflight while `injected_failure` has a row, as if the
/// database refused it. A row takes no lock on the log, unlike a new trigger.
const TRIGGER: &str = "create table injected_failure (one int); \
     create function fail_preflight() returns trigger language plpgsql as $$ begin \
       if new.event_type = 'job.queued' and new.payload::text like '%preflight%' \
           and exists (select from injected_failure) then \
         raise exception 'injected failure'; end if; \
       return new; end $$; \
     create trigger fail_preflight before insert on log_event \
       for each row execute function fail_preflight()";

/// Number of manifests of the install that no event refers to.
async fn orphans(app: &App, install: InstallId) -> i64 {
    let count = "select count(*) from blob b where subject = $1 and not exists \
         (select from log_event where event_type = 'job.queued' and payload::text like '%' || b.digest || '%')";
    sqlx::query_scalar(count).bind(install.to_string()).fetch_one(&app.pool).await.unwrap()
}

async fn stored(app: &App, install: InstallId) -> i64 {
    let count = "select count(*) from blob where subject = $1";
    sqlx::query_scalar(count).bind(install.to_string()).fetch_one(&app.pool).await.unwrap()
}

#[tokio::test]
async fn manifests_whose_commit_failed_are_erased_with_their_install() {
    let (started, owner) = started().await;
    let app = started.app();
    sqlx::raw_sql(TRIGGER).execute(&app.pool).await.unwrap();
    let (install, _) = install_with_personal_data(app, &owner).await;
    cancel_runs(app, &owner, install).await;
    let inputs = BTreeMap::from([("size".to_owned(), INPUT.to_owned())]);
    let other = CreateInstall { inputs, ..new_install("initech") };
    let other = owner.create_install(&other).await.unwrap().id;

    // given manifests that are stored, and whose commits failed
    sqlx::raw_sql("insert into injected_failure values (1)").execute(&app.pool).await.unwrap();
    let request = RequestRun {
        kind: RequestedKind::Reprovision,
        components: vec![],
        action: None,
        reason: None,
        plan_all: false,
    };
    owner.request_run("acme", &request).await.unwrap();
    let mut found = 0;
    for _ in 0..400 {
        found = orphans(app, install).await;
        if found > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert!(found > 0, "no manifest was stored before its commit failed");
    sqlx::raw_sql("delete from injected_failure").execute(&app.pool).await.unwrap();
    let subject = other.to_string();
    let kept = blob::put_for_event(&app.pool, b"of another install", Some(&subject));
    let kept = kept.await.unwrap();

    // when the install is erased
    deprovision(app, &owner, install).await;
    let subject = SubjectId::Install(install);
    owner.shred(subject, &why()).await.unwrap();
    wait_until_erased(&owner, subject).await;

    // then nothing of it remains, and other installs keep their data
    assert_eq!(stored(app, install).await, 0);
    assert!(blob::get(&app.pool, &kept).await.unwrap().is_some());
    // A server that rendered a manifest before the erasure stores nothing.
    let late = blob::put_for_event(&app.pool, b"late", Some(&install.to_string())).await.unwrap();
    assert_eq!(blob::get(&app.pool, &late).await.unwrap(), None);
    check_projections(&owner).await;
    started.server.stop().await;
}
