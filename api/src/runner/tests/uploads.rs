//! Tests of limits on the size and lifetime of a runner's uploads.
mod pentest {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use axum::{
        body::{Body, Bytes},
        http::{Method, Request},
    };
    use chrono::TimeDelta;
    use domain::{
        digest::Digest,
        ids::JobId,
        job::{JobClass, JobKind},
    };
    use event_log::{
        Clock, blob,
        testing::fresh_database,
        upload::{self, Limit, NotStored, Quota, Uploader},
    };
    use futures::StreamExt as _;
    use serde_json::json;
    use sqlx::PgPool;

    use super::super::world::{Agent, TestResponse, World};

    /// Minimum charge of an upload, in bytes.
    const MIN_CHARGE: usize = 4096;
    const SMALL: Quota = Quota { execution: 4 * 4096, runner: 10 * 4096 };

    async fn put(pool: &PgPool, execution: &str, bytes: &[u8]) -> Result<Digest, NotStored> {
        let by = Uploader { execution, runner: "run_a" };
        loop {
            match upload::put(pool, &Clock::system(), by, bytes, SMALL).await.unwrap() {
                Err(NotStored::Busy) => tokio::task::yield_now().await,
                put => return put.map(|()| blob::digest(bytes).unwrap()),
            }
        }
    }

    fn days_from_now(days: i64) -> Clock {
        Clock::of(move || Clock::system().now() + TimeDelta::days(days))
    }

    async fn send(world: &World, agent: &Agent, execution: &str, bytes: Vec<u8>) -> TestResponse {
        let path = format!("/runner/v1/blobs/{}", blob::digest(&bytes).unwrap());
        let request = Request::builder().method(Method::PUT).uri(path);
        let token = format!("Bearer {}", agent.token);
        let request = request.header("authorization", token).header("execution", execution);
        world.send(request.body(Body::from(bytes)).unwrap()).await
    }

    async fn running_job() -> (World, Agent, JobId, String) {
        let world = World::new().await;
        let (mut agent, install) = world.agent().await;
        world.open(&mut agent, "j", json!([])).await;
        let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
        let execution = world.start_job(&agent, job).await;
        (world, agent, job, execution)
    }

    #[tokio::test]
    async fn one_runner_cannot_fill_the_database_with_blobs() {
        let (world, agent, _, execution) = running_job().await;
        let blob = |number: u8| vec![number; 8 << 20];
        for number in 0..4 {
            send(&world, &agent, &execution, blob(number)).await.ok();
        }
        let rejection =
            send(&world, &agent, &execution, blob(4)).await.rejected(413, "upload_quota_exceeded");
        assert_eq!(
            (&rejection["limit"], &rejection["limit_bytes"]),
            (&json!("execution"), &json!(32 << 20))
        );
        assert!(rejection["detail"].as_str().unwrap().contains("--max-execution-upload"));
        // Stored bytes may be sent again.
        send(&world, &agent, &execution, blob(0)).await.ok();
        let metrics = world.app.metrics.text();
        assert!(
            metrics.contains("stead_uploads_refused_total{limit=\"execution\"} 1"),
            "{metrics}"
        );
    }

