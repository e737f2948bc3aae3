//! Tests of former runners of a recovered install: their keys, wrapped seeds and executions.
use domain::{ids::RunnerId, runner::Runner};
use schemas::runner::{RunnerMode, WrappedSeed};

use super::*;
use crate::{extract::RunnerCaller, runner::recovery, usecases::enrolments};

fn runner_of(enrolled: &Value) -> RunnerId {
    enrolled["runner"].as_str().unwrap().parse().unwrap()
}

async fn with_seeds(world: &World, install: InstallId) -> Vec<RunnerId> {
    wrapped_seeds::runners(&world.app.pool, install).await.unwrap()
}

#[tokio::test]
async fn the_vendor_chooses_to_recover_keys_that_a_mistaken_enrolment_replaced() {
    let (world, mut former, install) = world().await;
    send_seeds(&world, &mut former, json!([wrapped("one")])).await.ok();
    revoke(&world, former.id).await;
    let mut mistaken = enrol_with_new_keys(&world, install).await;
    send_seeds(&world, &mut mistaken, json!([wrapped("of mistaken")])).await.ok();
    let token = world.enrolment(Purpose::Install { install }).await;
    assert_eq!(offered(&world, &token).await, ["of mistaken"]);
    let key = SigningKey::from_bytes(&[9; 32]);
    let successor = Successor::new(&world, install, 2, &key);
    let rejected = successor.enrol(&world, &token, former.id, &json!({})).await;
    let detail = rejected.rejected(409, "rejected")["detail"].to_string();
    assert!(detail.contains("--recover-from RUNNER"), "{detail}");

    // The vendor decides that, for a former runner of the install, and only without an active one.
    let choose = async |former: RunnerId| {
        installs::enrol(&world.app, &World::system(), install, Some(former)).await
    };
    assert!(choose(former.id).await.is_err());
    revoke(&world, mistaken.id).await;
    let (other, _) = world.agent().await;
    assert!(choose(other.id).await.is_err());
    let token = choose(former.id).await.unwrap().value.token;
    assert_eq!(offered(&world, &token).await, ["one"]);
    let of_mistaken = Successor::new(&world, install, 2, &SigningKey::from_bytes(&[8; 32]));
    let rejected = of_mistaken.enrol(&world, &token, mistaken.id, &json!({})).await;
    let detail = rejected.rejected(409, "rejected")["detail"].to_string();
    assert!(detail.contains("the enrolment token recovers the keys of"), "{detail}");
    let enrolled = successor.enrol(&world, &token, former.id, &json!({})).await.ok();
    for lost in [former.id, mistaken.id] {
        assert!(world.app.engine.load::<Runner>(lost).await.unwrap().replaced);
    }
    // The log names the decision.
    let id = enrolments::id_of(&token).unwrap();
    let issued = &world.events("enrolment", id).await[0];
    assert!(issued.payload.contains(&former.id.to_string()), "{}", issued.payload);

    // It never lets a second host continue from the same keys.
    let second = Successor::new(&world, install, 2, &key);
    revoke(&world, runner_of(&enrolled)).await;
    let token = choose(former.id).await.unwrap().value.token;
    let rejected = second.enrol(&world, &token, former.id, &json!({})).await;
    let detail = rejected.rejected(409, "rejected")["detail"].to_string();
    assert!(detail.contains("has recovered the keys of"), "{detail}");
}

#[tokio::test]
async fn a_decision_is_void_after_another_runner_enrolled() {
    let (world, mut former, install) = world().await;
    send_seeds(&world, &mut former, json!([wrapped("one")])).await.ok();
    revoke(&world, former.id).await;
    let system = World::system();
    let chosen = installs::enrol(&world.app, &system, install, Some(former.id)).await.unwrap();
    let active = enrol_with_new_keys(&world, install).await;
    let successor = Successor::new(&world, install, 2, &SigningKey::from_bytes(&[9; 32]));
    let rejected = successor.enrol(&world, &chosen.value.token, former.id, &json!({})).await;
    let detail = rejected.rejected(409, "rejected")["detail"].to_string();
    assert!(detail.contains(&format!("the install has {}", active.id)), "{detail}");
    assert!(!world.app.engine.load::<Runner>(active.id).await.unwrap().revoked);
}

