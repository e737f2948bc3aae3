//! Something that speaks like AWS, on loopback, and where Terraform takes the AWS provider from.
use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::{Answer, call, in_ci, until};

const REGION: &str = "us-east-1";
const FORM: &str = "application/x-www-form-urlencoded";

/// A running moto server.
pub struct Moto {
    child: Child,
    port: u16,
    /// Where it writes what it says.
    _dir: TempDir,
}

impl Moto {
    /// Start it. Where it is not installed a test says so and passes; under CI it fails.
    pub fn start_or_skip() -> Option<Moto> {
        let named = std::env::var_os("STEAD_MOTO_SERVER").map(PathBuf::from);
        let program = named.unwrap_or_else(|| "moto_server".into());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::Builder::new().prefix("stead-moto-").tempdir().unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let spawned = Command::new(&program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                let said = format!("{}: {error}", program.display());
                assert!(!in_ci(), "CI must have moto_server (or STEAD_MOTO_SERVER): {said}");
                eprintln!("SKIPPED: no moto_server: {said}");
                return None;
            }
        };
        until("moto", Duration::from_secs(60), || {
            if let Some(status) = child.try_wait().unwrap() {
                let said = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
                panic!("moto_server ended with {status}\n{said}");
            }
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(Moto { child, port, _dir: dir })
    }

    /// How clients reach it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A call as some account's holder: it looks at which service is meant, not at who signed.
    pub fn ask(&self, service: &str, method: &str, path: &str, body: &str) -> Answer {
        let scope = format!("AKIAEXAMPLE/20260101/{REGION}/{service}/aws4_request");
        let signed = "SignedHeaders=host, Signature=0";
        let authorization = format!("AWS4-HMAC-SHA256 Credential={scope}, {signed}");
        let kind = if service == "s3" { "application/xml" } else { FORM };
        let headers = [("Authorization", authorization.as_str()), ("Content-Type", kind)];
        call(method, &format!("{}{path}", self.url()), &headers, body.as_bytes())
    }

    /// The tags of a bucket; none: there is no such bucket.
    pub fn tags(&self, bucket: &str) -> Option<String> {
        let answer = self.ask("s3", "GET", &format!("/{bucket}?tagging"), "");
        (answer.status == 200).then_some(answer.body)
    }

    /// Somebody gives the bucket other tags, by hand.
    #[track_caller]
    pub fn set_tag(&self, bucket: &str, key: &str, value: &str) {
        let tag = format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>");
        let body = format!("<Tagging><TagSet>{tag}</TagSet></Tagging>");
        let answer = self.ask("s3", "PUT", &format!("/{bucket}?tagging"), &body);
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }

    /// The names of all buckets, as the service lists them.
    pub fn buckets(&self) -> String {
        self.ask("s3", "GET", "/", "").body
    }

    /// Whether there is a role of this name.
    pub fn has_role(&self, role: &str) -> bool {
        let form = format!("Action=GetRole&RoleName={role}&Version=2010-05-08");
        self.ask("iam", "POST", "/", &form).status == 200
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// A Terraform configuration with which the AWS provider is found without a network: the one that is
/// configured, else one for a mirror that is found. Without any a test says so and passes; under CI it fails.
pub fn provider_config_or_skip(dir: &Path) -> Option<PathBuf> {
    if let Some(file) = std::env::var_os("TF_CLI_CONFIG_FILE").map(PathBuf::from)
        && file.is_file()
    {
        return Some(file);
    }
    let Some(mirror) = mirror() else {
        assert!(!in_ci(), "CI must have a mirror with the AWS provider");
        eprintln!("SKIPPED: no mirror with the AWS provider; name one by TF_CLI_CONFIG_FILE");
        return None;
    };
    let file = dir.join("terraform.rc");
    let mirror = mirror.display();
    let text =
        format!("provider_installation {{\n  filesystem_mirror {{ path = \"{mirror}\" }}\n}}\n");
    fs::write(&file, text).unwrap();
    Some(file)
}

/// Terraform's own places, else the first that is found outside of people's homes.
fn mirror() -> Option<PathBuf> {
    let has_aws = |top: &PathBuf| top.join("registry.terraform.io/hashicorp/aws").is_dir();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let usual = [
        home.join(".terraform.d/plugins"),
        home.join(".local/share/terraform/plugins"),
        "/usr/local/share/terraform/plugins".into(),
        "/usr/share/terraform/plugins".into(),
    ];
    let usual = usual.into_iter().find(has_aws);
    usual.or_else(|| {
        let words = "/ -xdev -maxdepth 6 -type d -name registry.terraform.io -not -path /proc/* \
                     -not -path /home/* -not -path /root/*";
        let found = Command::new("find").args(words.split_whitespace()).output().ok()?;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let above = |line: &str| Path::new(line).parent().map(Path::to_path_buf);
        found.lines().filter_map(above).find(has_aws)
    })
}
