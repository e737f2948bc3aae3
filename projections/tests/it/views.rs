//! After concurrent writes, restarts and kills, every row matches the log.
use crate::support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::{
    access::{Access, AccessCommand, PrincipalKind, Role},
    app::{App, AppCommand},
    ids::{AppId, PrincipalId},
};
use projections::{Progress, Projections, rebuild, verify};
use sqlx::Row;
use support::{
    Noise, assert_same, assert_verified, database, dump, handle, names, open, rows, ulid,
};

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn any_events_in_any_order_give_correct_rows() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let (mut a, mut b) = (Noise::new(1), Noise::new(2));
    tokio::join!(a.write(&log, 150), b.write(&log, 150));
    views.wait_for(log.position(), LONG).await.unwrap();
    assert_verified(&database.pool).await;

    let live = dump(&database.pool).await;
    assert!(live.values().all(|rows| !rows.is_empty()), "a projection has no rows");
    for name in names(&database.pool).await {
        let rebuilt = rebuild(&database.pool, name, |_| {}).await.unwrap();
        assert_eq!(rebuilt.rows as usize, live[name].len(), "{name}");
        assert_eq!(rebuilt.position, log.position(), "{name}");
    }
    assert_same(&dump(&database.pool).await, &live);

    // The appender and the projector continue with the new tables and their cached rows.
    a.write(&log, 50).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    assert_verified(&database.pool).await;
}

#[tokio::test]
async fn two_servers_apply_every_event_once() {
    let database = database().await;
    let (one, two) = (open(&database).await, open(&database).await);
    let views = [Projections::start(&one).await.unwrap(), Projections::start(&two).await.unwrap()];
    let (mut a, mut b) = (Noise::new(3), Noise::new(4));
    tokio::join!(a.write(&one, 100), b.write(&two, 100));
    one.wait_for(two.position()).await.unwrap();
    two.wait_for(one.position()).await.unwrap();
    for view in &views {
        view.wait_for(one.position(), LONG).await.unwrap();
    }
    assert_verified(&database.pool).await;
}

#[tokio::test]
async fn cached_rows_are_reloaded_after_another_server_wrote() {
    let database = database().await;
    let (one, two) = (open(&database).await, open(&database).await);
    let views = Projections::start(&one).await.unwrap();
    let mut noise = Noise::new(12);
    for _ in 0..60 {
        noise.write(&one, 2).await;
        noise.write(&two, 2).await;
    }
    one.wait_for(two.position()).await.unwrap();
    views.wait_for(one.position(), LONG).await.unwrap();
    assert_verified(&database.pool).await;
}

#[tokio::test]
async fn projections_that_start_late_catch_up() {
    let database = database().await;
    let log = open(&database).await;
    Noise::new(5).write(&log, 100).await;
    let views = Projections::start(&log).await.unwrap();
    views.wait_for(log.position(), LONG).await.unwrap();
    assert_verified(&database.pool).await;
    let statuses = projections::list(&mut database.pool.acquire().await.unwrap()).await.unwrap();
    assert_eq!(statuses.len(), names(&database.pool).await.len());
    assert!(statuses.iter().all(|status| status.lag == 0), "{statuses:?}");
}

#[tokio::test]
async fn a_wait_for_a_position_times_out() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let behind = views.wait_for(7, Duration::from_millis(20)).await.unwrap_err();
    assert_eq!((behind.at, behind.position), (0, 7));
}

#[tokio::test]
async fn a_projection_is_rebuilt_during_appends() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(6);
    noise.write(&log, 60).await;
    let writing = noise.write(&log, 200);
    let rebuilding = async {
        for name in ["jobs", "job_queue", "timers", "installs", "tokens"] {
            rebuild(&database.pool, name, |_| {}).await.unwrap();
        }
    };
    tokio::join!(writing, rebuilding);
    views.wait_for(log.position(), LONG).await.unwrap();
    assert_verified(&database.pool).await;
}

#[tokio::test]
async fn a_killed_rebuild_continues_at_its_position() {
    let database = database().await;
    let log = open(&database).await;
    Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(7);
    noise.write(&log, 50).await;
    let killed = tokio::spawn({
        let pool = database.pool.clone();
        async move {
            rebuild(&pool, "jobs", |progress| {
                assert!(progress != Progress::Swapping, "killed here");
            })
            .await
            .map(|_| ())
            .map_err(|error| error.to_string())
        }
    })
    .await;
    assert!(killed.is_err());
    let before = log.position();
    noise.write(&log, 10).await;
    let mut first = None;
    rebuild(&database.pool, "jobs", |progress| {
        first.get_or_insert(progress);
    })
    .await
    .unwrap();
    // The shadow table already included the earlier events.
    let Some(Progress::Replaying { events, total }) = first else { panic!("{first:?}") };
    assert!(events > before && total == log.position(), "{events} {total} {before}");
    let verified = verify(&database.pool, "jobs", |_| {}).await.unwrap();
    assert_eq!(verified.differences, []);
}

