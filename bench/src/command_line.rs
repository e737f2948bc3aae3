//! Command line and working directory of the benchmarks.
use std::{fs, path::Path, path::PathBuf, time::Duration};

use tempfile::TempDir;

/// Options that most benchmarks have.
#[derive(Debug, Clone, Copy)]
pub struct BenchOptions {
    /// True for a short run, which gives only rough figures.
    pub quick: bool,
    /// Prints JSON instead of a table.
    pub json: bool,
    /// Number of rounds. Each round measures every system once.
    pub rounds: u64,
    /// Duration of a measurement that has no fixed amount of work.
    pub period: Duration,
}

impl BenchOptions {
    /// Reads `[--quick] [--json] [--rounds N] [--seconds N]` from the command line.
    pub fn read() -> BenchOptions {
        let quick = has("--quick");
        let number = |name: &str| argument(name).map(|value| value.parse::<u64>().expect(name));
        let (rounds, seconds) = if quick { (2, 1) } else { (5, 3) };
        let seconds = number("--seconds").unwrap_or(seconds);
        BenchOptions {
            quick,
            json: has("--json"),
            rounds: number("--rounds").unwrap_or(rounds).max(1),
            period: Duration::from_secs(seconds),
        }
    }

    /// Returns `quick` in a quick run, and `otherwise` in other runs.
    pub fn choose<T>(self, quick: T, otherwise: T) -> T {
        if self.quick { quick } else { otherwise }
    }
}

/// Rejects arguments that the usage does not name, because an unintended measurement takes minutes.
/// Prints the usage for `--help`.
pub fn check_arguments(usage: &str) {
    match are_valid(usage, std::env::args().skip(1)) {
        Ok(true) => {}
        Ok(false) => {
            println!("usage: {usage}");
            std::process::exit(0);
        }
        Err(what) => {
            eprintln!("{what}\nusage: {usage}");
            std::process::exit(2);
        }
    }
}

/// Checks the arguments against the usage. Returns false if they request the help.
fn are_valid(usage: &str, words: impl Iterator<Item = String>) -> Result<bool, String> {
    let known: Vec<&str> = usage.split_whitespace().collect();
    let takes = |word: &str| {
        let at = known.iter().position(|of| of.trim_matches(['[', ']']) == word)?;
        // An option alone in its brackets takes no value.
        (word.starts_with("--")).then(|| !known[at].ends_with(']'))
    };
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return Ok(false);
        }
        let takes_value = takes(&word).ok_or_else(|| format!("unknown argument: {word}"))?;
        if takes_value && words.next_if(|value| !value.starts_with("--")).is_none() {
            return Err(format!("{word}: missing value"));
        }
    }
    Ok(true)
}

pub fn has(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

pub fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// Runs a future on a runtime with a thread per core. Logs errors of a server in this process.
pub fn block_on(future: impl Future<Output = ()>) {
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr);
    subscriber.with_max_level(tracing_subscriber::filter::LevelFilter::ERROR).init();
    let _first = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.unwrap().block_on(future);
}

/// Temporary directory for the cluster and the servers of a measurement.
pub struct WorkDir(TempDir);

impl WorkDir {
    pub fn new() -> WorkDir {
        let directory = tempfile::Builder::new().prefix("stead-bench-").tempdir().unwrap();
        enterable(directory.path());
        WorkDir(directory)
    }

    /// Creates a new directory in the temporary directory.
    pub fn of(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir(&path).unwrap();
        enterable(&path);
        path
    }
}

/// Makes a directory accessible to Postgres, which runs as another user when this process is root.
pub(crate) fn enterable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
