//! References of a source file to other directories of its repository: local Terraform modules and
//! files, bases of a kustomization, and chart dependencies.
mod hcl;
mod yaml;

use serde_json::Value;

/// Reference to another path, as written in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub line: u32,
    /// Path relative to the directory of the file.
    pub path: String,
    pub kind: &'static str,
    /// True if a missing target is an error.
    pub required: bool,
}

/// Returns the references of a file that may point outside its directory. Ignores other types of
/// files, and files that it cannot parse. The validation of the build rejects the latter.
pub(super) fn references(path: &str, bytes: &[u8]) -> Vec<Reference> {
    let Ok(text) = std::str::from_utf8(bytes) else { return vec![] };
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.ends_with(".tf") || name.ends_with(".tofu") {
        return hcl::references(text);
    }
    if name.ends_with(".tf.json") || name.ends_with(".tofu.json") {
        return json_modules(text);
    }
    match name {
        "kustomization.yaml" | "kustomization.yml" | "Kustomization" => kustomization(text),
        "Chart.yaml" | "requirements.yaml" => chart(text),
        _ => vec![],
    }
}

/// Returns true if [`references`] can find references in a file with this path.
pub(super) fn has_references(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_module = [".tf", ".tofu", ".tf.json", ".tofu.json"].iter().any(|e| name.ends_with(e));
    let names = [
        "kustomization.yaml",
        "kustomization.yml",
        "Kustomization",
        "Chart.yaml",
        "requirements.yaml",
    ];
    is_module || names.contains(&name)
}

fn json_modules(text: &str) -> Vec<Reference> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let blocks = match value.get("module") {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_object).collect(),
        Some(Value::Object(one)) => vec![one],
        Some(_) | None => vec![],
    };
    let bodies = blocks.into_iter().flat_map(|block| block.values());
    let bodies = bodies.flat_map(|body| match body.as_array() {
        Some(list) => list.iter().collect(),
        None => vec![body],
    });
    let sources = bodies.filter_map(|body| body.get("source")?.as_str());
    let local = sources.filter(|source| is_local(source)).map(|source| {
        let at = text.find(&Value::from(source).to_string()).unwrap_or_default();
        let line = line_of(text, at);
        Reference { line, path: source.into(), kind: "module source", required: true }
    });
    local.collect()
}

/// Returns the scalars of a kustomization that are paths outside its directory.
fn kustomization(text: &str) -> Vec<Reference> {
    let found = yaml::texts(text).into_iter().filter_map(|scalar| {
        // A generator writes `name=path`.
        let path = scalar.rsplit_once('=').map_or(scalar.as_str(), |(_, path)| path);
        let leads_out = path == ".." || path.starts_with("../") || path.starts_with("./../");
        let is_path = leads_out && !path.contains(char::is_whitespace) && !path.contains("{{");
        let line = yaml::line_of(text, &scalar);
        is_path.then(|| Reference { line, path: path.into(), kind: "base", required: true })
    });
    found.collect()
}

/// Returns the dependencies of a chart that have a `file://` repository.
fn chart(text: &str) -> Vec<Reference> {
    let found = yaml::texts(text).into_iter().filter_map(|scalar| {
        let path = scalar.strip_prefix("file://")?.to_owned();
        let line = yaml::line_of(text, &scalar);
        Some(Reference { line, path, kind: "chart dependency", required: true })
    });
    found.collect()
}

/// Returns true if a module source is a path, not a registry address or a URL.
fn is_local(source: &str) -> bool {
    source.starts_with("./") || source.starts_with("../") || source == ".." || source == "."
}

fn line_of(text: &str, at: usize) -> u32 {
    let before = text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(u32, String)> {
        let found = references(path, text.as_bytes());
        found.into_iter().map(|one| (one.line, one.path)).collect()
    }

    #[test]
    fn terraform_modules_are_found_with_their_line() {
        let text = r#"
# module "commented" { source = "../no" }
/* module "x" {
  source = "../no" } */
module "vpc" {
  providers = { aws = aws.west }
  source    = "../modules/vpc" // the network
}
locals {
  source = "../no"
  text   = <<-EOT
    module "y" {
      source = "../no"
  EOT
  quoted = "module \"z\" { source = ${"../no"} }"
}
module "registry" {
  source = "terraform-aws-modules/vpc/aws"
}
module "own" { source = "./own" }
resource "local_file" "x" {
  content = templatefile("${path.module}/../shared/${var.name}.tpl", {})
}
"#;
        let expected = [(7, "../modules/vpc"), (20, "./own"), (22, "../shared")];
        assert_eq!(found("a/main.tf", text), expected.map(|(line, path)| (line, path.to_owned())));
    }

    #[test]
    fn deeply_nested_strings_do_not_exhaust_the_stack() {
        let module = "module \"a\" {\n  source = \"../a\"\n}\n";
        let closed = |depth: usize| format!("{}{}", "\"${".repeat(depth), "}\"".repeat(depth));
        let nested = format!("x = {}\n{module}", closed(200_000));
        assert_eq!(found("main.tf", &nested), [(3, "../a".to_owned())]);
        let open = format!("{module}x = {}", "\"${".repeat(300_000));
        assert_eq!(found("main.tf", &open), [(2, "../a".to_owned())]);
    }

    #[test]
    fn json_modules_are_found() {
        let text = "{\"module\":{\n\"a\":{\"source\":\"../a\"},\n\"b\":[{\"source\":\"x/y/z\"}]}}";
        assert_eq!(found("main.tf.json", text), [(2, "../a".to_owned())]);
    }

    #[test]
    fn bases_and_chart_dependencies_are_found() {
        let text = "resources:\n  - ../../base # the base\n  - deployment.yaml\nconfigMapGenerator:\n\
                    - name: x\n  files:\n  - app.conf=../conf/app.conf\n# - ../no\n";
        let expected = [(2, "../../base".to_owned()), (7, "../conf/app.conf".to_owned())];
        assert_eq!(found("overlays/a/kustomization.yaml", text), expected);
        let text = "dependencies:\n- name: common\n  repository: \"file://../common\"\n- name: x\n  \
                    repository: https://charts.example.com\n";
        assert_eq!(found("charts/app/Chart.yaml", text), [(3, "../common".to_owned())]);
        assert_eq!(found("values.yaml", "a: ../x\n"), []);
        // Flow collections, keys without a space, and text in a block that is no path.
        let text = "# - ../../base\nresources: [\"../../base\", '../other', deployment.yaml]\n\
                    patches:\n- path: ../patch.yaml\n- patch: |\n    - ../no\n    a: ../no\n\
                    components:\n-   ../part   # x\n";
        let expected = [(2, "../../base"), (2, "../other"), (4, "../patch.yaml"), (9, "../part")];
        let expected = expected.map(|(line, path)| (line, path.to_owned()));
        assert_eq!(found("overlays/a/kustomization.yml", text), expected);
        let text = "dependencies: [{name: common, repository: 'file://../common'}]\n";
        assert_eq!(found("charts/app/Chart.yaml", text), [(1, "../common".to_owned())]);
        // The build rejects a file that is not YAML.
        assert_eq!(found("kustomization.yaml", "resources: [\n- ../x\n"), []);
    }
}
