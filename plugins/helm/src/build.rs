//! Build: packs a chart as the artifact that `helm pull oci://…` reads.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use flate2::read::GzDecoder;
use schemas::plugin::{Built, BuiltBlob, BuiltImage, CallContext};
use serde::Deserialize;
use serde_json::{Map, Value};
use stead_plugin_kubernetes::{
    failure::{Failure, IoContext, Outcome},
    report,
};
use tokio_util::sync::CancellationToken;

use crate::{
    dependencies,
    helm::{Helm, Limits, args, refs},
    repositories,
    settings::StorageDriver,
    values, version,
};

const CONFIG_TYPE: &str = "application/vnd.cncf.helm.config.v1+json";
const CHART_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// File of the source that names a chart in a chart repository.
const HELM_REPO: &str = "helm-repo.json";
const TIMEOUT: Duration = Duration::from_secs(600);
/// Largest size of an unpacked chart in bytes.
const UNPACKED_LIMIT: u64 = 512 << 20;

/// Chart in a chart repository.
#[derive(Deserialize)]
struct Reference {
    repo_url: String,
    chart: String,
    #[serde(default)]
    version: Option<String>,
}

/// Builds the chart of a component.
pub async fn run(context: &CallContext, stop: &CancellationToken) -> Outcome<Built> {
    let helm = Helm::new(&context.work_dir, StorageDriver::Secret)?;
    version::of(&helm).await?;
    let build = Build { helm: &helm, stop };
    let out = helm.dir().join("packed");
    fs::create_dir_all(&out).context(|| format!("create {}", out.display()))?;
    let reference = context.source_dir.join(HELM_REPO);
    let is_directory = context.source_dir.join("Chart.yaml").is_file();
    if !is_directory && reference.is_file() {
        build.pull(&reference, &out).await?;
    } else {
        let chart = &context.source_dir;
        check(chart)?;
        dependencies::complete(&helm, chart, build.limits()).await?;
        build.validate(chart).await?;
        report::phase("package");
        let mut command = args(["package"]);
        command.push(chart.into());
        command.extend(["--destination".into(), out.clone().into()]);
        helm.run_offline(&refs(&command), build.limits()).await?;
    }
    let packed = archive(&out)?;
    let bytes = fs::read(&packed).context(|| format!("read {}", packed.display()))?;
    let unpacked = unpack(&bytes, &helm.dir().join("chart"))?;
    let metadata = check(&unpacked)?;
    if !is_directory {
        build.validate(&unpacked).await?;
    }
    let text = |key: &str| metadata[key].as_str().unwrap_or_default();
    report::log(format!("packed the chart {} {}", text("name"), text("version")));
    let config = helm.dir().join("config.json");
    let content = Value::Object(metadata.clone()).to_string();
    fs::write(&config, &content).context(|| format!("write {}", config.display()))?;
    Ok(Built {
        image: Some(BuiltImage {
            config: BuiltBlob::of(CONFIG_TYPE, config, content.as_bytes()),
            layers: vec![BuiltBlob::of(CHART_TYPE, packed, &bytes)],
        }),
    })
}

struct Build<'b> {
    helm: &'b Helm,
    stop: &'b CancellationToken,
}

impl Build<'_> {
    fn limits(&self) -> Limits<'_> {
        Limits { timeout: TIMEOUT, stop: Some(self.stop) }
    }

    /// Pulls a chart from its repository.
    async fn pull(&self, reference: &Path, out: &Path) -> Outcome<()> {
        report::phase("pull");
        let text = fs::read(reference).context(|| format!("read {}", reference.display()))?;
        let reference: Reference = serde_json::from_slice(&text)
            .map_err(|e| Failure::refused(format!("invalid {HELM_REPO}: {e}")))?;
        let Reference { repo_url, chart, version } = reference;
        if chart.starts_with('-') {
            return Err(Failure::refused(format!("{chart:?} is not the name of a chart")));
        }
        let mut command = args(["pull"]);
        let configured = match repo_url.starts_with("https://") {
            true => repositories::configured(&repo_url)?,
            false => None,
        };
        if let Some(name) = configured {
            // Helm ignores the credentials of a repository that is named by its URL.
            report::log(format!("using the repository {name} of this build runner"));
            let update = args(["repo", "update", &name]);
            self.helm.run_offline(&refs(&update), self.limits()).await?;
            command.push(format!("{name}/{chart}").into());
        } else if let Some(registry) = repo_url.strip_prefix("oci://") {
            command.push(format!("oci://{}/{chart}", registry.trim_end_matches('/')).into());
        } else if repo_url.starts_with("https://") {
            command.extend(args([&chart, "--repo", &repo_url]));
        } else {
            return Err(Failure::refused(format!(
                "cannot pull the chart {chart}: repo_url {repo_url:?} is not supported; use \
                 https:// or oci://"
            )));
        }
        match &version {
            Some(version) => command.extend(args(["--version", version])),
            None => report::log(format!("{chart} has no version: the build uses the newest one")),
        }
        command.extend(["--destination".into(), out.into()]);
        self.helm.run_offline(&refs(&command), self.limits()).await.map(drop)
    }

    /// Checks the chart with `helm lint`, and renders it with its defaults.
    async fn validate(&self, chart: &Path) -> Outcome<()> {
        report::phase("lint");
        for verb in [args(["template", "release-name"]), args(["lint"])] {
            let mut command = verb;
            command.push(chart.into());
            let Err(failure) = self.helm.run_offline(&refs(&command), self.limits()).await else {
                continue;
            };
            match failure.code {
                schemas::plugin::ErrorCode::Failed if needs_values(&failure.message) => {
                    report::log(format!(
                        "cannot render the chart with its defaults; the plan renders it with the \
                         values of the component: {}",
                        failure.message
                    ));
                    return Ok(());
                }
                schemas::plugin::ErrorCode::Failed => {
                    return Err(Failure::refused(format!("invalid chart: {}", failure.message)));
                }
                schemas::plugin::ErrorCode::Cancelled
                | schemas::plugin::ErrorCode::PlanStale
                | schemas::plugin::ErrorCode::ToolMissing
                | schemas::plugin::ErrorCode::Refused
                | schemas::plugin::ErrorCode::Unsupported => return Err(failure),
            }
        }
        Ok(())
    }
}

