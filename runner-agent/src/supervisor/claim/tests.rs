//! Tests of offers, key renewals and rejected logs.
use chrono::TimeDelta;
use domain::ids::{ExecutionId, JobId};
use ed25519_dalek::SigningKey;
use proof::dsse;
use schemas::{
    keys::{KEYS_TYPE, KeyUse, ServerKey},
    runner::RunnerMode,
};
use tokio::sync::watch;
use ulid::Ulid;

use super::*;
use crate::{
    budgets::Budgets,
    client::Client,
    data::Data,
    enrol::Identity,
    keys::Keys,
    supervisor::{Settings, StopLevel},
    tls::Trust,
};

/// Returns an agent with one slot and an unreachable server.
fn agent(data: &std::path::Path) -> (Arc<Agent>, watch::Sender<StopLevel>) {
    let data = Data::open(data).unwrap();
    let keys = Keys::open(&data).unwrap();
    let server = "http://127.0.0.1:1".to_string();
    let identity = Identity {
        runner: "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
        mode: RunnerMode::Build,
        install: None,
        log_id: "L".into(),
        server: server.clone(),
        trust: Trust::Public,
    };
    let (settings, now) = (
        Settings {
            slots: 1,
            plugin_dir: "/nowhere".into(),
            pass_env: vec![],
            budgets: Budgets::default(),
            images: Default::default(),
        },
        "2026-11-21T12:00:00Z".parse().unwrap(),
    );
    let server_keys = KeyList { version: 1, log_id: "L".into(), issued_at: now, keys: vec![] };
    let client = Client::new(&server, &Trust::Public).unwrap();
    let (stop, stopping) = watch::channel(StopLevel::KeepRunning);
    let agent = Agent::new((data, keys, identity), client, server_keys, settings, stopping);
    (agent.unwrap(), stop)
}

fn busy_with(agent: &Agent, job: JobId) {
    let execution = Some(ExecutionId(Ulid(1)));
    agent.state().running.insert(job, RunningJob { execution, ..RunningJob::default() });
}

#[tokio::test]
async fn an_offer_shortly_before_a_slot_is_free_gets_the_slot() {
    // given an agent whose only job has ended and still holds its slot
    let temp = tempfile::tempdir().unwrap();
    let (agent, _stop) = agent(temp.path());
    let (former, next) = (JobId(Ulid(1)), JobId(Ulid(2)));
    busy_with(&agent, former);
    assert!(!reserve_slot(&agent, next));
    // when the next job is offered in the meantime
    let (has_slot, ()) = tokio::join!(wait_for_slot(&agent, next), async {
        sleep(SLOT_CHECK_INTERVAL * 3).await;
        agent.state().running.remove(&former);
    });
    // then it gets the slot
    assert!(has_slot);
    assert!(agent.state().running.contains_key(&next));
}

#[tokio::test]
async fn a_repeated_offer_gets_no_second_slot() {
    let temp = tempfile::tempdir().unwrap();
    let (agent, _stop) = agent(temp.path());
    let job = JobId(Ulid(1));
    assert!(reserve_slot(&agent, job));
    assert!(!reserve_slot(&agent, job));
    assert_eq!(agent.state().running.len(), 1);
}

fn list_of(keys: &[&SigningKey], second: i64) -> KeyList {
    let now = crate::host::server_now();
    let listed = |key: &&SigningKey| ServerKey {
        usage: KeyUse::Manifests,
        key: hex::encode(key.verifying_key().as_bytes()),
        not_before: now - TimeDelta::days(1),
        not_after: None,
    };
    KeyList {
        version: 1,
        log_id: "log".into(),
        issued_at: now + TimeDelta::seconds(second),
        keys: keys.iter().map(listed).collect(),
    }
}

fn key_list_response(list: &KeyList, signer: &SigningKey) -> &'static str {
    let envelope = dsse::sign(KEYS_TYPE, &serde_json::to_vec(list).unwrap(), signer);
    format!("200 OK|{}", serde_json::to_string(&envelope).unwrap()).leak()
}

