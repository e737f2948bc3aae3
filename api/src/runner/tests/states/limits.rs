//! Tests of the limits of stored states: names, sizes, quotas, concurrent transfers and retention.
use futures::StreamExt as _;
use schemas::runner::STATE_CIPHERTEXT_BYTES;

use super::*;
use crate::state_versions::{Named, NewVersion, NotStored, Replaces, Writer};

#[tokio::test]
async fn ten_versions_and_each_that_the_log_named_are_kept() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    for serial in 1..=20 {
        match serial {
            // The log names 2, and later 4 and 6.
            3 | 5 | 7 => record(&world, install, serial - 1).await,
            // A version that the log is about to name, before the server reads that event.
            9 => {
                let of = Of { install, component: "web" };
                let named = [head(held.fence, 8, "v8").version()];
                state_versions::mark_named(&world.app.pool, of, &named).await.unwrap();
            }
            _ => {}
        }
        let content = format!("v{serial}");
        let upload = by_job(head(held.fence, serial, &content));
        put(&world, &held.token, &upload, &content).await.ok();
    }
    let kept: Vec<i64> = [2, 4, 6, 8].into_iter().chain(11..=20).collect();
    assert_eq!(serials(&world).await, kept);
}

#[tokio::test]
async fn at_the_quota_former_deployments_make_room_and_current_versions_stay() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let (pool, of) = (&world.app.pool, Of { install, component: "web" });
    let version = |serial| head(held.fence, serial, &format!("v{serial}")).version();
    let named: Vec<_> = (1..=3).map(|serial| ("web".to_owned(), version(serial))).collect();
    let store = async |serial, named: &[Named], size, quota| {
        let (ciphertext, replaces) = (vec![7; size], Replaces::EmptyState);
        let head = &head(held.fence, serial, &format!("v{serial}"));
        let writer = Writer::Job(held.job);
        let new = NewVersion { head, ciphertext, replaces, writer, named, quota };
        state_versions::put(pool, world.app.now(), of, new, ()).await.unwrap()
    };
    for serial in 1..=13 {
        store(serial, &named, 10, 130).await.unwrap();
    }
    assert_eq!(serials(&world).await.len(), 13);
    // The log names only 2 now, so 1 and 3 make room. The newest ones stay.
    store(14, &named[1..2], 10, 130).await.unwrap();
    store(15, &named[1..2], 10, 110).await.unwrap();
    let kept: Vec<i64> = [2].into_iter().chain(6..=15).collect();
    assert_eq!(serials(&world).await, kept);
    let full = store(16, &named[1..2], 100, 110).await;
    assert_eq!(full, Err(NotStored::OverQuota));
    assert_eq!(newest(&world, install).await.unwrap().serial, 15);
}

#[tokio::test]
async fn at_the_quota_a_large_component_makes_room_for_a_small_one() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let pool = &world.app.pool;
    let current = [("web".to_owned(), head(held.fence, 15, "v15").version())];
    let store = async |component, serial, size, quota| {
        let (ciphertext, replaces) = (vec![7; size], Replaces::EmptyState);
        let (head, of) =
            (&head(held.fence, serial, &format!("v{serial}")), Of { install, component });
        let (writer, named) = (Writer::Job(held.job), &current);
        let new = NewVersion { head, ciphertext, replaces, writer, named, quota };
        state_versions::put(pool, world.app.now(), of, new, ()).await.unwrap()
    };
    for serial in 1..=15 {
        store("web", serial, 10, 1000).await.unwrap();
        let of = Of { install, component: "web" };
        let named = [head(held.fence, serial, &format!("v{serial}")).version()];
        state_versions::mark_named(pool, of, &named).await.unwrap();
    }
    // Former deployments go first, and then all but the two newest versions.
    store("db", 1, 10, 110).await.unwrap();
    let of_web = "select serial from state_version where component = 'web' order by number";
    let kept: Vec<i64> = sqlx::query_scalar(of_web).fetch_all(pool).await.unwrap();
    assert_eq!(kept, (6..=15).collect::<Vec<_>>());
    store("db", 2, 10, 40).await.unwrap();
    let kept: Vec<i64> = sqlx::query_scalar(of_web).fetch_all(pool).await.unwrap();
    assert_eq!(kept, [14, 15]);
    assert_eq!(store("db", 3, 10, 30).await, Err(NotStored::OverQuota));
}

