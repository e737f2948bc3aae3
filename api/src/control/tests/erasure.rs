//! Erasure of personal data after shredding, checked by a search of the whole database.
use std::{collections::BTreeMap, process::Command, time::Duration};

use cli::client::{Client, Target};
use domain::{
    actor::Actor,
    decider::Decider as _,
    ids::{ExecutionId, InstallId, JobId, RunId, RunnerId, SessionId, StepId},
    install::{Install, InstallCommand, Outputs},
    job::{
        ExecutionResult, FailureReason, Job, JobClass, JobCommand, JobKind, Origin, Report, Work,
    },
    subject::{self, SubjectCommand, SubjectId},
};
use event_log::{Commit, EventLog, Meta, blob, testing::Binaries, verify};
use proof::bundle::Bundle;
use schemas::control::{
    ReasonBody,
    audit::AsOfQuery,
    bundles::BundleQuery,
    installs::{CreateInstall, UpdateInstall},
    jobs::Cancel,
    subjects::Subject,
    tokens::{CreateToken, Role},
};
use serde_json::{Value, json};
use ulid::Ulid;

mod archived;
mod failed_commit;
mod pentest;

use super::{bundle, client, new_install, owner, rejection};
use crate::{
    execute::Call,
    server::{
        Server,
        testing::{Started, options},
    },
    state::App,
};

// Strings that identify the customer.
const INPUT: &str = "7313370042";
const OUTPUT: &str = "ada.lovelace.example";
const STACK: &str = "account-of-ada";
const DETAIL: &str = "quota of ada exceeded";
const MANIFEST: &str = "manifest-of-ada";
const REASON: &str = "ada called about this";
const ALL: [&str; 6] = [INPUT, OUTPUT, STACK, DETAIL, MANIFEST, REASON];

fn call() -> Call {
    Call::of(Meta::new(Actor::System, Ulid::new().to_string()))
}

/// Creates an install with personal data: inputs, a reason, stack outputs, and a job with a
/// manifest, outputs, a log and a failure.
async fn install_with_personal_data(app: &App, owner: &Client) -> (InstallId, JobId) {
    let inputs = BTreeMap::from([("size".to_owned(), INPUT.to_owned())]);
    let created = CreateInstall { inputs, ..new_install("acme") };
    let install = owner.create_install(&created).await.unwrap().id;
    let update = UpdateInstall {
        auto_approve: Some(true),
        reason: Some(REASON.into()),
        ..UpdateInstall::default()
    };
    owner.update_install("acme", &update).await.unwrap();
    let manifest = blob::put(&app.pool, MANIFEST.as_bytes()).await.unwrap();
    let (job, execution) = (JobId(Ulid::new()), ExecutionId(Ulid::new()));
    let runner = RunnerId(Ulid::new());
    let call = call();
    let done = app.engine.transact(&call, move |unit| {
        let manifest = manifest.clone();
        Box::pin(async move {
            let outputs = Outputs::from([("account".to_owned(), json!({"id": STACK}))]);
            let report = InstallCommand::ReportStackOutputs { runner, outputs, replaces: None };
            unit.handle::<Install>(install, report).await?;
            let (run, step) = (RunId(Ulid::new()), StepId(Ulid::new()));
            let work = Work {
                kind: JobKind::Action,
                class: JobClass::Pure,
                attempts: 3,
                manifest,
                origin: Origin::Step { install, run, step },
                deadline_ms: 60_000,
                queue_ttl_ms: 60_000,
            };
            let (session, claim_id) = (SessionId(Ulid::new()), "c".to_owned());
            let report = |seq, report| JobCommand::Report { execution, seq, report, signed: None };
            let outputs = Outputs::from([("host".to_owned(), Value::from(OUTPUT))]);
            let failed = ExecutionResult::Failed {
                reason: FailureReason::ExitCode,
                detail: DETAIL.into(),
                exit_code: Some(1),
                signal: None,
                not_ended: vec![],
            };
            for command in [
                JobCommand::Queue(work),
                JobCommand::Claim { execution, runner, session, claim_id },
                report(1, Report::Started { isolation: None }),
                report(2, Report::Outputs { outputs }),
                report(3, Report::Finished(failed)),
            ] {
                unit.handle::<Job>(job, command).await?;
            }
            Ok(())
        })
    });
    done.await.unwrap();
    app.logs.append(execution, 0, OUTPUT.as_bytes().to_vec().into()).await.unwrap();
    (install, job)
}

