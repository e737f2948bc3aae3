//! Detection of modules and charts that need a cloud account or the internet, so that this machine
//! cannot run them.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Variables and outputs of a module, and why this machine cannot run it.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) variables: BTreeSet<String>,
    pub(crate) outputs: BTreeSet<String>,
    pub(crate) sensitive: BTreeSet<String>,
    /// Provider that needs an account, or module of a registry.
    pub(crate) needs: Option<String>,
}

impl Module {
    /// Reads a module with its local modules.
    pub(crate) fn read(dir: &Path) -> Module {
        let mut module = Module::default();
        for text in texts(dir) {
            module.variables.extend(named(&text, "variable").map(|(name, _)| name.to_owned()));
            for (name, block) in named(&text, "output") {
                module.outputs.insert(name.to_owned());
                if block.replace(' ', "").contains("sensitive=true") {
                    module.sensitive.insert(name.to_owned());
                }
            }
        }
        let (mut open, mut seen) = (vec![dir.to_owned()], BTreeSet::new());
        while let Some(next) = open.pop() {
            if !seen.insert(next.clone()) {
                continue;
            }
            for text in texts(&next) {
                let (needs, local) = requirements(&text);
                module.needs = module.needs.take().or(needs);
                open.extend(local.iter().map(|path| next.join(path)));
            }
        }
        module
    }
}

/// Returns what a file needs from outside, and its local modules.
fn requirements(text: &str) -> (Option<String>, Vec<PathBuf>) {
    let (mut needs, mut local) = (None, vec![]);
    for line in text.lines().map(str::trim) {
        let words = line.replace('=', " = ");
        let mut words = words.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("source"), Some("="), Some(source)) => {
                let source = source.trim_matches('"');
                match source.starts_with("./") || source.starts_with("../") {
                    true => local.push(source.into()),
                    false if source.contains("/terraform.io/builtin/") => {}
                    false => needs = needs.or_else(|| Some(source.to_owned())),
                }
            }
            (Some("resource" | "data"), Some(kind), Some(_)) => {
                let provider = kind.trim_matches('"').split('_').next().unwrap_or_default();
                if provider != "terraform" {
                    needs = needs.or_else(|| Some(format!("provider {provider}")));
                }
            }
            _ => {}
        }
    }
    (needs, local)
}

/// Returns the named blocks of a kind, with their text.
fn named<'t>(text: &'t str, kind: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
    text.split("\n}").filter_map(move |block| {
        let start = block.lines().position(|line| line.starts_with(&format!("{kind} \"")))?;
        let line = block.lines().nth(start)?;
        Some((line.split('"').nth(1)?, block))
    })
}

fn texts(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|file| file.path());
    let modules = files.filter(|file| file.extension().is_some_and(|end| end == "tf"));
    modules.filter_map(|file| fs::read_to_string(file).ok()).collect()
}

/// Returns the first dependency of a chart that is in a chart repository and not in `charts/`.
pub(crate) fn missing_dependency(chart: &Path) -> Option<String> {
    let has_packed = fs::read_dir(chart.join("charts")).is_ok_and(|mut dir| dir.next().is_some());
    let text = fs::read_to_string(chart.join("Chart.yaml")).ok()?;
    let values = text
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("repository:"));
    let mut values = values.map(|value| value.trim().trim_matches(['"', '\'']));
    let is_remote = |value: &&str| !value.is_empty() && !value.starts_with("file://");
    values.find(is_remote).filter(|_| !has_packed).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_of_built_in_resources_is_available() {
        let dir = tempfile::tempdir().unwrap();
        let shared = "resource \"terraform_data\" \"a\" {\n  input = 1\n}\n";
        fs::create_dir_all(dir.path().join("shared")).unwrap();
        fs::write(dir.path().join("shared/main.tf"), shared).unwrap();
        let text = "module \"shared\" {\n  source = \"./shared\"\n}\noutput \"a\" {\n  value = 1\n  \
                    sensitive = true\n}\nvariable \"b\" {\n  type = string\n}\n";
        fs::write(dir.path().join("main.tf"), text).unwrap();
        let module = Module::read(dir.path());
        assert_eq!(module.needs, None);
        assert_eq!(module.variables, BTreeSet::from(["b".to_owned()]));
        assert_eq!(
            (&module.outputs, &module.outputs),
            (&module.sensitive, &["a".to_owned()].into())
        );
        // and with a cloud's resource in a local module, it is not
        fs::write(dir.path().join("shared/aws.tf"), "data \"aws_region\" \"a\" {}\n").unwrap();
        assert_eq!(Module::read(dir.path()).needs.as_deref(), Some("provider aws"));
        fs::write(dir.path().join("vpc.tf"), "module \"v\" {\n  source  = \"acme/vpc/aws\"\n}\n")
            .unwrap();
        assert_eq!(Module::read(dir.path()).needs.as_deref(), Some("acme/vpc/aws"));
    }

    #[test]
    fn a_chart_with_a_dependency_elsewhere_is_not_available() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(dir.path().join("Chart.yaml"), text).unwrap();
        write("name: a\ndependencies:\n- name: b\n  repository: file://../b\n");
        assert_eq!(missing_dependency(dir.path()), None);
        write("name: a\ndependencies:\n- repository: \"https://charts.example.com\"\n  name: b\n");
        assert_eq!(missing_dependency(dir.path()).as_deref(), Some("https://charts.example.com"));
        fs::create_dir_all(dir.path().join("charts/b")).unwrap();
        assert_eq!(missing_dependency(dir.path()), None);
    }
}
