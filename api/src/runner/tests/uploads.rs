//! Limits on the size and lifetime of a runner's uploads.
mod pentest {
    use axum::{
        body::Body,
        http::{Method, Request},
    };
    use chrono::TimeDelta;
    use domain::{
        digest::Digest,
        ids::JobId,
        job::{Class, JobKind},
    };
    use event_log::{
        Clock, blob,
        testing::fresh_database,
        upload::{self, Limit, NotStored, Quota, Uploader},
    };
    use serde_json::json;
    use sqlx::PgPool;

    use super::super::world::{Agent, Said, World};

    const SMALL: Quota = Quota { execution: 100, runner: 250 };

    async fn put(pool: &PgPool, execution: &str, bytes: &[u8]) -> Result<Digest, NotStored> {
        let by = Uploader { execution, runner: "run_a" };
        let put = upload::put(pool, &Clock::system(), by, bytes, SMALL).await.unwrap();
        put.map(|()| blob::digest(bytes).unwrap())
    }

    fn days_from_now(days: i64) -> Clock {
        Clock::of(move || Clock::system().now() + TimeDelta::days(days))
    }

    async fn send(world: &World, agent: &Agent, execution: &str, bytes: Vec<u8>) -> Said {
        let path = format!("/runner/v1/blobs/{}", blob::digest(&bytes).unwrap());
        let request = Request::builder().method(Method::PUT).uri(path);
        let token = format!("Bearer {}", agent.token);
        let request = request.header("authorization", token).header("execution", execution);
        world.send(request.body(Body::from(bytes)).unwrap()).await
    }

    async fn at_work() -> (World, Agent, JobId, String) {
        let world = World::new().await;
        let (mut agent, install) = world.agent().await;
        world.open(&mut agent, "j", json!([])).await;
        let job = world.queue(install, JobKind::Plan, Class::Pure).await;
        let execution = world.running(&agent, job).await;
        (world, agent, job, execution)
    }

    #[tokio::test]
    async fn one_runner_cannot_fill_the_database_with_blobs() {
        let (world, agent, _, execution) = at_work().await;
        let blob = |number: u8| vec![number; 8 << 20];
        for number in 0..4 {
            send(&world, &agent, &execution, blob(number)).await.ok();
        }
        let refused = send(&world, &agent, &execution, blob(4)).await.refused(413, "upload_quota");
        assert_eq!(
            (&refused["limit"], &refused["limit_bytes"]),
            (&json!("execution"), &json!(32 << 20))
        );
        assert!(refused["detail"].as_str().unwrap().contains("--max-execution-upload"));
        // What is there already may be sent again.
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
            put(&pool, execution, &[1; 60]).await.unwrap();
            assert_eq!(
                put(&pool, execution, &[2; 41]).await,
                Err(NotStored::Exceeds(Limit::Execution))
            );
            put(&pool, execution, &[2; 40]).await.unwrap();
        }
        assert_eq!(put(&pool, "exe_3", &[3; 51]).await, Err(NotStored::Exceeds(Limit::Runner)));
        put(&pool, "exe_3", &[3; 50]).await.unwrap();
        let by = Uploader { execution: "exe_4", runner: "run_b" };
        upload::put(&pool, &Clock::system(), by, &[1; 100], SMALL).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn concurrent_uploads_do_not_exceed_the_quota_together() {
        let pool = fresh_database().await.unwrap().pool;
        let sent = (0..8).map(|number| {
            let pool = pool.clone();
            async move { put(&pool, "exe_1", &[number; 40]).await }
        });
        let sent = futures::future::join_all(sent).await;
        assert_eq!(sent.iter().filter(|sent| sent.is_ok()).count(), 2, "{sent:?}");
    }

    #[tokio::test]
    async fn an_execution_moves_one_upload_to_the_blobs_that_stay() {
        let pool = fresh_database().await.unwrap().pool;
        let (first, second) =
            (put(&pool, "exe_1", b"a").await.unwrap(), put(&pool, "exe_1", b"b").await.unwrap());
        let clock = Clock::system();
        for _ in 0..2 {
            assert!(upload::keep(&pool, &clock, "exe_1", &first).await.unwrap());
        }
        assert!(!upload::keep(&pool, &clock, "exe_1", &second).await.unwrap());
        assert_eq!(blob::get(&pool, &first).await.unwrap().as_deref(), Some(&b"a"[..]));
        assert_eq!(blob::get(&pool, &second).await.unwrap(), None);
    }