#[tokio::test]
async fn a_state_of_exactly_the_maximum_size_is_stored_within_the_quota() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let most = usize::try_from(STATE_CIPHERTEXT_BYTES).unwrap();
    let upload = by_job(head(held.fence, 1, "large"));
    let too_large = Body::from(vec![7_u8; most + 1]);
    put_bytes(&world, &held.token, &upload, too_large).await.rejected(413, "too_large");
    // The length of a streamed body is known only at its end.
    let parts = (0..=most / (1 << 20)).map(|_| Ok::<_, std::io::Error>(vec![7_u8; 1 << 20]));
    let streamed = Body::from_stream(futures::stream::iter(parts));
    put_bytes(&world, &held.token, &upload, streamed).await.rejected(413, "too_large");
    put_bytes(&world, &held.token, &upload, Body::from(vec![7_u8; most])).await.ok();
    let size = "select octet_length(ciphertext)::int8 from state_version";
    let size: i64 = sqlx::query_scalar(size).fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(size.unsigned_abs(), STATE_CIPHERTEXT_BYTES);
    // The quota is for all versions together.
    let next = by_job(head(held.fence, 2, "next"));
    let full = put_bytes(&world, &held.token, &next, Body::from(vec![7_u8; 2 << 20])).await;
    full.rejected(507, "state_quota_exceeded");
    put(&world, &held.token, &next, "next").await.ok();
}

#[tokio::test]
async fn a_state_is_read_in_parts_and_its_transfer_counts_until_the_body_ends() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let bytes: Vec<u8> = (0..(5 << 19)).map(|at: u32| at.to_le_bytes()[1]).collect();
    let upload = by_job(head(held.fence, 1, "large"));
    put_bytes(&world, &held.token, &upload, Body::from(bytes.clone())).await.ok();
    let request = || {
        Request::get("/runner/v1/state/web")
            .header("authorization", format!("Bearer {}", held.token))
            .body(Body::empty())
            .unwrap()
    };
    let read = world.send(request()).await;
    assert!(read.bytes == bytes, "{} bytes differ", read.bytes.len());
    assert_eq!(read.headers["content-length"], bytes.len().to_string());
    // Readers that do not read take one transfer each, and the next one waits.
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(world.response(request()).await);
    }
    world.send(request()).await.rejected(503, "busy");
    open.pop();
    assert!(world.send(request()).await.bytes == bytes);
    // A version that is deleted during its transfer ends with an error and not as a shorter one.
    sqlx::query("delete from state_version").execute(&world.app.pool).await.unwrap();
    let parts: Vec<_> = open.pop().unwrap().into_body().into_data_stream().collect().await;
    assert!(parts.len() == 2 && parts[0].is_ok() && parts[1].is_err());
}

#[tokio::test]
async fn names_that_no_component_can_have_are_malformed() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    for path in ["a%00b", "a-b", "%2e%2e", "w%20b", &"x".repeat(65)] {
        let path = format!("/runner/v1/state/{path}");
        get(&world, &agent.token, &path).await.rejected(400, "bad_request");
    }
    for query in
        ["lineage=a%00&serial=1", "lineage=&serial=1", "lineage=l&serial=18446744073709551615"]
    {
        let path = format!("/runner/v1/state/web?{query}");
        get(&world, &held.token, &path).await.rejected(400, "bad_request");
    }
    let mut upload = by_job(head(held.fence, 1, "one"));
    upload.head.lineage = "a\0b".into();
    put(&world, &held.token, &upload, "one").await.rejected(400, "bad_request");
}

#[tokio::test]
async fn a_version_is_stored_and_its_permits_are_held_although_the_caller_left() {
    let (world, agent, install) = world().await;
    let held = run(&world, &agent, install, "web").await;
    let (permits, released) = tokio::sync::oneshot::channel::<()>();
    let head = &head(held.fence, 1, "one");
    let of = Of { install, component: "web" };
    let (ciphertext, replaces, writer) = (vec![7], Replaces::EmptyState, Writer::Job(held.job));
    let new = NewVersion { head, ciphertext, replaces, writer, named: &[], quota: 100 };
    let put = state_versions::put(&world.app.pool, world.app.now(), of, new, permits);
    // The first poll begins the transaction, and then the future is dropped.
    assert!(tokio::time::timeout(std::time::Duration::ZERO, put).await.is_err());
    assert_eq!(newest(&world, install).await, None, "the transaction runs");
    assert!(released.await.is_err(), "the permits are dropped");
    assert_eq!(newest(&world, install).await.as_ref(), Some(head));
}
