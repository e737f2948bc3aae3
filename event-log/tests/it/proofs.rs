//! Proofs of the log, and detection of tampering.
use crate::support;

use ed25519_dalek::SigningKey;
use event_log::{
    EventLog, LogError,
    testing::Database,
    verify::{VerifyError, VerifyOptions, verify, verify_in},
};
use proof::{
    checkpoint::Checkpoint,
    tree::{verify_consistency, verify_inclusion},
};
use support::{commit, database, run, server, verified_events};

/// A log over several nodes of level 8, appended in batches of irregular sizes.
async fn log_with_events(database: &Database) -> EventLog {
    let log = server(database).await;
    for (n, size) in [1, 254, 3, 511, 7, 300].into_iter().enumerate() {
        log.append(commit(&n.to_string(), 0, size)).await.unwrap();
    }
    assert_eq!(log.position(), 1_076);
    log
}

#[tokio::test]
async fn all_proofs_can_be_computed_from_stored_nodes() {
    let database = database().await;
    let log = log_with_events(&database).await;
    let (verified, events) = verified_events(&database).await;
    assert_eq!((log.head().root, log.chain()), (verified.root, verified.chain));
    let (mut old, mut old_root) = (0, proof::tree::empty_root());
    for size in [1, 2, 255, 256, 257, 511, 512, 513, 1_000, 1_024, 1_076] {
        let root = log.root(size).await.unwrap();
        for position in [1, 2, 200, 256, 257, 512, 900, size] {
            if position > size {
                assert!(log.inclusion(position, size).await.is_err());
                continue;
            }
            let path = log.inclusion(position, size).await.unwrap();
            let leaf = events[position as usize - 1].leaf;
            verify_inclusion(&leaf, position - 1, size, &path, &root).unwrap();
        }
        let path = log.consistency(old, size).await.unwrap();
        verify_consistency(old, &old_root, size, &root, &path).unwrap();
        (old, old_root) = (size, root);
    }
    assert!(log.root(1_077).await.is_err());
    assert!(log.inclusion(0, 5).await.is_err());
    assert!(log.consistency(5, 1_077).await.is_err());
    // A new server has the same head.
    assert_eq!(server(&database).await.head(), log.head());
}

#[tokio::test]
async fn checkpoint_covers_acknowledged_events() {
    let database = database().await;
    let log = log_with_events(&database).await;
    let key = SigningKey::from_bytes(&[7; 32]);
    let note = log.head().sign(&key);
    let checkpoint = Checkpoint::open(&note, &[key.verifying_key()]).unwrap();
    assert_eq!((checkpoint.size, checkpoint.epoch), (1_076, 1));
    assert_eq!(checkpoint.log_id, log.log_id());
    assert_eq!(checkpoint.root, log.root(1_076).await.unwrap());
}

#[tokio::test]
async fn published_checkpoint_is_compared_with_the_log() {
    let database = database().await;
    let log = server(&database).await;
    let key = SigningKey::from_bytes(&[7; 32]);
    assert_eq!(log.publish_checkpoint(&key).await.unwrap(), None);
    for n in 0..3 {
        log.append(commit("a", 2 * n, 2)).await.unwrap();
        assert!(log.publish_checkpoint(&key).await.unwrap().is_some());
        assert_eq!(log.publish_checkpoint(&key).await.unwrap(), None);
    }
    assert_eq!(log.verify_checkpoints(&[key.verifying_key().into()]).await.unwrap(), 3);
    let other = SigningKey::from_bytes(&[8; 32]).verifying_key();
    assert!(log.verify_checkpoints(&[other.into()]).await.is_err());
    run(&database, "update log_event set leaf = sha256('x') where position = 3").await;
    let LogError::Damaged { position, .. } =
        log.verify_checkpoints(&[key.verifying_key().into()]).await.unwrap_err()
    else {
        panic!()
    };
    assert_eq!(position, 4);
}

#[tokio::test]
async fn range_can_be_verified_from_any_position() {
    let database = database().await;
    let log = log_with_events(&database).await;
    for from in [1, 255, 256, 700, 1_075, 1_076] {
        let verified = verify(&database.pool, from, |_| {}).await.unwrap();
        assert_eq!((verified.checked, verified.root), (1_076 - from, log.head().root));
    }
}

