//! Tests of the recovery of an install on a new host, with whole programs and real Terraform: the
//! host is destroyed, a new one continues from the states of the server, and the former one is
//! rejected when it returns.
mod kills;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use serde_json::{Value, json};
use tests::{
    Customer, Moto, Runner, Server, edge_api, ended, in_ci, job_events, program, stdout_of,
    succeeded, terraform_or_skip, until, until_some,
};

const TIMEOUT: Duration = Duration::from_secs(240);
const RECIPIENT: &str = "age1mz625ny4ugt7hk07qml93y7wte4hd28ftwejjy3elg3ux59jk5yqsys3dy";
const SECRET: &str = "AGE-SECRET-KEY-13ZDW9XYMMA2ZTKZMCKGWU39GHPLXFVFNCG0XHGWLWXYHR0WVYPZSJ9DMV7";
/// Identity that is no recipient.
const OTHER: &str = "AGE-SECRET-KEY-1UTKZ4G5ZCVHH2Z38G2484L3TV7PXF877GWM0TQ0YJ6QP9HSCPCDQMN6GKW";

/// Install with a runner that has a recovery recipient.
fn install(server: &Server, pace: u32) -> Runner {
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let pace = format!("pace_seconds={pace}");
    let create = ["installs", "create", "edge-api", "acme", "--auto-approve"];
    let inputs = ["--input", "company=Acme", "--input", &pace];
    let created = server.cli_json(&[&create[..], &inputs].concat());
    let token = created["enrolment"]["token"].as_str().unwrap();
    let customer = Customer::new(server, "customer").with(&["--recovery", RECIPIENT]);
    let runner = customer.start(server, token);
    until("the server to have the wrapped seed", TIMEOUT, || {
        !events(server, "runner.recovery_recipients_changed").is_empty()
    });
    runner
}

fn events(server: &Server, kind: &str) -> Vec<Value> {
    server.cli_json(&["audit", "events", "--type", kind]).as_array().unwrap().clone()
}

fn fingerprint(runner: &Runner) -> String {
    stdout_of(&mut runner.local(&["fingerprint"])).trim().to_owned()
}

/// Revokes the lost runner and creates a token for its successor.
fn new_token(server: &Server) -> String {
    let id = server.cli_json(&["installs", "show", "acme"])["runner"].clone();
    let revoke = ["runners", "revoke", id.as_str().unwrap(), "--reason", "the host is lost"];
    server.cli_json(&revoke);
    let issued = server.cli_json(&["installs", "create-enrolment-token", "acme"]);
    issued["enrolment"]["token"].as_str().unwrap().to_owned()
}

/// Private key of a recovery recipient.
enum PrivateKey {
    File(&'static str),
    /// Response of a key management service, in Base64, which goes through a pipe.
    Decrypted(String),
}

/// New host of the customer.
struct NewHost<'s> {
    server: &'s Server,
    name: String,
    token: String,
    key: PrivateKey,
    fingerprint: String,
    heads: Vec<String>,
}