    #[tokio::test]
    async fn executions_of_one_runner_share_a_quota() {
        let pool = fresh_database().await.unwrap().pool;
        for execution in ["exe_1", "exe_2"] {
            put(&pool, execution, &[1; 2 * MIN_CHARGE + 1]).await.unwrap();
            assert_eq!(
                put(&pool, execution, &[2; 2 * MIN_CHARGE]).await,
                Err(NotStored::Exceeds(Limit::Execution))
            );
            put(&pool, execution, &[2; 2 * MIN_CHARGE - 1]).await.unwrap();
        }
        assert_eq!(
            put(&pool, "exe_3", &[3; 2 * MIN_CHARGE + 1]).await,
            Err(NotStored::Exceeds(Limit::Runner))
        );
        put(&pool, "exe_3", &[3; 2 * MIN_CHARGE]).await.unwrap();
        let by = Uploader { execution: "exe_4", runner: "run_b" };
        let bytes = [1; 4 * MIN_CHARGE];
        upload::put(&pool, &Clock::system(), by, &bytes, SMALL).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn many_small_uploads_use_the_quota_up() {
        let pool = fresh_database().await.unwrap().pool;
        for number in 0..4 {
            put(&pool, "exe_1", &[number]).await.unwrap();
        }
        for _ in 0..50 {
            let by = Uploader { execution: "exe_1", runner: "run_a" };
            let rejection = upload::put(&pool, &Clock::system(), by, &[4], SMALL).await.unwrap();
            assert_eq!(
                rejection,
                Err(NotStored::Exceeds(Limit::Execution)),
                "the lock is given back"
            );
        }
        // Expired uploads that were deleted, and erased uploads, no longer count against the quota.
        assert_eq!(upload::delete_expired(&pool, &days_from_now(2)).await.unwrap(), 4);
        put(&pool, "exe_1", &[4]).await.unwrap();
        upload::erase(&pool, &["exe_1".to_string()]).await.unwrap();
        let counters = "select count(*) from upload_charge";
        assert_eq!(sqlx::query_scalar::<_, i64>(counters).fetch_one(&pool).await.unwrap(), 0);
    }

    /// Holds the lock of a runner's counters, like a stalled upload.
    async fn stalled_upload(
        pool: &PgPool,
        runner: &str,
    ) -> sqlx::Transaction<'static, sqlx::Postgres> {
        let mut tx = pool.begin().await.unwrap();
        let lock = "select pg_advisory_xact_lock(hashtextextended('blob_upload ' || $1, 0))";
        sqlx::query(lock).bind(runner).execute(&mut *tx).await.unwrap();
        tx
    }

    #[tokio::test]
    async fn upload_does_not_wait_for_another_one_of_its_runner() {
        let (world, agent, _, execution) = running_job().await;
        let other = stalled_upload(&world.app.pool, &agent.id.to_string()).await;
        let sent = send(&world, &agent, &execution, vec![1; 10]);
        let rejection = tokio::time::timeout(Duration::from_secs(5), sent).await.unwrap();
        rejection.rejected(429, "rate_limited");
        assert_eq!(rejection.headers["retry-after"], "1");
        other.rollback().await.unwrap();
        send(&world, &agent, &execution, vec![1; 10]).await.ok();
    }

    #[tokio::test]
    async fn body_that_exceeds_the_quota_is_not_read() {
        let (world, agent, _, execution) = running_job().await;
        let charge = "insert into upload_charge values ($1, $2)";
        let left = 2 * MIN_CHARGE as i64;
        let charge = sqlx::query(charge).bind(&execution).bind((32 << 20) - left);
        charge.execute(&world.app.pool).await.unwrap();
        for (length, most_read) in [(Some(2 * MIN_CHARGE + 1), 0), (None, 2 * MIN_CHARGE + 1024)] {
            let read = Arc::new(AtomicUsize::new(0));
            let counted = read.clone();
            let parts = futures::stream::repeat_with(move || {
                counted.fetch_add(1024, Ordering::Relaxed);
                Ok::<_, std::io::Error>(Bytes::from_static(&[1; 1024]))
            });
            let path = format!("/runner/v1/blobs/{}", blob::digest(b"other").unwrap());
            let mut request = Request::builder().method(Method::PUT).uri(path);
            let token = format!("Bearer {}", agent.token);
            request = request.header("authorization", token).header("execution", &execution);
            if let Some(length) = length {
                request = request.header("content-length", length);
            }
            let body = Body::from_stream(parts.take(1 << 20));
            let response = world.send(request.body(body).unwrap()).await;
            response.rejected(413, "upload_quota_exceeded");
            let read = read.load(Ordering::Relaxed);
            assert!(read <= most_read, "{length:?}: read {read} bytes");
        }
    }

