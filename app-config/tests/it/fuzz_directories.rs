//! Fuzzes the reader of app directories with arbitrary bytes, with a time limit.
//!
//! Known hard cases in `tests/fuzz/directories` run first: one text per directory, `=== path`
//! before each file. Then the test mutates these cases for `FUZZ_SECONDS`. It cuts, splices and
//! repeats them, and inserts random bytes, and keys and values of the format in wrong places. A
//! directory that breaks the reader is stored as `found-…`.
use std::{
    env, fs, panic,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use app_config::{
    File, Tree,
    diagnostic::{format_findings, sarif},
    diff, inspect, read, survey,
};

/// Stack size of a worker thread of the server.
const STACK: usize = 2 << 20;
/// Timeout for one directory, in a debug build on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Text that a mutation may insert: names, values and punctuation of the format.
const WORDS: [&str; 36] = [
    "metadata.toml",
    "inputs.toml",
    "components/a.toml",
    "actions/b.toml",
    "policies/c.toml",
    "secrets.toml",
    "runbooks/r.toml",
    "name = ",
    "type = ",
    "terraform_module",
    "helm_chart",
    "dependencies = [\"a\", \"b\"]",
    "[[input]]\n",
    "[[triggers]]\n",
    "[public_repo]\n",
    "[vars]\n",
    "contents = \"./x\"",
    "readme = \"../../x\"",
    "default = ",
    "{{ .nuon.components.a.outputs.x }}",
    "{{ .nuon.inputs.inputs.",
    "{{",
    "}}",
    "'''\n",
    "\"\"\"\n",
    "true",
    "-0",
    "1e999",
    "é\u{301}",
    "\u{feff}",
    "\r\n",
    "drift_schedule = \"0 0 30 2 *\"",
    "timeout = \"9999999999999999h\"",
    "[a.b.c.d]\n",
    "x = {a={b={c={}}}}",
    "cron_schedule = \"* * * * * *\"",
];

fn seed_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/directories")
}

#[test]
fn no_directory_crashes_the_reader_or_exceeds_the_timeout() {
    let fuzz = thread::Builder::new().stack_size(STACK).spawn(fuzz).unwrap();
    if let Err(payload) = fuzz.join() {
        panic::resume_unwind(payload);
    }
}

fn fuzz() {
    let mut cases = Vec::new();
    for entry in fs::read_dir(seed_directory()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        run(&bytes);
        cases.push(bytes);
    }
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (seconds, seed) = (number("FUZZ_SECONDS").unwrap_or(1), number("SEED").unwrap_or(now));
    let mut random = Random(seed | 1);
    let (start, mut executions) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        let bytes = mutated(&mut random, &cases);
        let result = panic::catch_unwind(panic::AssertUnwindSafe(|| run(&bytes)));
        if let Err(payload) = result {
            let file = seed_directory().join(format!("found-{seed}-{executions}.txt"));
            fs::write(&file, &bytes).unwrap();
            eprintln!("stored as {}", file.display());
            panic::resume_unwind(payload);
        }
        executions += 1;
    }
    println!("{executions} directories from seed {seed} in {seconds} s");
}

/// Runs all operations that accept untrusted bytes.
fn run(bytes: &[u8]) {
    let (before, tree) = (cpu_time(), directory(bytes));
    let reading = survey(&tree, &[]);
    let second = survey(&tree, &[]);
    assert_eq!(reading.diagnostics, second.diagnostics, "the same bytes gave another result");
    inspect("app", &tree, &reading);
    format_findings(&reading.diagnostics, &tree, true, true);
    sarif(&reading.diagnostics, "0", "");
    assert!(diff(&reading.config, &second.config).is_empty(), "it differs from itself");
    let bundle = Tree::bundle(&tree, &Default::default(), &[]).unwrap_or_default();
    let _ = read(&bundle);
    let took = cpu_time() - before;
    assert!(took < TIMEOUT, "{took:?}");
}

/// Returns the CPU time of this thread. Other programs on the machine do not increase it.
fn cpu_time() -> Duration {
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(times.split(' ').next().unwrap().parse().unwrap())
}

/// Parses `=== path` and a line break before the bytes of each file. Skips invalid paths.
fn directory(bytes: &[u8]) -> Tree {
    let mut tree = Tree::default();
    let mut rest = bytes;
    while let Some(at) = find(rest, b"=== ") {
        rest = &rest[at + 4..];
        let end = find(rest, b"\n").unwrap_or(rest.len());
        let path = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[(end + 1).min(rest.len())..];
        let next = find(rest, b"\n=== ").map_or(rest.len(), |at| at + 1);
        let file = File { bytes: rest[..next].to_vec(), executable: false };
        let _ = tree.insert(&path, file);
        rest = &rest[next..];
    }
    tree
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn mutated(random: &mut Random, cases: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = cases[random.below(cases.len())].clone();
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => {
                let word = WORDS[random.below(WORDS.len())];
                bytes.splice(at..at, word.bytes());
            }
            2 => {
                let other = &cases[random.below(cases.len())];
                let from = random.below(other.len() + 1);
                let end = (from + random.below(400)).min(other.len());
                bytes.splice(at..at, other[from..end].iter().copied());
            }
            3 => {
                let end = (at + random.below(200)).min(bytes.len());
                let part = bytes[at..end].repeat(random.below(40));
                bytes.splice(at..end, part);
            }
            4 => {
                let end = (at + random.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.below(256) as u8;
                }
            }
        }
        bytes.truncate(64 << 10);
    }
    bytes
}

/// xorshift: the same seed gives the same directories.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}
