//! Chart of a component: the files of its artifact, and the static chart that an apply executes.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stead_plugin_kubernetes::{
    failure::{Failure, IoContext, Outcome},
    manifest,
};

use crate::release::Release;

/// Returns the directory of the chart in an artifact: the source itself, or its only directory with
/// a chart, as in a packed chart.
pub fn locate(source: &Path) -> Outcome<PathBuf> {
    if source.join("Chart.yaml").is_file() {
        return Ok(source.to_owned());
    }
    let entries = fs::read_dir(source).context(|| format!("list {}", source.display()))?;
    let charts = entries.flatten().map(|entry| entry.path());
    let mut charts = charts.filter(|path| path.join("Chart.yaml").is_file());
    match (charts.next(), charts.next()) {
        (Some(chart), None) => Ok(chart),
        (None | Some(_), _) => Err(Failure::refused(
            "the component's source has no Chart.yaml; correct `directory` of its repository, or \
             build the component with the published plugin helm_chart",
        )),
    }
}

/// Returns whether the chart, or a chart in it, has definitions in `crds/`. A packed subchart may
/// have some.
pub fn may_have_crds(chart: &Path) -> bool {
    let subcharts = fs::read_dir(chart.join("charts")).into_iter().flatten().flatten();
    chart.join("crds").is_dir()
        || subcharts.map(|entry| entry.path()).any(|path| match path.is_dir() {
            true => may_have_crds(&path),
            false => path.extension().is_some_and(|extension| extension == "tgz"),
        })
}

/// Chart whose templates are the rendered texts. Helm renders it to the same texts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StaticChart {
    /// Files by path.
    files: BTreeMap<String, String>,
    /// Values of the user, which Helm stores with the release.
    values: Value,
}

impl StaticChart {
    /// Packs a rendered release and the definitions of its chart.
    pub fn pack(release: &Release, crds: &[String]) -> Self {
        let chart = release.chart.clone().unwrap_or_default();
        let mut files = BTreeMap::new();
        // The templates of dependencies are rendered, and the schema was checked.
        let mut metadata: Map<String, Value> = chart.metadata;
        metadata.remove("dependencies");
        files.insert("Chart.yaml".into(), Value::Object(metadata).to_string());
        let defaults = if chart.values.is_null() { json!({}) } else { chart.values };
        files.insert("values.yaml".into(), defaults.to_string());
        for (at, document) in documents(&release.manifest).into_iter().enumerate() {
            files.insert(format!("templates/{at:05}.yaml"), escape(document));
        }
        for (at, hook) in release.hooks().iter().enumerate() {
            files.insert(format!("templates/hook-{at:05}.yaml"), escape(&hook.manifest));
        }
        for (at, definition) in crds.iter().enumerate() {
            files.insert(format!("crds/{at:05}.yaml"), definition.clone());
        }
        if !release.info.notes.is_empty() {
            files.insert("templates/NOTES.txt".into(), escape(&release.info.notes));
        }
        StaticChart { files, values: release.config.clone() }
    }

    /// Writes the chart and its values. Returns the directory and the values file.
    pub fn write(&self, dir: &Path) -> Outcome<(PathBuf, PathBuf)> {
        let chart = dir.join("static");
        if chart.exists() {
            fs::remove_dir_all(&chart).context(|| format!("empty {}", chart.display()))?;
        }
        for (path, text) in &self.files {
            let path = chart.join(path);
            let write = || {
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::write(&path, text)
            };
            write().context(|| format!("write {}", path.display()))?;
        }
        let values = dir.join("static-values.yaml");
        fs::write(&values, self.values.to_string())
            .context(|| format!("write {}", values.display()))?;
        Ok((chart, values))
    }

    /// Returns the content that Helm stores with a release: templates in base64.
    pub fn stored(&self) -> Value {
        let encoded = self.files.iter().map(|(path, text)| (path, STANDARD.encode(text)));
        json!(encoded.collect::<BTreeMap<_, _>>())
    }

    /// Returns the documents that Helm must render, in their order.
    pub fn documents(&self) -> impl Iterator<Item = String> {
        let templates = self.files.iter().filter(|(path, _)| {
            path.strip_prefix("templates/")
                .is_some_and(|name| name.starts_with(|first: char| first.is_ascii_digit()))
        });
        templates.map(|(_, text)| unescape(text))
    }
}

/// Returns the documents of a rendered manifest that are more than comments.
pub fn documents(manifest: &str) -> Vec<&str> {
    let documents = manifest::documents(manifest).into_iter().map(|document| {
        let text = document.text.trim_start();
        // Helm adds a newline to each document.
        text.strip_suffix('\n').unwrap_or(text)
    });
    documents.filter(|text| !is_blank(text)).collect()
}

fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

/// Returns a template that renders to the text.
fn escape(text: &str) -> String {
    text.replace("{{", "{{\"{{\"}}")
}

fn unescape(template: &str) -> String {
    template.replace("{{\"{{\"}}", "{{")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::{Chart, Hook, Info};

    #[test]
    fn templates_render_to_their_texts() {
        for text in ["a {{ b }} {{- c }}", "{{{", "{{{{ }}}}", "{", "{{\"{{\"}}"] {
            assert_eq!(unescape(&escape(text)), text, "{text}");
        }
        assert_eq!(escape("{{{ x"), "{{\"{{\"}}{ x");
    }

    #[test]
    fn a_static_chart_has_all_rendered_texts() {
        let chart = json!({ "metadata": { "name": "shop", "version": "1.0.0",
                                          "dependencies": [{ "name": "db" }] } });
        let hook = Hook {
            path: "shop/templates/hook.yaml".into(),
            manifest: "kind: Job\n".into(),
            events: vec!["pre-install".into()],
            weight: 0,
            delete_policies: None,
        };
        let release = Release {
            manifest:
                "---\n# Source: a\nkind: A\n---\n# Source: b\n---\nkind: B\ntext: |\n  {{ x\n"
                    .into(),
            hooks: Some(vec![hook]),
            info: Info { notes: "hello {{ you".into() },
            config: json!({ "color": "red" }),
            chart: Some(serde_json::from_value::<Chart>(chart).unwrap()),
            ..Release::default()
        };
        let packed = StaticChart::pack(&release, &["kind: CRD {{".into()]);
        let paths: Vec<&str> = packed.files.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            [
                "Chart.yaml",
                "crds/00000.yaml",
                "templates/00000.yaml",
                "templates/00001.yaml",
                "templates/NOTES.txt",
                "templates/hook-00000.yaml",
                "values.yaml",
            ]
        );
        assert_eq!(packed.files["Chart.yaml"], r#"{"name":"shop","version":"1.0.0"}"#);
        assert_eq!(packed.files["crds/00000.yaml"], "kind: CRD {{", "not a template");
        assert!(packed.files["templates/NOTES.txt"].ends_with("{{\"{{\"}} you"));
        let documents: Vec<String> = packed.documents().collect();
        assert_eq!(documents, ["# Source: a\nkind: A", "kind: B\ntext: |\n  {{ x"]);
    }
}