    #[tokio::test]
    async fn bytes_erased_with_another_execution_are_stored_again() {
        let pool = fresh_database().await.unwrap().pool;
        let digest = put(&pool, "exe_1", b"a").await.unwrap();
        assert!(upload::move_to_blob(&pool, &Clock::system(), "exe_1", &digest).await.unwrap());
        sqlx::query("delete from blob").execute(&pool).await.unwrap();
        assert_eq!(put(&pool, "exe_1", b"a").await, Ok(digest.clone()));
        assert!(upload::move_to_blob(&pool, &Clock::system(), "exe_1", &digest).await.unwrap());
        assert_eq!(blob::get(&pool, &digest).await.unwrap().as_deref(), Some(&b"a"[..]));
    }

    #[tokio::test]
    async fn erasure_keeps_a_blob_that_a_pending_report_of_another_execution_references() {
        let pool = fresh_database().await.unwrap().pool;
        let mut digests = vec![];
        for execution in ["exe_1", "exe_2"] {
            let digest = put(&pool, execution, b"a").await.unwrap();
            assert!(
                upload::move_to_blob(&pool, &Clock::system(), execution, &digest).await.unwrap()
            );
            digests = vec![digest.to_string()];
        }
        let (one, both) = (vec!["exe_1".to_owned()], vec!["exe_1".to_owned(), "exe_2".to_owned()]);
        for (executions, left) in [(one, 0), (both, 1)] {
            let erased = blob::Erased { subjects: &[], digests: &digests, executions: &executions };
            assert_eq!(blob::not_erased(&pool, erased).await.unwrap(), left);
            blob::erase(&pool, erased).await.unwrap();
            let blobs = "select count(*) from blob";
            let blobs: i64 = sqlx::query_scalar(blobs).fetch_one(&pool).await.unwrap();
            assert_eq!(blobs, 1 - left);
        }
    }