/// Publishes more checkpoints than one query reads.
#[tokio::test]
async fn many_published_checkpoints_are_compared_page_by_page() {
    let database = database().await;
    let log = server(&database).await;
    let key = SigningKey::from_bytes(&[7; 32]);
    for n in 0..230 {
        log.append(commit("a", n * 2, 2)).await.unwrap();
        log.publish_checkpoint(&key).await.unwrap();
    }
    assert_eq!(log.verify_checkpoints(&[key.verifying_key().into()]).await.unwrap(), 230);
    let forged = log.root(10).await.unwrap();
    let checkpoint = Checkpoint { size: 444, root: forged, ..log.head() };
    let forged = sqlx::query("update log_checkpoint set note = $1 where position = 444");
    forged.bind(checkpoint.sign(&key)).execute(&database.pool).await.unwrap();
    let error = log.verify_checkpoints(&[key.verifying_key().into()]).await.unwrap_err();
    assert!(matches!(error, LogError::Damaged { position: 444, .. }), "{error}");
}

/// The start reports corruption, not a database failure.
#[tokio::test]
async fn start_on_a_log_with_a_gap_is_an_error() {
    let database = database().await;
    drop(log_with_events(&database).await);
    run(&database, "delete from log_event where position = 1070").await;
    let error = database.log().await.err().unwrap();
    assert!(matches!(error, LogError::Damaged { position: 1_076, .. }), "{error}");
}

/// Changes the log with full database privileges. Each change must be detected at its position.
#[tokio::test]
async fn tampering_is_found_at_its_position() {
    let swap = "update log_event set position = -1 where position = 300; \
         update log_event set position = 300 where position = 301; \
         update log_event set position = 301 where position = -1";
    for (what, tampering, position) in [
        (
            "a flipped byte",
            "update log_event set payload = '{\"type\":\"queuer\"}' where position = 300",
            300,
        ),
        ("metadata", "update log_event set metadata = '{}' where position = 300", 300),
        (
            "a time",
            "update log_event set recorded_at = recorded_at + interval '1 us' where position = 300",
            300,
        ),
        ("a type", "update log_event set event_type = 'job.failed' where position = 300", 300),
        ("a version", "update log_event set event_version = '01' where position = 300", 300),
        ("a stream", "update log_event set aggregate_id = 'x' where position = 300", 300),
        ("a salt", "update log_event set salt = '\\x00' where position = 300", 300),
        ("a leaf", "update log_event set leaf = sha256('x') where position = 300", 300),
        ("a link", "update log_event set chain = sha256('x') where position = 300", 300),
        ("a deleted row", "delete from log_event where position = 300", 300),
        ("the last of a block", "delete from log_event where position = 256", 256),
        ("the first of a block", "delete from log_event where position = 257", 257),
        (
            "a link over an edge",
            "update log_event set chain = sha256('x') where position = 512",
            512,
        ),
        ("swapped rows", swap, 300),
        ("a truncated tail", "delete from log_event where position > 1000", 1_001),
        ("a head set back", "update log_head set position = 1000", 1_001),
        ("a head's chain", "update log_head set chain = sha256('x')", 1_077),
        (
            "an inserted row",
            "insert into log_event select 1077, gen_random_uuid(), 'job', 'y', 1, event_type, event_version, payload, \
             metadata, salt, leaf, chain, commit_no, recorded_at from log_event where position = 1076",
            1_077,
        ),
        ("a node", "update log_node set hash = sha256('x') where index = 1", 512),
        ("a missing node", "delete from log_node where index = 2", 768),
        (
            "a stream's place",
            "update log_stream set last_position = 5 where aggregate_id = '3'",
            769,
        ),
        (
            "a stream's place beyond the head",
            "update log_stream set last_position = 5000 where aggregate_id = '3'",
            769,
        ),
        (
            "a stream of nothing beyond the head",
            "insert into log_stream values ('job', 'z', 1, 0, 2000)",
            2_000,
        ),
        (
            "an inserted row of a batch to come",
            "insert into log_event select 1080, gen_random_uuid(), 'job', 'y', 1, event_type, event_version, \
             payload, metadata, salt, leaf, chain, commit_no + 9, recorded_at from log_event where position = 1076",
            1_080,
        ),
        ("a missing stream", "delete from log_stream where aggregate_id = '3'", 769),
        ("a stream's version", "update log_stream set version = 500 where aggregate_id = '3'", 769),
    ] {
        let database = database().await;
        drop(log_with_events(&database).await);
        run(&database, tampering).await;
        // Verifies the log in one segment, and in five segments, of which several run concurrently.
        let small = VerifyOptions { concurrency: 3, blocks: 1, ..VerifyOptions::default() };
        for parts in [VerifyOptions::default(), small] {
            match verify_in(&database.pool, 0, parts, |_| {}).await {
                Err(VerifyError::Differs(difference)) => {
                    assert_eq!(difference.position, position, "{what}, {parts:?}: {difference}");
                }
                other => panic!("{what}, {parts:?}: {other:?}"),
            }
        }
    }
}

