#![allow(dead_code, reason = "not every test file uses all of it")]
//! Logs with every example of every event in any order, and with histories that the aggregates
//! allow.
use std::{collections::BTreeMap, path::Path};

use domain::{
    actor::Actor,
    decider::{Decider, Timestamp},
};
use event_log::{
    Appended, Commit, EventLog, Meta, NewEvent, Options, StreamId, Write, testing::Database,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use sqlx::{PgPool, Row};

pub async fn database() -> Database {
    event_log::testing::fresh_database().await.unwrap()
}

/// Opens the log of a server with the inline projections.
pub async fn open(database: &Database) -> EventLog {
    let options =
        Options { inline_projections: projections::inline_projections(), ..Options::default() };
    database.log_with(options).await.unwrap()
}

pub fn meta() -> Meta {
    Meta::new(Actor::System, "cmd")
}

pub fn ulid(n: u128) -> ulid::Ulid {
    ulid::Ulid(n)
}

/// Handles a command and appends the resulting events.
pub async fn handle<D: Decider>(
    log: &EventLog,
    id: impl ToString,
    now: Timestamp,
    command: D::Command,
) -> Appended {
    let mut loaded = log.load::<D>(&id.to_string()).await.unwrap();
    let domain_events = loaded.state.decide(command, now).unwrap();
    let write = loaded.write(&domain_events).unwrap();
    let appended = log.append(Commit::of(meta(), vec![write])).await.unwrap();
    loaded.evolve(domain_events);
    log.cache_state(&loaded);
    appended
}

/// Examples of all events, by aggregate.
pub fn examples() -> BTreeMap<String, Vec<NewEvent>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/events");
    let mut all: BTreeMap<String, Vec<NewEvent>> = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        let text = std::fs::read_to_string(path.join("1.example.json")).unwrap();
        let aggregate = name.split_once('.').unwrap().0.to_string();
        let payload = compact(&text);
        let event = NewEvent {
            event_type: name.into(),
            event_version: "1".into(),
            payload,
            customer: None,
        };
        all.entry(aggregate).or_default().push(event);
    }
    all
}

/// Removes the indentation of JSON and keeps the order of the keys, because the first key is the
/// type.
fn compact(pretty: &str) -> String {
    pretty.lines().map(str::trim_start).collect()
}

/// Writer of random events that do not form valid histories. A projection must accept all of them.
pub struct Noise {
    random: StdRng,
    examples: BTreeMap<String, Vec<NewEvent>>,
    versions: BTreeMap<(String, u128), u64>,
    /// Offset of the ids, so that two writers use different streams.
    offset: u128,
}

impl Noise {
    pub fn new(seed: u64) -> Noise {
        let random = StdRng::seed_from_u64(seed);
        let offset = u128::from(seed) * 1000 + 100;
        Noise { random, examples: examples(), versions: BTreeMap::new(), offset }
    }

    pub async fn write(&mut self, log: &EventLog, commits: usize) {
        for _ in 0..commits {
            let commit = self.commit();
            log.append(commit).await.unwrap();
        }
    }

    /// Appends while connections are cut. After an in-doubt commit, reads the versions from the
    /// log.
    pub async fn write_during_faults(&mut self, log: &EventLog, commits: usize) {
        for _ in 0..commits {
            let commit = self.commit();
            if log.append(commit).await.is_ok() {
                continue;
            }
            for ((kind, n), version) in &mut self.versions {
                let stream = stream(kind, *n);
                *version = loop {
                    match log.version(&stream).await {
                        Ok(version) => break version,
                        Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                    }
                };
            }
        }
    }

    fn commit(&mut self) -> Commit {
        let kinds: Vec<String> = self.examples.keys().cloned().collect();
        let mut writes: BTreeMap<(String, u128), Vec<NewEvent>> = BTreeMap::new();
        for _ in 0..self.random.gen_range(1..6) {
            let kind = kinds[self.random.gen_range(0..kinds.len())].clone();
            let stream = (kind.clone(), self.offset + self.random.gen_range(0..6));
            let new = !self.versions.contains_key(&stream) && !writes.contains_key(&stream);
            let events = &self.examples[&kind];
            // Most streams begin with a creation event, so that later events find a row.
            let first = events.iter().find(|event| is_first(&event.event_type));
            let at = self.random.gen_range(0..events.len());
            let event = match first {
                Some(first) if new && self.random.gen_bool(0.8) => first.clone(),
                Some(_) | None => events[at].clone(),
            };
            writes.entry(stream).or_default().push(event);
        }
        let writes = writes.into_iter().map(|((kind, n), events)| {
            let expected = self.versions.entry((kind.clone(), n)).or_default();
            let write = Write { stream: stream(&kind, n), expected: *expected, events };
            *expected += write.events.len() as u64;
            write
        });
        Commit::of(meta(), writes.collect())
    }
}

fn is_first(event_type: &str) -> bool {
    let verb = event_type.split_once('.').unwrap().1;
    let firsts = [
        "queued",
        "created",
        "requested",
        "defined",
        "issued",
        "enrolled",
        "principal_added",
        "published",
        "configured",
    ];
    firsts.contains(&verb)
}

fn stream(kind: &str, n: u128) -> StreamId {
    let prefix = match kind {
        "access" => "prn_",
        "app" => "app_",
        "build" => "bld_",
        "component" => "cmp_",
        "enrolment" => "tok_",
        "subject" => "ins_",
        "install" => "ins_",
        "job" => "job_",
        "name" => "install/",
        "plugin" => "plugin",
        "run" => "run_",
        "runner" => "rnr_",
        "webhook" => "webhook",
        other => panic!("unknown aggregate {other}"),
    };
    StreamId::new(kind, format!("{prefix}{}", ulid(n)))
}

pub async fn names(pool: &PgPool) -> Vec<&'static str> {
    let all = projections::list(&mut pool.acquire().await.unwrap()).await.unwrap();
    all.iter().map(|view| view.name).collect()
}

pub type Rows = BTreeMap<&'static str, Vec<String>>;

/// Rows of all projections, as stored.
pub async fn dump(pool: &PgPool) -> Rows {
    let mut all = BTreeMap::new();
    for name in names(pool).await {
        all.insert(name, rows(pool, name).await);
    }
    all
}

pub async fn rows(pool: &PgPool, name: &str) -> Vec<String> {
    let sql = format!("select row_to_json(v)::text from projection_{name} v order by key");
    let rows = sqlx::query(&sql).fetch_all(pool).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Asserts that both have the same rows.
#[track_caller]
pub fn assert_same(left: &Rows, right: &Rows) {
    for (name, rows) in left {
        assert_eq!(*rows, right[name], "{name}");
    }
}

/// Asserts that every projection matches the log.
pub async fn assert_verified(pool: &PgPool) {
    for name in names(pool).await {
        let verified = projections::verify(pool, name, |_| {}).await.unwrap();
        assert_eq!(verified.differences, [], "{name}");
    }
}
