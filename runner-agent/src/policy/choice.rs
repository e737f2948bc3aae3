//! Choice of the policy. The data directory records it at the enrolment, so that no later start can
//! drop it.
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use domain::isolation::IsolationLevel;
use schemas::runner::JobKind;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::{Policy, PolicyError};
use crate::{
    data::{self, Data},
    journal::{Journal, JournalEvent},
};

/// Default policy file, in the data directory.
const FILE: &str = "policy.toml";
/// Contents of a new policy file.
const STARTING: &str = include_str!("starting.toml");

/// Policy that the customer chose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Policy file. A relative path starts at the data directory.
    File(PathBuf),
    /// No policy: the runner allows everything that the server signs, within its fixed limits.
    None,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::File(path) => write!(f, "--policy {}", path.display()),
            Choice::None => f.write_str("--no-policy"),
        }
    }
}

impl Choice {
    /// Returns the choice on the command line, or `None` if the recorded choice stays.
    pub fn from_args(policy: Option<&Path>, no_policy: bool) -> io::Result<Option<Choice>> {
        match policy {
            Some(path) => Ok(Some(Choice::File(std::path::absolute(path)?))),
            None => Ok(no_policy.then_some(Choice::None)),
        }
    }

    /// Returns the recorded choice, with an absolute path.
    pub fn recorded(data: &Data) -> io::Result<Option<Choice>> {
        let choice: Option<Choice> = data::read_json(&record_of(data))?;
        Ok(choice.map(|choice| match choice {
            Choice::File(path) => Choice::File(data.root().join(path)),
            Choice::None => Choice::None,
        }))
    }

    /// Records this choice in the data directory and in the journal.
    pub fn record(&self, data: &Data) -> io::Result<()> {
        Journal::open(data)?.write(JournalEvent::PolicyChosen { policy: self.to_string() })?;
        data::replace_json(&record_of(data), self)
    }

    pub fn policy(&self) -> Result<Policy, PolicyError> {
        match self {
            Choice::File(path) => Policy::read(path),
            Choice::None => Ok(Policy::without_rules()),
        }
    }

    fn is_same(&self, other: &Choice) -> bool {
        match (self, other) {
            (Choice::File(one), Choice::File(other)) => real(one) == real(other),
            (Choice::None, Choice::None) => true,
            (Choice::File(_), Choice::None) | (Choice::None, Choice::File(_)) => false,
        }
    }
}

/// Returns the path without links. The file itself need not exist.
fn real(path: &Path) -> PathBuf {
    let in_its_directory = || Some(fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?));
    fs::canonicalize(path).ok().or_else(in_its_directory).unwrap_or_else(|| path.to_owned())
}

fn record_of(data: &Data) -> PathBuf {
    data.path("policy.json")
}

/// Records the policy of a runner that is about to enrol. Writes a starting policy only to the
/// default path, and only if that path was not recorded. A file that the customer named, or that
/// disappeared, may have had rules. A policy without rules must not replace it. `level` is the level
/// of isolation that a starting policy selects.
pub fn begin(
    data: &Data,
    requested: Option<Choice>,
    level: Option<IsolationLevel>,
) -> anyhow::Result<Choice> {
    let recorded = Choice::recorded(data)?;
    let default = Choice::File(data.path(FILE));
    let choice = requested.or_else(|| recorded.clone()).unwrap_or_else(|| default.clone());
    if let Choice::File(path) = &choice
        && !path.exists()
    {
        let is_recorded = recorded.is_some_and(|recorded| recorded.is_same(&choice));
        if is_recorded || !choice.is_same(&default) {
            bail!(
                "cannot enrol: the policy file {} does not exist; pass another path, create the file (`version = 1` alone allows \
                 everything that the server signs, within the fixed limits of the runner), or record another choice: `{}`",
                path.display(),
                change_to(data, &Choice::File("FILE".into()))
            );
        }
        data::replace(path, starting(level).as_bytes()).with_context(|| {
            let path = path.display();
            format!("cannot write a starting policy to {path} (create the file, or name another one with --policy)")
        })?;
        info!(path = %path.display(), "Wrote a starting policy without rules: it allows everything that the server signs, within the fixed limits of the runner");
    }
    agrees(&choice.policy()?, level)?;
    choice.record(data)?;
    Ok(choice)
}

/// Returns the policy that `begin` would use, without a change. `None` if `begin` would fail because
/// there is no file.
pub fn preview(
    data: &Data,
    requested: Option<&Choice>,
    level: Option<IsolationLevel>,
) -> anyhow::Result<Option<Policy>> {
    let recorded = Choice::recorded(data)?;
    let default = Choice::File(data.path(FILE));
    match requested.or(recorded.as_ref()).unwrap_or(&default) {
        choice @ Choice::File(path) if !path.exists() && choice.is_same(&default) => {
            toml::from_str(&starting(level)).context("cannot parse the starting policy").map(Some)
        }
        Choice::File(path) if !path.exists() => Ok(None),
        choice @ (Choice::File(_) | Choice::None) => Ok(Some(choice.policy()?)),
    }
}