#[tokio::test]
async fn the_reported_progress_is_exact() {
    let database = database().await;
    let log = open(&database).await;
    Noise::new(8).write(&log, 40).await;
    Projections::start(&log).await.unwrap();
    let mut reported = vec![];
    rebuild(&database.pool, "runs", |progress| reported.push(progress)).await.unwrap();
    let all = log.position();
    assert_eq!(reported, [Progress::Replaying { events: all, total: all }, Progress::Swapping]);
    let unknown = rebuild(&database.pool, "rums", |_| {}).await.unwrap_err();
    assert!(unknown.to_string().contains("rums"), "{unknown}");
}

#[tokio::test]
async fn every_kind_of_difference_is_explained() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let mut noise = Noise::new(9);
    noise.write(&log, 150).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    let keys = sqlx::query("select key from projection_apps order by key")
        .fetch_all(&database.pool)
        .await
        .unwrap();
    let key = |at: usize| keys[at].get::<String, _>(0);
    let damage = format!(
        "delete from projection_apps where key = '{}'; \
         update projection_apps set data = replace(data::text, '\"shop\"', '\"shed\"')::json \
           where key = '{}'; \
         update projection_apps set name = 'hut' where key = '{}'; \
         insert into projection_apps (key, data, name) values ('zzz', '{{}}', 'x')",
        key(0),
        key(1),
        key(2)
    );
    sqlx::raw_sql(&damage).execute(&database.pool).await.unwrap();
    let differences = verify(&database.pool, "apps", |_| {}).await.unwrap().differences;
    let messages: Vec<String> = differences.iter().map(ToString::to_string).collect();
    let name = &rows(&database.pool, "apps").await[1];
    let expected = [
        format!("{} is missing", key(0)),
        format!("{}: name is \"shed\" and should be \"shop\"", key(1)),
        format!("{}: columns that do not match the data of the row: name", key(2)),
        "zzz is unexpected".to_string(),
    ];
    assert_eq!(messages, expected, "{name}");
    rebuild(&database.pool, "apps", |_| {}).await.unwrap();
    assert_eq!(verify(&database.pool, "apps", |_| {}).await.unwrap().differences, []);
    // The old rows remain as the previous ones.
    let previous = sqlx::query("select 1 from projection_apps_previous where key = 'zzz'");
    assert!(previous.fetch_optional(&database.pool).await.unwrap().is_some());
}

#[tokio::test]
async fn rows_of_another_version_are_rebuilt_at_the_start() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    Noise::new(10).write(&log, 60).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    drop(views);
    let live = dump(&database.pool).await;
    let older = "update log_consumer set version = 0 where name in ('jobs', 'tokens'); \
                 update projection_jobs set data = '{}'; update projection_tokens set data = '{}'";
    sqlx::raw_sql(older).execute(&database.pool).await.unwrap();
    let views = Projections::start(&log).await.unwrap();
    views.wait_for(log.position(), LONG).await.unwrap();
    assert_same(&dump(&database.pool).await, &live);
}

#[tokio::test]
async fn deleting_all_projections_loses_no_data() {
    let database = database().await;
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    Noise::new(11).write(&log, 80).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    let live = dump(&database.pool).await;
    for name in names(&database.pool).await {
        let all = format!("delete from projection_{name}");
        sqlx::raw_sql(&all).execute(&database.pool).await.unwrap();
        rebuild(&database.pool, name, |_| {}).await.unwrap();
    }
    assert_same(&dump(&database.pool).await, &live);
}

