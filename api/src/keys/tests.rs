use chrono::TimeDelta;
use proof::dsse;
use schemas::keys::{KEYS_TYPE, KeyList, KeyUse, fingerprint};

use super::*;

const LOG: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn now() -> Timestamp {
    Timestamp::from_timestamp_micros(1_700_000_000_000_000).unwrap()
}

fn list(keys: &KeySet, signer: &ed25519_dalek::VerifyingKey, at: Timestamp) -> Option<KeyList> {
    let envelope = keys.list(LOG, at).unwrap();
    let payload = dsse::verify_as(KEYS_TYPE, &envelope, &[*signer]).ok()?;
    serde_json::from_slice(&payload).ok()
}

#[test]
fn keys_are_created_once_and_loaded_later() {
    let dir = tempfile::tempdir().unwrap();
    let first = Keys::open(dir.path(), now()).unwrap();
    let reopened = Keys::open(dir.path(), now() + TimeDelta::days(1)).unwrap();
    assert_eq!(first.current().public(), reopened.current().public());
    let (first, reopened) = (first.current(), reopened.current());
    assert_eq!(first.tokens().to_bytes(), reopened.tokens().to_bytes());
    assert_ne!(first.tokens().to_bytes(), first.checkpoints().to_bytes());
    assert_eq!(reopened.tokens.made_at, now());
}

#[test]
fn checkpoint_key_is_listed_as_a_verifier_key() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::open(dir.path(), now()).unwrap();
    let listed = || {
        let all = read(dir.path()).unwrap();
        all.into_iter().filter_map(|key| Some((key.key, key.verifier_key?))).collect::<Vec<_>>()
    };
    assert_eq!(listed(), []);
    keys.record_log(LOG).unwrap();
    rotate(dir.path(), KeyUse::Checkpoints, now(), now() + TimeDelta::days(1)).unwrap();
    keys.reload_if_changed().unwrap();
    let listed = listed();
    assert_eq!(listed.len(), 2);
    for (key, verifier) in listed {
        let read: proof::key::VerifierKey = verifier.parse().unwrap();
        assert_eq!((read.name, hex::encode(read.key.as_bytes())), (format!("stead/{LOG}"), key));
    }
}

#[test]
fn damaged_or_exposed_key_is_reported_and_never_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    Keys::open(dir.path(), now()).unwrap();
    let path = dir.path().join("manifests.key");
    let stored = std::fs::read(&path).unwrap();
    std::fs::write(&path, "not a key").unwrap();
    let refusal = Keys::open(dir.path(), now()).err().unwrap().to_string();
    assert!(refusal.contains("manifests.key: it is not a key"), "{refusal}");
    assert_eq!(std::fs::read(&path).unwrap(), b"not a key");
    std::fs::write(&path, stored).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(matches!(Keys::open(dir.path(), now()), Err(KeyError::Exposed { .. })));
}

#[test]
fn list_is_signed_by_the_key_of_the_fingerprint() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::open(dir.path(), now()).unwrap().current();
    let signer = keys.manifests().verifying_key();
    let list = list(&keys, &signer, now()).unwrap();
    assert_eq!(list.of(KeyUse::Manifests, now()), [*signer.as_bytes()]);
    assert_eq!(list.of(KeyUse::Tokens, now()).len(), 1);
    assert_eq!(fingerprint(&list.of(KeyUse::Manifests, now())[0]), keys.fingerprint());
}

#[test]
fn keys_are_valid_after_the_clock_was_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::open(dir.path(), now() + TimeDelta::hours(2)).unwrap().current();
    let signer = keys.manifests().verifying_key();
    let list = list(&keys, &signer, now()).unwrap();
    assert_eq!(list.of(KeyUse::Manifests, now()), [*signer.as_bytes()]);
}

#[test]
fn list_is_signed_by_former_manifest_keys() {
    // given a server whose manifest key was replaced twice
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::open(dir.path(), now()).unwrap();
    let (first, day) = (keys.current().manifests().verifying_key(), TimeDelta::days(1));
    assert!(keys.reload_if_changed().unwrap().is_none());
    rotate(dir.path(), KeyUse::Manifests, now() + day * 30, now()).unwrap();
    let second = keys.reload_if_changed().unwrap().unwrap().manifests().verifying_key();
    rotate(dir.path(), KeyUse::Manifests, now() + day * 40, now() + day * 10).unwrap();
    let set = keys.reload_if_changed().unwrap().unwrap();
    let third = set.manifests().verifying_key();
    assert!(keys.reload_if_changed().unwrap().is_none());
    // then the list verifies with each of the three keys
    for signer in [&first, &second, &third] {
        let list = list(&set, signer, now() + day * 11).unwrap();
        let good = |days: i32| list.of(KeyUse::Manifests, now() + day * days).len();
        // and each key is valid until its end
        assert_eq!((good(29), good(30), good(39), good(40)), (3, 2, 2, 1));
    }
    assert!(Keys::open(dir.path(), now()).unwrap().current().public() == set.public());
}

