//! Encryption of personal data fields on a real Postgres.
use crate::support;

use std::{collections::BTreeMap, time::Duration};

use domain::{
    actor::Actor,
    decider::Decider,
    ids::{AppId, InstallId, PrincipalId},
    install::{Install, InstallCommand},
    subject::{Subject, SubjectCommand},
};
use event_log::{
    Commit, EventLog, KeyRing, LogError, Meta, NewEvent, Options, StreamId, WrappingKey, Write,
    encryption::{
        data::{self, DataId, Read, Stored},
        shred::{self, DueErasure},
    },
    testing::Database,
    verify::verify,
};
use support::database;
use ulid::Ulid;

fn ring(byte: u8, former: &[u8]) -> KeyRing {
    let of = |byte: &u8| WrappingKey::of([*byte; 32]);
    KeyRing::of(of(&byte), former.iter().map(of).collect())
}

async fn open_log(database: &Database, keys: KeyRing) -> EventLog {
    database.log_with(Options { keys, ..Options::default() }).await.unwrap()
}

fn meta() -> Meta {
    Meta::new(Actor::System, "cmd")
}

async fn handle<D: Decider<Error: std::fmt::Debug>>(log: &EventLog, id: &str, command: D::Command) {
    let mut loaded = log.reload::<D>(id).await.unwrap();
    let events = loaded.state.decide(command, log.clock().now()).unwrap();
    log.append(Commit::of(meta(), vec![loaded.write(&events).unwrap()])).await.unwrap();
    loaded.evolve(events);
    log.cache_state(&loaded);
}

async fn create(log: &EventLog, install: InstallId) {
    let create = InstallCommand::Create {
        app: AppId(Ulid::new()),
        name: "acme".into(),
        config_version: 1,
        inputs: BTreeMap::from([("city".to_owned(), "Ada's".to_owned())]),
        auto_approve: false,
    };
    handle::<Install>(log, &install.to_string(), create).await;
}

async fn shred_install(log: &EventLog, install: InstallId) {
    let by = Actor::Principal(PrincipalId(Ulid::new()));
    let shred = SubjectCommand::Shred { by, reason: "asked".into() };
    handle::<Subject>(log, &install.to_string(), shred).await;
}

async fn city(log: &EventLog, install: InstallId) -> String {
    let state = log.load_as_of::<Install>(&install.to_string(), u64::MAX).await.unwrap().state;
    state.inputs["city"].clone()
}