fn has_key(keys: &KeyList, key: &SigningKey) -> Result<(), Refusal> {
    let rule = "manifest_signature".to_owned();
    let refusal = Refusal { by: RefusedBy::Verification, rule, detail: "no".into() };
    let known = crate::witness::of(keys, KeyUse::Manifests, crate::host::server_now());
    known.contains(&key.verifying_key()).then_some(()).ok_or(refusal)
}

#[tokio::test]
async fn a_key_that_one_server_does_not_know_yet_is_awaited() {
    // given a runner that knows one key, and two servers, one of which has not read the new key yet
    let (former, new) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
    let outdated_response = key_list_response(&list_of(&[&former], 1), &former);
    let renewed = list_of(&[&new, &former], 2);
    let (_dir, agent, requests) = crate::supervisor::tests::agent(vec![
        outdated_response,
        key_list_response(&renewed, &former),
    ])
    .await;
    agent.state().server_keys = list_of(&[&former], 0);
    // when the other server signs, then the runner fetches keys until it has the new one
    let verified = verify_with_current_keys(&agent, |keys| has_key(keys, &new)).await;
    assert_eq!(verified.map_err(|refusal| refusal.rule), Ok(()));
    assert_eq!(requests.lock().unwrap().len(), 2);
    assert_eq!(agent.state().server_keys.keys, renewed.keys);
}

#[tokio::test]
async fn a_late_key_list_restores_no_revoked_key() {
    // given a key list that was requested before a key was revoked, and that arrives afterwards
    let (former, new) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
    let before = key_list_response(&list_of(&[&former, &new], 1), &former);
    let (_dir, agent, requests) = crate::supervisor::tests::agent(vec![before]).await;
    agent.state().server_keys = list_of(&[&former], 0);
    let renewal_lock = agent.key_renewal_lock.lock().await;
    let within = Duration::from_secs(5);
    let renewal = tokio::spawn({
        let agent = Arc::clone(&agent);
        async move { session::renew_keys(&agent, within).await }
    });
    // when another renewal has stored the newer list first
    crate::supervisor::tests::until("the request", || !requests.lock().unwrap().is_empty()).await;
    let later = list_of(&[&new], 2);
    agent.state().server_keys = later.clone();
    drop(renewal_lock);
    // then the revoked key stays revoked
    assert!(renewal.await.unwrap().is_err());
    assert_eq!(agent.state().server_keys, later);
    assert!(has_key(&later, &former).is_err());
}

#[tokio::test]
async fn a_rejected_log_is_shown_to_the_customer_and_both_heads_are_saved() {
    use crate::witness::tests::{JOB, LOG, Log, keys};
    // given an agent that has seen five events of the vendor's log
    let temp = tempfile::tempdir().unwrap();
    let (agent, _stop) = agent(temp.path());
    let mut agent = Arc::into_inner(agent).unwrap();
    agent.identity.log_id = LOG.into();
    agent.state().server_keys = keys();
    crate::data::replace(&agent.data.path("checkpoint"), Log::of(5, 1).note().as_bytes()).unwrap();
    let rejection = |data: &Data| crate::show::status::rejection(data).unwrap();
    assert_eq!(rejection(&agent.data), None);
    // when a claim is valid except that its log has four events
    let claimed = Log::of(4, 1).claimed(None, |grant| {
        grant["runner_key"] = agent.keys.identity_hex().into();
        grant["deadline"] = "2999-01-01T00:00:00Z".into();
    });
    let job: JobId = JOB.parse().unwrap();
    let refusal = verified(&agent, (job, JobKind::Plan), &claimed).await.unwrap_err();
    // then the refusal names the rule, and the status explains it to the customer
    assert_eq!(refusal.rule, "log_smaller");
    let [stored] = &agent.witness.evidence().unwrap()[..] else { panic!("one file") };
    assert_eq!(stored.evidence.seen, Some(Log::of(5, 1).note()));
    assert_eq!(stored.evidence.shown, claimed.checkpoint);
    let status = rejection(&agent.data).unwrap();
    assert!(status.contains("REJECTED") && status.contains("now has 4"), "{status}");
    // and the status no longer shows the rejection after a log is accepted again
    agent.journal.write(JournalEvent::Checkpoint { note: Log::of(5, 1).note() }).unwrap();
    assert_eq!(rejection(&agent.data), None);
    assert_eq!(agent.witness.evidence().unwrap().len(), 1);
}
