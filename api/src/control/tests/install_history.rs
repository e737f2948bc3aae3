//! History of installs: as a bundle, and as a diff of all installs.
use std::collections::BTreeSet;

use cli::client::{Client, ClientError, proven_history};
use domain::{decider::Decider, install::Install, job::Job, run::Run, run::StepState};
use event_log::StreamId;
use proof::{
    bundle::{Bundle, Complete, Subject},
    key::TrustedKey,
};
use schemas::control::{
    audit::AsOfQuery,
    bundles::{BundleQuery, OtherEntries},
    history::InstallsDiffQuery,
    installs::UpdateInstall,
    runs::ApproveRun,
    tokens::RenamePrincipal,
};

use super::{
    new_install,
    reactions::{complete_build, complete_plan, digest, enroll, run_of, wait_for_step},
    rejection, with_install,
};

const REASON: &str = "because Ann read the plan";

async fn bundle(client: &Client, which: &BundleQuery) -> (Bundle, String) {
    let bytes = client.bundle(which).await.unwrap().bytes().await.unwrap();
    (Bundle::read(&bytes).unwrap(), String::from_utf8(bytes.to_vec()).unwrap())
}

fn of_install(name: &str) -> BundleQuery {
    BundleQuery { install: Some(name.into()), ..BundleQuery::default() }
}

#[tokio::test]
async fn install_bundle_has_its_history_and_annotations_only_on_request() {
    let (started, owner, acme) = with_install().await;
    let app = started.app();
    let me = owner.whoami().await.unwrap();
    let named = RenamePrincipal { name: Some("Ann Lee".into()) };
    owner.name_principal(me.principal, &named).await.unwrap();
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    complete_build(&started).await;
    complete_plan(app, run).await;
    wait_for_step(app, run, |state| {
        matches!(state, StepState::AwaitingApproval { .. }).then_some(())
    })
    .await;
    let step = owner.run(run).await.unwrap().dag[0].id;
    let approval = ApproveRun { step, digest: digest(2), reason: REASON.into() };
    let approved = owner.approve(run, &approval).await.unwrap().position;
    // The apply job is queued. From here on, the history gets no further events.
    wait_for_step(app, run, |state| matches!(state, StepState::Applying { .. }).then_some(()))
        .await;
    let keys: Vec<TrustedKey> =
        vec![owner.checkpoint().await.unwrap().verifier_key.parse().unwrap()];

    let (found, text) = bundle(&owner, &of_install("acme")).await;
    let Subject::Streams(streams) = &found.subject else { panic!("{}", found.subject) };
    let kinds: BTreeSet<&str> = streams.iter().filter_map(|s| Some(s.split_once('/')?.0)).collect();
    assert_eq!(kinds, BTreeSet::from(["build", "install", "job", "run"]));
    assert!(streams.contains(&format!("{}/{}", Install::NAME, acme.id)));
    assert!(streams.contains(&format!("{}/{run}", Run::NAME)));
    for job in owner.jobs(&Default::default()).await.unwrap().items {
        assert!(streams.contains(&format!("{}/{}", Job::NAME, job.id)), "{}", job.id);
    }
    let proven = found.check(&keys, None).unwrap();
    assert_eq!(proven.streams.len(), streams.len());
    let complete = |of: &Complete| matches!(of, Complete::FromSequences { .. });
    assert!(proven.streams.iter().all(|stream| complete(&stream.complete)), "{proven:?}");
    // Without annotations, the bundle contains no personal data.
    assert!(!text.contains(REASON) && !text.contains("Ann Lee"), "{text}");

    let which = BundleQuery { names: Some(true), reasons: Some(true), ..of_install("acme") };
    let (found, _) = bundle(&owner, &which).await;
    found.check(&keys, None).unwrap();
    let added = found.annotations.as_ref().unwrap();
    let names = added.names.as_ref().unwrap();
    assert_eq!(names.get(&me.principal.to_string()).map(String::as_str), Some("Ann Lee"));
    assert_eq!(added.reasons.as_ref().unwrap()[&approved], REASON);
    // The flags are independent, and neither is valid with hashes only.
    let which = BundleQuery { names: Some(true), ..of_install("acme") };
    assert!(!bundle(&owner, &which).await.1.contains(REASON));
    let which = BundleQuery { hashes_only: Some(true), ..which };
    assert_eq!(rejection(owner.bundle(&which).await.map(drop)).0, 400);

    let with_all_entries =
        BundleQuery { other_entries: Some(OtherEntries::All), ..of_install("acme") };
    let (found, _) = bundle(&owner, &with_all_entries).await;
    assert_eq!(found.check(&keys, None).unwrap().complete, Complete::Whole);
    let hashes = BundleQuery { hashes_only: Some(true), ..of_install("acme") };
    let (found, _) = bundle(&owner, &hashes).await;
    assert_eq!(found.check(&keys, None).unwrap().streams.len(), streams.len());
    assert_eq!(proven_history(&found), Ok(None));
    // The stream of the install alone can still be requested.
    let own = BundleQuery { stream: Some("install/acme".into()), ..BundleQuery::default() };
    assert!(matches!(bundle(&owner, &own).await.0.subject, Subject::Stream(_)));
    assert_eq!(rejection(owner.bundle(&of_install("nobody")).await.map(drop)).0, 404);
}

