//! What somebody with all rights to the database can do to the log, and who sees it: the table of docs/security.md.
use std::{fs, io::Write as _, path::Path, process::Stdio};

use domain::{actor::Actor, ids::EventId};
use ed25519_dalek::SigningKey;
use event_log::{
    Commit, EventLog, LogError, Meta, NewEvent, Options, StreamId, Write,
    testing::{Binaries, Database, fresh_database},
    verify::{VerifyError, verify},
};
use proof::checkpoint::Checkpoint;
use schemas::control::audit::EventRecord;
use serde_json::value::RawValue;

use super::Verifier;

/// How it is done.
enum How {
    /// By statements.
    Sql(&'static str),
    /// As `psql` puts back what `pg_dump` wrote at position 9.
    OldBackup { published: Published },
    /// The same, and then other events as our own program writes them, until the log is as long as before.
    Rewritten { published: Published },
    /// One more event, as our own program writes it.
    Invented,
}

/// What becomes of the published checkpoints, which are signed by a key that is not in the database.
enum Published {
    PutBack,
    Removed,
}

/// One row.
struct Case {
    what: &'static str,
    how: How,
    means: &'static str,
}

const fn case(what: &'static str, how: How, means: &'static str) -> Case {
    Case { what, how, means }
}

const CASES: [Case; 15] = [
    case(
        "a byte of a payload is flipped",
        How::Sql("update log_event set payload = '{\"n\":77}' where position = 7"),
        "that event is not what was recorded",
    ),
    case(
        "a time, an actor, a type or a stream is changed",
        How::Sql("update log_event set metadata = '{\"actor\":\"prn_other\"}' where position = 7"),
        "the same",
    ),
    case(
        "a row is deleted",
        How::Sql("delete from log_event where position = 7"),
        "something that was recorded is gone",
    ),
    case(
        "a row is inserted, and those after it move",
        How::Sql(
            "update log_event set position = -position where position > 6; \
             insert into log_event select 7, gen_random_uuid(), aggregate_type, 'x', 1, event_type, event_version, \
               payload, metadata, salt, leaf, chain, commit_no, recorded_at from log_event where position = 6; \
             update log_event set position = 1 - position where position < 0; \
             update log_head set position = position + 1",
        ),
        "something was put in that was not recorded then",
    ),
    case(
        "a row is added after the last",
        How::Sql(
            "insert into log_event select 13, gen_random_uuid(), aggregate_type, 'x', 1, event_type, event_version, \
             payload, metadata, salt, leaf, chain, commit_no + 1, recorded_at from log_event where position = 12",
        ),
        "no server wrote it: the head does not count it",
    ),
    case(
        "two rows are swapped",
        How::Sql(
            "update log_event set position = -1 where position = 7; \
             update log_event set position = 7 where position = 8; \
             update log_event set position = 8 where position = -1",
        ),
        "the order is not the one in which it happened",
    ),
    case(
        "the tail is cut off",
        How::Sql("delete from log_event where position > 9"),
        "the newest events are gone, the head still counts them",
    ),
    case(
        "the tail is cut off, and head and streams are set back",
        How::Sql(
            "delete from log_event where position > 9; \
             delete from log_stream where last_position > 9; \
             update log_head h set position = 9, chain = e.chain, commit_no = e.commit_no \
               from log_event e where e.position = 9",
        ),
        "the newest events are gone; a checkpoint promised more",
    ),
    case(
        "a stream's version is changed",
        How::Sql("update log_stream set last_position = 5000 where aggregate_id = 's2'"),
        "commands to that stream would be refused, or decided on half of it",
    ),
    case(
        "a published checkpoint is changed",
        How::Sql(
            "update log_seal set note = replace(note, E'\\n6\\n', E'\\n7\\n') where position = 6",
        ),
        "nobody of ours signed that",
    ),
    case(
        "history is rewritten, with every hash computed anew",
        How::Rewritten { published: Published::PutBack },
        "what is published does not fit what is there",
    ),
    case(
        "the same, and the published checkpoints are removed",
        How::Rewritten { published: Published::Removed },
        "the log is whole in itself, and is not the one that others saw",
    ),
    case(
        "an old backup is put in its place",
        How::OldBackup { published: Published::Removed },
        "what came after it is gone; nothing in the database can tell",
    ),
    case(
        "the same, and the published checkpoints are those of today",
        How::OldBackup { published: Published::PutBack },
        "what came after it is gone, and was promised",
    ),
    case(
        "an event is added as a server adds it",
        How::Invented,
        "the log proves what was recorded, not that it is true; what a runner did is in its own journal",
    ),
];

/// A log of twelve events in four streams, and what is kept of it.
struct Ground {
    database: Database,
    /// A server that was there before, and goes on looking.
    log: EventLog,
    key: SigningKey,
    /// What somebody else kept, at 12.
    kept: Checkpoint,
    /// The database as it was before, where that is needed.
    old: Vec<u8>,
    seals: Vec<(u64, String)>,
}

fn events(stream: &str, expected: u64, numbers: std::ops::Range<u64>) -> Commit {
    let event = |n| NewEvent {
        event_type: "job.queued".into(),
        event_version: "1".into(),
        payload: format!(r#"{{"n":{n}}}"#),
        customer: None,
    };
    let stream = StreamId::new("job", stream);
    let write = Write { stream, expected, events: numbers.map(event).collect() };
    Commit::of(Meta::new(Actor::System, "cmd"), vec![write])
}

async fn opened(database: &Database) -> EventLog {
    let options = Options { watch_others: None, ..Options::default() };
    database.log_with(options).await.unwrap()
}

impl Ground {
    async fn new(how: &How) -> Ground {
        let (fifth, ninth) = match how {
            How::Rewritten { .. } => (true, false),
            How::OldBackup { .. } => (false, true),
            How::Sql(_) | How::Invented => (false, false),
        };
        let database = fresh_database().await.unwrap();
        let key = SigningKey::from_bytes(&[7; 32]);
        let log = opened(&database).await;
        log.append(events("s0", 0, 0..3)).await.unwrap();
        log.append(events("s1", 0, 3..5)).await.unwrap();
        let mut old = if fifth { dump(&database) } else { Vec::new() };
        log.append(events("s1", 2, 5..6)).await.unwrap();
        log.seal(&key).await.unwrap();
        log.append(events("s2", 0, 6..9)).await.unwrap();
        if ninth {
            old = dump(&database);
        }
        log.append(events("s3", 0, 9..12)).await.unwrap();
        log.seal(&key).await.unwrap();
        let seals = log.seals(0, 100).await.unwrap();
        Ground { database, kept: log.head(), log, key, old, seals }
    }

    async fn sql(&self, sql: &str) {
        sqlx::raw_sql(sql).execute(&self.database.pool).await.unwrap();
    }

    async fn publish_again(&self, published: &Published) {
        match published {
            Published::Removed => return,
            Published::PutBack => {}
        }
        for (position, note) in &self.seals {
            sqlx::query("insert into log_seal values ($1, $2, now()) on conflict do nothing")
                .bind(*position as i64)
                .bind(note)
                .execute(&self.database.pool)
                .await
                .unwrap();
        }
    }

    async fn done(&self, case: &Case) {
        match &case.how {
            How::Sql(sql) => self.sql(sql).await,
            How::OldBackup { published } => {
                self.restore().await;
                self.publish_again(published).await;
            }
            How::Rewritten { published } => {
                self.restore().await;
                let log = opened(&self.database).await;
                log.append(events("s1", 2, 50..54)).await.unwrap();
                log.append(events("s9", 0, 54..57)).await.unwrap();
                self.publish_again(published).await;
            }
            How::Invented => {
                let log = opened(&self.database).await;
                log.append(events("s3", 3, 99..100)).await.unwrap();
            }
        }
    }

    async fn restore(&self) {
        self.sql("drop schema stead cascade").await;
        let mut psql = Binaries::find().unwrap().command("psql");
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &self.database.url]);
        let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        psql.stdin.take().unwrap().write_all(&self.old).unwrap();
        assert!(psql.wait().unwrap().success());
    }

