//! Bundles of a log, verified without the server.
use cli::client::{Client, take_exported_line};
use domain::{decider::Decider, install::Install};
use proof::{
    bundle::{Bundle, BundleError, Complete, Content, PositionError, Subject},
    key::TrustedKey,
    leaf::Leaf,
    range::{Head, Range, VerifiedRange},
    tree,
};
use schemas::control::{
    audit::EventsQuery,
    bundles::{BundleQuery, OtherEntries, RangeQuery},
    installs::UpdateInstall,
};

use super::{rejection, with_install};

fn stream(name: &str) -> BundleQuery {
    BundleQuery { stream: Some(name.into()), ..Default::default() }
}

async fn bundle(client: &Client, which: &BundleQuery) -> Bundle {
    let bytes = client.bundle(which).await.unwrap().bytes().await.unwrap();
    Bundle::read(&bytes).unwrap()
}

async fn keys(client: &Client) -> Vec<TrustedKey> {
    vec![client.checkpoint().await.unwrap().verifier_key.parse().unwrap()]
}

async fn lines(client: &Client, which: &RangeQuery) -> Vec<String> {
    let text = client.range(which).await.unwrap().text().await.unwrap();
    text.lines().map(Into::into).collect()
}

fn verify_range(
    lines: &[String],
    keys: &[TrustedKey],
    checkpoint: Option<&str>,
) -> Result<VerifiedRange, BundleError> {
    let mut range = Range::begin(Head::read(lines[0].as_bytes())?, keys, checkpoint)?;
    lines[1..].iter().try_for_each(|line| take_exported_line(&mut range, line.as_bytes()))?;
    range.end()
}

#[tokio::test]
async fn bundle_proves_a_complete_stream_and_an_append_only_log() {
    let (_started, owner, created) = with_install().await;
    let earlier = owner.checkpoint().await.unwrap().note;
    let (name, keys) = (format!("{}/acme", Install::NAME), keys(&owner).await);
    let all =
        owner.events(&EventsQuery { limit: Some(200), ..EventsQuery::default() }).await.unwrap();
    let which = BundleQuery { prior_checkpoint: Some(earlier.clone()), ..stream(&name) };
    let found = bundle(&owner, &which).await;
    assert_eq!(found.subject, Subject::Stream(format!("install/{}", created.id)));
    let proven = found.check(&keys, Some(&earlier)).unwrap();
    let from = found.events.last().unwrap().position + 1;
    assert_eq!(proven.complete, Complete::FromSequences { from });
    assert_eq!(proven.stored.map(|earlier| earlier.size), proven.since.map(|since| since.size));

    let with_all_entries = BundleQuery { other_entries: Some(OtherEntries::All), ..stream(&name) };
    let found = bundle(&owner, &with_all_entries).await;
    let proven = found.check(&keys, Some(&earlier)).unwrap();
    assert_eq!(proven.complete, Complete::Whole);
    // Each entry of another event is a leaf, which contains no payload.
    let others = &found.others.unwrap().entries;
    assert_eq!(others.len() as u64 + found.events.len() as u64, proven.checkpoint.size);
    assert!(others.iter().all(|entry| Leaf::read(&entry.0).is_some()));

    let alone = BundleQuery {
        other_entries: Some(OtherEntries::None),
        hashes_only: Some(true),
        ..stream("name/install/acme")
    };
    let found = bundle(&owner, &alone).await;
    let last = found.events.last().unwrap().position;
    let proven = found.check(&keys, None).unwrap();
    assert_eq!(proven.complete, Complete::Unknown { last });
    assert!(matches!(found.events[0].content, Content::Hashes { .. }));

    let some = &all.items[2];
    let by_id = BundleQuery { event: Some(some.event_id), ..BundleQuery::default() };
    let by_position = BundleQuery { position: Some(some.position), ..BundleQuery::default() };
    for which in [by_id, by_position] {
        let found = bundle(&owner, &which).await;
        assert_eq!(found.check(&keys, None).unwrap().complete, Complete::NotApplicable);
        assert_eq!(found.events[0].position, some.position);
        let Content::Open { payload, .. } = &found.events[0].content else { panic!("{found:?}") };
        assert_eq!(payload, some.payload.get());
    }
}

#[tokio::test]
async fn unprovable_request_is_rejected_with_a_reason() {
    let (_started, owner, _) = with_install().await;
    let head = owner.checkpoint().await.unwrap();
    let request = async |which: BundleQuery| rejection(owner.bundle(&which).await.map(drop));
    let at = |position| BundleQuery { position: Some(position), ..BundleQuery::default() };
    assert_eq!(request(BundleQuery::default()).await.0, 400);
    assert_eq!(request(BundleQuery { position: Some(1), ..stream("install/acme") }).await.0, 400);
    assert_eq!(request(at(0)).await.0, 404);
    // Reactions may still append events after `head`.
    assert_eq!(request(at(head.size + 1000)).await.0, 404);
    assert_eq!(request(stream("install")).await.0, 400);
    assert_eq!(request(stream("install/nobody")).await.0, 404);
    assert_eq!(request(stream("job/job_01ARZ3NDEKTSV4RRFFQ69G5FAV")).await.0, 404);
    let since = |note: &str| BundleQuery { prior_checkpoint: Some(note.into()), ..at(1) };
    assert_eq!(request(since("no checkpoint")).await.0, 422);
    assert_eq!(request(since(&head.note.replace("epoch 1", "epoch 2"))).await.0, 422);
    let request = async |which: RangeQuery| rejection(owner.range(&which).await.map(drop));
    let part = |from, to| RangeQuery { from: Some(from), to: Some(to), ..RangeQuery::default() };
    assert_eq!(request(part(0, 1)).await.0, 404);
    assert_eq!(request(part(3, 2)).await.0, 404);
    assert_eq!(request(part(1, head.size + 1000)).await.0, 404);
}

