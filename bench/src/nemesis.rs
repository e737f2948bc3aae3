//! Injects faults around a log, one at a time, in an order that a seed determines. After every few
//! faults, the oracle checks the log. Tests with injected faults of the program show that the
//! oracle detects them.
//!
//! ```text
//!  callers ──▶ balancer ──▶ server 1 ──▶ proxy 1 ─┐
//!  runner  ──▶    │                               ├──▶ Postgres on its own disk
//!  driver  ──▶    └───────▶ server 2 ──▶ proxy 2 ─┘
//! ```
mod environment;
mod fault;

use std::{
    collections::BTreeMap,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use event_log::Source;
use proof::{Hash, checkpoint::Checkpoint};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use serde_json::Value;
use tests::{Callers, oracle, program};

use self::{environment::Environment, fault::Fault};
use crate::kills::{
    driver::{App, Driver},
    ledger::{self, Effects},
};

const CALLERS: u64 = 6;
/// Number of faults between two checks of the oracle.
const EACH: usize = 5;
/// Timeout for pending operations after all faults are repaired.
const SETTLE: Duration = Duration::from_secs(90);
/// Minimum writes per minute for a meaningful result.
const TRAFFIC: f64 = 60.0;

struct Options {
    time: Duration,
    seed: u64,
    /// Fault of the program to inject into the servers. The oracle must then find a violation.
    fault: Option<String>,
}

/// Entry point of `scripts/nemesis`.
///
/// Usage: `stead-bench-nemesis [SECONDS] [--hours N] [--seed N] [--fault FAULT]`.
pub fn main() -> ExitCode {
    let options = match Options::read() {
        Ok(options) => options,
        Err(what) => {
            eprintln!(
                "{what}\nusage: scripts/nemesis [SECONDS|--hours N] [--seed N] [--fault FAULT]"
            );
            return ExitCode::from(2);
        }
    };
    println!(
        "seed {}: scripts/nemesis {} --seed {}",
        options.seed,
        options.time.as_secs(),
        options.seed
    );
    let wrong = campaign(&options);
    wrong.iter().for_each(|finding| println!("VIOLATION: {finding}"));
    match (wrong.is_empty(), &options.fault) {
        (true, None) => {
            println!("result: no acknowledged event is missing, duplicated or wrong")
        }
        (false, None) => println!("result: FAILED, seed {}", options.seed),
        (true, Some(fault)) => {
            println!("result: FAILED, the oracle did not detect the injected fault {fault}")
        }
        (false, Some(fault)) => println!("result: the oracle detected the injected fault {fault}"),
    }
    match wrong.is_empty() == options.fault.is_none() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

impl Options {
    fn read() -> Result<Options, String> {
        let mut options = Options {
            time: Duration::from_secs(75),
            seed: rand::random::<u32>().into(),
            fault: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut next = || words.next().ok_or(format!("{word}: missing value"));
            let number =
                |text: &str| text.parse::<u64>().map_err(|_| format!("invalid number: {text}"));
            match word.as_str() {
                "--hours" => options.time = Duration::from_secs(number(&next()?)? * 3_600),
                "--seed" => options.seed = number(&next()?)?,
                "--fault" => options.fault = Some(next()?),
                seconds => options.time = Duration::from_secs(number(seconds)?),
            }
        }
        Ok(options)
    }
}

/// Runs the campaign. Returns all violations.
fn campaign(options: &Options) -> Vec<String> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let mut environment = Environment::new(runtime, options.fault.as_deref());
    let driver = Arc::new(Driver::new(
        &environment.balancer.control(),
        environment.token(),
        App::NotesFiles,
    ));
    let driving = {
        let driver = Arc::clone(&driver);
        std::thread::spawn(move || driver.drive())
    };
    let mut addresses = vec![environment.balancer.control()];
    addresses.extend(environment.servers.iter().map(|server| server.control().to_string()));
    let callers =
        Callers::start(CALLERS, options.seed, addresses, &environment.servers[0].owner_token());
    let mut examiner = Examiner { source: environment.source(), checkpoints: vec![] };
    let mut random = StdRng::seed_from_u64(options.seed);
    let (mut counts, mut deck, mut wrong) = (BTreeMap::<Fault, u32>::new(), vec![], vec![]);
    let possible: Vec<_> =
        Fault::ALL.iter().filter(|fault| fault.is_possible(&environment)).collect();
    let (began, mut number) = (Instant::now(), 0);
    while began.elapsed() < options.time && wrong.is_empty() {
        // Every kind of fault occurs once before one occurs again.
        if deck.is_empty() {
            deck.clone_from(&possible);
            deck.shuffle(&mut random);
        }
        let Some(fault) = deck.pop().copied() else { break };
        std::thread::sleep(Duration::from_millis(random.gen_range(100..1_000)));
        fault.inject(&mut environment, &mut random, options.time > Duration::from_secs(1_200));
        *counts.entry(fault).or_default() += 1;
        number += 1;
        examiner.store_checkpoint(&environment);
        if number % EACH == 0 {
            wrong = examiner.examine(&environment, &callers);
            let responses = callers.responses().len();
            println!("{} s: {number} faults, {responses} responses", began.elapsed().as_secs());
        }
    }
    driver.stop();
    driving.join().unwrap();
    callers.stop();
    let lasted = began.elapsed();
    if wrong.is_empty() {
        wrong.extend(driver.wait_for_the_last(SETTLE));
        wrong.extend(examiner.examine(&environment, &callers));
        wrong.extend(ledger::check(|| stead(&environment), &environment.runner, Effects::OfFiles));
        wrong.extend(witnessed(&environment));
    }
    counts.iter().for_each(|(fault, count)| println!("{count:>4} × {fault}"));
    let responses = callers.responses();
    let written = responses
        .iter()
        .filter(|response| matches!(response.result, oracle::WriteResult::Written { .. }))
        .count();
    let (already, again) = (responses.len() - written, callers.retries());
    println!(
        "{written} acknowledged writes, {already} responses \"already done\", {again} retried calls"
    );
    println!(
        "{} runs ended, {} heads stored, {} s",
        driver.runs_ended(),
        examiner.checkpoints.len(),
        lasted.as_secs()
    );
    if (written as f64) < TRAFFIC * lasted.as_secs_f64() / 60.0 {
        wrong.push(format!("only {written} writes: too few for a result"));
    }
    if !wrong.is_empty() {
        copy_data(&environment);
    }
    wrong
}

/// Stores signed heads of the log and checks that the log stays consistent with them.
struct Examiner {
    source: Source,
    /// Signed heads from a server: number of events, and root.
    checkpoints: Vec<(u64, Hash)>,
}

impl Examiner {
    /// Requests a signed head and stores it.
    fn store_checkpoint(&mut self, environment: &Environment) {
        let Ok(output) = stead(environment).args(["-o", "json", "audit", "checkpoint"]).output()
        else {
            return;
        };
        let note = serde_json::from_slice::<Value>(&output.stdout).ok();
        let note = note.and_then(|output| Some(output["note"].as_str()?.to_string()));
        let head = note.and_then(|note| Checkpoint::read_unverified(&note).ok());
        self.checkpoints.extend(head.map(|Checkpoint { size, root, .. }| (size, root)));
    }

    fn examine(&self, environment: &Environment, callers: &Callers) -> Vec<String> {
        let Some(_paused) = callers.pause(SETTLE) else {
            return vec![format!("a call got no response within {SETTLE:?} after the last fault")];
        };
        environment.runtime.block_on(async {
            let mut wrong = oracle::check_all(&self.source, &callers.responses()).await;
            wrong.extend(oracle::check_heads(&self.source.pool, &self.checkpoints).await);
            wrong
        })
    }
}

/// Checks the log against the checkpoint of the customer's runner.
fn witnessed(environment: &Environment) -> Option<String> {
    let checkpoint = environment.runner.data().join("checkpoint");
    let verify =
        stead(environment).args(["audit", "verify", "--against"]).arg(checkpoint).output().unwrap();
    let why = String::from_utf8_lossy(&verify.stderr);
    (!verify.status.success())
        .then(|| format!("the log does not match the runner's checkpoint: {why}"))
}

/// The CLI with the owner's token at the balancer's address.
fn stead(environment: &Environment) -> Command {
    let mut stead = Command::new(program("stead"));
    stead
        .args(["--server", &environment.balancer.control(), "--token-file"])
        .arg(environment.token());
    stead.env("NO_COLOR", "1").stdin(Stdio::null());
    stead
}

fn copy_data(environment: &Environment) {
    let directory = std::env::temp_dir().join(format!("stead-nemesis-kept-{}", std::process::id()));
    let _made = std::fs::create_dir(&directory);
    let servers = environment.servers.iter().map(|server| server.dir());
    for from in servers.chain([environment.dir.path()]) {
        let _copied = Command::new("cp").arg("-R").arg(from).arg(&directory).output();
    }
    println!("data directory: {}", directory.display());
}
