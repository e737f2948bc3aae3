//! Tests real resources of the AWS provider against an AWS emulator: create, update, drift, plan
//! and destroy.
use std::{fs, path::Path, time::Duration};

use serde_json::Value;
use tests::{
    Customer, Moto, Runner, Server, provider_config_or_skip, stdout_of, step, succeeded,
    terraform_or_skip, until,
};

const TIMEOUT: Duration = Duration::from_secs(240);

/// Waits until the newest run waits for approval of the bucket's plan, and approves the sandbox's
/// plan. Fails if the run ends first.
fn planned(server: &Server) -> Value {
    let mut run = Value::Null;
    until("the plan of the bucket", TIMEOUT, || {
        run = server.cli_json(&["runs", "show", "notes"]);
        let end_states = ["succeeded", "failed", "cancelled", "denied", "expired"];
        let ended = end_states.contains(&run["state"].as_str().unwrap());
        assert!(!ended, "{}", tests::run_with_logs(server, &run));
        let is_waiting = |name: &str| {
            let steps = run["dag"].as_array().unwrap();
            let step = steps.iter().find(|step| step["name"] == name);
            step.is_some_and(|step| step["state"] == "waiting_for_approval")
        };
        if is_waiting("sandbox") {
            let args = ["--step", "sandbox", "--all", "--reason", "the base is not what is tested"];
            server.cli_json(&[&["runs", "approve", "notes"], &args[..]].concat());
        }
        is_waiting("bucket")
    });
    run
}

fn approve(server: &Server) {
    let args = ["--step", "bucket", "--all", "--reason", "the test says so", "--wait"];
    let output = server.stead().args(["runs", "approve", "notes"]).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    succeeded(server, "notes");
}

fn changes(run: &Value) -> (u64, u64, u64) {
    let plan = &step(run, "bucket")["plan"];
    let count = |what: &str| plan[what].as_u64().unwrap();
    (count("add"), count("change"), count("destroy"))
}

/// Starts a runner whose jobs run in a sandbox, and find credentials and the provider, both supplied
/// by the customer.
fn customer(server: &Server, terraform: &Path, moto: &Moto, token: &str) -> Runner {
    let config = fs::read_to_string(terraform).unwrap();
    let mirror = config.split('"').nth(1).unwrap_or_else(|| panic!("no mirror in {config}"));
    Customer::new(server, "customer")
        .in_sandbox_reaching(&moto.url(), &[mirror.into()])
        .output("region=us-east-1")
        .pass("TF_CLI_CONFIG_FILE", terraform.to_str().unwrap())
        .pass("AWS_ACCESS_KEY_ID", "AKIACUSTOMERSOWN")
        .pass("AWS_SECRET_ACCESS_KEY", "nobody-else-has-this-key")
        .start(server, token)
}

#[test]
fn a_bucket_and_a_role_are_created_updated_reverted_and_destroyed() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let Some(terraform) = provider_config_or_skip(server.dir()) else { return };
    let Some(moto) = Moto::start_or_skip() else { return };
    let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/aws-bucket");
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let endpoint = format!("aws_endpoint={}", moto.url());
    let create = ["installs", "create", "aws-bucket", "notes", "--input", &endpoint];
    let created = server.cli_json(&create);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = customer(&server, &terraform, &moto, token);

    // The server creates the bucket only after an approval.
    until("the provision run", TIMEOUT, || {
        !server.cli_json(&["runs", "list", "--install", "notes"]).as_array().unwrap().is_empty()
    });
    let run = planned(&server);
    assert_eq!(changes(&run), (3, 0, 0), "{run:#}");
    assert!(!moto.buckets().contains("-notes"), "created before an approval");
    approve(&server);
    let install = server.cli_json(&["installs", "show", "notes"]);
    let outputs = &install["components"][0]["outputs"];
    let bucket = outputs["bucket"].as_str().unwrap_or_else(|| panic!("{install:#}"));
    let role = format!("{bucket}-reader");
    assert!(outputs["role_arn"].as_str().unwrap().ends_with(&format!("role/{role}")));
    let tags = moto.tags(bucket).unwrap();
    assert!(tags.contains("<Value>30</Value>") && moto.has_role(&role), "{tags}");

    // A new input value updates the bucket.
    server.cli_json(&["installs", "set-inputs", "notes", "--input", "retention_days=90"]);
    let run = planned(&server);
    assert_eq!(changes(&run), (0, 1, 0), "{run:#}");
    approve(&server);
    assert!(moto.tags(bucket).unwrap().contains("<Value>90</Value>"));

    // Drift: the next plan finds a manual change without a new config version, and its apply
    // reverts it.
    moto.set_tag(bucket, "retention_days", "7");
    let mut check = server.stead_for_people();
    let found = check.args(["installs", "drift", "notes"]).output().unwrap();
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(6), "{text}");
    assert!(text.contains("tags.retention_days: \"7\" → \"90\""), "{text}");
    assert!(moto.tags(bucket).unwrap().contains("<Value>7</Value>"), "a check changes nothing");
    server.cli_json(&["installs", "deploy", "notes", "--component", "bucket"]);
    let run = planned(&server);
    assert_eq!(changes(&run), (0, 1, 0), "{run:#}");
    let show = |details: &[&str]| {
        let args = [&["runs", "show", "notes", "--plans"][..], details].concat();
        stdout_of(server.stead_for_people().args(args))
    };
    let names = show(&["--details=names"]);
    assert!(names.contains("aws_s3_bucket.notes (tags"), "{names}");
    let values = show(&[]);
    assert!(values.contains("tags.retention_days: \"7\" → \"90\""), "{values}");
    approve(&server);
    assert!(moto.tags(bucket).unwrap().contains("<Value>90</Value>"));

    // A plan without changes requires no approval and skips its apply.
    server.cli_json(&["installs", "deploy", "notes", "--component", "bucket"]);
    let run = succeeded(&server, "notes");
    assert_eq!(step(&run, "bucket")["plan"]["noop"], true, "{run:#}");

    // A deprovision destroys the resources after approval of the destroy plan.
    server.cli_json(&["installs", "deprovision", "notes", "--reason", "the end"]);
    let run = planned(&server);
    assert_eq!(changes(&run), (0, 0, 3), "{run:#}");
    let args = ["--step", "bucket", "--all", "--reason", "the end"];
    server.cli_json(&[&["runs", "approve", "notes"], &args[..]].concat());
    let mut last = Value::Null;
    until("the end of the install", TIMEOUT, || {
        last = server.cli_json(&["runs", "show", "notes"]);
        let steps = last["dag"].as_array().unwrap();
        if steps.iter().any(|step| step["state"] == "waiting_for_approval") {
            let args = ["runs", "approve", "notes", "--all", "--reason", "the end"];
            let _ignored = server.stead().args(args).output().unwrap();
        }
        last["state"] == "succeeded" || last["state"] == "failed"
    });
    assert_eq!(last["state"], "succeeded", "{last:#}");
    assert!(moto.tags(bucket).is_none() && !moto.has_role(&role), "{}", moto.buckets());

    // The vendor's log does not contain the customer's credentials.
    let export = stdout_of(server.stead_for_people().args(["audit", "export"]));
    assert!(!export.contains("nobody-else-has-this-key") && !export.contains("AKIACUSTOMERSOWN"));
    drop(runner);
}