    /// Each link, leaf and node of the database, against one another.
    async fn log_says(&self) -> String {
        match verify(&self.database.pool, 0, |_| {}).await {
            Ok(_) => String::new(),
            Err(VerifyError::Differs(difference)) => difference.to_string(),
            Err(VerifyError::Log(error)) => panic!("{error}"),
        }
    }

    /// What was signed and published, against the database.
    async fn published_say(&self) -> String {
        match self.log.check_seals(&[self.key.verifying_key()]).await {
            Ok(_) => String::new(),
            Err(LogError::Damaged { position, what }) => format!("position {position}: {what}"),
            Err(error) => panic!("{error}"),
        }
    }

    /// What somebody kept, against the events as `stead audit verify --against` reads them.
    async fn kept_says(&self) -> String {
        let mut verifier = Verifier::new(&self.kept.log_id);
        let agrees = |verifier: &Verifier| verifier.agrees(&self.kept);
        let mut fault = Ok(());
        for event in event_log::read::read(&self.database.pool, 0, 100).await.unwrap() {
            fault = verifier.take(&record(&event));
            if fault.is_ok() && verifier.size() == self.kept.size {
                fault = agrees(&verifier);
            }
            if fault.is_err() {
                break;
            }
        }
        if fault.is_ok() && verifier.size() < self.kept.size {
            fault = agrees(&verifier);
        }
        fault.err().map(|fault| fault.to_string()).unwrap_or_default()
    }
}

