//! What runners cost that wait: statements, and memory of a server that is a process of its own.
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{Ask, agent::Agent, database::Database};

/// Statements of one window, and what they were.
pub struct Window {
    pub a_minute: f64,
    pub busiest: Vec<(String, i64)>,
}

pub struct Parked {
    pub unit: &'static str,
    pub alone: Window,
    pub crowded: Window,
    /// Resident memory of the server before the runners came and with all of them parked, bytes.
    pub memory: (u64, u64),
}

pub async fn measure(database: &Database, data: &Path, tokens: Vec<String>, ask: Ask) -> Parked {
    let server = Serving::start(database, data).await;
    // One enrols first, so that what every server has once is not counted as a runner's.
    let mut tokens = tokens.into_iter();
    drop(Agent::enrol(&server.runner, &tokens.next().unwrap()).await);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = server.resident();
    eprintln!("  counting without runners");
    let alone = window(database, ask.window_s).await;
    let agents = stream::iter(tokens).map(|token| {
        let runner = server.runner.clone();
        async move { Agent::enrol(&runner, &token).await }
    });
    let agents: Vec<Agent> = agents.buffer_unordered(32).collect().await;
    let number = agents.len() as u64;
    let mut polls = JoinSet::new();
    for mut agent in agents {
        polls.spawn(async move {
            loop {
                assert!(agent.poll().await.is_empty(), "there is no work");
            }
        });
    }
    until_parked(&server, number).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    eprintln!("  counting with {number} parked runners");
    let crowded = window(database, ask.window_s).await;
    let after = server.resident();
    assert_eq!(server.parked().await, number, "all of them are still parked");
    polls.shutdown().await;
    Parked { unit: database.unit(), alone, crowded, memory: (before, after) }
}

async fn window(database: &Database, seconds: u64) -> Window {
    database.reset().await;
    let before = database.statements().await;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = database.statements().await;
    let a_minute = (after - before) as f64 * 60.0 / seconds as f64;
    Window { a_minute, busiest: database.busiest().await }
}

async fn until_parked(server: &Serving, number: u64) {
    for _ in 0..300 {
        if server.parked().await == number {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{} of {number} runners are parked", server.parked().await);
}

/// `stead serve`.
struct Serving {
    child: Child,
    runner: String,
    control: String,
}

impl Serving {
    async fn start(database: &Database, data: &Path) -> Serving {
        let ready = data.join("ready.json");
        let log = fs::File::create(data.join("serve.log")).unwrap();
        let child = Command::new(tests::program("stead"))
            .args(["serve", "--control-listen", "127.0.0.1:0", "--runner-listen", "127.0.0.1:0"])
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
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// How many polls are parked, as the server counts.
    async fn parked(&self) -> u64 {
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
