//! Tests contract files that depend on the whole program: the database schema and the runner's
//! dependencies.
use std::{collections::BTreeSet, path::Path, process::Command};

use tests::{Server, stdout_of};

fn golden(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas").join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == text,
        "{path:?} is out of date: set UPDATE_GOLDEN=1, then read the diff\n{text}"
    );
}

#[test]
fn the_migrations_create_the_reviewed_schema() {
    let server = Server::up();
    let dump = ["--schema-only", "--schema=stead", "--no-owner", "--no-comments"];
    // The partitions for days and ranges depend on the date and on the load.
    let excluded_partitions =
        ["--exclude-table=stead.job_log_2*", "--exclude-table=stead.log_event_1*"];
    let dump = stdout_of(
        Command::new(postgres("pg_dump"))
            .args(dump)
            .args(excluded_partitions)
            .arg(server.database()),
    );
    // Differences between versions of pg_dump do not matter.
    let is_relevant = |line: &&str| {
        let ignored_prefixes = ["--", "SET ", "SELECT pg_catalog", "\\restrict", "\\unrestrict"];
        !line.trim().is_empty() && !ignored_prefixes.iter().any(|start| line.starts_with(start))
    };
    let lines: Vec<_> = dump.lines().filter(is_relevant).collect();
    golden("database.sql", &(lines.join("\n") + "\n"));
}

#[test]
fn the_runners_dependencies_are_reviewed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "-p", "runner-agent", "-e", "normal", "--prefix", "none", "--offline"]);
    tree.args(["--format", "{p}", "--target", "x86_64-unknown-linux-gnu"]).current_dir(root);
    let tree = stdout_of(&mut tree);
    let names: BTreeSet<_> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let names: Vec<_> = names.into_iter().collect();
    golden("runner-dependencies.txt", &(names.join("\n") + "\n"));
}

const BEGIN: &str =
    "<!-- invalid inputs: made by the test invalid_inputs_table_matches_the_document -->\n";
const END: &str = "<!-- end of invalid inputs -->\n";

/// Compares the table with `docs/app-config.md`. `UPDATE_GOLDEN=1` rewrites the table first.
#[test]
fn invalid_inputs_table_matches_the_document() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let order = ["`validate`", "resolution", "build", "preflight", "plan", "apply"];
    let files = std::fs::read_dir(root.join("schemas/bad-input")).unwrap();
    let mut rows: Vec<(usize, String)> = files
        .map(|file| {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let mut lines = text.lines();
            let (input, detection) = (lines.next().unwrap(), lines.next().unwrap());
            let message: Vec<&str> = lines.map(str::trim).collect();
            let message = message.join("; ").replace('|', "\\|").replace('`', "'");
            let at = order.iter().position(|one| detection.starts_with(one)).unwrap();
            (at, format!("| {input} | {detection} | `{message}` |\n"))
        })
        .collect();
    rows.sort();
    let rows: String = rows.into_iter().map(|(_, row)| row).collect();
    let table = format!("| input | detected by | message |\n|---|---|---|\n{rows}");
    let path = root.join("docs/app-config.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the document has the markers");
    let (agreed, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    }
    assert_eq!(agreed, table);
}

/// Returns a Postgres program from the path, or from a versioned directory of the distribution.
fn postgres(name: &str) -> std::path::PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}
