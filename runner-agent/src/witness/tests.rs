//! A small honest log, and what happens when it lies.
use chrono::{DateTime, TimeDelta, Utc};
use ed25519_dalek::SigningKey;
use proof::{leaf::Leaf, tree::Edge};
use schemas::keys::ServerKey;
use serde_json::json;

use super::*;

const JOB: &str = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const EXECUTION: &str = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const RUNNER: &str = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const LOG: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn now() -> DateTime<Utc> {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn key(use_of: u8) -> SigningKey {
    SigningKey::from_bytes(&[use_of; 32])
}

fn keys() -> KeyList {
    let public = |usage, seed| ServerKey {
        usage,
        key: hex::encode(key(seed).verifying_key().as_bytes()),
        not_before: now(),
        not_after: None,
    };
    let keys = vec![public(KeyUse::Manifests, 1), public(KeyUse::Checkpoints, 2)];
    KeyList { version: 1, log_id: LOG.into(), issued_at: now(), keys }
}

fn expected() -> Expected {
    Expected {
        log_id: LOG.into(),
        runner: RUNNER.parse().unwrap(),
        runner_key: "ab".repeat(32),
        job: JOB.parse().unwrap(),
        kind: JobKind::Plan,
    }
}

/// A log of so many events, each of them this job's claim.
struct Log {
    entries: Vec<Vec<u8>>,
    epoch: u64,
}

impl Log {
    fn of(size: u64, flavour: u8) -> Self {
        let entry = |position| {
            let leaf = Leaf {
                position,
                event_id: [flavour; 16],
                aggregate_type: "job",
                aggregate_id: JOB,
                sequence: 2,
                event_type: "job.claimed",
                event_version: 1,
                recorded_at_us: 7,
                payload_hash: [3; 32],
                metadata_hash: [4; 32],
            };
            leaf.canonical()
        };
        Log { entries: (1..=size).map(entry).collect(), epoch: 1 }
    }

    fn leaves(&self, range: std::ops::Range<u64>) -> Vec<Hash> {
        let range = range.start as usize..range.end as usize;
        self.entries[range].iter().map(|entry| tree::leaf_hash(entry)).collect()
    }

    fn fold(&self, plan: &tree::ProofPlan) -> Vec<String> {
        let perfect = |node: tree::Node| {
            let width = 1 << node.level;
            tree::perfect(&self.leaves(node.index * width..(node.index + 1) * width)).unwrap()
        };
        let hashes: Vec<_> = plan.nodes().map(perfect).collect();
        plan.fold(&hashes).unwrap().iter().map(hex::encode).collect()
    }

    fn note(&self) -> String {
        let mut edge = Edge::default();
        for leaf in self.leaves(0..self.size()) {
            edge.push(leaf, |_, _| {});
        }
        let (size, root, epoch) = (self.size(), edge.root(), self.epoch);
        Checkpoint { log_id: LOG.into(), size, root, epoch }.sign(&key(2))
    }

    fn size(&self) -> u64 {
        self.entries.len() as u64
    }

    /// What an honest server answers for the claim at the log's end.
    fn claimed(&self, from: Option<u64>, change: impl FnOnce(&mut serde_json::Value)) -> Claimed {
        let manifest = json!({
            "version": 1, "job": JOB, "kind": "plan", "class": "pure",
            "plugin": {"name": "terraform_module", "version": "1"}, "inputs": {},
            "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
        });
        let manifest = proof::canonical::json(&manifest).unwrap();
        let position = self.size();
        let mut grant = json!({
            "version": 1, "log_id": LOG, "manifest": proof::digest_text(&proof::sha256(&manifest)),
            "job": JOB, "execution": EXECUTION, "attempt": 1, "runner": RUNNER,
            "runner_key": "ab".repeat(32), "fence": {"epoch": self.epoch, "position": position},
            "issued_at": now(), "deadline": now() + TimeDelta::hours(1),
        });
        change(&mut grant);
        let grant = proof::canonical::json(&grant).unwrap();
        let consistency = from.map(|from| Consistency {
            from,
            path: self.fold(&tree::consistency(from, position).unwrap()),
        });
        Claimed {
            execution: EXECUTION.parse().unwrap(),
            attempt: 1,
            lease_s: 60,
            deadline: now(),
            server_time: now(),
            manifest: dsse::sign(MANIFEST_TYPE, &manifest, &key(1)),
            grant: dsse::sign(GRANT_TYPE, &grant, &key(1)),
            job_token: "t".into(),
            log: Default::default(),
            checkpoint: self.note(),
            inclusion: Inclusion {
                position,
                entry: hex::encode(self.entries.last().unwrap()),
                path: self.fold(&tree::inclusion(position - 1, position).unwrap()),
            },
            consistency,
        }
    }
}

fn witness() -> (tempfile::TempDir, Witness) {
    let dir = tempfile::tempdir().unwrap();
    let witness = Witness::of(&Data::open(dir.path()).unwrap());
    (dir, witness)
}

fn rule(witness: &Witness, claimed: &Claimed) -> Option<String> {
    let refused = witness.verify(claimed, &expected(), &keys(), now()).err()?;
    assert_eq!(refused.by, RefusedBy::Verification);
    Some(refused.rule)
}

#[test]
fn an_honest_log_is_believed_and_remembered() {
    let (_dir, witness) = witness();
    assert_eq!(rule(&witness, &Log::of(5, 1).claimed(None, |_| {})), None);
    assert_eq!(witness.last().unwrap(), Some(Log::of(5, 1).note()));
    assert_eq!(rule(&witness, &Log::of(9, 1).claimed(Some(5), |_| {})), None);
    assert_eq!(rule(&witness, &Log::of(9, 1).claimed(None, |_| {})), None);
}

#[test]
fn a_log_that_forgot_or_rewrote_is_refused_and_the_evidence_stays() {
    let (_dir, witness) = witness();
    assert_eq!(rule(&witness, &Log::of(5, 1).claimed(None, |_| {})), None);
    let refused = Some("consistency".to_owned());
    assert_eq!(rule(&witness, &Log::of(4, 1).claimed(None, |_| {})), refused);
    assert_eq!(rule(&witness, &Log::of(9, 2).claimed(Some(5), |_| {})), refused);
    assert_eq!(rule(&witness, &Log::of(9, 1).claimed(None, |_| {})), refused);
    assert_eq!(rule(&witness, &Log::of(9, 1).claimed(Some(4), |_| {})), refused);
    assert_eq!(witness.last().unwrap(), Some(Log::of(5, 1).note()));
}

#[test]
fn a_restored_log_is_believed_when_the_customer_says_so() {
    let (_dir, witness) = witness();
    assert_eq!(rule(&witness, &Log::of(5, 1).claimed(None, |_| {})), None);
    let restored = Log { epoch: 2, ..Log::of(4, 2) };
    assert_eq!(rule(&witness, &restored.claimed(None, |_| {})).as_deref(), Some("epoch"));
    witness.accept(2).unwrap();
    assert_eq!(rule(&witness, &restored.claimed(None, |_| {})), None);
    assert_eq!(rule(&witness, &Log::of(9, 1).claimed(None, |_| {})).as_deref(), Some("epoch"));
}

#[test]
fn a_grant_is_for_us_now_and_this_or_it_is_nothing() {
    let log = Log::of(5, 1);
    let other = EXECUTION.replace("5FAV", "5FAW");
    let cases = [
        ("execution", json!(other), "execution"),
        ("runner", json!(RUNNER.replace("5FAV", "5FAW")), "runner"),
        ("runner_key", json!("cd".repeat(32)), "runner_key"),
        ("job", json!(JOB.replace("5FAV", "5FAW")), "job"),
        ("manifest", json!(format!("sha256:{:064}", 1)), "manifest_digest"),
        ("log_id", json!("another"), "log"),
        ("deadline", json!(now() - TimeDelta::seconds(1)), "deadline"),
        ("fence", json!({"epoch": 1, "position": 4}), "inclusion"),
        ("fence", json!({"epoch": 2, "position": 5}), "fence"),
        ("version", json!(2), "version"),
    ];
    for (field, value, expected) in cases {
        let (_dir, witness) = witness();
        let claimed = log.claimed(None, |grant| grant[field] = value);
        assert_eq!(rule(&witness, &claimed).as_deref(), Some(expected), "{field}");
        assert_eq!(witness.last().unwrap(), None, "{field}");
    }
}

#[test]
fn what_a_stranger_signed_is_refused() {
    let (_dir, witness) = witness();
    let honest = Log::of(5, 1).claimed(None, |_| {});
    let payload = dsse::verify(&honest.manifest, &[key(1).verifying_key()]).unwrap();
    let forged =
        Claimed { manifest: dsse::sign(MANIFEST_TYPE, &payload, &key(2)), ..honest.clone() };
    assert_eq!(rule(&witness, &forged).as_deref(), Some("manifest_signature"));
    // A grant in the place of a manifest is signed by the right key and still is none.
    let swapped = Claimed { manifest: honest.grant.clone(), ..honest.clone() };
    assert_eq!(rule(&witness, &swapped).as_deref(), Some("manifest_signature"));
    let mut note = honest.clone();
    note.checkpoint = note.checkpoint.replacen("\n5\n", "\n6\n", 1);
    assert_eq!(rule(&witness, &note).as_deref(), Some("checkpoint"));
    let mut entry = honest;
    entry.inclusion.path[0] = "00".repeat(32);
    assert_eq!(rule(&witness, &entry).as_deref(), Some("inclusion"));
}

#[test]
fn a_manifest_of_another_kind_than_the_offer_is_refused() {
    let (_dir, witness) = witness();
    let build = Expected { kind: JobKind::Build, ..expected() };
    let refused = witness.verify(&Log::of(5, 1).claimed(None, |_| {}), &build, &keys(), now());
    assert_eq!(refused.unwrap_err().rule, "kind");
}

#[test]
fn a_key_whose_time_is_over_signs_nothing_that_is_believed() {
    let honest = Log::of(5, 1).claimed(None, |_| {});
    for (key, rule) in [(0, "manifest_signature"), (1, "checkpoint")] {
        let (_temp, witness) = witness();
        let mut keys = keys();
        keys.keys[key].not_after = Some(now());
        let refused = witness.verify(&honest, &expected(), &keys, now()).unwrap_err();
        assert_eq!(refused.rule, rule);
    }
}
