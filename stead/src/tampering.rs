//! Changes of the log by a party with all rights to the database, and the checks that find these
//! changes. Generates the table in docs/security.md.
use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use cli::client::Verifier;
use domain::{actor::Actor, ids::EventId};
use ed25519_dalek::SigningKey;
use event_log::{
    Commit, EventLog, LogError, Meta, NewEvent, Options, StreamId, Write,
    testing::{Binaries, Database, fresh_database},
    verify::{VerifyError, verify},
};
use proof::{checkpoint::Checkpoint, report::ReportCounts};
use schemas::control::audit::EventRecord;
use serde_json::value::RawValue;

mod cases;
mod runner_events;

use cases::{CASES, Case, Published, Tampering};

/// Log of twelve events in four streams, with a runner and its job, and copies from before the
/// change.
struct TestLog {
    database: Database,
    /// Server that opened the log before the change, and checks it afterwards.
    log: EventLog,
    key: SigningKey,
    /// Checkpoint at position 12 that another party stored.
    checkpoint: Checkpoint,
    /// Dump of the database from before the change, for changes that restore a dump.
    dump: Vec<u8>,
    checkpoints: Vec<(u64, String)>,
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

async fn open(database: &Database) -> EventLog {
    let options = Options { poll_interval: None, ..Options::default() };
    database.log_with(options).await.unwrap()
}

impl TestLog {
    async fn new(tampering: &Tampering) -> TestLog {
        let dumped_at = match tampering {
            Tampering::Rewritten { .. } => 5,
            Tampering::ReportChanged => 8,
            Tampering::OldBackup { .. } => 9,
            Tampering::Sql(_) | Tampering::Invented | Tampering::ReportInvented { .. } => 0,
        };
        let database = fresh_database().await.unwrap();
        let key = SigningKey::from_bytes(&[7; 32]);
        let log = open(&database).await;
        let mut dump_text = Vec::new();
        let commits = [
            runner_events::enrolled(),
            events("s1", 0, 3..5),
            events("s1", 2, 5..6),
            runner_events::claimed("s2"),
            runner_events::ended("s2", &runner_events::signed("s2", &runner_events::key())),
            events("s3", 0, 9..12),
        ];
        for commit in commits {
            let at = log.append(commit).await.unwrap().last;
            if at == dumped_at {
                dump_text = dump(&database);
            }
            if at == 6 || at == 12 {
                log.publish_checkpoint(&key).await.unwrap();
            }
        }
        let checkpoints = log.checkpoints(0, 100).await.unwrap();
        TestLog { database, checkpoint: log.head(), log, key, dump: dump_text, checkpoints }
    }

    async fn sql(&self, sql: &str) {
        sqlx::raw_sql(sql).execute(&self.database.pool).await.unwrap();
    }

    async fn publish_again(&self, published: &Published) {
        match published {
            Published::Removed => return,
            Published::PutBack => {}
        }
        for (position, note) in &self.checkpoints {
            sqlx::query("insert into log_checkpoint values ($1, $2, now()) on conflict do nothing")
                .bind(*position as i64)
                .bind(note)
                .execute(&self.database.pool)
                .await
                .unwrap();
        }
    }

    async fn tamper(&self, case: &Case) {
        match &case.tampering {
            Tampering::Sql(sql) => self.sql(sql).await,
            Tampering::OldBackup { published } => {
                self.restore().await;
                self.publish_again(published).await;
            }
            Tampering::Rewritten { published } => {
                self.restore().await;
                let log = open(&self.database).await;
                log.append(events("s1", 2, 50..54)).await.unwrap();
                log.append(events("s9", 0, 54..57)).await.unwrap();
                self.publish_again(published).await;
            }
            Tampering::ReportChanged => {
                self.restore().await;
                let log = open(&self.database).await;
                let mut end = runner_events::signed("s2", &runner_events::key());
                end["exit_code"] = 1.into();
                log.append(runner_events::ended("s2", &end)).await.unwrap();
                log.append(events("s3", 0, 9..12)).await.unwrap();
                log.publish_checkpoint(&self.key).await.unwrap();
            }
            Tampering::ReportInvented { missing_fields } => {
                let log = open(&self.database).await;
                log.append(runner_events::claimed("s4")).await.unwrap();
                let mut end = runner_events::signed("s4", &SigningKey::from_bytes(&[9; 32]));
                end.as_object_mut()
                    .unwrap()
                    .retain(|member, _| !missing_fields.contains(&member.as_str()));
                log.append(runner_events::ended("s4", &end)).await.unwrap();
            }
            Tampering::Invented => {
                let log = open(&self.database).await;
                log.append(events("s3", 3, 99..100)).await.unwrap();
            }
        }
    }