impl NewHost<'_> {
    fn data(&self) -> PathBuf {
        self.file("data")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.server.dir().join(&self.name).join(name)
    }

    fn recover(&self) -> Output {
        match &self.key {
            PrivateKey::File(_) => self.through(&["env"]),
            PrivateKey::Decrypted(key) => {
                self.through(&["sh", "-c", r#"printf %s "$0" | base64 -d | "$@""#, key])
            }
        }
    }

    /// Runs the recovery through this program.
    fn through(&self, through: &[&str]) -> Output {
        fs::create_dir_all(self.file("")).unwrap();
        let identity = match &self.key {
            PrivateKey::File(secret) => {
                fs::write(self.file("identity.txt"), secret).unwrap();
                self.file("identity.txt")
            }
            PrivateKey::Decrypted(_) => "/dev/stdin".into(),
        };
        fs::write(self.file("recovery.token"), &self.token).unwrap();
        let mut recover = Command::new(through[0]);
        recover.args(&through[1..]).arg(program("stead-runner"));
        recover.arg("recover").arg("--data").arg(self.data());
        recover.arg("--identity").arg(identity);
        recover.arg("--token-file").arg(self.file("recovery.token"));
        recover.args(["--fingerprint", &self.fingerprint, "--server", self.server.runner()]);
        recover.args(["--server-key", self.server.fingerprint()]);
        recover.args(self.heads.iter().flat_map(|head| ["--accept-head", head.as_str()]));
        recover.output().unwrap()
    }

    /// Returns the error, after a check that nothing was created.
    fn refusal(&self) -> String {
        let output = self.recover();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{error}");
        assert!(!self.data().exists(), "{error}");
        error
    }

    /// Returns the states that the server has.
    fn listed(&self) -> Vec<String> {
        let listed = self.refusal();
        let heads = listed.lines().filter_map(|line| line.trim().strip_prefix("--accept-head "));
        heads.map(|head| head.trim_matches('\'').to_owned()).collect()
    }

    /// Accepts the states that the server has, recovers the keys, and starts the runner.
    fn accept_and_start(&mut self) -> Runner {
        self.heads = self.listed();
        let output = self.recover();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        Runner::start(self.server, &self.name, &self.token)
    }
}

fn copy(from: &Path, to: &Path) {
    stdout_of(Command::new("cp").arg("-a").args([from, to]));
}

#[test]
fn a_new_host_continues_from_the_states_and_the_lost_one_is_rejected() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let mut lost = install(&server, 0);
    until_some("the provision run", TIMEOUT, || {
        server.cli_json(&["runs", "list", "--install", "acme"]).as_array()?.first().cloned()
    });
    succeeded(&server, "acme");
    let former = fingerprint(&lost);
    // The host is destroyed. A copy returns later.
    lost.kill();
    let (data, kept) = (lost.data(), server.dir().join("kept"));
    copy(&data, &kept);
    fs::remove_dir_all(&data).unwrap();

    let none = format!("sha256:{}", "0".repeat(64));
    let mut host = NewHost {
        token: new_token(&server),
        server: &server,
        name: "second".into(),
        key: PrivateKey::File(OTHER),
        fingerprint: former.clone(),
        heads: vec![],
    };
    assert!(host.refusal().contains("wrong recovery key"), "{}", host.refusal());
    (host.key, host.fingerprint) = (PrivateKey::File(SECRET), none);
    assert!(host.refusal().contains("other keys than the expected fingerprint"));
    host.fingerprint = former.clone();
    host.heads = vec!["api=other/1/hmac-sha256:1:00".into()];
    assert!(host.refusal().contains("and the newest state of the server is serial"));
    host.heads.clear();
    let second = host.accept_and_start();
    assert_ne!(fingerprint(&second), former);

    // The new host is disabled, and no job runs before the customer enables it.
    let status = stdout_of(&mut second.local(&["status"]));
    assert!(status.contains("disabled  since") && status.contains("nothing proves"), "{status}");
    let recovered = events(&server, "install.recovered");
    assert_eq!(recovered[0]["payload"]["generation"], 2, "{recovered:#?}");
    let unproved = recovered[0]["payload"]["unproved_states"].as_object().unwrap();
    assert_eq!(unproved.len(), 6, "{unproved:#?}");
    stdout_of(&mut second.local(&["enable"]));
    // A deploy without other inputs changes nothing.
    server.cli_json(&["installs", "deploy", "acme"]);
    succeeded(&server, "acme");
    assert_eq!(second.ledger(), [], "something was created again");
    // One with other inputs changes only what they change: `api`, and `edge`, which reads it.
    server.cli_json(&["installs", "set-inputs", "acme", "--input", "replicas=3"]);
    succeeded(&server, "acme");
    let changed: Vec<String> = second.ledger().into_iter().map(|(what, _)| what).collect();
    let is_meant = |what: &String| what.starts_with("api") || what.starts_with("edge");
    assert!(!changed.is_empty() && changed.iter().all(is_meant), "{changed:?}");
    let pull = |runner: &Runner| stdout_of(&mut runner.local(&["state", "pull", "api"]));
    let newest = pull(&second);

    // The lost host returns, and the server rejects its session and its states.
    fs::rename(&kept, &data).unwrap();
    lost.restart();
    until("the lost host to be rejected", TIMEOUT, || lost.log().contains("was revoked"));
    let keep = ["state", "resolve", "api", "--keep-current", "--reason", "it returned"];
    let output = lost.local(&keep).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("was revoked"), "{error}");
    assert_eq!(pull(&second), newest);

    // The second host is lost as well. Its own fingerprint recovers it, and the first one does not.
    let mut host =
        NewHost { token: new_token(&server), name: "third".into(), heads: vec![], ..host };
    let older = host.refusal();
    assert!(older.contains("the expected one, but of the later generation 2"), "{older}");
    host.fingerprint = fingerprint(&second);
    drop(second);
    let third = host.accept_and_start();
    stdout_of(&mut third.local(&["enable"]));
    server.cli_json(&["installs", "deploy", "acme"]);
    succeeded(&server, "acme");
    assert_eq!(third.ledger(), [], "something was created again");
}

#[test]
fn keys_that_a_mistaken_enrolment_replaced_are_recovered_by_a_decision_of_the_vendor() {
    if !terraform_or_skip() {
        return;
    }
    let server = Server::up();
    let mut lost = install(&server, 0);
    until_some("the provision run", TIMEOUT, || {
        server.cli_json(&["runs", "list", "--install", "acme"]).as_array()?.first().cloned()
    });
    succeeded(&server, "acme");
    let runner = || server.cli_json(&["installs", "show", "acme"])["runner"].clone();
    let (former, lost_runner) = (fingerprint(&lost), runner());
    lost.kill();
    let mistaken = Customer::new(&server, "mistaken").start(&server, &new_token(&server));
    until("the mistaken runner to enrol", TIMEOUT, || runner() != lost_runner);
    drop(mistaken);
    let mut host = NewHost {
        token: new_token(&server),
        server: &server,
        name: "second".into(),
        key: PrivateKey::File(SECRET),
        fingerprint: former,
        heads: vec![],
    };
    assert!(host.refusal().contains("--recover-from RUNNER"), "{}", host.refusal());
    let choose = ["installs", "create-enrolment-token", "acme", "--recover-from"];
    let issued = server.cli_json(&[&choose[..], &[lost_runner.as_str().unwrap()]].concat());
    host.token = issued["enrolment"]["token"].as_str().unwrap().to_owned();
    let second = host.accept_and_start();
    stdout_of(&mut second.local(&["enable"]));
    server.cli_json(&["installs", "deploy", "acme"]);
    succeeded(&server, "acme");
    assert_eq!(second.ledger(), [], "something was created again");
}