fn dump(database: &Database) -> Vec<u8> {
    let mut dump = Binaries::find().unwrap().command("pg_dump");
    let done = dump.args(["--schema=stead", "-d", &database.url]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    done.stdout
}

fn record(event: &event_log::Stored) -> EventRecord {
    let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
    EventRecord {
        position: event.position,
        event_id: EventId(event.event_id),
        stream: event.stream.to_string(),
        sequence: event.sequence,
        event_type: event.event_type.to_string(),
        version: event.event_version.to_string(),
        recorded_at: event.recorded_at,
        actor: String::new(),
        actor_name: None,
        payload: raw(&event.payload),
        said: None,
        metadata: raw(&event.metadata),
        salt: hex::encode(event.salt),
        leaf: hex::encode(event.leaf),
        chain: hex::encode(event.chain),
    }
}

const BEGIN: &str = "<!-- tamperings: made by the test client::tampering -->\n";
const END: &str = "<!-- end of tamperings -->\n";

/// `UPDATE_GOLDEN=1` writes what is true now.
#[tokio::test]
async fn who_sees_what_was_tampered_with_is_the_table_of_the_security_document() {
    let head =
        ["done to the database", "the log itself", "published checkpoints", "kept elsewhere"];
    let mut table = format!("| {} | it means |\n|---|---|---|---|---|\n", head.join(" | "));
    for case in &CASES {
        let ground = Ground::new(&case.how).await;
        let before =
            (ground.log_says().await, ground.published_say().await, ground.kept_says().await);
        assert_eq!(before, Default::default(), "untouched");
        ground.done(case).await;
        let log = ground.log_says().await;
        let (published, kept) = (ground.published_say().await, ground.kept_says().await);
        let cell = |said: String| if said.is_empty() { "–".to_owned() } else { said };
        let cells =
            [case.what.to_owned(), cell(log), cell(published), cell(kept), case.means.into()];
        table += &format!("| {} |\n", cells.join(" | "));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) =
        text.split_once(BEGIN).expect("docs/security.md has a place for the table");
    let (agreed, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    }
    assert_eq!(agreed, table);
}
