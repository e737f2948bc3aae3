//! Stack outputs: set by the vendor, reported by the runner, or missing.
use std::collections::BTreeMap;

use cli::client::Client;
use domain::{
    app::App as AppState,
    install::Install,
    run::{Run, RunKind, Target},
};
use ed25519_dalek::SigningKey;
use schemas::{
    control::installs::{CreateInstall, InstallCreated, StateQuery, UpdateInstall},
    runner::sign_install_keys,
};
use serde_json::{Value, json};

use super::{
    bundle_of_files,
    impact::deploy_desired_state,
    new_install, owner,
    reactions::{run_of, wait_for},
    rejection,
};
use crate::server::testing::Started;

/// App with three components. `net` requires the VPC, `log` reads the bucket optionally, `dns`
/// reads the location of the account.
async fn with_stack(outputs: Value) -> (Started, Client, InstallCreated) {
    let started = Started::new().await;
    let owner = owner(&started);
    let part = |name: &str, var: &str| {
        format!(
            "name = \"{name}\"\ntype = \"terraform_module\"\n[public_repo]\nrepo = \".\"\n\
             [vars]\nx = '{var}'\n"
        )
    };
    let net = part("net", "{{ .nuon.install_stack.outputs.vpc_id }}");
    let maybe = "{{ if false }}{{ .nuon.install_stack.outputs.bucket }}{{ end }}\
                 {{ index .nuon.install_stack.outputs \"bucket\" }}\
                 {{ or true .nuon.install_stack.outputs.bucket }}";
    let log = part("log", maybe);
    let dns = part("dns", "{{ .nuon.cloud_account.aws.region }}");
    let bundle = bundle_of_files(&[
        ("app/metadata.toml", "version = \"v2\"\n"),
        ("app/runner.toml", "runner_type = \"aws\"\n"),
        ("app/components/net.toml", &net),
        ("app/components/log.toml", &log),
        ("app/components/dns.toml", &dns),
        ("source/net/main.tf", ""),
        ("source/log/main.tf", ""),
        ("source/dns/main.tf", ""),
    ]);
    owner.sync("net", bundle, false).await.unwrap();
    let new = CreateInstall {
        app: "net".into(),
        inputs: BTreeMap::new(),
        stack_outputs: serde_json::from_value(outputs).unwrap(),
        ..new_install("acme")
    };
    let created = owner.create_install(&new).await.unwrap();
    (started, owner, created)
}