/// Checks that a policy has the level of the command line.
fn agrees(policy: &Policy, level: Option<IsolationLevel>) -> anyhow::Result<()> {
    let Some(level) = level else { return Ok(()) };
    if policy.isolation(JobKind::Apply) == Some(level) {
        return Ok(());
    }
    let level = level.as_str();
    bail!(
        "cannot use --isolation {level}: the policy already exists; add the line `isolation = \"{level}\"` to it instead"
    )
}

/// Returns the contents of a new policy file.
fn starting(level: Option<IsolationLevel>) -> String {
    match level {
        None => STARTING.to_owned(),
        Some(level) => {
            let line = format!("version = 1\nisolation = \"{}\"\n", level.as_str());
            STARTING.replacen("version = 1\n", &line, 1)
        }
    }
}

/// Returns the policy of a runner that has enrolled. A start cannot change a recorded policy.
pub fn resume(
    data: &Data,
    requested: Option<Choice>,
    level: Option<IsolationLevel>,
) -> anyhow::Result<Choice> {
    let choice = match (Choice::recorded(data)?, requested) {
        (Some(recorded), None) => recorded,
        (Some(recorded), Some(requested)) if recorded.is_same(&requested) => recorded,
        (Some(recorded), Some(requested)) => bail!(
            "cannot start: the recorded policy is {recorded}, not {requested}; start without that option, or change the policy \
             first: `{}`",
            change_to(data, &requested)
        ),
        (None, Some(requested)) => {
            requested.record(data)?;
            requested
        }
        (None, None) => bail!(
            "cannot start: {} records no policy; pass --policy FILE, or --no-policy for no rules",
            data.root().display()
        ),
    };
    let policy = choice.policy().with_context(|| {
        format!(
            "cannot start with the recorded policy {choice} (restore its file, or change the policy: `{}`)",
            change_to(data, &Choice::File("FILE".into()))
        )
    })?;
    agrees(&policy, level)?;
    Ok(choice)
}

fn change_to(data: &Data, choice: &Choice) -> String {
    let data = data.root().display();
    match choice {
        Choice::File(path) => format!("stead-runner policy set {} --data {data}", path.display()),
        Choice::None => format!("stead-runner policy none --data {data}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starting_policy_is_a_policy_without_rules() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let choice = begin(&data, None, None).unwrap();
        assert_eq!(choice, Choice::File(data.path("policy.toml")));
        assert_eq!(choice.policy().unwrap(), Policy::without_rules());
        assert_eq!(Choice::recorded(&data).unwrap(), Some(choice));
    }

    #[test]
    fn a_policy_file_on_the_command_line_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(&dir.path().join("data")).unwrap();
        let names = |of: &Path| -> Vec<_> {
            let mut names: Vec<_> =
                fs::read_dir(of).unwrap().map(|file| file.unwrap().path()).collect();
            names.sort_unstable();
            names
        };
        let misspelled = dir.path().join("polcy.toml");
        let before = (names(dir.path()), names(data.root()));
        let error =
            begin(&data, Some(Choice::File(misspelled.clone())), None).unwrap_err().to_string();
        assert!(
            error.contains("polcy.toml does not exist") && error.contains("policy set"),
            "{error}"
        );
        assert_eq!((names(dir.path()), names(data.root())), before);

        // A full path through a link to the default file counts as the default path.
        std::os::unix::fs::symlink(data.root(), dir.path().join("link")).unwrap();
        let default = Choice::File(dir.path().join("link/policy.toml"));
        begin(&data, Some(default.clone()), None).unwrap();
        // Once a policy is recorded, the default file is not written again.
        fs::remove_file(data.path(FILE)).unwrap();
        for requested in [None, Some(default)] {
            let error = begin(&data, requested, None).unwrap_err().to_string();
            assert!(error.contains("does not exist"), "{error}");
        }
        assert!(!data.path(FILE).exists());
    }

    #[test]
    fn a_starting_policy_has_the_level_of_the_command_line_and_an_existing_one_must_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let process = Some(IsolationLevel::Process);
        let expected = preview(&data, None, process).unwrap().unwrap();
        assert_eq!(Choice::recorded(&data).unwrap(), None);
        let choice = begin(&data, None, process).unwrap();
        assert_eq!(choice.policy().unwrap(), expected);
        assert_eq!(expected.isolation(JobKind::Apply), process);
        // A repeated start with the same options succeeds.
        assert_eq!(begin(&data, None, process).unwrap(), choice);
        assert_eq!(resume(&data, None, process).unwrap(), choice);
        for result in [begin(&data, None, Some(IsolationLevel::Sandbox)), {
            fs::write(data.path(FILE), "version = 1\n").unwrap();
            resume(&data, None, process)
        }] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("the policy already exists"), "{error}");
        }
    }

    #[test]
    fn every_rule_of_the_starting_policy_can_be_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.toml");
        let rule = |line: &str| line.strip_prefix("# ").map(String::from);
        let rules = STARTING.lines().skip_while(|line| !line.starts_with("version"));
        let text: Vec<String> =
            rules.map(|line| rule(line).unwrap_or_else(|| line.to_owned())).collect();
        fs::write(&path, text.join("\n")).unwrap();
        assert_ne!(Policy::read(&path).unwrap(), Policy::without_rules());
    }
}
