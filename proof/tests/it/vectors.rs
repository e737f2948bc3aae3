//! Tests of the fixed encodings, against vectors from an independent implementation of the
//! specification (`vectors/make.py`).

use ed25519_dalek::{SigningKey, VerifyingKey};
use proof::{
    Hash,
    checkpoint::{Checkpoint, CheckpointError},
    dsse::{self, Envelope, EnvelopeError},
    leaf::{Leaf, metadata_hash, payload_hash},
    tree::{self, Edge, Node},
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Log {
    log_id: String,
    genesis: String,
    events: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    position: u64,
    event_id: String,
    aggregate_type: String,
    aggregate_id: String,
    sequence: u64,
    event_type: String,
    event_version: u16,
    recorded_at_us: i64,
    salt: String,
    payload: String,
    metadata: String,
    canonical: String,
    leaf: String,
    chain: String,
    root: String,
}

#[derive(Deserialize)]
struct Tree {
    empty: String,
    inclusion: Vec<Inclusion>,
    consistency: Vec<Consistency>,
}

#[derive(Deserialize)]
struct Inclusion {
    index: u64,
    size: u64,
    proof: Vec<String>,
}

#[derive(Deserialize)]
struct Consistency {
    old: u64,
    new: u64,
    proof: Vec<String>,
}

#[derive(Deserialize)]
struct Signed {
    seed: String,
    public: String,
    checkpoint: String,
    envelope: Envelope,
    plan: Plan,
}

#[derive(Deserialize)]
struct Plan {
    file: String,
    summary: Value,
    manifest: String,
    tool: String,
    digest: String,
}

fn log() -> Log {
    serde_json::from_str(include_str!("../vectors/log.json")).unwrap()
}

fn trees() -> Tree {
    serde_json::from_str(include_str!("../vectors/tree.json")).unwrap()
}

fn signed() -> Signed {
    serde_json::from_str(include_str!("../vectors/signed.json")).unwrap()
}

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    hex::decode(text).unwrap().try_into().unwrap()
}

fn hashes(texts: &[String]) -> Vec<Hash> {
    texts.iter().map(|text| bytes(text)).collect()
}

/// Every perfect subtree of a log of twelve events.
fn nodes() -> std::collections::BTreeMap<Node, Hash> {
    let (mut edge, mut nodes) = (Edge::default(), std::collections::BTreeMap::new());
    for (index, row) in log().events.iter().enumerate() {
        nodes.insert(Node { level: 0, index: index as u64 }, bytes(&row.leaf));
        edge.push(bytes(&row.leaf), |node, hash| {
            nodes.insert(node, *hash);
        });
    }
    nodes
}

#[test]
fn leaf_chain_and_root_match_the_specification() {
    let log = log();
    let mut chain = proof::chain::genesis(&log.log_id);
    assert_eq!(hex::encode(chain), log.genesis);
    let mut edge = Edge::default();
    for row in &log.events {
        let salt = bytes(&row.salt);
        let leaf = Leaf {
            position: row.position,
            event_id: bytes(&row.event_id),
            aggregate_type: &row.aggregate_type,
            aggregate_id: &row.aggregate_id,
            sequence: row.sequence,
            event_type: &row.event_type,
            event_version: row.event_version,
            recorded_at_us: row.recorded_at_us,
            payload_hash: payload_hash(&salt, row.payload.as_bytes()),
            metadata_hash: metadata_hash(&salt, row.metadata.as_bytes()),
        };
        assert_eq!(hex::encode(leaf.canonical()), row.canonical);
        assert_eq!(hex::encode(leaf.hash()), row.leaf);
        chain = proof::chain::next(&chain, &leaf.hash());
        assert_eq!(hex::encode(chain), row.chain);
        edge.push(leaf.hash(), |_, _| {});
        assert_eq!(hex::encode(edge.root()), row.root);
        assert_eq!(edge.size(), row.position);
    }
}