/// Tests that a rebuild repairs damaged rows that a server has cached and updated.
#[tokio::test]
async fn a_repaired_row_stays_repaired() {
    let database = database().await;
    let (ann, shop) = (PrincipalId(ulid(1)), AppId(ulid(2)));
    let log = open(&database).await;
    let (now, views) = (log.clock().now(), Projections::start(&log).await.unwrap());
    let add = AccessCommand::AddPrincipal { kind: PrincipalKind::Person, name_ref: None };
    handle::<Access>(&log, ann, now, add).await;
    handle::<App>(&log, shop, now, AppCommand::Create { name: "shop".into() }).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    drop((views, log));
    let damage = "update projection_principals set data = replace(data::text, '\"person\"', '\"service\"')::json; \
         update projection_apps set data = replace(data::text, '\"shop\"', '\"shed\"')::json";
    sqlx::raw_sql(damage).execute(&database.pool).await.unwrap();

    // A server starts and continues from the damaged rows.
    let log = open(&database).await;
    let views = Projections::start(&log).await.unwrap();
    let append = async |role: Role, bundle: &str| {
        handle::<Access>(&log, ann, now, AccessCommand::GrantRole { role }).await;
        let bundle = format!("sha256:{bundle:0>64}").parse().unwrap();
        let publish = AppCommand::Publish { bundle, components: vec![], plugins: vec![] };
        handle::<App>(&log, shop, now, publish).await;
        views.wait_for(log.position(), LONG).await.unwrap();
    };
    append(Role::Approver, "1").await;
    for name in ["principals", "apps"] {
        assert_ne!(verify(&database.pool, name, |_| {}).await.unwrap().differences, [], "{name}");
        rebuild(&database.pool, name, |_| {}).await.unwrap();
    }
    assert_verified(&database.pool).await;
    append(Role::Viewer, "2").await;
    assert_verified(&database.pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inline_projections_are_swapped_under_load_and_stay_exact() {
    let database = database().await;
    let logs = [open(&database).await, open(&database).await];
    let views = Projections::start(&logs[0]).await.unwrap();
    let writers = (0..4).map(|n| {
        let log = logs[n % 2].clone();
        tokio::spawn(async move { Noise::new(30 + n as u64).write(&log, 60).await })
    });
    let writers: Vec<_> = writers.collect();
    let swaps = async {
        let mut swaps = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            for name in ["job_queue", "timers", "principals", "tokens", "enrolments"] {
                rebuild(&database.pool, name, |_| {}).await.unwrap();
                swaps += 1;
            }
        }
        swaps
    };
    assert!(swaps.await >= 5);
    for writer in writers {
        writer.await.unwrap();
    }
    logs[0].wait_for(logs[1].position()).await.unwrap();
    logs[1].wait_for(logs[0].position()).await.unwrap();
    views.wait_for(logs[0].position(), LONG).await.unwrap();
    assert_verified(&database.pool).await;
}

#[tokio::test]
async fn a_rebuilt_table_has_the_same_options_and_privileges() {
    let database = database().await;
    let log = open(&database).await;
    Projections::start(&log).await.unwrap();
    let role = format!("App-{}", support::ulid(rand::random()));
    let run = async |sql: String| {
        sqlx::raw_sql(&sql).execute(&database.pool).await.unwrap();
    };
    run(format!(
        "create role \"{role}\"; grant select, insert, update on projection_job_queue to \"{role}\""
    ))
    .await;
    let options_and_privileges = async || {
        let sql = "select array_to_string(reloptions, ','), \
             has_table_privilege($1, 'projection_job_queue', 'insert'), \
             has_table_privilege($1, 'projection_job_queue', 'delete') \
             from pg_class where oid = 'projection_job_queue'::regclass";
        let row = sqlx::query(sql).bind(&role).fetch_one(&database.pool).await.unwrap();
        let options: Option<String> = row.get(0);
        (options, row.get::<bool, _>(1), row.get::<bool, _>(2))
    };
    let before = options_and_privileges().await;
    assert_eq!(before, (Some("fillfactor=70".into()), true, false));
    rebuild(&database.pool, "job_queue", |_| {}).await.unwrap();
    assert_eq!(options_and_privileges().await, before);
    run(format!("drop owned by \"{role}\"; drop role \"{role}\"")).await;
}

#[tokio::test]
async fn a_rebuild_needs_the_owner_of_the_tables() {
    let database = database().await;
    let log = open(&database).await;
    Projections::start(&log).await.unwrap();
    let role = "do $$ begin create role stead_app nologin; exception when others then null; end $$";
    sqlx::raw_sql(role).execute(&database.pool).await.unwrap();
    event_log::migrate(&database.pool).await.unwrap();
    let options = (*database.pool.connect_options()).clone().options([("role", "stead_app")]);
    let pool = sqlx::postgres::PgPoolOptions::new().connect_with(options).await.unwrap();
    let error = rebuild(&pool, "apps", |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("DATABASE_OWNER_URL"), "{error}");
}

/// Projections that servers of another version maintain do not cause this server to read the log
/// repeatedly.
#[tokio::test]
async fn pentest_a_server_without_rows_of_its_version_stops_reading_the_log() {
    let database = database().await;
    // Each page takes a connection from the pool.
    let pages = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&pages);
    let pool = sqlx::postgres::PgPoolOptions::new()
        .before_acquire(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(true) })
        })
        .connect_with((*database.pool.connect_options()).clone())
        .await
        .unwrap();
    let options = event_log::Options {
        inline_projections: projections::inline_projections(),
        ..Default::default()
    };
    let log = event_log::EventLog::open(pool, options).await.unwrap();
    let views = Projections::start(&log).await.unwrap();
    Noise::new(1).write(&log, 20).await;
    views.wait_for(log.position(), LONG).await.unwrap();
    let other_version = "update log_consumer set version = version + 1000";
    sqlx::query(other_version).execute(&database.pool).await.unwrap();
    // Waits longer than the interval of the projector's checks.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = pages.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let read = pages.load(Ordering::Relaxed) - before;
    assert!(read < 10, "{read} pages in a second");
    assert!(views.is_running());
}
