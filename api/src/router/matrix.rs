//! Contract test of access control: the golden file lists the callers that reach the handler of
//! each route. A missing check appears as a difference.
use std::fmt::Write as _;

use chrono::TimeDelta;
use domain::{
    access::{Access, AccessCommand, IssuedToken, PrincipalKind, Role},
    actor::Actor,
    decider::Decider as _,
    ids::{ExecutionId, JobId, PrincipalId, RunnerId, TokenId},
    testing::golden,
};
use event_log::{Commit, Meta, NewEvent, StreamId, Write as Append};
use reqwest::{Method, StatusCode};
use schemas::{manifest::Fence, runner::RunnerMode};
use ulid::Ulid;

use super::tests::operations;
use crate::{auth::secret, server::testing::Started};

/// Creates a principal with one role or none, and returns its token.
async fn principal(started: &Started, role: Option<Role>) -> String {
    let (app, clear) = (started.app(), secret::token());
    let sha256 = secret::digest(&clear).unwrap();
    let issued = IssuedToken { token: TokenId(Ulid::new()), sha256, expires_at: None };
    let mut commands =
        vec![AccessCommand::AddPrincipal { kind: PrincipalKind::Service, name_ref: None }];
    commands.extend(role.map(|role| AccessCommand::GrantRole { role }));
    commands.push(AccessCommand::IssueToken(issued));
    let (mut state, mut events) = (Access::default(), vec![]);
    for command in commands {
        for event in state.decide(command, app.now()).unwrap() {
            events.push(NewEvent::of(&event).unwrap());
            state.evolve(event);
        }
    }
    let stream = StreamId::new(Access::NAME, PrincipalId(Ulid::new()).to_string());
    let meta = Meta::new(Actor::System, Ulid::new().to_string());
    let commit = Commit::of(meta, vec![Append { stream, expected: 0, events }]);
    app.log().append(commit).await.unwrap();
    clear
}

async fn callers(started: &Started) -> Vec<(&'static str, String)> {
    let app = started.app();
    let (runner, mode, now) = (RunnerId(Ulid::new()), RunnerMode::Install, app.now());
    let (job, execution) = (JobId(Ulid::new()), ExecutionId(Ulid::new()));
    let (fence, deadline) = (Fence { epoch: 1, position: 1 }, now + TimeDelta::hours(1));
    vec![
        ("anonymous", String::new()),
        ("no-role", principal(started, None).await),
        ("viewer", principal(started, Some(Role::Viewer)).await),
        ("auditor", principal(started, Some(Role::Auditor)).await),
        ("approver", principal(started, Some(Role::Approver)).await),
        ("owner", principal(started, Some(Role::Owner)).await),
        ("runner", app.tokens.access(runner, (mode, None), 1, now).unwrap()),
        ("job", app.tokens.job(runner, job, execution, fence, deadline, now).unwrap()),
        ("enrolment", format!("stead_enrol_{}_{}", Ulid::new(), "0".repeat(64))),
    ]
}

fn path_with_ids(path: &str) -> String {
    let ids = [
        ("{app}", "app_"),
        ("{build}", "bld_"),
        ("{install}", "ins_"),
        ("{run}", "run_"),
        ("{step}", "stp_"),
        ("{job}", "job_"),
        ("{runner}", "rnr_"),
        ("{token}", "tok_"),
        ("{session}", "ses_"),
        ("{principal}", "prn_"),
    ];
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let filled = ids.iter().fold(path.to_string(), |path, (variable, prefix)| {
        path.replace(variable, &format!("{prefix}{id}"))
    });
    filled
        .replace("{attempt}", "1")
        .replace("{name}", "x")
        .replace("{component}", "x")
        .replace("{plugin}", "x")
        .replace("{position}", "1")
        .replace("{verb}", "drain")
        .replace("{role}", "viewer")
        .replace("{digest}", &format!("sha256:{}", "0".repeat(64)))
        .replace("{sha256}", &"0".repeat(64))
}

/// Table of the callers that each route accepts. A dash stands for 401 or 403.
async fn matrix(started: &Started, base: &str, routes: Vec<(String, String)>) -> String {
    let (callers, mut table) = (callers(started).await, String::new());
    for (verb, path) in routes {
        let mut row = String::new();
        for (name, token) in &callers {
            let method: Method = verb.parse().unwrap();
            let mut request =
                started.http.request(method, format!("{base}{}", path_with_ids(&path)));
            if !token.is_empty() {
                request = request.bearer_auth(token);
            }
            let status = request.send().await.unwrap().status();
            let out = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            write!(row, " {}", if out { "-".repeat(name.len()) } else { name.to_string() })
                .unwrap();
            assert!(out || status != StatusCode::INTERNAL_SERVER_ERROR, "{verb} {path} as {name}");
        }
        writeln!(table, "{verb:<6} {path:<46}{row}").unwrap();
    }
    table
}

#[tokio::test]
async fn callers_reach_only_permitted_routes() {
    let started = Started::new().await;
    let control = operations(&super::control_api().1);
    let people = matrix(&started, &started.server.ready.control, control.clone()).await;
    golden("routes/control-callers.txt", &people);
    for line in people.lines() {
        for outsider in [" anonymous", " no-role", " runner", " job", " enrolment"] {
            let cells = line.split_once("  ").unwrap().1;
            assert!(!cells.contains(outsider), "{outsider} reaches the handler: {line}");
        }
    }
    let agents = operations(&super::runner_api().1);
    let runners = matrix(&started, &started.server.ready.runner, agents).await;
    golden("routes/runner-callers.txt", &runners);
    // These five routes authenticate the caller by the request body.
    let open = ["/enrol ", "/recovery ", "/token ", "/rekey ", "POST   /runner/v1/sessions "];
    for line in runners.lines().filter(|line| open.iter().all(|open| !line.contains(open))) {
        for outsider in [" anonymous", " viewer", " owner", " enrolment"] {
            assert!(!line.contains(outsider), "{outsider} reaches the handler: {line}");
        }
    }
    started.server.stop().await;
}
