//! Rendering of a release against the cluster. Fields that differ between two renderings change at
//! every render.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use stead_plugin_kubernetes::{
    failure::{Failure, IoContext, Outcome},
    manifest::{self, Booleans},
};

use crate::{
    chart,
    helm::{Helm, Limits, args, refs},
    release::{Chart, Hook, Info, Release},
    settings::ReleaseRef,
    version::Version,
};

const TIMEOUT: Duration = Duration::from_secs(300);

/// Operation of Helm that the release needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    Install,
    Upgrade,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Verb::Install => "install",
            Verb::Upgrade => "upgrade",
        }
    }
}

/// Rendered release with a second rendering of the same inputs.
pub struct Rendered {
    pub release: Release,
    pub second: Release,
    /// Definitions in `crds/` of the chart and its dependencies.
    pub crds: Vec<String>,
}

/// Inputs of a rendering.
pub struct Source<'s> {
    pub helm: &'s Helm,
    pub version: Version,
    pub release: &'s ReleaseRef,
    /// Directory of the chart.
    pub chart: &'s Path,
    pub values: &'s [PathBuf],
}

impl Source<'_> {
    /// Renders a release. `is_simulated` selects a rendering that Helm offers although the release
    /// is pending, or its definitions do not exist yet.
    pub async fn render(&self, verb: Verb, is_simulated: bool) -> Outcome<Rendered> {
        let once = || async {
            match is_simulated {
                true => self.simulate(verb).await,
                false => self.dry_run(verb).await,
            }
        };
        let (first, second, crds) = tokio::join!(once(), once(), self.definitions());
        Ok(Rendered { release: first?, second: second?, crds: crds? })
    }

    /// Renders with `helm install|upgrade --dry-run=server`.
    async fn dry_run(&self, verb: Verb) -> Outcome<Release> {
        let mut command = args([verb.name(), &self.release.name]);
        command.push(self.chart.into());
        command.extend(args(["--dry-run=server", "--output", "json"]));
        if self.version.can_adopt() {
            // The plan decides about ownership and names all objects.
            command.push("--take-ownership".into());
        }
        self.add_inputs(&mut command);
        let output = self.helm.run(&refs(&command), Limits::of(TIMEOUT)).await;
        let output = output.map_err(|failure| self.failure(failure))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|e| Failure::failed(format!("cannot read the output of helm: {e}")))
    }

    /// Renders with `helm template --dry-run=server`. The revision in the templates is 1.
    async fn simulate(&self, verb: Verb) -> Outcome<Release> {
        let mut command = args(["template", &self.release.name]);
        command.push(self.chart.into());
        command.push("--dry-run=server".into());
        if verb == Verb::Upgrade {
            command.push("--is-upgrade".into());
        }
        self.add_inputs(&mut command);
        let output = self.helm.run(&refs(&command), Limits::of(TIMEOUT)).await;
        let output = output.map_err(|failure| self.failure(failure))?;
        let text = String::from_utf8(output.stdout)
            .map_err(|_| Failure::failed("cannot read the output of helm: it is not UTF-8"))?;
        from_text(&text, self.chart)
    }

    /// Definitions in `crds/`.
    async fn definitions(&self) -> Outcome<Vec<String>> {
        if !chart::may_have_crds(self.chart) {
            return Ok(vec![]);
        }
        let mut command = args(["template", &self.release.name]);
        command.push(self.chart.into());
        command.extend(args(["--dry-run=server", "--include-crds", "--no-hooks"]));
        self.add_inputs(&mut command);
        let output = self.helm.run(&refs(&command), Limits::of(TIMEOUT)).await;
        let output = output.map_err(|failure| self.failure(failure))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // A definition in `templates/` belongs to the release.
        let is_installed = |text: &&str| {
            let source = text.lines().find_map(|line| line.strip_prefix("# Source: "));
            source.is_some_and(is_in_crds)
        };
        Ok(chart::documents(&text).into_iter().filter(is_installed).map(str::to_owned).collect())
    }

    fn add_inputs(&self, command: &mut Vec<OsString>) {
        command.extend(args(["--namespace", &self.release.namespace]));
        for file in self.values {
            command.extend(["--values".into(), file.into()]);
        }
    }

    /// A chart that cannot be rendered is an invalid input.
    fn failure(&self, failure: Failure) -> Failure {
        match failure.code {
            schemas::plugin::ErrorCode::Failed => {
                Failure::refused(format!("cannot render {}: {}", self.release, failure.message))
            }
            schemas::plugin::ErrorCode::Cancelled
            | schemas::plugin::ErrorCode::PlanStale
            | schemas::plugin::ErrorCode::ToolMissing
            | schemas::plugin::ErrorCode::Refused
            | schemas::plugin::ErrorCode::Unsupported => failure,
        }
    }
}

