//! Git repositories of an app, created from the directory of repositories. Stand-ins replace
//! missing parts.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tests::{GitRepository, GitServer, stdout_of};

use crate::{
    app::{Action, App, Source, text},
    rules::Rules,
    stand_in,
};

/// Git server with the repositories of one app.
pub(crate) struct Sources {
    git: GitServer,
    repositories: Vec<(String, GitRepository)>,
    sources: BTreeSet<Source>,
}

impl Sources {
    /// Copies each repository that the app names, completes it, and pushes every reference.
    pub(crate) fn of(app: &App, repos: &Path, rules: &Rules) -> Sources {
        let git = GitServer::start();
        let components = app.components.iter().filter_map(|one| Some((one, one.source()?)));
        let components: Vec<_> = components.collect();
        let steps = app.actions.iter().flat_map(Action::steps);
        let scripts: Vec<_> = steps
            .filter_map(|step| {
                Some((Source::of(&step)?, text(&step, "command").unwrap_or_default()))
            })
            .collect();
        let sandbox = app.sandbox.as_ref().and_then(Source::of);
        let mut sources: BTreeSet<Source> = BTreeSet::new();
        sources.extend(components.iter().map(|(_, source)| source.clone()));
        sources.extend(scripts.iter().map(|(source, _)| source.clone()));
        sources.extend(sandbox.clone());
        let names: BTreeSet<&String> = sources.iter().map(|source| &source.repo).collect();
        let mut repositories = vec![];
        for name in names {
            let repository = git.repository(name);
            let (from, to) = (repos.join(name), repository.dir().to_owned());
            if from.is_dir() {
                copy(&from, &to);
            }
            for (component, source) in components.iter().filter(|(_, one)| one.repo == *name) {
                let made = stand_in::component(app, component, &to.join(&source.directory), rules);
                note(rules, made, source);
            }
            for source in sandbox.iter().filter(|one| one.repo == *name) {
                let made = stand_in::sandbox(app, &to.join(&source.directory), rules);
                note(rules, made, source);
            }
            for (source, command) in scripts.iter().filter(|(one, _)| one.repo == *name) {
                let made = stand_in::script(&to.join(&source.directory), command);
                note(rules, made, source);
            }
            repository.commit_all("main");
            repositories.push((name.clone(), repository));
        }
        let made = Sources { git, repositories, sources };
        made.push();
        made
    }

    /// Pushes the working copies to every branch and tag that the app names.
    pub(crate) fn push(&self) {
        for (name, repository) in &self.repositories {
            repository.commit_all("main");
            for source in self.sources.iter().filter(|one| one.repo == *name && !one.is_commit()) {
                if source.reference != "main" {
                    repository.git(&["branch", "--force", &source.reference, "main"]);
                    repository.push(&source.reference);
                }
            }
        }
    }

    /// Returns the directory of a source in its working copy.
    pub(crate) fn directory(&self, source: &Source) -> Option<PathBuf> {
        let found = self.repositories.iter().find(|(name, _)| *name == source.repo)?;
        Some(found.1.dir().join(&source.directory))
    }

    /// Writes a git configuration that reads every host from the server.
    pub(crate) fn configuration(&self) -> PathBuf {
        let hosts: BTreeSet<&str> = self.sources.iter().map(|one| one.host.as_str()).collect();
        let line = |host: &str| format!("  insteadOf = https://{host}/\n");
        self.git.configuration(&hosts.into_iter().map(line).collect::<String>())
    }

    /// Returns `--source` options for references that are commits of the original repository.
    pub(crate) fn options(&self, rules: &Rules) -> Vec<String> {
        let mut options = vec![];
        for source in self.sources.iter().filter(|source| source.is_commit()) {
            let found = self.repositories.iter().find(|(name, _)| *name == source.repo);
            let Some((name, repository)) = found else { continue };
            let option = format!("{name}@{}={}", source.reference, repository.dir().display());
            if !options.contains(&option) {
                options.extend(["--source".into(), option]);
            }
            rules.note(format!("a directory for commit {:.7} of {name}", source.reference));
        }
        options
    }
}

fn note(rules: &Rules, made: Option<String>, source: &Source) {
    if let Some(kind) = made {
        let place = format!("{}/{}", source.repo, source.directory);
        rules.note(format!("{kind} {}", place.trim_end_matches('/')));
    }
}

/// Copies a repository with its symbolic links, without its history, and makes it writable.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        if entry.file_name() != ".git" {
            stdout_of(Command::new("cp").arg("-R").arg(entry.path()).arg(to));
        }
    }
    stdout_of(Command::new("chmod").args(["-R", "u+w"]).arg(to));
}
