//! Checks the cloud of the runner's type against the sandbox and the stack.
use super::reader::Reader;
use crate::{
    diagnostic::Diagnostic,
    model::{AppConfig, Runner, Source},
};

/// Keywords in types and in names of repositories and directories, with their cloud and platform.
const WORDS: [(&str, &str, &str); 11] = [
    ("acs", "azure", "acs"),
    ("aks", "azure", "aks"),
    ("aws", "aws", ""),
    ("azure", "azure", ""),
    ("bicep", "azure", ""),
    ("cloudformation", "aws", ""),
    ("ecs", "aws", "ecs"),
    ("eks", "aws", "eks"),
    ("gcp", "gcp", ""),
    ("gke", "gcp", "gke"),
    ("google", "gcp", ""),
];

/// Cloud and platform that a string names. `None` if it names no cloud or several.
fn named(text: &str) -> Option<(&'static str, Option<&'static str>)> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_ascii_lowercase);
    let mut clouds = Vec::new();
    let mut platforms = Vec::new();
    for word in words {
        if let Some((_, cloud, platform)) = WORDS.iter().find(|(known, _, _)| *known == word) {
            clouds.push(*cloud);
            platforms.extend(Some(*platform).filter(|platform| !platform.is_empty()));
        }
    }
    let only = |names: &[&'static str]| {
        let first = *names.first()?;
        names.iter().all(|name| *name == first).then_some(first)
    };
    Some((only(&clouds)?, only(&platforms)))
}

pub fn check(config: &AppConfig, reader: &Reader<'_>) {
    let Some(runner) = &config.runner else { return };
    let Some(own) = named(&runner.runner_type) else { return };
    let sandbox = config.sandbox.iter().filter_map(|sandbox| sandbox.module.source.as_ref());
    let sandbox = sandbox.map(|Source { repo, directory, .. }| (repo, directory));
    for (repo, directory) in sandbox {
        // The directory is a better hint about the module than the repository's name.
        let other = named(directory).or_else(|| named(repo));
        if other.is_some_and(|other| contradict(own, other)) {
            let what = format!("the sandbox's module is `{directory}` of `{repo}`");
            mismatch(reader, runner, &what);
        }
    }
    let stack = config.stack.as_ref().map(|stack| stack.stack_type.as_str());
    if let Some(word) = stack.filter(|word| named(word).is_some_and(|other| contradict(own, other)))
    {
        mismatch(reader, runner, &format!("the stack is of type `{word}`"));
    }
}

fn contradict(
    (cloud, platform): (&str, Option<&str>),
    (other_cloud, other_platform): (&str, Option<&str>),
) -> bool {
    let both = platform.zip(other_platform);
    cloud != other_cloud || both.is_some_and(|(platform, other)| platform != other)
}

fn mismatch(reader: &Reader<'_>, runner: &Runner, what: &str) {
    let word = &runner.runner_type;
    let message = format!(
        "the runner is of type `{word}`, but {what}: the sandbox is deployed unchanged, and \
         `.nuon.cloud_account` follows the runner's type"
    );
    let finding =
        Diagnostic::warning("runner_mismatch", message, "correct the runner's type or the module");
    let place = runner.type_at.place(word.chars().count());
    reader.report(finding.at(&runner.type_at.file, place));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unambiguous_name_has_a_cloud_and_platform() {
        assert_eq!(named("nuonco/aws-eks-sandbox"), Some(("aws", Some("eks"))));
        assert_eq!(named("nuonco/aws-min-sandbox"), Some(("aws", None)));
        assert_eq!(named("azure/from-aws"), None);
        assert_eq!(named("acme/modules"), None);
        assert_eq!(named("paws/geeks"), None);
    }
}