#[tokio::test]
async fn stored_payload_is_encrypted_and_read_payload_is_not() {
    let database = database().await;
    let log = open_log(&database, ring(1, &[])).await;
    let mut tail = log.tail();
    let install = InstallId(Ulid::new());
    create(&log, install).await;
    let received = tail.recv().await.unwrap();
    let read = log.read(0, 10).await.unwrap();
    assert_eq!(*received, *read, "the tail and a read return the same payload");
    assert!(
        !read[0].payload.contains("Ada") && read[0].payload.contains(r#""city":"[encrypted]""#)
    );
    assert!(read[0].readable().unwrap().contains(r#""city":"Ada's""#), "{:?}", read[0].readable());
    assert_eq!(city(&log, install).await, "Ada's");
    // A program with the database but without keys can read no personal data, and reports an error.
    let bare = database.log().await.unwrap();
    let error = bare.load::<Install>(&install.to_string()).await.unwrap_err();
    assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    assert_eq!(verify(&database.pool, 0, |_| {}).await.unwrap().size, 1);
}

#[tokio::test]
async fn servers_that_create_a_subject_key_concurrently_use_one_key() {
    let database = database().await;
    let logs = [open_log(&database, ring(1, &[])).await, open_log(&database, ring(1, &[])).await];
    let install = InstallId(Ulid::new());
    let write = |log: usize, kind: &'static str| {
        let payload = format!(r#"{{"type":"outputs_reported","outputs":{{"of":"{log}"}}}}"#);
        let event = NewEvent {
            event_type: "job.outputs_reported".into(),
            event_version: "1".into(),
            payload,
            customer: Some(install),
        };
        let stream = StreamId::new(kind, log.to_string());
        Commit::of(meta(), vec![Write { stream, expected: 0, events: vec![event] }])
    };
    let one = logs[0].append(write(0, "job"));
    let two = logs[1].append(write(1, "job"));
    let (one, two) = tokio::join!(one, two);
    one.unwrap();
    two.unwrap();
    for log in logs {
        let read = log.read(0, 10).await.unwrap();
        assert!(
            read.iter().all(|event| !event.readable().unwrap().contains("[encrypted]")),
            "{read:?}"
        );
    }
}

#[tokio::test]
async fn append_for_a_cached_subject_needs_no_pool_connection() {
    let database = database().await;
    let pool = event_log::connect(&database.url, 1).await.unwrap();
    let options = Options { keys: ring(1, &[]), ..Options::default() };
    let log = EventLog::open(pool.clone(), options).await.unwrap();
    let install = InstallId(Ulid::new());
    create(&log, install).await;
    let mut loaded = log.load::<Install>(&install.to_string()).await.unwrap();
    // The pool's only connection is in use, so a query for a key would wait.
    let connection = pool.acquire().await.unwrap();
    let set = BTreeMap::from([("city".to_owned(), "Bo's".to_owned())]);
    let change = InstallCommand::ChangeInputs {
        set,
        unset: Default::default(),
        by: Actor::System,
        reason: None,
    };
    let events = loaded.state.decide(change, log.clock().now()).unwrap();
    let commit = Commit::of(meta(), vec![loaded.write(&events).unwrap()]);
    tokio::time::timeout(Duration::from_secs(5), log.append(commit)).await.unwrap().unwrap();
    loaded.evolve(events);
    drop(connection);
    assert_eq!(city(&log, install).await, "Bo's");
}

#[tokio::test]
async fn every_server_drops_a_shredded_key() {
    let database = database().await;
    let (one, two) =
        (open_log(&database, ring(1, &[])).await, open_log(&database, ring(1, &[])).await);
    let (install, other) = (InstallId(Ulid::new()), InstallId(Ulid::new()));
    create(&one, install).await;
    create(&one, other).await;
    assert_eq!(city(&two, install).await, "Ada's");
    let before = one.head();
    // Only the shredding is recorded, as after a crash before the key was deleted.
    shred_install(&one, install).await;
    assert_eq!(shred::unfinished(&database.pool).await.unwrap(), [install.to_string()]);
    two.wait_for(one.position()).await.unwrap();
    for log in [&one, &two] {
        assert_eq!(city(log, install).await, "[erased]");
        assert_eq!(
            log.load::<Install>(&install.to_string()).await.unwrap().state.inputs["city"],
            "[erased]"
        );
        assert_eq!(city(log, other).await, "Ada's");
    }
    let now = one.clock().now();
    shred::delete_key(&database.pool, &install.to_string(), now).await.unwrap();
    shred::delete_key(&database.pool, &install.to_string(), now).await.unwrap();
    assert_eq!(shred::unfinished(&database.pool).await.unwrap(), Vec::<String>::new());
    let due = DueErasure { subject: install.to_string(), requests: 0 };
    assert_eq!(shred::with_copies(&database.pool).await.unwrap(), [due]);
    // A server that starts now reads the shredded key from the database.
    let three = open_log(&database, ring(1, &[])).await;
    assert_eq!(city(&three, install).await, "[erased]");
    // New personal data of the subject is not stored.
    let set = BTreeMap::from([("city".to_owned(), "Eve's".to_owned())]);
    let (by, unset) = (Actor::System, Default::default());
    let change = InstallCommand::ChangeInputs { set, unset, by, reason: None };
    handle::<Install>(&three, &install.to_string(), change).await;
    let last = three.read(three.position() - 1, 1).await.unwrap().remove(0);
    assert!(!last.payload.contains("Eve") && last.payload.contains("[erased]"), "{}", last.payload);
    assert_eq!(verify(&database.pool, 0, |_| {}).await.unwrap().size, three.position());
    let consistency = three.consistency(before.size, three.position()).await.unwrap();
    let head = three.head();
    let (old, new) = ((before.size, &before.root), (head.size, &head.root));
    proof::tree::verify_consistency(old.0, old.1, new.0, new.1, &consistency).unwrap();
}

#[tokio::test]
async fn erasure_does_not_complete_a_request_that_came_meanwhile() {
    let database = database().await;
    let (pool, subject) = (&database.pool, InstallId(Ulid::new()).to_string());
    let now = "2026-11-23T12:00:00Z".parse().unwrap();
    shred::delete_key(pool, &subject, now).await.unwrap();
    shred::erase_again(pool, &subject).await.unwrap();
    let due = shred::with_copies(pool).await.unwrap().remove(0);
    shred::erase_again(pool, &subject).await.unwrap();
    assert!(!shred::record_erasure(pool, &due, now).await.unwrap(), "it is to be erased again");
    let again = shred::with_copies(pool).await.unwrap().remove(0);
    assert!(shred::record_erasure(pool, &again, now).await.unwrap());
    assert_eq!(shred::with_copies(pool).await.unwrap(), []);
    assert_eq!(shred::without_copies(pool).await.unwrap(), [subject]);
}

#[tokio::test]
async fn start_needs_the_current_or_a_former_wrapping_key() {
    let database = database().await;
    let install = InstallId(Ulid::new());
    create(&open_log(&database, ring(1, &[])).await, install).await;
    let options = Options { keys: ring(2, &[]), ..Options::default() };
    let error = database.log_with(options).await.err().unwrap();
    assert!(matches!(error, LogError::WrappingKey(_)), "{error}");
    let both = ring(2, &[1]);
    let log = open_log(&database, both.clone()).await;
    assert_eq!(city(&log, install).await, "Ada's");
    // After the keys are rewrapped, the earlier wrapping key is not needed.
    assert_eq!(both.rewrap(&database.pool).await.unwrap(), 1);
    assert_eq!(both.rewrap(&database.pool).await.unwrap(), 0);
    assert_eq!(city(&open_log(&database, ring(2, &[])).await, install).await, "Ada's");
}

#[tokio::test]
async fn events_from_before_the_encryption_are_readable() {
    let database = database().await;
    let install = InstallId(Ulid::new());
    create(&database.log().await.unwrap(), install).await;
    let log = open_log(&database, ring(1, &[])).await;
    assert_eq!(city(&log, install).await, "Ada's");
}

#[tokio::test]
async fn data_of_a_subject_is_stored_encrypted_until_its_key_is_deleted() {
    let database = database().await;
    let log = open_log(&database, ring(1, &[])).await;
    let (pool, clock) = (&database.pool, log.clock());
    let digest = [7; 32].into();
    let id = DataId { subject: "ins_1", digest: &digest };
    let put = async |id, execution, plain: &[u8]| {
        data::put(pool, log.key_ring(), clock, id, (execution, plain)).await.unwrap()
    };
    let get = async |id| data::get(pool, log.key_ring(), id).await.unwrap();
    // when stored, it can be read with the same id only
    assert_eq!(put(id, "exe_1", b"secret words").await, Stored::Stored);
    assert_eq!(put(id, "exe_1", b"secret words").await, Stored::Stored);
    assert_eq!(get(id).await, Read::Found(b"secret words".to_vec()));
    assert_eq!(get(DataId { subject: "ins_2", digest: &digest }).await, Read::NotFound);
    let rows: Vec<Vec<u8>> =
        sqlx::query_scalar("select ciphertext from subject_data").fetch_all(pool).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert!(!rows[0].windows(6).any(|part| part == b"secret"));
    // an execution stores one piece of data
    let other = [8; 32].into();
    let second = DataId { subject: "ins_1", digest: &other };
    assert_eq!(put(second, "exe_1", b"more").await, Stored::OtherData);
    // a row that was moved to another id is not readable
    sqlx::query("update subject_data set digest = $1")
        .bind(other.to_string())
        .execute(pool)
        .await
        .unwrap();
    assert!(data::get(pool, log.key_ring(), second).await.is_err());
    // another server without the wrapping key cannot read it
    assert!(data::get(pool, &ring(2, &[]), second).await.is_err());
    // when the key is deleted, the data is unreadable and nothing new is stored
    assert_eq!(data::not_erased(pool, &["ins_1".to_owned()]).await.unwrap(), 1);
    shred::delete_key(pool, "ins_1", clock.now()).await.unwrap();
    log.key_ring().mark_shredded("ins_1");
    assert_eq!(get(second).await, Read::Erased);
    assert_eq!(put(id, "exe_2", b"late").await, Stored::Erased);
    data::erase(pool, &["ins_1".to_owned()]).await.unwrap();
    assert_eq!(data::not_erased(pool, &["ins_1".to_owned()]).await.unwrap(), 0);
}