    async fn restore(&self) {
        self.sql("drop schema stead cascade").await;
        let mut psql = Command::new(Binaries::find().unwrap().program("psql"));
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &self.database.url]);
        let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        psql.stdin.take().unwrap().write_all(&self.dump).unwrap();
        assert!(psql.wait().unwrap().success());
    }

    /// Verifies every link, leaf and node of the database, and the signatures of runner reports.
    async fn check_hashes(&self) -> (String, String) {
        match verify(&self.database.pool, 0, |_| {}).await {
            Ok(verified) => {
                let wrong = verified.reported.wrong.first().map(ToString::to_string);
                (String::new(), reports_text(wrong, verified.reported.tally))
            }
            Err(VerifyError::Differs(difference)) => (difference.to_string(), String::new()),
            Err(VerifyError::Log(error)) => panic!("{error}"),
        }
    }

    /// Verifies the signatures of runner reports like `stead audit verify`, if all hashes are
    /// valid.
    async fn check_reports(&self) -> String {
        let mut verifier = Verifier::new(&self.checkpoint.log_id);
        for event in event_log::read::read(&self.database.pool, 0, 100).await.unwrap() {
            verifier.take(&record(&event)).unwrap();
        }
        reports_text(verifier.forged_reports().first().map(ToString::to_string), verifier.tally())
    }

    /// Compares the database with the published checkpoints.
    async fn check_published_checkpoints(&self) -> String {
        match self.log.verify_checkpoints(&[self.key.verifying_key().into()]).await {
            Ok(_) => String::new(),
            Err(LogError::Damaged { position, what }) => format!("position {position}: {what}"),
            Err(error) => panic!("{error}"),
        }
    }

    /// Compares the events with the stored checkpoint, like `stead audit verify --against`.
    async fn check_stored_checkpoint(&self) -> String {
        let mut verifier = Verifier::new(&self.checkpoint.log_id);
        let agrees = |verifier: &Verifier| verifier.agrees(&self.checkpoint);
        let mut fault = Ok(());
        for event in event_log::read::read(&self.database.pool, 0, 100).await.unwrap() {
            fault = verifier.take(&record(&event));
            if fault.is_ok() && verifier.size() == self.checkpoint.size {
                fault = agrees(&verifier);
            }
            if fault.is_err() {
                break;
            }
        }
        if fault.is_ok() && verifier.size() < self.checkpoint.size {
            fault = agrees(&verifier);
        }
        fault.err().map(|fault| fault.to_string()).unwrap_or_default()
    }
}

fn reports_text(wrong: Option<String>, tally: ReportCounts) -> String {
    let unsigned =
        tally.first_unsigned.map(|at| format!("position {at}: this result is not signed"));
    wrong.or(unsigned).unwrap_or_default()
}

fn dump(database: &Database) -> Vec<u8> {
    let mut dump = Command::new(Binaries::find().unwrap().program("pg_dump"));
    let output = dump.args(["--schema=stead", "-d", &database.url]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn record(event: &event_log::StoredEvent) -> EventRecord {
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
        readable_payload: None,
        metadata: raw(&event.metadata),
        salt: hex::encode(event.salt),
        leaf: hex::encode(event.leaf),
        chain: hex::encode(event.chain),
    }
}

const BEGIN: &str = "<!-- tamperings: made by the test tampering of the crate stead -->\n";
const END: &str = "<!-- end of tamperings -->\n";

/// Compares the table with `docs/security.md`. `UPDATE_GOLDEN=1` rewrites the table first.
#[tokio::test]
async fn tampering_table_matches_the_security_document() {
    let head = [
        "change of the database",
        "verification of the log",
        "published checkpoints",
        "stored checkpoint",
        "runner signatures",
    ];
    let mut table = format!("| {} | meaning |\n|---|---|---|---|---|---|\n", head.join(" | "));
    for case in &CASES {
        let test_log = TestLog::new(&case.tampering).await;
        let before = (
            test_log.check_hashes().await,
            test_log.check_published_checkpoints().await,
            test_log.check_stored_checkpoint().await,
        );
        assert_eq!(before, Default::default(), "untouched");
        test_log.tamper(case).await;
        let (log, signed) = test_log.check_hashes().await;
        if log.is_empty() {
            assert_eq!(test_log.check_reports().await, signed, "{}", case.what);
        }
        let (published, stored) = (
            test_log.check_published_checkpoints().await,
            test_log.check_stored_checkpoint().await,
        );
        let cell = |content: String| if content.is_empty() { "–".to_owned() } else { content };
        let cells = [
            case.what.to_owned(),
            cell(log),
            cell(published),
            cell(stored),
            cell(signed),
            case.means.into(),
        ];
        table += &format!("| {} |\n", cells.join(" | "));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) =
        text.split_once(BEGIN).expect("docs/security.md contains the markers of the table");
    let (agreed, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    }
    assert_eq!(agreed, table);
}