/// Returns whether a source is in the directory `crds` of a chart or of one of its dependencies, as in
/// `shop/charts/db/crds/a.yaml`. Some versions of Helm leave out the chart.
fn is_in_crds(source: &str) -> bool {
    let parts: Vec<&str> = source.trim().split('/').collect();
    let mut rest = match parts.as_slice() {
        ["crds", inner, ..] if !matches!(*inner, "templates" | "charts" | "crds") => return true,
        [_, rest @ ..] => rest,
        [] => return false,
    };
    while let ["charts", _, inner @ ..] = rest {
        rest = inner;
    }
    rest.first() == Some(&"crds")
}

/// Builds a release from the output of `helm template`, in which hooks are ordinary documents.
fn from_text(text: &str, chart: &Path) -> Outcome<Release> {
    let (mut manifest, mut hooks) = (String::new(), vec![]);
    for document in chart::documents(text) {
        match hook(document)? {
            Some(hook) => hooks.push(hook),
            None => manifest += &format!("---\n{document}\n"),
        }
    }
    let path = chart.join("Chart.yaml");
    let metadata = std::fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
    let metadata = serde_saphyr::from_str(&metadata)
        .map_err(|e| Failure::refused(format!("invalid Chart.yaml: {e}")))?;
    let chart = Some(Chart { metadata, values: Value::Null });
    let info = Info::default();
    Ok(Release { manifest, hooks: Some(hooks), info, chart, ..Release::default() })
}

fn hook(document: &str) -> Outcome<Option<Hook>> {
    let parsed = manifest::documents(document);
    let mut objects = vec![];
    for one in parsed {
        let parsed = manifest::parse_document(&one, "chart", Booleans::Legacy);
        objects.extend(parsed.map_err(|error| {
            Failure::refused(format!("the chart renders an invalid object: {error}"))
        })?);
    }
    let Some(object) = objects.first() else { return Ok(None) };
    let annotations = &object.object["metadata"]["annotations"];
    let list = |key: &str| -> Vec<String> {
        let text = annotations[key].as_str().unwrap_or_default();
        text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    let events = list("helm.sh/hook");
    if events.is_empty() {
        return Ok(None);
    }
    let weight = annotations["helm.sh/hook-weight"].as_str().and_then(|text| text.parse().ok());
    Ok(Some(Hook {
        path: String::new(),
        manifest: document.to_owned(),
        events,
        weight: weight.unwrap_or_default(),
        delete_policies: Some(list("helm.sh/hook-delete-policy")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_crds_are_definitions() {
        for source in
            ["shop/crds/a.yaml", "shop/charts/db/crds/a.yaml", "crds/a.yaml", "crds/crds/a.yaml"]
        {
            assert!(is_in_crds(source), "{source}");
        }
        // cert-manager has its definitions in a template, which its release owns.
        for source in [
            "shop/charts/cert-manager/templates/crds.yaml",
            "shop/templates/crds/a.yaml",
            "crds/templates/a.yaml",
            "shop/crdsx/a.yaml",
        ] {
            assert!(!is_in_crds(source), "{source}");
        }
    }

    #[test]
    fn hooks_are_found_in_the_text_of_a_template() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("Chart.yaml"), "name: shop\nversion: 1.0.0\n").unwrap();
        let text = "---\n# Source: shop/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\n\
                    metadata: {name: a}\n---\n# Source: shop/templates/b.yaml\napiVersion: v1\n\
                    kind: Pod\nmetadata:\n  name: b\n  annotations:\n    helm.sh/hook: \
                    pre-install,pre-upgrade\n    helm.sh/hook-weight: \"-5\"\n";
        let release = from_text(text, dir.path()).unwrap();
        assert_eq!(chart::documents(&release.manifest).len(), 1);
        let [hook] = release.hooks() else { panic!("{:?}", release.hooks) };
        assert_eq!((hook.events.len(), hook.weight), (2, -5));
        assert_eq!(release.chart.unwrap().metadata["name"], "shop");
    }
}