#[test]
fn an_apply_on_a_destroyed_host_is_not_silently_planned_again() {
    if terraform_or_skip() {
        recover_after_an_apply(PrivateKey::File(SECRET));
    }
}

#[test]
fn a_key_of_a_kms_protects_the_recovery_identity() {
    if !terraform_or_skip() {
        return;
    }
    let Some(moto) = Moto::start_or_skip() else { return };
    let created = moto.kms("CreateKey", &json!({})).unwrap();
    let mut encode = Command::new("sh");
    let plaintext = stdout_of(encode.args(["-c", r#"printf %s "$0" | base64 -w0"#, SECRET]));
    let context = json!({ "purpose": "stead-recovery" });
    let key = &created["KeyMetadata"]["KeyId"];
    let encrypt = json!({ "KeyId": key, "Plaintext": plaintext, "EncryptionContext": context });
    let ciphertext = moto.kms("Encrypt", &encrypt).unwrap()["CiphertextBlob"].clone();
    let decrypt = |context: &Value| {
        moto.kms("Decrypt", &json!({ "CiphertextBlob": ciphertext, "EncryptionContext": context }))
    };
    assert!(decrypt(&json!({ "purpose": "other" })).unwrap_err().contains("InvalidCiphertext"));
    let decrypted = decrypt(&context).unwrap()["Plaintext"].as_str().unwrap().to_owned();
    recover_after_an_apply(PrivateKey::Decrypted(decrypted));
}

/// Destroys a host in the middle of an apply, and recovers the install on a new one.
fn recover_after_an_apply(key: PrivateKey) {
    let server = Server::up();
    let mut lost = install(&server, 4);
    until("the sandbox", TIMEOUT, || !events(&server, "install.sandbox_provisioned").is_empty());
    let job = until_some("an apply to run", TIMEOUT, || {
        let jobs = server.cli_json(&["jobs", "list", "--state", "running"]);
        let applies = jobs.as_array()?.iter().find(|job| job["kind"] == "apply")?.clone();
        let job = applies["id"].as_str()?.to_owned();
        let log = lost.data().join("jobs").join(tests::one_execution(&server, &job));
        let log = fs::read_to_string(log.join("log.ndjson")).ok()?;
        log.contains("working for").then_some(job)
    });
    let former = fingerprint(&lost);
    // The host is destroyed in the middle of the apply: agent, shim and Terraform.
    lost.kill();
    let of_host = lost.data().display().to_string();
    until("its processes to end", TIMEOUT, || {
        let pids = Command::new("pgrep").args(["-f", &of_host]).output().unwrap().stdout;
        let pids = String::from_utf8(pids).unwrap();
        for pid in pids.split_whitespace() {
            let _ended = Command::new("kill").args(["-KILL", pid]).output();
        }
        pids.trim().is_empty()
    });
    fs::remove_dir_all(lost.data()).unwrap();

    let mut host = NewHost {
        token: new_token(&server),
        server: &server,
        name: "second".into(),
        key,
        fingerprint: former,
        heads: vec![],
    };
    let second = host.accept_and_start();
    stdout_of(&mut second.local(&["enable"]));
    until("the outcome to be unknown", TIMEOUT, || {
        job_events(&server, &job).iter().any(|event| event["type"] == "job.outcome_unknown")
    });
    // Until a user decides, nothing is planned again.
    let show = server.cli_json(&["jobs", "show", &job]);
    assert_eq!(show["state"], "outcome_unknown", "{show:#}");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(second.ledger(), []);
    let resolve = ["jobs", "resolve", &job, "--resolution", "failed", "--reason", "checked"];
    server.cli_json(&resolve);
    assert_eq!(ended(&server, "acme")["state"], "failed");
    // The lost host stored no state of the component: the customer decides what exists.
    let retry = ["runs", "retry", "acme", "--reason", "checked by hand"];
    server.cli_json(&retry);
    let refused = ended(&server, "acme");
    let steps = refused["dag"].as_array().unwrap();
    let step = steps.iter().find(|step| step["state"] == "failed").unwrap();
    let why = step["reason"].as_str().unwrap();
    assert!(why.contains("its state is not on this host"), "{why}");
    let resolve = ["state", "resolve", step["name"].as_str().unwrap(), "--nothing-exists"];
    stdout_of(&mut second.local(&[&resolve[..], &["--reason", "checked by hand"]].concat()));
    server.cli_json(&retry);
    succeeded(&server, "acme");
}
