//! What every program of this crate is asked, and where it works.
use std::{fs, path::Path, path::PathBuf, time::Duration};

use tempfile::TempDir;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// So little that the figures say little.
    pub quick: bool,
    /// JSON instead of a table.
    pub json: bool,
    /// How often each contender has its turn.
    pub rounds: u64,
    /// How long a turn takes, where its length is a time.
    pub period: Duration,
}

impl Ask {
    /// `[--quick] [--json] [--rounds N] [--seconds N]`
    pub fn read() -> Ask {
        let quick = has("--quick");
        let number = |name: &str| argument(name).map(|value| value.parse::<u64>().expect(name));
        let (rounds, seconds) = if quick { (2, 1) } else { (5, 3) };
        let seconds = number("--seconds").unwrap_or(seconds);
        Ask {
            quick,
            json: has("--json"),
            rounds: number("--rounds").unwrap_or(rounds).max(1),
            period: Duration::from_secs(seconds),
        }
    }

    /// One of two, by how much is measured.
    pub fn much<T>(self, quick: T, otherwise: T) -> T {
        if self.quick { quick } else { otherwise }
    }
}

/// Take what the usage names, and nothing else: a measurement of something that was not meant takes minutes.
/// Shows the usage for `--help`.
pub fn understand(usage: &str) {
    match understood(usage, std::env::args().skip(1)) {
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

/// False: it is asked how to ask.
fn understood(usage: &str, words: impl Iterator<Item = String>) -> Result<bool, String> {
    let known: Vec<&str> = usage.split_whitespace().collect();
    let takes = |word: &str| {
        let at = known.iter().position(|of| of.trim_matches(['[', ']']) == word)?;
        // What stands alone in its brackets takes no value.
        (word.starts_with("--")).then(|| !known[at].ends_with(']'))
    };
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return Ok(false);
        }
        let takes_value = takes(&word).ok_or_else(|| format!("unknown: {word}"))?;
        if takes_value && words.next_if(|value| !value.starts_with("--")).is_none() {
            return Err(format!("{word}: a value is missing"));
        }
    }
    Ok(true)
}

/// Whether an option is there.
pub fn has(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

/// The word after an option.
pub fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// Do it on every core. What goes wrong in a server of this process is heard.
pub fn block_on(doing: impl Future<Output = ()>) {
    let told = tracing_subscriber::fmt().with_writer(std::io::stderr);
    told.with_max_level(tracing_subscriber::filter::LevelFilter::ERROR).init();
    let _first = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.unwrap().block_on(doing);
}

/// Where a cluster and servers have their directories for as long as a measurement takes.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Place {
        let directory = tempfile::Builder::new().prefix("stead-bench-").tempdir().unwrap();
        enterable(directory.path());
        Place(directory)
    }

    /// A new directory there.
    pub fn of(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir(&path).unwrap();
        enterable(&path);
        path
    }
}

/// Postgres runs as another user when we are root, and must get here.
pub(crate) fn enterable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