#[tokio::test]
async fn range_export_detects_every_changed_byte() {
    let (started, owner, _) = with_install().await;
    let keys = keys(&owner).await;
    let earlier = owner.checkpoint().await.unwrap();
    let all = lines(&owner, &RangeQuery::default()).await;
    let proven = verify_range(&all, &keys, Some(&earlier.note)).unwrap();
    assert_eq!((proven.from, proven.to + 1), (1, all.len() as u64));
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    owner.update_install("acme", &on).await.unwrap();
    let part = RangeQuery { from: Some(3), to: Some(6), ..RangeQuery::default() };
    let part = lines(&owner, &part).await;
    assert_eq!(part.len(), 5);
    verify_range(&part, &keys, None).unwrap();
    let uncompared = verify_range(&part, &keys, Some(&earlier.note)).unwrap_err();
    assert!(matches!(uncompared, BundleError::Uncompared { .. }), "{uncompared}");
    // Any changed byte of an event is detected with its position, even a change of case.
    for (at, bit) in (0..part[2].len()).flat_map(|at| [(at, 1), (at, 0x20)]) {
        let mut changed = part.clone();
        let mut line = changed[2].clone().into_bytes();
        line[at] ^= bit;
        changed[2] = String::from_utf8_lossy(&line).into_owned();
        let found = verify_range(&changed, &keys, None).unwrap_err();
        assert!(matches!(found, BundleError::At { position: 4, .. }), "{at}: {found}");
    }
    for (removed, position) in [(1, 3), (3, 5)] {
        let mut changed = part.clone();
        changed.remove(removed);
        let found = verify_range(&changed, &keys, None).unwrap_err();
        assert!(matches!(found, BundleError::At { position: at, .. } if at == position), "{found}");
    }
    let short = verify_range(&part[..4], &keys, None).unwrap_err();
    assert!(matches!(short, BundleError::Count { expected: 4, found: 3, .. }));

    // The server exports a row that was changed in the database, and verification detects it.
    let tamper = "update log_event set payload = replace(payload::text, 'acme', 'acne')::json \
                 where event_type = 'install.created'";
    assert_eq!(sqlx::query(tamper).execute(&started.app().pool).await.unwrap().rows_affected(), 1);
    let spoilt = lines(&owner, &RangeQuery::default()).await;
    let found = verify_range(&spoilt, &keys, None).unwrap_err();
    assert!(matches!(found, BundleError::At { wrong: PositionError::Leaf, .. }), "{found}");
    let found = bundle(&owner, &stream("install/acme")).await.check(&keys, None).unwrap_err();
    assert!(matches!(found, BundleError::At { wrong: PositionError::Included(_), .. }), "{found}");
}

/// Verifies the server's signature, keys and proofs with third-party libraries.
#[tokio::test]
async fn third_party_libraries_verify_a_bundle() {
    use signed_note::{Note, StandardVerifier, VerifierList};
    use tlog_tiles::{Checkpoint, Hash, check_record, check_tree, record_hash};
    let (_started, owner, _) = with_install().await;
    let older = owner.checkpoint().await.unwrap();
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    owner.update_install("acme", &on).await.unwrap();
    let opened = |note: &str, key: &str| {
        let note = Note::from_bytes(note.as_bytes()).unwrap();
        let verifier = StandardVerifier::new(key).unwrap();
        note.verify(&VerifierList::new(vec![Box::new(verifier)])).unwrap();
        Checkpoint::from_bytes(note.text()).unwrap()
    };
    let hashes = |path: &[proof::bundle::Base64<proof::Hash>]| -> Vec<Hash> {
        path.iter().map(|hash| Hash(hash.0)).collect()
    };
    let which =
        BundleQuery { prior_checkpoint: Some(older.note.clone()), ..stream("install/acme") };
    let found = bundle(&owner, &which).await;
    let signed = opened(&found.checkpoint, &older.verifier_key);
    for event in &found.events {
        let leaf = event.leaf().unwrap();
        assert_eq!(tree::leaf_hash(&leaf.canonical()), record_hash(&leaf.canonical()).0);
        let (path, leaf) = (hashes(&event.inclusion), record_hash(&leaf.canonical()));
        check_record(&path, signed.size(), *signed.hash(), event.position - 1, leaf).unwrap();
    }
    let since = found.since.unwrap();
    let (path, was) = (hashes(&since.consistency), opened(&older.note, &since.signer));
    check_tree(&path, signed.size(), *signed.hash(), was.size(), *was.hash()).unwrap();
    assert!(signed.size() > was.size());
}