#[test]
fn every_proof_of_a_small_tree_matches_rfc_6962() {
    let (log, trees, nodes) = (log(), trees(), nodes());
    assert_eq!(hex::encode(tree::empty_root()), trees.empty);
    let root = |size: u64| bytes::<32>(&log.events[size as usize - 1].root);
    let fold = |plan: tree::ProofPlan| {
        plan.fold(&plan.nodes().map(|node| nodes[&node]).collect::<Vec<_>>()).unwrap()
    };
    for one in trees.inclusion {
        let proof = fold(tree::inclusion(one.index, one.size).unwrap());
        assert_eq!(proof, hashes(&one.proof), "{} in {}", one.index, one.size);
        let leaf = bytes(&log.events[one.index as usize].leaf);
        tree::verify_inclusion(&leaf, one.index, one.size, &proof, &root(one.size)).unwrap();
    }
    for one in trees.consistency {
        let proof = fold(tree::consistency(one.old, one.new).unwrap());
        assert_eq!(proof, hashes(&one.proof), "{} to {}", one.old, one.new);
        let (old, new) = (root(one.old), root(one.new));
        tree::verify_consistency(one.old, &old, one.new, &new, &proof).unwrap();
    }
    assert_eq!(fold(tree::root(11)), [root(11)]);
}

#[test]
fn any_changed_byte_of_a_checkpoint_is_detected() {
    let (signed, log) = (signed(), log());
    let key = SigningKey::from_bytes(&bytes(&signed.seed));
    assert_eq!(hex::encode(key.verifying_key().as_bytes()), signed.public);
    let root = bytes(&log.events[11].root);
    let checkpoint = Checkpoint { log_id: log.log_id, size: 12, root, epoch: 3 };
    assert_eq!(checkpoint.sign(&key), signed.checkpoint);
    let keys = [key.verifying_key()];
    assert_eq!(Checkpoint::open(&signed.checkpoint, &keys).unwrap(), checkpoint);
    let other = SigningKey::from_bytes(&[9; 32]).verifying_key();
    assert_eq!(Checkpoint::open(&signed.checkpoint, &[other]), Err(CheckpointError::Signature));
    for at in 0..signed.checkpoint.len() - 1 {
        let mut note = signed.checkpoint.clone().into_bytes();
        note[at] ^= 1;
        let Ok(note) = String::from_utf8(note) else { continue };
        assert!(Checkpoint::open(&note, &keys).is_err(), "byte {at} of {note}");
    }
    for (from, to) in [("\n12\n", "\n012\n"), ("\n12\n", "\n+12\n"), ("epoch 3\n", "")] {
        let note = signed.checkpoint.replacen(from, to, 1);
        assert!(matches!(Checkpoint::read_unverified(&note), Err(CheckpointError::Format(_))));
    }
}

/// A runner that is older than a new checkpoint line must still accept the checkpoint. The
/// signature covers this line, too.
#[test]
fn further_checkpoint_lines_are_signed_and_accepted() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use ed25519_dalek::Signer;
    let signed = signed();
    let key = SigningKey::from_bytes(&bytes(&signed.seed));
    let keys = [key.verifying_key()];
    let expected = Checkpoint::open(&signed.checkpoint, &keys).unwrap();
    let (body, signature) = signed.checkpoint.split_once("\n\n").unwrap();
    let (name, encoded) = signature.trim_end().rsplit_once(' ').unwrap();
    let id = STANDARD.decode(encoded).unwrap()[..4].to_vec();
    let note = |further: &str| {
        let body = format!("{body}\n{further}");
        let signature = [id.clone(), key.sign(body.as_bytes()).to_bytes().to_vec()].concat();
        format!("{body}\n{name} {}\n", STANDARD.encode(signature))
    };
    assert_eq!(note(""), signed.checkpoint);
    let later = note("witnessed 7\nregion eu\n");
    assert_eq!(Checkpoint::open(&later, &keys).unwrap(), expected);
    let changed = later.replace("witnessed 7", "witnessed 8");
    assert_eq!(Checkpoint::open(&changed, &keys), Err(CheckpointError::Signature));
    for invalid in ["\n", "a\n\nb\n", "a\tb\n"] {
        let result = Checkpoint::open(&note(invalid), &keys);
        assert!(result.is_err(), "{invalid:?}");
    }
}

