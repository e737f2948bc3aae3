//! Chart repositories that an app names, with a chart under each name.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tests::stdout_of;
use toml::Table;

use crate::{
    app::{App, text},
    rules::Rules,
    stand_in,
};

/// Returns the files of all chart repositories by their address, without `https://`.
pub(crate) fn files(
    app: &App,
    repos: &Path,
    work: &Path,
    rules: &Rules,
) -> BTreeMap<String, Vec<u8>> {
    let (mut files, mut indexes) = (BTreeMap::new(), BTreeMap::<String, Value>::new());
    for component in &app.components {
        let repo = component.settings.get("helm_repo").and_then(toml::Value::as_table);
        let Some((address, chart)) = repo.and_then(named) else { continue };
        let version = repo.and_then(|repo| text(repo, "version")).filter(|text| is_exact(text));
        let version = version.unwrap_or_else(|| "1.0.0".into());
        let source = repos.join(&address).join(&chart);
        let packed = pack(&source, &chart, &version, &work.join("charts").join(&component.name));
        if !source.is_dir() {
            rules.note(format!("stand-in chart {address}/{chart}"));
        }
        let path = format!("{address}/{chart}-{version}.tgz");
        let entry = json!({
            "apiVersion": "v2", "name": chart, "version": version,
            "urls": [format!("https://{path}")],
        });
        files.insert(path, packed);
        let empty = || json!({"apiVersion": "v1", "entries": {}});
        let index = indexes.entry(address).or_insert_with(empty);
        index["entries"][&chart] = json!([entry]);
    }
    // JSON is YAML.
    let indexes = indexes.into_iter();
    files.extend(
        indexes.map(|(address, index)| {
            (format!("{address}/index.yaml"), index.to_string().into_bytes())
        }),
    );
    files
}

/// Returns the address of a chart repository, and the name of the chart.
fn named(repo: &Table) -> Option<(String, String)> {
    let url = text(repo, "repo_url")?;
    let address = url.strip_prefix("https://")?.trim_end_matches('/').to_owned();
    Some((address, text(repo, "chart")?))
}

/// Returns true for a version, and false for a range.
fn is_exact(version: &str) -> bool {
    let first = version.trim_start_matches('v').chars().next();
    first.is_some_and(|first| first.is_ascii_digit()) && version.matches('.').count() == 2
}

fn pack(source: &Path, chart: &str, version: &str, dir: &Path) -> Vec<u8> {
    let target: PathBuf = dir.join(chart);
    fs::create_dir_all(dir).unwrap();
    match source.is_dir() {
        true => {
            stdout_of(Command::new("cp").arg("-R").arg(source).arg(&target));
            stdout_of(Command::new("chmod").args(["-R", "u+w"]).arg(&target));
            stand_in::accept_any_cluster(&target);
        }
        false => stand_in::chart(chart, version, &target),
    }
    let file = dir.join("chart.tgz");
    stdout_of(Command::new("tar").arg("-czf").arg(&file).arg("-C").arg(dir).arg(chart));
    fs::read(file).unwrap()
}