async fn enrol(started: &Started, token: &str, outputs: Value) -> (u16, Value) {
    let key = SigningKey::generate(&mut rand::rngs::OsRng);
    let public = hex::encode(key.verifying_key().as_bytes());
    let body = json!({
        "token": token, "mode": "install", "version": "1.0.0",
        "install_keys": sign_install_keys(1, "11".repeat(32), public.clone(), &key),
        "identity_key": public,
        "host": {"os": "linux", "arch": "x86_64"}, "stack_outputs": outputs,
    });
    let url = started.runner("/runner/v1/enrol");
    let response = started.http.post(url).json(&body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

fn outputs(changes: Value) -> UpdateInstall {
    let stack_outputs = Some(serde_json::from_value(changes).unwrap());
    UpdateInstall { stack_outputs, ..UpdateInstall::default() }
}

#[tokio::test]
async fn runner_outputs_override_those_of_the_vendor() {
    let given = json!({"vpc_id": "vpc-1", "region": "eu-1", "subnets": ["a", "b"]});
    let (started, owner, created) = with_stack(given).await;
    let state = async || {
        let state = owner.install_state("acme", &StateQuery::default()).await.unwrap().state;
        let stack = state["nuon"]["install_stack"]["outputs"].clone();
        (stack, state["stead"]["cloud_account"].clone())
    };
    let expected = json!({"vpc_id": "vpc-1", "region": "eu-1", "subnets": ["a", "b"]});
    assert_eq!(state().await.0, expected);
    assert_eq!(owner.install("acme").await.unwrap().stack_outputs["region"], "eu-1");
    let token = created.enrolment.unwrap().token;
    let many = enrol(&started, &token, json!({"big": "x".repeat(70_000)})).await;
    assert_eq!((many.0, &many.1["errors"][0]["field"]), (422, &json!("stack_outputs")));
    let arns = json!({"breakglass": "arn:1"});
    let given = json!({"region": "eu-2", "account_id": "1", "arns": arns});
    let response = enrol(&started, &token, given).await;
    assert_eq!(response.0, 200, "{}", response.1);
    let (stack, account) = state().await;
    let expected = json!({"vpc_id": "vpc-1", "region": "eu-2", "subnets": ["a", "b"], "account_id": "1", "arns": arns});
    assert_eq!(stack, expected);
    assert_eq!(account, json!({"aws": {"region": "eu-2", "account_id": "1"}}));

    // The vendor's value for an output that the runner reported is rejected.
    let change = async |changes| owner.update_install("acme", &outputs(changes)).await;
    for vain in [json!({"region": "eu-3"}), json!({"account_id": null}), json!({"zone": null})] {
        assert_eq!(rejection(change(vain).await).0, 422);
    }
    assert!(!change(json!({"vpc_id": "vpc-1"})).await.unwrap().changed);
    started.server.stop().await;
}

#[tokio::test]
async fn missing_outputs_are_reported_with_their_location_before_a_run() {
    let (started, owner, created) = with_stack(json!({})).await;
    let token = created.enrolment.unwrap().token;
    let (status, response) = enrol(&started, &token, json!({"region": "eu-1"})).await;
    assert_eq!(status, 422, "{response}");
    let detail = response["detail"].as_str().unwrap();
    assert!(detail.contains("stack outputs that are not set: vpc_id"), "{detail}");
    assert!(
        detail.contains("stead installs set-stack-outputs acme --stack-output vpc_id=…"),
        "{detail}"
    );
    let error = &response["errors"][0];
    assert_eq!(error["field"], "stack_outputs.vpc_id");
    assert_eq!((&error["file"], &error["line"]), (&json!("components/net.toml"), &json!(6)));
    assert_eq!(
        response["errors"].as_array().unwrap().len(),
        1,
        "the bucket is optional: {response}"
    );
    let (_, response) = enrol(&started, &token, json!({"vpc_id": "vpc-1"})).await;
    assert_eq!(response["errors"][0]["field"], "stack_outputs.region", "{response}");
    // Nothing is recorded, and the token can still be used.
    let install = started.app().engine.load::<Install>(created.id).await.unwrap();
    assert_eq!((install.stack.is_none(), install.had_deploy), (true, false));
    owner.update_install("acme", &outputs(json!({"vpc_id": "vpc-1"}))).await.unwrap();
    let (status, response) = enrol(&started, &token, json!({"region": "eu-1"})).await;
    assert_eq!(status, 200, "{response}");
    let run = run_of(started.app(), created.id).await;
    let run = started.app().engine.load::<Run>(run).await.unwrap();
    assert_eq!((run.steps.len(), run.request.unwrap().kind), (3, RunKind::Provision));
    started.server.stop().await;
}

#[tokio::test]
async fn changed_output_plans_only_its_readers() {
    let (started, owner, created) = with_stack(json!({"vpc_id": "vpc-1", "region": "eu-1"})).await;
    deploy_desired_state(&started, created.id).await;
    let same = owner.update_install("acme", &outputs(json!({"vpc_id": "vpc-1"}))).await.unwrap();
    assert_eq!((same.changed, same.run), (false, None));
    let other = owner.update_install("acme", &outputs(json!({"zone": "z"}))).await.unwrap();
    assert_eq!((other.changed, other.run), (true, None));
    let done = owner.update_install("acme", &outputs(json!({"vpc_id": "vpc-2"}))).await.unwrap();
    let run = wait_for(async || {
        let run = started.app().engine.load::<Run>(done.run?).await.unwrap();
        run.request.is_some().then_some(run)
    })
    .await;
    let names = run.steps.iter().filter_map(|step| match &step.spec.target {
        Target::Component { name, .. } => Some(name.as_str()),
        Target::Sandbox { .. } | Target::Action { .. } => None,
    });
    let names: Vec<&str> = names.collect();
    assert_eq!(names, ["net"]);
    started.server.stop().await;
}

#[tokio::test]
async fn required_output_cannot_be_removed_and_invalid_ones_are_rejected() {
    let (started, owner, created) = with_stack(json!({"vpc_id": "vpc-1", "region": "eu-1"})).await;
    deploy_desired_state(&started, created.id).await;
    let accepted = owner.update_install("acme", &outputs(json!({"vpc_id": null}))).await;
    assert_eq!(rejection(accepted).0, 422);
    let state = started.app().engine.load::<Install>(created.id).await.unwrap();
    assert_eq!(state.stack_outputs()["vpc_id"], "vpc-1");
    for wrong in [json!({"a b": "x"}), json!({"": "x"}), json!({"big": "x".repeat(70_000)})] {
        assert_eq!(rejection(owner.update_install("acme", &outputs(wrong)).await).0, 422);
    }
    let of = started.app().engine.load::<AppState>(created.app).await.unwrap();
    assert_eq!(of.version(), 1);
    started.server.stop().await;
}