/// Cancels the provision that the enrolment of an install started, and every other run.
async fn cancel_runs(app: &App, owner: &Client, install: InstallId) {
    let mut cancelled = false;
    for _ in 0..400 {
        let runs = app.engine.load::<Install>(install).await.unwrap().runs;
        if cancelled && runs.is_empty() {
            break;
        }
        for run in runs.keys() {
            let why = Cancel { reason: "enough".into(), force: false };
            cancelled |= owner.cancel_run(*run, &why).await.is_ok();
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// Deprovisions an install. First cancels its runs, so nothing remains to destroy.
async fn deprovision(app: &App, owner: &Client, install: InstallId) {
    cancel_runs(app, owner, install).await;
    let call = call();
    let done = app.engine.transact(&call, move |unit| {
        Box::pin(async move { unit.handle::<Install>(install, InstallCommand::Deprovision).await })
    });
    done.await.unwrap();
}

/// Dump of the whole database as text; bytes are hexadecimal.
async fn dump(url: &str) -> String {
    let mut dump = Command::new(Binaries::find().unwrap().program("pg_dump"));
    dump.args(["--inserts", "--dbname", url]);
    // The dump may wait for a lock of the server, which runs on this thread.
    let done = tokio::task::spawn_blocking(move || dump.output()).await.unwrap().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn texts_in<'a>(dump: &str, texts: &[&'a str]) -> Vec<&'a str> {
    let has = |text: &&&str| dump.contains(**text) || dump.contains(&hex::encode(text));
    texts.iter().filter(has).copied().collect()
}

async fn wait_until_erased(client: &Client, subject: SubjectId) -> Subject {
    for _ in 0..300 {
        let response = client.subject(subject).await.unwrap();
        if response.state == "erased" {
            return response;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("timeout: the copies of {subject} are not erased");
}

fn why() -> ReasonBody {
    ReasonBody { reason: Some("asked on 3 May".into()) }
}

async fn started() -> (Started, Client) {
    let started = Started::new().await;
    let owner = owner(&started);
    owner.sync("shop", bundle("1"), false).await.unwrap();
    (started, owner)
}

/// Checks that the doctor has no findings.
async fn check_projections(client: &Client) {
    let report = client.examine().await.unwrap().text().await.unwrap();
    assert!(
        report.contains(r#""check":"all","state":"done""#) && !report.contains("findings"),
        "{report}"
    );
}

#[tokio::test]
async fn shredding_erases_every_row_and_keeps_proofs_valid() {
    let (started, owner) = started().await;
    let app = started.app();
    let (install, job) = install_with_personal_data(app, &owner).await;
    let subject = SubjectId::Install(install);
    // The log has no personal data in clear text, unlike the projections.
    let log = "select string_agg(payload::text, '') from log_event";
    let log: String = sqlx::query_scalar(log).fetch_one(&app.pool).await.unwrap();
    assert_eq!(texts_in(&log, &ALL), Vec::<&str>::new());
    let state = owner.install_state("acme", &Default::default()).await.unwrap().state.to_string();
    assert!(state.contains(INPUT) && state.contains(STACK), "{state}");
    app.projections.wait_for(app.log().position(), Duration::from_secs(10)).await.unwrap();
    let found = texts_in(&dump(&started.database).await, &ALL);
    assert!(
        found.contains(&OUTPUT) && found.contains(&DETAIL) && found.contains(&MANIFEST),
        "{found:?}"
    );
    // Evidence from before the shredding.
    let earlier = owner.checkpoint().await.unwrap();
    let which = BundleQuery { stream: Some("install/acme".into()), ..Default::default() };
    let proof = owner.bundle(&which).await.unwrap().bytes().await.unwrap();

    assert_eq!(rejection(owner.shred(subject, &why()).await), (409, "rejected".into()));
    deprovision(app, &owner, install).await;
    assert!(owner.shred(subject, &why()).await.unwrap().changed);
    assert!(!owner.shred(subject, &why()).await.unwrap().changed);
    // The shredding is effective when its response arrives. At that time, the server may still
    // erase copies.
    let then = AsOfQuery {
        stream: "install/acme".into(),
        position: Some(earlier.size),
        ..AsOfQuery::default()
    };
    let as_of = owner.as_of(&then).await.unwrap();
    assert_eq!(as_of.state["inputs"]["size"], "[erased]", "{as_of:?}");

    let response = wait_until_erased(&owner, subject).await;
    assert_eq!(response.reason.as_deref(), Some("asked on 3 May"));
    assert_eq!(texts_in(&dump(&started.database).await, &ALL), Vec::<&str>::new());
    let logs: i64 = sqlx::query_scalar("select count(*) from job_log where start_offset >= 0")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(logs, 0);
    let failed = owner.job(job).await.unwrap();
    assert_eq!(failed.detail.as_deref(), Some("[erased]"), "{failed:?}");
    let state = owner.install_state("acme", &Default::default()).await.unwrap().state;
    assert_eq!(state["nuon"]["inputs"]["inputs"]["size"], "[erased]");
    check_projections(&owner).await;
    assert_eq!(verify::verify(&app.pool, 0, |_| {}).await.unwrap().size, app.log().position());
    // The earlier bundle still verifies, and so does a new one against the earlier checkpoint.
    let keys = vec![earlier.verifier_key.parse().unwrap()];
    Bundle::read(&proof).unwrap().check(&keys, Some(&earlier.note)).unwrap();
    let which = BundleQuery { prior_checkpoint: Some(earlier.note.clone()), ..which };
    let now = owner.bundle(&which).await.unwrap().bytes().await.unwrap();
    Bundle::read(&now).unwrap().check(&keys, Some(&earlier.note)).unwrap();
    started.server.stop().await;
}

#[tokio::test]
async fn shredding_a_principal_erases_name_and_reasons_only() {
    let (started, owner) = started().await;
    let app = started.app();
    let request =
        CreateToken { role: Role::Owner, name: Some("Ada Lovelace".into()), expires_in_s: None };
    let created = owner.create_token(&request).await.unwrap();
    let ada = client(&started, created.token.as_deref().unwrap());
    install_with_personal_data(app, &ada).await;
    let subject = SubjectId::Principal(created.principal);
    let rejected = rejection(owner.shred(subject, &why()).await);
    assert_eq!(
        rejected,
        (409, "rejected".into()),
        "a principal that still logs in cannot be erased"
    );
    owner.revoke_token(created.id).await.unwrap();
    owner.shred(subject, &why()).await.unwrap();
    wait_until_erased(&owner, subject).await;
    let dump = dump(&started.database).await;
    assert_eq!(texts_in(&dump, &[REASON, "Ada Lovelace"]), Vec::<&str>::new());
    // The customer's data remains.
    let state = owner.install_state("acme", &Default::default()).await.unwrap().state.to_string();
    assert!(state.contains(INPUT) && state.contains(STACK), "{state}");
    check_projections(&owner).await;
    started.server.stop().await;
}

#[tokio::test]
async fn shredding_reaches_other_servers_and_survives_a_crash() {
    let (started, owner) = started().await;
    let (install, _) = install_with_personal_data(started.app(), &owner).await;
    deprovision(started.app(), &owner, install).await;
    // The second server has a copy of the keys of the first one.
    let data = tempfile::tempdir().unwrap();
    std::fs::create_dir(data.path().join("keys")).unwrap();
    for entry in std::fs::read_dir(started.data.path().join("keys")).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            std::fs::copy(entry.path(), data.path().join("keys").join(entry.file_name())).unwrap();
        }
    }
    let second = Server::start(options(data.path(), &started.database)).await.unwrap();
    let id = install.to_string();
    assert_eq!(second.app.engine.load::<Install>(&id).await.unwrap().inputs["size"], INPUT);
    // All servers stop. The log has the decision, but nothing is erased.
    let database = started.database.clone();
    let token = started.owner_token();
    second.stop().await;
    started.server.stop().await;
    let pool = event_log::connect(&database, 2).await.unwrap();
    let log = EventLog::open(pool, event_log::Options::default()).await.unwrap();
    let loaded = log.reload::<subject::Subject>(&id).await.unwrap();
    let shred = SubjectCommand::Shred { by: Actor::System, reason: "asked".into() };
    let events = loaded.state.decide(shred, log.clock().now()).unwrap();
    let commit = Commit::of(Meta::new(Actor::System, "c"), vec![loaded.write(&events).unwrap()]);
    log.append(commit).await.unwrap();
    let key = "select wrapped is not null from subject_key where subject = $1";
    let key = sqlx::query_scalar::<_, bool>(key).bind(&id).fetch_one(log.pool()).await.unwrap();
    assert!(key, "the key still exists");

    let first = Server::start(options(started.data.path(), &database)).await.unwrap();
    let second = Server::start(options(data.path(), &database)).await.unwrap();
    let target = |server: &Server| Target {
        server: server.ready.control.clone(),
        token: Some(token.clone()),
        ca: None,
    };
    let of_second = Client::new(&target(&second)).unwrap();
    wait_until_erased(&of_second, SubjectId::Install(install)).await;
    for server in [&first, &second] {
        let state = server.app.engine.load::<Install>(&id).await.unwrap();
        assert_eq!(state.inputs["size"], "[erased]");
    }
    assert_eq!(texts_in(&dump(&database).await, &ALL), Vec::<&str>::new());
    // With both servers running, each applies a shredding by the other.
    let of_first = Client::new(&target(&first)).unwrap();
    let inputs = BTreeMap::from([("size".to_owned(), INPUT.to_owned())]);
    let created = CreateInstall { inputs, ..new_install("initech") };
    let other = of_first.create_install(&created).await.unwrap().id;
    let call = call();
    let done = first.app.engine.transact(&call, move |unit| {
        Box::pin(async move { unit.handle::<Install>(other, InstallCommand::Deprovision).await })
    });
    done.await.unwrap();
    second.app.log().wait_for(first.app.log().position()).await.unwrap();
    let other_install = second.app.engine.load::<Install>(other).await.unwrap();
    assert_eq!(other_install.inputs["size"], INPUT);
    let done = of_first.shred(SubjectId::Install(other), &why()).await.unwrap();
    second.app.log().wait_for(done.position).await.unwrap();
    let other_install = second.app.engine.load::<Install>(other).await.unwrap();
    assert_eq!(other_install.inputs["size"], "[erased]");
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn server_without_the_key_file_does_not_start() {
    let (started, owner) = started().await;
    install_with_personal_data(started.app(), &owner).await;
    let database = started.database.clone();
    started.server.stop().await;
    let data = tempfile::tempdir().unwrap();
    let error = Server::start(options(data.path(), &database)).await.err().unwrap().to_string();
    assert!(error.contains("subjects.key"), "{error}");
}