#[test]
fn immediate_rotation_ends_former_keys_and_stores_no_unused_secret() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::open(dir.path(), now()).unwrap();
    let later = now() + TimeDelta::days(30);
    rotate(dir.path(), KeyUse::Tokens, later, now()).unwrap();
    rotate(dir.path(), KeyUse::Tokens, now(), now()).unwrap();
    let set = keys.reload_if_changed().unwrap().unwrap();
    let ends: Vec<_> = set.former(KeyUse::Tokens).map(|former| former.ended_at).collect();
    assert_eq!(ends, [now(), now()]);
    assert!(set.former.iter().all(|former| former.secret.is_none()));
    let files = std::fs::read_dir(dir.path().join("former")).unwrap();
    for file in files.map(|file| file.unwrap().path()) {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn interrupted_rotation_does_not_replace_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::open(dir.path(), now()).unwrap();
    let path = dir.path().join("manifests.key");
    let stored = std::fs::read(&path).unwrap();
    rotate(dir.path(), KeyUse::Manifests, now(), now()).unwrap();
    std::fs::write(&path, stored).unwrap();
    assert!(keys.reload_if_changed().unwrap().is_none());
}

#[test]
fn new_manifest_key_is_published_before_it_signs() {
    // given two servers with the same keys, of which one reloads them later
    let dir = tempfile::tempdir().unwrap();
    let (soon, late) =
        (Keys::open(dir.path(), now()).unwrap(), Keys::open(dir.path(), now()).unwrap());
    let public = |key: &ed25519_dalek::SigningKey| key.verifying_key();
    let first = public(soon.current().manifests_at(now()));
    let (at, second) = (now() + TimeDelta::days(1), TimeDelta::seconds(1));
    // when the key is replaced
    rotate(dir.path(), KeyUse::Manifests, at + TimeDelta::days(1), at).unwrap();
    let set = soon.reload_if_changed().unwrap().unwrap();
    // then the server that loaded the new key publishes it, but signs with the old key, which both
    // servers publish
    let shown = list(&set, &first, at).unwrap().of(KeyUse::Manifests, at);
    assert!(shown.contains(set.manifests().verifying_key().as_bytes()));
    assert_eq!(public(set.manifests_at(at)), first);
    assert_eq!(public(late.current().manifests_at(at)), first);
    assert_eq!(public(set.manifests_at(at + second * 5)), first);
    assert_ne!(public(set.manifests_at(at + second * 6)), first);
    // and a key without remaining validity signs nothing
    let at = at + TimeDelta::hours(1);
    rotate(dir.path(), KeyUse::Manifests, at, at).unwrap();
    let set = late.reload_if_changed().unwrap().unwrap();
    assert_eq!(public(set.manifests_at(at)), public(set.manifests()));
}

#[test]
fn last_size_of_a_checkpoint_key_is_recorded_once() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::open(dir.path(), now()).unwrap();
    rotate(dir.path(), KeyUse::Checkpoints, now() + TimeDelta::days(1), now()).unwrap();
    let former =
        keys.reload_if_changed().unwrap().unwrap().former(KeyUse::Checkpoints).next().unwrap().key;
    let stored = |keys: &Keys| {
        let seals = keys.current().seal_keys().into_iter();
        seals.map(|seal| (seal.key == former, seal.last_size)).collect::<Vec<_>>()
    };
    assert_eq!(stored(&keys), [(false, None), (true, None)]);
    keys.keep_last_size(&former, 7).unwrap();
    assert_eq!(stored(&keys), [(false, None), (true, Some(7))]);
    // A later, larger size does not replace the recorded one.
    keys.keep_last_size(&former, 9).unwrap();
    assert_eq!(stored(&keys), [(false, None), (true, Some(7))]);
    rotate(dir.path(), KeyUse::Checkpoints, now(), now()).unwrap();
    let reopened = Keys::open(dir.path(), now()).unwrap();
    assert!(stored(&reopened).contains(&(true, Some(7))), "{:?}", stored(&reopened));
}