/// Recomputes leaves, chain, nodes and head from the rows. Only contradictions between rows remain
/// detectable.
async fn recompute_hashes(database: &Database) {
    let log_id = "select log_id from log_head";
    let log_id: String = sqlx::query_scalar(log_id).fetch_one(&database.pool).await.unwrap();
    let (mut chain, mut leaves) = (proof::chain::genesis(&log_id), vec![]);
    let mut tx = database.pool.begin().await.unwrap();
    for event in event_log::read::read(&database.pool, 0, 1_000_000).await.unwrap() {
        let leaf = event.computed_leaf().unwrap().hash();
        chain = proof::chain::next(&chain, &leaf);
        leaves.push(leaf);
        sqlx::query("update log_event set leaf = $1, chain = $2 where position = $3")
            .bind(&leaf[..])
            .bind(&chain[..])
            .bind(event.position.cast_signed())
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    for (index, block) in (0_i64..).zip(leaves.chunks_exact(256)) {
        sqlx::query("update log_node set hash = $1 where level = 8 and index = $2")
            .bind(&proof::tree::perfect(block).unwrap()[..])
            .bind(index)
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    let head = sqlx::query("update log_head set chain = $1").bind(&chain[..]);
    head.execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// With one segment, each contradiction is within the segment. With five segments, it spans the
/// boundary of two segments.
#[tokio::test]
async fn contradictions_between_rows_are_found_despite_valid_hashes() {
    for (what, tampering, position) in [
        (
            "a later time",
            "update log_event set recorded_at = recorded_at + interval '1 h' where position <= 512",
            513,
        ),
        (
            "a later batch",
            "update log_event set commit_no = commit_no + 9 where position <= 512",
            513,
        ),
        (
            "a gap in a stream",
            "update log_event set sequence = sequence + 1000 \
             where aggregate_id = '3' and position > 512; \
             update log_stream set version = version + 1000 where aggregate_id = '3'",
            513,
        ),
        (
            "a stream that does not begin",
            "update log_event set sequence = sequence + 1000 where aggregate_id = '5'; \
             update log_stream set version = version + 1000 where aggregate_id = '5'",
            777,
        ),
    ] {
        let database = database().await;
        drop(log_with_events(&database).await);
        recompute_hashes(&database).await;
        verified_events(&database).await;
        run(&database, tampering).await;
        recompute_hashes(&database).await;
        for parts in [
            VerifyOptions::default(),
            VerifyOptions { concurrency: 3, blocks: 1, ..VerifyOptions::default() },
        ] {
            match verify_in(&database.pool, 0, parts, |_| {}).await {
                Err(VerifyError::Differs(difference)) => {
                    assert_eq!(difference.position, position, "{what}, {parts:?}: {difference}");
                }
                other => panic!("{what}, {parts:?}: {other:?}"),
            }
        }
    }
}

/// Corrupts data before the verified range.
#[tokio::test]
async fn range_with_a_missing_start_is_a_difference() {
    for (what, tampering, position) in [
        ("a missing head", "delete from log_head", 1),
        ("a head of other bytes", "update log_head set chain = '\\x00'", 1),
        ("a missing node", "delete from log_node where index = 1", 512),
        ("a node of other bytes", "update log_node set hash = '\\x00' where index = 0", 512),
    ] {
        let database = database().await;
        drop(log_with_events(&database).await);
        run(&database, tampering).await;
        match verify(&database.pool, 700, |_| {}).await {
            Err(VerifyError::Differs(difference)) => {
                assert_eq!(difference.position, position, "{what}: {difference}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// A log with recomputed hashes passes verification, but does not match an earlier checkpoint.
#[tokio::test]
async fn earlier_checkpoint_detects_a_rewritten_log() {
    let (honest, forged) = (database().await, database().await);
    let log = log_with_events(&honest).await;
    let checkpoint = log.head();
    // A log with the same id and size, with every link recomputed from the first event on.
    let genesis = hex::encode(proof::chain::genesis(&checkpoint.log_id));
    let same =
        format!("update log_head set log_id = '{}', chain = '\\x{genesis}'", checkpoint.log_id);
    run(&forged, &same).await;
    let other = server(&forged).await;
    for (id, events) in [("other", 600), ("history", 476)] {
        other.append(commit(id, 0, events)).await.unwrap();
    }
    verified_events(&forged).await;
    let rewritten = other.head();
    assert_eq!((&rewritten.log_id, rewritten.size), (&checkpoint.log_id, checkpoint.size));
    assert_ne!(rewritten.root, checkpoint.root);
    other.append(commit("more", 0, 100)).await.unwrap();
    let path = other.consistency(checkpoint.size, 1_176).await.unwrap();
    let root = other.root(1_176).await.unwrap();
    assert!(verify_consistency(checkpoint.size, &checkpoint.root, 1_176, &root, &path).is_err());
    assert!(verify_consistency(rewritten.size, &rewritten.root, 1_176, &root, &path).is_ok());
}

/// A key that was retired immediately validates earlier checkpoints, but none after the end of its
/// validity.
#[tokio::test]
async fn pentest_retired_key_validates_no_later_checkpoint() {
    let database = database().await;
    let now = std::sync::Arc::new(std::sync::Mutex::new(
        chrono::DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
    ));
    let clock_time = now.clone();
    let clock = event_log::Clock::of(move || *clock_time.lock().unwrap());
    let log = database.log_with(event_log::Options { clock, ..Default::default() }).await.unwrap();
    let key = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
    let end = *now.lock().unwrap() + chrono::TimeDelta::hours(1);
    let mut retired = [event_log::CheckpointKey { until: Some(end), ..key.verifying_key().into() }];
    log.append(commit("a", 0, 1)).await.unwrap();
    log.publish_checkpoint(&key).await.unwrap();
    assert_eq!(log.verify_checkpoints(&retired).await.unwrap(), 1);
    *now.lock().unwrap() = end + chrono::TimeDelta::minutes(2);
    log.append(commit("a", 1, 1)).await.unwrap();
    log.publish_checkpoint(&key).await.unwrap();
    assert!(log.verify_checkpoints(&retired).await.is_err());
    assert_eq!(log.verify_checkpoints(&[key.verifying_key().into()]).await.unwrap(), 2);
    // The database can state an earlier time of publication, which the signature does not cover.
    // `last_size` rejects the checkpoint in that case.
    let last_size = log.last_size_of(&key.verifying_key(), end).await.unwrap();
    assert_eq!(last_size, 1);
    sqlx::query("update log_checkpoint set published_at = $1")
        .bind(end)
        .execute(&database.pool)
        .await
        .unwrap();
    assert_eq!(log.verify_checkpoints(&retired).await.unwrap(), 2, "the time is not signed");
    retired[0].last_size = Some(last_size);
    let error = log.verify_checkpoints(&retired).await.unwrap_err().to_string();
    assert!(error.contains("position 2") && error.contains("not signed"), "{error}");
    let stranger = ed25519_dalek::SigningKey::from_bytes(&[8; 32]).verifying_key();
    assert_eq!(log.last_size_of(&stranger, end).await.unwrap(), 0);
}