    #[tokio::test]
    async fn upload_that_began_before_an_erasure_is_not_stored_after_it() {
        let pool = fresh_database().await.unwrap().pool;
        // given an upload that has checked its execution for erasure, and waits for a lock
        let mut erasure = pool.begin().await.unwrap();
        let lock = "lock table blob_upload in share mode";
        sqlx::query(lock).execute(&mut *erasure).await.unwrap();
        let (of_upload, waiting) =
            (pool.clone(), "select count(*) from pg_locks where not granted");
        let upload = tokio::spawn(async move { put(&of_upload, "exe_1", b"a").await });
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&pool).await.unwrap() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // when the execution is erased, then the upload is not stored
        let mark = "insert into erased_execution values ('exe_1')";
        sqlx::query(mark).execute(&mut *erasure).await.unwrap();
        erasure.commit().await.unwrap();
        assert_eq!(upload.await.unwrap(), Err(NotStored::Erased));
    }

    #[tokio::test]
    async fn concurrent_uploads_do_not_exceed_the_quota_together() {
        let pool = fresh_database().await.unwrap().pool;
        let sent = (0..8).map(|number| {
            let pool = pool.clone();
            async move { put(&pool, "exe_1", &[number; 2 * MIN_CHARGE]).await }
        });
        let sent = futures::future::join_all(sent).await;
        assert_eq!(sent.iter().filter(|sent| sent.is_ok()).count(), 2, "{sent:?}");
    }

    #[tokio::test]
    async fn execution_moves_one_upload_to_the_permanent_blobs() {
        let pool = fresh_database().await.unwrap().pool;
        let (first, second) =
            (put(&pool, "exe_1", b"a").await.unwrap(), put(&pool, "exe_1", b"b").await.unwrap());
        let clock = Clock::system();
        for _ in 0..2 {
            assert!(upload::move_to_blob(&pool, &clock, "exe_1", &first).await.unwrap());
        }
        assert!(!upload::move_to_blob(&pool, &clock, "exe_1", &second).await.unwrap());
        assert_eq!(blob::get(&pool, &first).await.unwrap().as_deref(), Some(&b"a"[..]));
        assert_eq!(blob::get(&pool, &second).await.unwrap(), None);
    }

    #[tokio::test]
    async fn unreferenced_uploads_are_deleted_and_referenced_ones_stay() {
        let pool = fresh_database().await.unwrap().pool;
        let (named, unnamed) =
            (put(&pool, "exe_1", b"a").await.unwrap(), put(&pool, "exe_1", b"b").await.unwrap());
        // An upload of the same bytes does not affect a blob of the server.
        let own = blob::put(&pool, b"c").await.unwrap();
        assert_eq!(put(&pool, "exe_1", b"c").await.unwrap(), own);
        upload::move_to_blob(&pool, &Clock::system(), "exe_1", &named).await.unwrap();
        assert_eq!(upload::delete_expired(&pool, &days_from_now(0)).await.unwrap(), 0);
        assert_eq!(upload::unreferenced_bytes(&pool).await.unwrap(), 2);
        assert_eq!(upload::delete_expired(&pool, &days_from_now(2)).await.unwrap(), 2);
        assert_eq!(upload::unreferenced_bytes(&pool).await.unwrap(), 0);
        for (digest, is_there) in [(&named, true), (&own, true), (&unnamed, false)] {
            let read = upload::read(&pool, "exe_1", digest).await.unwrap();
            assert_eq!(read.is_some(), is_there, "{digest}");
        }
        // Quotas count the uploads of the last day.
        put(&pool, "exe_1", &[1; 4 * MIN_CHARGE]).await.unwrap();
    }

    #[tokio::test]
    async fn no_upload_of_an_erased_execution_is_stored() {
        let pool = fresh_database().await.unwrap().pool;
        let digest = put(&pool, "exe_1", b"a").await.unwrap();
        let mark = "insert into erased_execution values ('exe_1')";
        sqlx::query(mark).execute(&pool).await.unwrap();
        assert_eq!(put(&pool, "exe_1", b"b").await, Err(NotStored::Erased));
        assert!(!upload::move_to_blob(&pool, &Clock::system(), "exe_1", &digest).await.unwrap());
        upload::erase(&pool, &["exe_1".to_string()]).await.unwrap();
        assert_eq!(upload::read(&pool, "exe_1", &digest).await.unwrap(), None);
    }

    #[tokio::test]
    async fn concurrent_collection_never_leaves_a_report_without_its_blob() {
        let pool = fresh_database().await.unwrap().pool;
        for round in 0..50_u8 {
            let execution = format!("exe_{round}");
            let digest = put(&pool, &execution, &[round]).await.unwrap();
            let clock = Clock::system();
            let (late, keeping) = (days_from_now(2), execution.clone());
            let (stored, collected) = tokio::join!(
                upload::move_to_blob(&pool, &clock, &keeping, &digest),
                upload::delete_expired(&pool, &late),
            );
            collected.unwrap();
            let is_there = blob::get(&pool, &digest).await.unwrap().is_some();
            assert_eq!(stored.unwrap(), is_there);
        }
    }

    #[tokio::test]
    async fn plan_with_a_deleted_upload_is_rejected_until_it_is_uploaded_again() {
        let (world, agent, job, execution) = running_job().await;
        let summary = br#"{"add":1,"change":0,"destroy":0,"noop":false}"#;
        send(&world, &agent, &execution, summary.to_vec()).await.ok();
        assert_eq!(upload::delete_expired(&world.app.pool, &days_from_now(2)).await.unwrap(), 1);
        let plan = super::super::work::plan(&world, &agent, (job, &execution), summary).await;
        let rejection = world.report(&agent, job, &execution, 2, plan.clone()).await;
        assert!(
            rejection.rejected(422, "invalid")["detail"]
                .as_str()
                .unwrap()
                .contains("PUT /runner/v1/blobs/")
        );
        send(&world, &agent, &execution, summary.to_vec()).await.ok();
        world.report(&agent, job, &execution, 2, plan).await.ok();
        assert!(world.event_types(job).await.contains(&"plan_produced".to_string()));
        assert_eq!(upload::unreferenced_bytes(&world.app.pool).await.unwrap(), 0);
    }
}