/// Returns whether an error may only mean that the chart needs values: `required`, `fail`, a
/// missing map, or the schema of the values.
fn needs_values(message: &str) -> bool {
    ["execution error at", "nil pointer evaluating", "values don't meet the specifications"]
        .iter()
        .any(|part| message.contains(part))
}

/// Checks metadata and defaults of a chart. Returns the metadata.
///
/// # Errors
/// Names the file and the line.
fn check(chart: &Path) -> Outcome<Map<String, Value>> {
    let path = chart.join("Chart.yaml");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::refused(
                "invalid chart: the source has no Chart.yaml; correct `directory` of its \
                 repository",
            ));
        }
        Err(error) => return Err(Failure::refused(format!("cannot read Chart.yaml: {error}"))),
    };
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    let metadata: Value = serde_saphyr::from_str_with_options(&text, options).map_err(|e| {
        let line = e.location().map_or(1, |at| at.line() as usize);
        let why = e.to_string();
        let why = why.lines().next().unwrap_or_default();
        Failure::refused(format!("invalid chart: Chart.yaml:{line}: {why}"))
    })?;
    let Value::Object(metadata) = metadata else {
        return Err(Failure::refused(
            "invalid chart: Chart.yaml:1: it is not a map; add name and version",
        ));
    };
    for key in ["name", "version"] {
        if metadata.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(Failure::refused(format!(
                "invalid chart: Chart.yaml:1: `{key}` is missing or not a string; add it"
            )));
        }
    }
    if let Ok(text) = fs::read_to_string(chart.join("values.yaml")) {
        values::check("values.yaml", &text)?;
    }
    Ok(metadata)
}

/// Returns the only archive in a directory.
fn archive(out: &Path) -> Outcome<PathBuf> {
    let entries = fs::read_dir(out).context(|| format!("list {}", out.display()))?;
    let mut archives = entries.flatten().map(|entry| entry.path());
    match (archives.next(), archives.next()) {
        (Some(only), None) => Ok(only),
        (None | Some(_), _) => Err(Failure::failed(
            "cannot pack the chart: helm wrote no archive or several; check the chart with `helm package`",
        )),
    }
}

/// Unpacks an archive of a chart, and returns the directory of the chart.
fn unpack(bytes: &[u8], into: &Path) -> Outcome<PathBuf> {
    fs::create_dir_all(into).context(|| format!("create {}", into.display()))?;
    let mut archive = tar::Archive::new(GzDecoder::new(bytes).take(UNPACKED_LIMIT));
    let unpacking = || "unpack the chart".to_owned();
    for entry in archive.entries().context(unpacking)? {
        let mut entry = entry.context(unpacking)?;
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            continue;
        }
        if !kind.is_file() && !kind.is_dir() {
            let path = entry.path().context(unpacking)?.display().to_string();
            return Err(Failure::refused(format!(
                "invalid chart: {path} in its archive is neither a file nor a directory"
            )));
        }
        // Paths that leave the directory are skipped.
        entry.unpack_in(into).context(unpacking)?;
    }
    crate::chart::locate(into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(files: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            fs::write(dir.path().join(path), text).unwrap();
        }
        check(dir.path()).unwrap_err().message
    }

    #[test]
    fn errors_name_file_and_line() {
        assert!(error(&[]).contains("no Chart.yaml"));
        let broken = error(&[("Chart.yaml", "name: a\nversion: [\n")]);
        assert!(broken.contains("Chart.yaml:"), "{broken}");
        let missing = error(&[("Chart.yaml", "name: a\n")]);
        assert!(missing.contains("Chart.yaml:1: `version` is missing"), "{missing}");
        let values =
            error(&[("Chart.yaml", "name: a\nversion: 1.0.0\n"), ("values.yaml", "- a\n")]);
        assert!(values.contains("values.yaml:1: the file is not a map"), "{values}");
    }

    #[test]
    fn an_archive_with_a_link_is_refused() {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_path("web/Chart.yaml").unwrap();
        header.set_link_name("/etc/hostname").unwrap();
        header.set_size(0);
        header.set_cksum();
        let gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        let mut archive = tar::Builder::new(gzip);
        archive.append(&header, std::io::empty()).unwrap();
        let bytes = archive.into_inner().unwrap().finish().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let error = unpack(&bytes, dir.path()).unwrap_err().message;
        assert!(error.contains("web/Chart.yaml in its archive is neither"), "{error}");
    }

    #[test]
    fn only_missing_values_are_no_error_of_the_chart() {
        assert!(needs_values("helm: execution error at (a/templates/b.yaml:3:4): set x"));
        assert!(needs_values("helm: template: a:1:2: nil pointer evaluating interface {}.b"));
        assert!(!needs_values("helm: parse error at (a/templates/b.yaml:3): unclosed action"));
    }
}
