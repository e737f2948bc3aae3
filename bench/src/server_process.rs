//! A server as a separate process.
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{api_client::ApiClient, database::Database, wire::Wire};

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of the checks for the ready file. It is short, because starts are measured.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A process of `stead serve` or `stead up`.
pub struct ServerProcess {
    child: Child,
    /// URL of the Runner API.
    pub runner: String,
    /// URL of the Control API.
    pub control: String,
    /// File with the first owner's token.
    token: PathBuf,
}

impl ServerProcess {
    /// Starts `stead serve` on these addresses, or on free ones of loopback.
    pub async fn start(
        database: &Database,
        data: &Path,
        listen: Option<[SocketAddr; 2]>,
    ) -> ServerProcess {
        let mut serve = Command::new(tests::program("stead"));
        serve.arg("serve").env("DATABASE_URL", database.app_url());
        ServerProcess::launch(serve, (data, data), listen.unwrap_or([ANY, ANY])).await
    }

    /// Starts `stead up`, which includes Postgres, with a new data directory below `directory`.
    pub async fn up(directory: &Path) -> ServerProcess {
        let mut up = Command::new(tests::program("stead"));
        up.arg("up").env_remove("DATABASE_URL");
        ServerProcess::launch(up, (directory, &directory.join("data")), [ANY, ANY]).await
    }

    async fn launch(
        mut stead: Command,
        (directory, data): (&Path, &Path),
        listen: [SocketAddr; 2],
    ) -> ServerProcess {
        let ready = directory.join("ready.json");
        let _of_the_last = fs::remove_file(&ready);
        let [control, runner] = listen.map(|address| address.to_string());
        let log = fs::File::create(directory.join("serve.log")).unwrap();
        stead.args(["--control-listen", &control, "--runner-listen", &runner, "--data"]);
        stead.arg(data).arg("--ready-file").arg(&ready);
        stead.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = stead.spawn().unwrap();
        // Created before the server is ready: if a later step fails, the drop stops the process.
        let mut serving = ServerProcess {
            child,
            runner: String::new(),
            control: String::new(),
            token: data.join(api::OWNER_TOKEN),
        };
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            if let Ok(text) = fs::read(&ready) {
                let ready_file: Value = serde_json::from_slice(&text).unwrap();
                let url = |name: &str| ready_file[name].as_str().unwrap().to_string();
                (serving.runner, serving.control) = (url("runner"), url("control"));
                return serving;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        panic!("{}", fs::read_to_string(directory.join("serve.log")).unwrap_or_default());
    }

    /// API client of the first owner.
    pub fn client(&self) -> ApiClient {
        let token = fs::read_to_string(&self.token).unwrap();
        ApiClient::new(&self.control, token.trim())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Processor time so far.
    pub fn processor(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
        let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap()).sum();
        // USER_HZ is 100 on every Linux that Rust runs on.
        Duration::from_millis(ticks * 10)
    }

    /// Addresses of the listeners: Control API, Runner API.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [&self.control, &self.runner].map(|url| url.split("://").nth(1).unwrap().parse().unwrap())
    }

    /// Sends SIGKILL to the process, and waits until it has ended.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        let _ended = self.child.wait();
    }

    /// Number of open long polls, from the server's metrics.
    pub async fn parked(&self) -> u64 {
        let request = hyper::Request::get("/metrics").body(Default::default()).unwrap();
        let response = Wire::to(&self.control).send(request).await.unwrap().ok();
        let text = String::from_utf8_lossy(&response.body);
        let line = text.lines().find_map(|line| line.strip_prefix("stead_runner_long_polls "));
        line.and_then(|number| number.parse::<f64>().ok()).unwrap_or_default() as u64
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let mut kill = Command::new("kill");
        let _killed = kill.args(["-TERM", &self.child.id().to_string()]).status();
        let _ended = self.child.wait();
    }
}
