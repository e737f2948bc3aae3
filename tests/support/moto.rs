//! AWS emulator on a loopback address.
use std::{net::TcpListener, path::PathBuf, process::Child, process::Command, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use crate::{HttpResponse, Namespace, call, http::call_through, in_ci, launch::Launch, until};

const REGION: &str = "us-east-1";
const FORM: &str = "application/x-www-form-urlencoded";

/// Running moto server.
pub struct Moto {
    child: Child,
    port: u16,
    /// Command that runs a program in the emulator's namespace. Empty in the namespace of the test.
    enter: Vec<String>,
    /// Directory of the emulator's log.
    _dir: TempDir,
}

impl Moto {
    /// Starts the emulator. If it is not installed, the test prints a note and passes; in CI it
    /// fails.
    pub fn start_or_skip() -> Option<Moto> {
        Moto::start(vec![])
    }

    /// Starts the emulator on the loopback of this namespace, reachable only from inside.
    pub fn inside_or_skip(namespace: &Namespace) -> Option<Moto> {
        Moto::start(namespace.enter())
    }

    fn start(enter: Vec<String>) -> Option<Moto> {
        let from_env = std::env::var_os("STEAD_MOTO_SERVER").map(PathBuf::from);
        let program = from_env.unwrap_or_else(|| "moto_server".into());
        let found = Command::new("sh").args(["-c", "command -v \"$0\""]).arg(&program).output();
        if !found.unwrap().status.success() {
            let program_path = program.display();
            assert!(!in_ci(), "CI must have moto_server (or STEAD_MOTO_SERVER): no {program_path}");
            eprintln!("SKIPPED: no moto_server: {program_path} is not there");
            return None;
        }
        // A port that is free here is also free in the empty namespace.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::Builder::new().prefix("stead-moto-").tempdir().unwrap();
        let mut launch = Launch::new(&program, dir.path().join("log"));
        launch.through(&enter);
        let mut child = launch.start(&["-H", "127.0.0.1", "-p", &port.to_string()]);
        let listens = || {
            let mut args = enter.clone();
            let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
            args.extend(["bash", "-c", &connect].map(String::from));
            Command::new(&args[0]).args(&args[1..]).output().unwrap().status.success()
        };
        until("moto", Duration::from_secs(60), || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("moto_server ended with {status}\n{}", launch.log());
            }
            listens()
        });
        Some(Moto { child, port, enter, _dir: dir })
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a request as an account holder. The emulator checks the service in the signature, not
    /// the signer.
    pub fn request(&self, service: &str, method: &str, path: &str, body: &str) -> HttpResponse {
        let authorization = authorization(service);
        let kind = if service == "s3" { "application/xml" } else { FORM };
        let headers = [("Authorization", authorization.as_str()), ("Content-Type", kind)];
        let url = format!("{}{path}", self.url());
        if self.enter.is_empty() {
            return call(method, &url, &headers, body.as_bytes());
        }
        call_through(&self.enter, method, &url, &headers, body.as_bytes())
    }

    /// Calls the key management service as an account holder. Returns the error of the service if it
    /// rejects the call.
    pub fn kms(&self, action: &str, body: &Value) -> Result<Value, String> {
        let (authorization, target) = (authorization("kms"), format!("TrentService.{action}"));
        let kind = ("Content-Type", "application/x-amz-json-1.1");
        let headers = [("Authorization", &*authorization), kind, ("X-Amz-Target", &target)];
        let url = format!("{}/", self.url());
        let response = call("POST", &url, &headers, body.to_string().as_bytes());
        let is_accepted = response.status == 200;
        is_accepted.then(|| serde_json::from_str(&response.body).unwrap()).ok_or(response.body)
    }

    /// Returns the tags of a bucket, or `None` if there is no such bucket.
    pub fn tags(&self, bucket: &str) -> Option<String> {
        let response = self.request("s3", "GET", &format!("/{bucket}?tagging"), "");
        (response.status == 200).then_some(response.body)
    }

    /// Changes the tags of a bucket, as a manual change would.
    #[track_caller]
    pub fn set_tag(&self, bucket: &str, key: &str, value: &str) {
        let tag = format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>");
        let body = format!("<Tagging><TagSet>{tag}</TagSet></Tagging>");
        let response = self.request("s3", "PUT", &format!("/{bucket}?tagging"), &body);
        assert!((200..300).contains(&response.status), "{response:?}");
    }

    /// Returns the service's list of buckets.
    pub fn buckets(&self) -> String {
        self.request("s3", "GET", "/", "").body
    }

    /// Returns whether a role of this name exists.
    pub fn has_role(&self, role: &str) -> bool {
        let form = format!("Action=GetRole&RoleName={role}&Version=2010-05-08");
        self.request("iam", "POST", "/", &form).status == 200
    }
}

fn authorization(service: &str) -> String {
    let scope = format!("AKIAEXAMPLE/20260101/{REGION}/{service}/aws4_request");
    format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0")
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