#[tokio::test]
async fn changes_of_all_installs_are_listed_by_page() {
    let (started, owner, acme) = with_install().await;
    let start = owner.checkpoint().await.unwrap().size;
    let globex = owner.create_install(&new_install("globex")).await.unwrap();
    owner.create_install(&new_install("initech")).await.unwrap();
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    owner.update_install("acme", &on).await.unwrap();
    let from = |position| InstallsDiffQuery {
        from_position: Some(position),
        min_position: None,
        ..InstallsDiffQuery::default()
    };
    let ids = |page: &schemas::control::history::InstallsDiff| -> Vec<Option<String>> {
        page.items.iter().map(|item| item.name.clone()).collect()
    };
    let all = owner.installs_between(&from(start)).await.unwrap();
    let names = ["acme", "globex", "initech"].map(|name| Some(name.to_owned()));
    assert_eq!((ids(&all), &all.next), (names.to_vec(), &None));
    let changed: Vec<_> = all.items[0].changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(changed, ["auto_approve"]);

    let which = InstallsDiffQuery { limit: Some(2), ..from(start) };
    let page = owner.installs_between(&which).await.unwrap();
    assert_eq!(ids(&page), names[..2]);
    let page_end = page.to.position;
    let which = InstallsDiffQuery { cursor: page.next, ..which };
    let page = owner.installs_between(&which).await.unwrap();
    assert_eq!((ids(&page), page.next), (names[2..].to_vec(), None));
    // The second page uses the cached range.
    let which = InstallsDiffQuery {
        to_position: Some(page_end),
        cursor: Some(acme.id.to_string()),
        ..from(start)
    };
    let known = BTreeSet::from([acme.id, globex.id]);
    started.app().changed_installs.keep((start, page_end), known.into());
    assert_eq!(ids(&owner.installs_between(&which).await.unwrap()), names[1..2]);
    // Lists only installs with events in the range.
    let which = InstallsDiffQuery { to_position: Some(globex.position), ..from(start) };
    assert_eq!(ids(&owner.installs_between(&which).await.unwrap()), names[1..2]);
    assert!(acme.position <= start);
    let which = InstallsDiffQuery { to_position: Some(start), ..from(start) };
    assert!(owner.installs_between(&which).await.unwrap().items.is_empty());
    for wrong in [
        InstallsDiffQuery::default(),
        InstallsDiffQuery { limit: Some(51), ..from(0) },
        InstallsDiffQuery { cursor: Some("acme".into()), ..from(0) },
    ] {
        assert_eq!(rejection(owner.installs_between(&wrong).await).0, 400, "{wrong:?}");
    }
}

#[tokio::test]
async fn install_is_listed_before_the_projection_has_its_run() {
    let (started, owner, acme) = with_install().await;
    let app = started.app();
    let hold = "create function hold() returns trigger language plpgsql as \
                  $$ begin raise exception 'held back'; end $$; \
                create trigger hold before insert on projection_runs for each row execute function hold()";
    sqlx::raw_sql(hold).execute(&app.pool).await.unwrap();
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    let events = app.log().read_stream(&StreamId::of::<Run>(run), 0).await.unwrap();
    // The range contains one event, which belongs to the run.
    let requested = events[0].position;
    let which = InstallsDiffQuery {
        from_position: Some(requested - 1),
        to_position: Some(requested),
        min_position: None,
        ..InstallsDiffQuery::default()
    };
    let listed = owner.installs_between(&which).await.unwrap().items;
    let names: Vec<_> = listed.iter().map(|item| item.name.as_deref()).collect();
    assert_eq!(names, [Some("acme")]);
}

#[tokio::test]
async fn state_before_the_first_event_names_its_position() {
    let (_started, owner, _) = with_install().await;
    let long_ago = Some("2001-01-01T00:00:00Z".parse().unwrap());
    let which = AsOfQuery { stream: "install/acme".into(), time: long_ago, ..AsOfQuery::default() };
    let ClientError::Problem(problem) = owner.as_of(&which).await.unwrap_err() else { panic!() };
    assert_eq!(problem.status, 404);
    let first = "its first event is at position ";
    let (_, rest) = problem.detail.split_once(first).unwrap();
    let position: u64 = rest.split(',').next().unwrap().parse().unwrap();
    assert!(problem.detail.contains("recorded 2"), "{}", problem.detail);
    let which = AsOfQuery { time: None, position: Some(position), ..which };
    assert_eq!(owner.as_of(&which).await.unwrap().sequence, 1);
}