#[test]
fn an_envelope_is_dsse_and_its_signature_covers_the_type() {
    let signed = signed();
    let key = SigningKey::from_bytes(&bytes(&signed.seed));
    let kind = "application/vnd.stead.manifest.v1+json";
    assert_eq!(dsse::sign(kind, br#"{"job":"job_1"}"#, &key), signed.envelope);
    let keys = [key.verifying_key()];
    assert_eq!(dsse::verify_as(kind, &signed.envelope, &keys).unwrap(), br#"{"job":"job_1"}"#);
    let result = dsse::verify_as("text/plain", &signed.envelope, &keys);
    assert!(matches!(result, Err(EnvelopeError::Type { .. })));
    let mut other = signed.envelope.clone();
    other.payload_type = "text/plain".into();
    assert_eq!(dsse::verify(&other, &keys), Err(EnvelopeError::Signature));
    let mut other = signed.envelope.clone();
    other.payload = "e30=".into();
    assert_eq!(dsse::verify(&other, &keys), Err(EnvelopeError::Signature));
    let none: [VerifyingKey; 0] = [];
    assert_eq!(dsse::verify(&signed.envelope, &none), Err(EnvelopeError::Signature));
}

#[test]
fn the_plan_digest_matches_its_specification() {
    let plan = signed().plan;
    let (file, manifest) = (bytes(&plan.file), bytes(&plan.manifest));
    let digest = proof::plan::digest(&file, &plan.summary, &manifest, &plan.tool).unwrap();
    assert_eq!(hex::encode(digest), plan.digest);
    assert_eq!(proof::digest_text(&digest), format!("sha256:{}", plan.digest));
}

#[test]
fn the_plan_digest_of_version_2_matches_its_specification() {
    #[derive(Deserialize)]
    struct Vectors {
        file: String,
        summary: String,
        manifest: String,
        tool: String,
        key: String,
        salt: String,
        content: String,
        details: String,
        plans: Vec<Parts>,
    }
    #[derive(Deserialize)]
    struct Parts {
        details: Option<String>,
        plugin: Option<String>,
        tool: Option<String>,
        digest: String,
    }
    let vectors: Vectors = serde_json::from_str(include_str!("../vectors/plan_v2.json")).unwrap();
    let [file, summary, manifest, key] =
        [&vectors.file, &vectors.summary, &vectors.manifest, &vectors.key].map(|hex| bytes(hex));
    let salt = proof::plan::salt(&file, &key);
    assert_eq!(hex::encode(salt), vectors.salt);
    let details = proof::plan::details(&salt, vectors.content.as_bytes());
    assert_eq!(hex::encode(details), vectors.details);
    for Parts { details, plugin, tool, digest } in &vectors.plans {
        let [details, plugin, executable] =
            [details, plugin, tool].map(|part| part.as_deref().map(bytes));
        let parts = proof::plan::PartsV2 { details, plugin, tool: executable };
        let computed = proof::plan::digest_v2(&file, &summary, &manifest, &vectors.tool, &parts);
        assert_eq!(hex::encode(computed), *digest);
    }
}

#[test]
fn canonical_json_sorts_keys_and_has_no_spaces() {
    let value: Value =
        serde_json::from_str(r#"{ "b": 1.0, "a": "\u00e9", "A": [true, null] }"#).unwrap();
    let json = proof::canonical::json(&value).unwrap();
    assert_eq!(String::from_utf8(json).unwrap(), r#"{"A":[true,null],"a":"é","b":1}"#);
}

#[test]
fn the_journal_chain_matches_its_specification() {
    #[derive(Deserialize)]
    struct Journal {
        journal_id: String,
        genesis: String,
        entries: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        entry: String,
        chain: String,
    }
    let journal: Journal = serde_json::from_str(include_str!("../vectors/journal.json")).unwrap();
    let mut chain = proof::journal::genesis(&journal.journal_id);
    assert_eq!(hex::encode(chain), journal.genesis);
    for Entry { entry, chain: expected } in &journal.entries {
        chain = proof::journal::next(&chain, entry.as_bytes());
        assert_eq!(hex::encode(chain), *expected);
    }
}
