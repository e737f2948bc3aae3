//! A test campaign: a driver changes an install repeatedly while the campaign kills the processes
//! of Stead.
//!
//! ```text
//! driver   set-inputs · publish and upgrade · rollback, each as soon as the previous run has ended
//! killer   SIGKILL to the server, the runner, both, the build runner or Postgres; then starts them again
//! ledger   after the last kill: compares the log with the file to which modules append each effect;
//!          every effect in the log happened exactly once, and no other effect happened
//! ```
pub(crate) mod driver;
pub(crate) mod ledger;
mod victims;

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use rand::Rng as _;
use tests::{Runner, Server, edge_api};

use self::{
    driver::{App, Driver},
    ledger::Effects,
    victims::Victims,
};

/// Maximum pause before a kill. The mean is half as long.
const PAUSE_MS: u64 = 5_000;
/// Timeout for the operations that are in progress at the last kill.
const SETTLE: Duration = Duration::from_secs(240);

/// Entry point of `scripts/kills`. Usage: `stead-bench-kills [N]`. N is the number of kills.
pub fn main() -> ExitCode {
    let kills = std::env::args().nth(1).and_then(|number| number.parse().ok()).unwrap_or(50);
    if !tests::terraform_or_skip() {
        return ExitCode::FAILURE;
    }
    let wrong = campaign(kills);
    for finding in &wrong {
        println!("VIOLATION: {finding}");
    }
    println!("{}", if wrong.is_empty() { "every effect happened exactly once" } else { "failed" });
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the campaign. Returns all violations.
fn campaign(kills: u32) -> Vec<String> {
    let began = Instant::now();
    let server = Server::up();
    let app = edge_api(server.dir());
    server.cli_json(&["apps", "sync", app.to_str().unwrap(), "--wait"]);
    let created = server.cli_json(&[
        "installs",
        "create",
        "edge-api",
        "acme",
        "--auto-approve",
        "--input",
        "company=Acme",
        "--input",
        "pace_seconds=1",
    ]);
    let token = created["enrolment"]["token"].as_str().unwrap();
    let runner = Runner::start(&server, "customer", token);
    let (owner, app) = (server.data().join("owner.token"), App::edge_api(&server, &app));
    let driver = Arc::new(Driver::new(server.control(), owner, app));
    let driving = {
        let driver = Arc::clone(&driver);
        std::thread::spawn(move || driver.drive())
    };
    let mut victims = Victims::new(server, runner);
    for number in 1..=kills {
        let pause = rand::thread_rng().gen_range(50..PAUSE_MS);
        std::thread::sleep(Duration::from_millis(pause));
        victims.kill_one();
        if number % 10 == 0 || number == kills {
            let (runs, effects) = (driver.runs_ended(), victims.runner.ledger().len());
            let took = began.elapsed().as_secs();
            println!(
                "{number}/{kills} kills: {victims}; {runs} runs ended, {effects} effects, {took} s"
            );
        }
    }
    driver.stop();
    driving.join().unwrap();
    let mut wrong = driver.wait_for_the_last(SETTLE);
    wrong.extend(ledger::check(
        || victims.server.stead_for_people(),
        &victims.runner,
        Effects::OfTerraform,
    ));
    println!("total: {} s", began.elapsed().as_secs());
    if !wrong.is_empty() {
        let directory = std::env::temp_dir().join(format!("stead-kills-{}", std::process::id()));
        let mut copy = std::process::Command::new("cp");
        copy.arg("-R").arg(victims.server.dir()).arg(&directory);
        let copied = copy.status().is_ok_and(|status| status.success());
        println!(
            "data directory: {}{}",
            directory.display(),
            if copied { "" } else { ", incomplete" }
        );
    }
    wrong
}
