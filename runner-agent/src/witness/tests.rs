//! Tests of the witness, and the small log that they use, honest or manipulated.
use chrono::{DateTime, TimeDelta, Utc};
use ed25519_dalek::SigningKey;
use proof::{leaf::Leaf, tree::Edge};
use schemas::keys::ServerKey;
use serde_json::json;

use super::*;

pub(crate) const JOB: &str = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const EXECUTION: &str = "exe_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const RUNNER: &str = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV";
pub(crate) const LOG: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn now() -> DateTime<Utc> {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

pub(crate) fn keys() -> KeyList {
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

/// Log of several events, each of them the claim of this job.
pub(crate) struct Log {
    entries: Vec<Vec<u8>>,
    epoch: u64,
}

impl Log {
    pub(crate) fn of(size: u64, variant: u8) -> Self {
        let entry = |position| {
            let leaf = Leaf {
                position,
                event_id: [variant; 16],
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

    pub(crate) fn note(&self) -> String {
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

    /// Returns the response of an honest server for the claim at the end of the log.
    pub(crate) fn claimed(
        &self,
        from: Option<u64>,
        change: impl FnOnce(&mut serde_json::Value),
    ) -> Claimed {
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
            values: vec![],
        }
    }
}

fn witness() -> (tempfile::TempDir, Witness) {
    let dir = tempfile::tempdir().unwrap();
    let witness = Witness::of(&Data::open(dir.path()).unwrap());
    (dir, witness)
}

fn rule(witness: &Witness, claimed: &Claimed) -> Option<String> {
    let refusal = witness.verify(claimed, &expected(), &keys(), now()).err()?;
    assert_eq!(refusal.by, RefusedBy::Verification);
    Some(refusal.rule)
}

#[test]
fn an_honest_log_is_verified_and_stored() {
    let (_dir, witness) = witness();
    assert_eq!(rule(&witness, &Log::of(5, 1).claimed(None, |_| {})), None);
    assert_eq!(witness.last().unwrap(), Some(Log::of(5, 1).note()));
    assert_eq!(rule(&witness, &Log::of(9, 1).claimed(Some(5), |_| {})), None);
    assert_eq!(rule(&witness, &Log::of(9, 1).claimed(None, |_| {})), None);
}

/// Verifies a log of five events and then another claim. Returns the rule and the explanation of
/// its rejection, and the stored evidence.
fn rejection_of(claimed: &Claimed) -> (String, String, Evidence) {
    let (_dir, witness) = witness();
    assert_eq!(rule(&witness, &Log::of(5, 1).claimed(None, |_| {})), None);
    let refusal = witness.verify(claimed, &expected(), &keys(), now()).unwrap_err();
    assert!(LogRejection::is_about_the_log(&refusal), "{refusal:?}");
    witness.store_evidence(JOB.parse().unwrap(), claimed, &refusal, now()).unwrap().unwrap();
    // The verified head stays.
    assert_eq!(witness.last().unwrap(), Some(Log::of(5, 1).note()));
    let [stored] = &witness.evidence().unwrap()[..] else { panic!("one file") };
    (refusal.rule, refusal.detail, stored.evidence.clone())
}

#[test]
fn a_contradicting_log_is_refused_and_both_heads_are_stored() {
    let note = |log: Log| Log::note(&log);
    let of_other_log = |log: Log| {
        let mut claimed = log.claimed(Some(5), |_| {});
        let head = Checkpoint::read_unverified(&claimed.checkpoint).unwrap();
        let head = Checkpoint { log_id: "01BX5ZZKBKACTAV9WEVGEMMVRZ".into(), ..head };
        claimed.checkpoint = head.sign(&key(2));
        claimed
    };
    let signed_by_other_key = |log: Log| {
        let mut claimed = log.claimed(Some(5), |_| {});
        let head = Checkpoint::read_unverified(&claimed.checkpoint).unwrap();
        claimed.checkpoint = head.sign(&key(9));
        claimed
    };
    let with_malformed_hash = |log: Log| {
        let mut claimed = log.claimed(Some(5), |_| {});
        claimed.consistency.as_mut().unwrap().path[0] = "no hash".into();
        claimed
    };
    let with_wrong_hash = |log: Log| {
        let mut claimed = log.claimed(Some(5), |_| {});
        claimed.consistency.as_mut().unwrap().path[0] = "00".repeat(32);
        claimed
    };
    let epoch = |epoch| Log { epoch, ..Log::of(9, 1) };
    let cases = [
        ("log_smaller", "now has 4", Log::of(4, 1).claimed(None, |_| {})),
        // The next logs have other events. One of them has the same size.
        ("log_smaller", "old backup", Log::of(4, 2).claimed(None, |_| {})),
        ("log_forked", "history was rewritten", Log::of(9, 2).claimed(Some(5), |_| {})),
        ("log_forked", "history was rewritten", Log::of(5, 2).claimed(None, |_| {})),
        ("log_forked", "first 5 events", with_wrong_hash(Log::of(9, 1))),
        ("log_unprovable", "there is no proof", Log::of(9, 1).claimed(None, |_| {})),
        ("log_unprovable", "the proof begins at 4", Log::of(9, 1).claimed(Some(4), |_| {})),
        ("log_unprovable", "malformed", with_malformed_hash(Log::of(9, 1))),
        (
            "checkpoint",
            "not signed by a trusted key of the vendor",
            signed_by_other_key(Log::of(9, 1)),
        ),
        ("log", "enrolled with log", of_other_log(Log::of(9, 1))),
        ("epoch", "before the vendor's last restore", epoch(0).claimed(Some(5), |_| {})),
        ("epoch", "witness accept --epoch 2", epoch(2).claimed(Some(5), |_| {})),
    ];
    for (rule, expected_text, claimed) in cases {
        let (found, explanation, evidence) = rejection_of(&claimed);
        assert_eq!(found, rule, "{explanation}");
        assert!(explanation.contains(expected_text), "{explanation}");
        assert_eq!(evidence.seen, Some(note(Log::of(5, 1))), "{rule}");
        assert_eq!(evidence.shown, claimed.checkpoint, "{rule}");
        assert_eq!((evidence.rule.as_str(), &evidence.explanation), (rule, &explanation));
        // The evidence also has the proof that the server sent.
        assert_eq!(evidence.consistency, claimed.consistency);
    }
}

#[test]
fn evidence_is_for_its_owner_and_never_overwritten() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, witness) = witness();
    assert_eq!(rule(&witness, &Log::of(5, 1).claimed(None, |_| {})), None);
    let store = |claimed: &Claimed, at: DateTime<Utc>| {
        let refusal = witness.verify(claimed, &expected(), &keys(), at).unwrap_err();
        witness.store_evidence(JOB.parse().unwrap(), claimed, &refusal, at).unwrap()
    };
    let forked = Log::of(9, 2).claimed(Some(5), |_| {});
    let name = store(&forked, now()).unwrap();
    let path = dir.path().join("evidence").join(&name);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let first = fs::read(&path).unwrap();
    // The same two heads are the same evidence, even at another time. Another head gets another
    // file.
    assert_eq!(store(&forked, now() + TimeDelta::minutes(30)), Some(name));
    assert_eq!(fs::read(&path).unwrap(), first);
    store(&Log::of(8, 2).claimed(Some(5), |_| {}), now());
    assert_eq!(witness.evidence().unwrap().len(), 2);
    // A server that sends different logs cannot fill the disk.
    for at in 0..evidence::MAX_FILES {
        fs::write(dir.path().join(format!("evidence/x{at}")), "").unwrap();
    }
    assert_eq!(store(&Log::of(7, 2).claimed(Some(5), |_| {}), now()), None);
}

#[test]
fn a_restored_log_is_verified_after_the_customer_accepted_its_epoch() {
    let (_dir, witness) = witness();
    assert_eq!(rule(&witness, &Log::of(5, 1).claimed(None, |_| {})), None);
    let restored = Log { epoch: 2, ..Log::of(4, 2) };
    assert_eq!(rule(&witness, &restored.claimed(None, |_| {})).as_deref(), Some("epoch"));
    witness.accept(2).unwrap();
    assert_eq!(rule(&witness, &restored.claimed(None, |_| {})), None);
    assert_eq!(rule(&witness, &Log::of(9, 1).claimed(None, |_| {})).as_deref(), Some("epoch"));
}

#[test]
fn a_grant_that_does_not_match_the_claim_is_refused() {
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
fn invalid_signatures_and_proofs_are_refused() {
    let (_dir, witness) = witness();
    let honest = Log::of(5, 1).claimed(None, |_| {});
    let payload = dsse::verify(&honest.manifest, &[key(1).verifying_key()]).unwrap();
    let forged =
        Claimed { manifest: dsse::sign(MANIFEST_TYPE, &payload, &key(2)), ..honest.clone() };
    assert_eq!(rule(&witness, &forged).as_deref(), Some("manifest_signature"));
    // A grant in place of a manifest has a valid signature, but of another payload type.
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
    let refusal = witness.verify(&Log::of(5, 1).claimed(None, |_| {}), &build, &keys(), now());
    assert_eq!(refusal.unwrap_err().rule, "kind");
}

#[test]
fn a_signature_of_an_expired_key_is_refused() {
    let honest = Log::of(5, 1).claimed(None, |_| {});
    for (key, rule) in [(0, "manifest_signature"), (1, "checkpoint")] {
        let (_temp, witness) = witness();
        let mut keys = keys();
        keys.keys[key].not_after = Some(now());
        let refusal = witness.verify(&honest, &expected(), &keys, now()).unwrap_err();
        assert_eq!(refusal.rule, rule);
    }
}