    #[tokio::test]
    async fn uploads_that_no_report_names_are_collected_and_named_ones_stay() {
        let pool = fresh_database().await.unwrap().pool;
        let (named, unnamed) =
            (put(&pool, "exe_1", b"a").await.unwrap(), put(&pool, "exe_1", b"b").await.unwrap());
        // The server's own bytes are safe from a runner that uploads the same ones.
        let own = blob::put(&pool, b"c").await.unwrap();
        assert_eq!(put(&pool, "exe_1", b"c").await.unwrap(), own);
        upload::keep(&pool, &Clock::system(), "exe_1", &named).await.unwrap();
        assert_eq!(upload::collect(&pool, &days_from_now(0)).await.unwrap(), 0);
        assert_eq!(upload::waiting(&pool).await.unwrap(), 2);
        assert_eq!(upload::collect(&pool, &days_from_now(2)).await.unwrap(), 2);
        assert_eq!(upload::waiting(&pool).await.unwrap(), 0);
        for (digest, is_there) in [(&named, true), (&own, true), (&unnamed, false)] {
            let read = upload::read(&pool, "exe_1", digest).await.unwrap();
            assert_eq!(read.is_some(), is_there, "{digest}");
        }
        // Quotas count what the last day brought.
        put(&pool, "exe_1", &[1; 100]).await.unwrap();
    }

    #[tokio::test]
    async fn nothing_of_an_erased_execution_is_stored_or_kept() {
        let pool = fresh_database().await.unwrap().pool;
        let digest = put(&pool, "exe_1", b"a").await.unwrap();
        let mark = "insert into job_log values ('exe_1', -1, -1, 0, '', '')";
        sqlx::query(mark).execute(&pool).await.unwrap();
        assert_eq!(put(&pool, "exe_1", b"b").await, Err(NotStored::Erased));
        assert!(!upload::keep(&pool, &Clock::system(), "exe_1", &digest).await.unwrap());
        upload::erase(&pool, &["exe_1".to_string()]).await.unwrap();
        assert_eq!(upload::read(&pool, "exe_1", &digest).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_report_and_the_collector_never_leave_a_report_without_its_blob() {
        let pool = fresh_database().await.unwrap().pool;
        for round in 0..50_u8 {
            let execution = format!("exe_{round}");
            let digest = put(&pool, &execution, &[round]).await.unwrap();
            let clock = Clock::system();
            let (late, keeping) = (days_from_now(2), execution.clone());
            let (kept, collected) = tokio::join!(
                upload::keep(&pool, &clock, &keeping, &digest),
                upload::collect(&pool, &late),
            );
            collected.unwrap();
            let is_there = blob::get(&pool, &digest).await.unwrap().is_some();
            assert_eq!(kept.unwrap(), is_there);
        }
    }

    #[tokio::test]
    async fn a_plan_whose_upload_was_collected_is_refused_and_taken_when_it_is_uploaded_again() {
        let (world, agent, job, execution) = at_work().await;
        let summary = br#"{"add":1,"change":0,"destroy":0,"noop":false}"#;
        send(&world, &agent, &execution, summary.to_vec()).await.ok();
        assert_eq!(upload::collect(&world.app.pool, &days_from_now(2)).await.unwrap(), 1);
        let plan = super::super::work::plan(&world, &agent, (job, &execution), summary).await;
        let refused = world.report(&agent, job, &execution, 2, plan.clone()).await;
        assert!(refused.refused(422, "invalid")["detail"].as_str().unwrap().starts_with("PUT "));
        send(&world, &agent, &execution, summary.to_vec()).await.ok();
        world.report(&agent, job, &execution, 2, plan).await.ok();
        assert!(world.story(job).await.contains(&"plan_produced".to_string()));
        assert_eq!(upload::waiting(&world.app.pool).await.unwrap(), 0);
    }
}
