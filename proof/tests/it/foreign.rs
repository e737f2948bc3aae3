//! Verification by independent code: `signed_note` and `tlog_tiles`, ports of the Go checksum
//! database's `note` and `tlog`.

use crate::log;

use log::{LOG, Log, key, signer};
use proof::{
    bundle::{Base64, Bundle, Subject},
    tree,
};
use signed_note::{Note, StandardVerifier, VerifierList};
use tlog_tiles::{Checkpoint, Hash, check_record, check_tree, record_hash};

fn hashes(path: &[Base64<proof::Hash>]) -> Vec<Hash> {
    path.iter().map(|hash| Hash(hash.0)).collect()
}

/// Opens a signed note with the independent code, given the verifier key as text.
fn opened(note: &str, verifier_key: &str) -> Checkpoint {
    let note = Note::from_bytes(note.as_bytes()).unwrap();
    let verifier = StandardVerifier::new(verifier_key).unwrap();
    let (verified, unverified) = note.verify(&VerifierList::new(vec![Box::new(verifier)])).unwrap();
    assert_eq!((verified.len(), unverified.len()), (1, 0));
    Checkpoint::from_bytes(note.text()).unwrap()
}

#[test]
fn another_implementation_accepts_verifier_key_and_checkpoint() {
    let log = Log::of(&["a/1", "b/1", "a/1"]);
    let ours = log.checkpoint(3);
    let theirs = opened(&ours.sign(&key()), &signer(&key()).to_string());
    assert_eq!((theirs.origin(), theirs.size()), (format!("stead/{LOG}").as_str(), 3));
    assert_eq!((theirs.hash().0, theirs.extension()), (ours.root, "epoch 1\n"));
    let written = signed_note::new_ed25519_verifier_key(&ours.origin(), &key().verifying_key());
    assert_eq!(written, signer(&key()).to_string());
}

#[test]
fn another_implementation_accepts_every_proof() {
    let streams = ["a/1", "b/1", "c/1", "a/1", "b/2"].repeat(7);
    for size in 1..=streams.len() {
        let log = Log::of(&streams[..size]);
        let (size, root) = (size as u64, Hash(log.edge(size as u64).root()));
        for index in 0..size {
            let path = hashes(&log.fold(&tree::inclusion(index, size).unwrap()));
            let leaf = record_hash(&log.leaf(index + 1).canonical());
            check_record(&path, size, root, index, leaf).unwrap();
        }
        for old in 1..=size {
            let path = hashes(&log.fold(&tree::consistency(old, size).unwrap()));
            check_tree(&path, size, root, old, Hash(log.edge(old).root())).unwrap();
        }
    }
}

/// Verifies the signatures and the proofs of a bundle with the independent code.
#[test]
fn another_implementation_verifies_a_bundle() {
    let log = Log::of(&["app/a", "install/acme", "job/1", "install/acme", "job/1"]);
    let subject = Subject::Stream("install/acme".into());
    let text = serde_json::to_vec(&log.bundle(subject, Some(3), Some(5))).unwrap();
    let bundle: Bundle = serde_json::from_slice(&text).unwrap();
    let signed = opened(&bundle.checkpoint, &signer(&key()).to_string());
    for event in &bundle.events {
        let leaf = record_hash(&event.leaf().unwrap().canonical());
        let path = hashes(&event.inclusion);
        check_record(&path, signed.size(), *signed.hash(), event.position - 1, leaf).unwrap();
    }
    let since = bundle.since.unwrap();
    let older = opened(&since.checkpoint, &since.signer);
    let path = hashes(&since.consistency);
    check_tree(&path, signed.size(), *signed.hash(), older.size(), *older.hash()).unwrap();
}
