//! `stead serve` as a process of its own.
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::database::Database;

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// `stead serve`.
pub struct Serving {
    child: Child,
    /// Where runners call.
    pub runner: String,
    /// Where people call.
    pub control: String,
}

impl Serving {
    /// On these addresses, or on free ones.
    pub async fn start(
        database: &Database,
        data: &Path,
        listen: Option<[SocketAddr; 2]>,
    ) -> Serving {
        let ready = data.join("ready.json");
        let _of_the_last = fs::remove_file(&ready);
        let [control, runner] = listen.unwrap_or([ANY, ANY]).map(|address| address.to_string());
        let log = fs::File::create(data.join("serve.log")).unwrap();
        let child = Command::new(tests::program("stead"))
            .args(["serve", "--control-listen", &control, "--runner-listen", &runner])
            .arg("--data")
            .arg(data)
            .arg("--ready-file")
            .arg(&ready)
            .env("DATABASE_URL", database.embedded.urls().0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        // Held at once: whatever happens from here on ends it.
        let mut serving = Serving { child, runner: String::new(), control: String::new() };
        for _ in 0..600 {
            if let Ok(text) = fs::read(&ready) {
                let told: Value = serde_json::from_slice(&text).unwrap();
                let url = |name: &str| told[name].as_str().unwrap().to_string();
                (serving.runner, serving.control) = (url("runner"), url("control"));
                return serving;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{}", fs::read_to_string(data.join("serve.log")).unwrap_or_default());
    }

    /// Resident memory, bytes.
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

    /// Where it listens: people, runners.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [&self.control, &self.runner].map(|url| url.split("://").nth(1).unwrap().parse().unwrap())
    }

    /// As the machine's power would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        let _ended = self.child.wait();
    }

    /// How many polls are parked, as the server counts.
    pub async fn parked(&self) -> u64 {
        let metrics = reqwest::get(format!("{}/metrics", self.control)).await.unwrap();
        let text = metrics.text().await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("stead_runner_polls_parked "));
        line.and_then(|number| number.parse::<f64>().ok()).unwrap_or_default() as u64
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut kill = Command::new("kill");
        let _gone = kill.args(["-TERM", &self.child.id().to_string()]).status();
        let _ended = self.child.wait();
    }
}