#[tokio::test]
async fn a_runner_deletes_the_wrapped_seeds_of_its_own_seed_only() {
    let (world, mut former, install) = world().await;
    send_seeds(&world, &mut former, json!([wrapped("one")])).await.ok();
    revoke(&world, former.id).await;
    // With a copy of `keys/install`, and without recipients: the seed stays recoverable.
    let mut copy = world.enrolled(Purpose::Install { install }).await;
    send_seeds(&world, &mut copy, json!([])).await.ok();
    assert_eq!(with_seeds(&world, install).await, [former.id]);
    send_seeds(&world, &mut copy, json!([wrapped("two")])).await.ok();
    assert_eq!(with_seeds(&world, install).await, [copy.id]);
    revoke(&world, copy.id).await;
    let mut mistaken = enrol_with_new_keys(&world, install).await;
    send_seeds(&world, &mut mistaken, json!([wrapped("of mistaken")])).await.ok();
    assert_eq!(with_seeds(&world, install).await.len(), 2);
}

#[tokio::test]
async fn a_late_report_of_a_former_host_deletes_nothing_of_its_successor() {
    let (world, former, install) = world().await;
    let key = SigningKey::from_bytes(&[9; 32]);
    let mut hosts = vec![former.id];
    for generation in [2, 3] {
        let token = world.enrolment(Purpose::Install { install }).await;
        let successor = Successor::new(&world, install, generation, &key);
        let enrolled = successor.enrol(&world, &token, hosts.last().unwrap(), &json!({})).await;
        hosts.push(runner_of(&enrolled.ok()));
    }
    // The session of the second host began before the third one replaced it.
    let caller = RunnerCaller {
        id: hosts[1],
        mode: RunnerMode::Install,
        install: Some(install),
        generation: 1,
    };
    let seed = WrappedSeed { recipient: RECIPIENT.into(), generation: 2, wrapped: "late".into() };
    assert!(recovery::record(&world.app, &caller, Some(&vec![seed])).await.is_err());
    let token = world.enrolment(Purpose::Install { install }).await;
    assert_eq!(offered(&world, &token).await, ["of successor"]);
    assert!(with_seeds(&world, install).await.contains(&hosts[2]));
}

#[tokio::test]
async fn an_invalid_enrolment_is_rejected_before_it_stops_the_uploads() {
    let (world, former, install) = world().await;
    let (other, _) = world.agent().await;
    let token = world.enrolment(Purpose::Install { install }).await;
    let successor = Successor::new(&world, install, 2, &SigningKey::from_bytes(&[9; 32]));
    let hold = state_versions::hold(&world.app.pool, install).await.unwrap().unwrap();
    let rejected = successor.enrol(&world, &token, other.id, &json!({})).await;
    let detail = rejected.rejected(409, "rejected")["detail"].to_string();
    assert!(detail.contains("not one of this install"), "{detail}");
    let (call, id) = (World::system(), enrolments::id_of(&token).unwrap());
    enrolments::revoke(&world.app, &call, id, "printed".into()).await.unwrap();
    let revoked = successor.enrol(&world, &token, former.id, &json!({})).await;
    revoked.rejected(401, "token_revoked");
    offer(&world, &token).await.rejected(401, "token_revoked");
    hold.release().await.unwrap();
}

#[tokio::test]
async fn a_restarted_server_ends_the_executions_of_the_lost_host() {
    let (mut world, former, install) = world().await;
    let held = run(&world, &former, install, "web").await;
    // The server of the lost host's session learns nothing of the recovery.
    world.stop_loops().await;
    let other = world.second_server().await;
    let token = other.enrolment(Purpose::Install { install }).await;
    let successor = Successor::new(&other, install, 2, &SigningKey::from_bytes(&[9; 32]));
    successor.enrol(&other, &token, former.id, &json!({})).await.ok();
    let world = world.restart().await;
    world.wait_for_event("job", held.job, "job.outcome_unknown").await;
}
