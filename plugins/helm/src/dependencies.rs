//! Dependencies of a chart, which its artifact contains.

use std::{fs, path::Path};

use serde::Deserialize;
use stead_plugin_kubernetes::{
    failure::{Failure, IoContext, Outcome},
    report,
};

use crate::helm::{Helm, Limits, args, refs};

#[derive(Default, Deserialize)]
struct Declared {
    #[serde(default)]
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
}

/// Completes the directory `charts`: as in `Chart.lock`, or without a lock with the newest versions
/// that Chart.yaml allows. Helm then writes the lock.
pub async fn complete(helm: &Helm, chart: &Path, limits: Limits<'_>) -> Outcome<()> {
    let missing = missing(chart)?;
    if missing.is_empty() {
        return Ok(());
    }
    report::phase("dependencies");
    let is_locked = chart.join("Chart.lock").is_file() || chart.join("requirements.lock").is_file();
    let verb = if is_locked { "build" } else { "update" };
    if !is_locked {
        report::log(
            "the chart has no Chart.lock: its dependencies are resolved once, in this build",
        );
    }
    let mut command = args(["dependency", verb]);
    command.push(chart.into());
    helm.run_offline(&refs(&command), limits).await.map(drop).map_err(|failure| {
        let names = missing.join(", ");
        Failure {
            message: format!("cannot fetch the dependencies {names}: {}", failure.message),
            ..failure
        }
    })
}

/// Names of the dependencies that the chart does not contain.
fn missing(chart: &Path) -> Outcome<Vec<String>> {
    let mut missing = vec![];
    for file in ["Chart.yaml", "requirements.yaml"] {
        let Ok(text) = fs::read_to_string(chart.join(file)) else { continue };
        let declared: Declared = serde_saphyr::from_str(&text).map_err(|e| {
            let line = e.location().map_or(1, |at| at.line() as usize);
            Failure::refused(format!("invalid chart: {file}:{line}: invalid dependencies"))
        })?;
        for dependency in declared.dependencies {
            if !is_present(chart, &dependency)? {
                missing.push(dependency.name);
            }
        }
    }
    Ok(missing)
}

fn is_present(chart: &Path, dependency: &Dependency) -> Outcome<bool> {
    let charts = chart.join("charts");
    if charts.join(&dependency.name).join("Chart.yaml").is_file() {
        return Ok(true);
    }
    if !charts.is_dir() {
        return Ok(false);
    }
    let entries = fs::read_dir(&charts).context(|| format!("list {}", charts.display()))?;
    let archive = format!("{}-", dependency.name);
    let mut names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.any(|name| {
        let version = name.strip_prefix(&archive).and_then(|rest| rest.strip_suffix(".tgz"));
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit() || c == 'v'))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_dependencies_are_fetched() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "Chart.yaml",
            "dependencies:\n- {name: db, version: 1}\n- {name: cache, version: ^2}\n- {name: web}\n",
        );
        write("charts/db/Chart.yaml", "name: db\n");
        write("charts/cache-2.1.0.tgz", "");
        write("charts/web-socket-1.0.0.tgz", "");
        assert_eq!(missing(dir.path()).unwrap(), ["web"]);
    }
}
