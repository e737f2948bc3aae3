//! Changes of an install. Each command prints the run that it starts. With `--wait`, the command
//! follows the run.
use std::{collections::BTreeMap, fs, path::PathBuf};

use clap::{Args, ValueEnum};
use schemas::{
    control::{
        apps::{DiffQuery, InputDifference},
        installs::UpdateInstall,
        runs::{RequestRun, RequestedKind},
    },
    secret::EncryptedValue,
};

use super::encrypt;
use crate::{
    apps::diff_text, failure::Failure, pins::check_named, render::Output, runs::print_run_or_text,
    settings::CommandContext,
};

#[derive(Debug, Args)]
pub(crate) struct Inputs {
    /// Input and its value; may be repeated
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = pair)]
    inputs: Vec<(String, String)>,
    /// File of inputs: TOML with `name = "value"` lines
    #[arg(long, value_name = "FILE")]
    inputs_file: Option<PathBuf>,
}

/// Changes of the inputs of an existing install.
#[derive(Debug, Args)]
pub(crate) struct Changes {
    #[command(flatten)]
    inputs: Inputs,
    /// Input to reset to its default; may be repeated
    #[arg(long, value_name = "NAME")]
    unset: Vec<String>,
    /// Sensitive input and the file with its value (`-` reads standard input); may be repeated. The
    /// command encrypts the value to the pinned keys of the install
    #[arg(long, value_name = "NAME=FILE", value_parser = pair)]
    secret: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct SetInputs {
    /// Name or id of the install
    install: String,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    then: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Move {
    /// Name or id of the install
    install: String,
    /// Config version to upgrade to
    #[arg(long, value_name = "N")]
    to: u32,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    then: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// Name or id of the install
    install: String,
    /// Earlier config version [default: the previous one]
    #[arg(long, value_name = "N")]
    to: Option<u32>,
    /// Restore the inputs that the install had at this config version [default: keep the current
    /// inputs]
    #[arg(long, value_name = "VERSION")]
    inputs_of: Option<u32>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    then: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Operation {
    /// Name or id of the install
    install: String,
    #[command(flatten)]
    then: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunAction {
    /// Name or id of the install
    install: String,
    /// Name of the action
    action: String,
    /// Reason, recorded in the log
    #[arg(long)]
    reason: Option<String>,
    /// Follow the run until it finishes
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AutoApprove {
    /// Name or id of the install
    install: String,
    /// State of the automatic approval
    #[arg(value_enum)]
    to: Switch,
    /// Reason, recorded in the log
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Toggle {
    /// Name or id of the install
    install: String,
    /// Name of the component; may be repeated
    #[arg(required = true)]
    components: Vec<String>,
    #[command(flatten)]
    then: RunArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Reason, recorded in the log
    #[arg(long)]
    pub(super) reason: Option<String>,
    /// Make all plans that depend on no change of the run before its first change, to approve them
    /// together
    #[arg(long)]
    pub(super) plan_all: bool,
    /// Follow the run until it finishes
    #[arg(long)]
    pub(super) wait: bool,
}

impl Inputs {
    /// Reads the inputs. The command line overrides the file.
    pub(crate) fn read(self) -> Result<BTreeMap<String, String>, Failure> {
        let mut inputs = BTreeMap::new();
        if let Some(path) = &self.inputs_file {
            let wrong = |reason: String| {
                Failure::Usage(format!("cannot read the inputs file {}: {reason}", path.display()))
            };
            let text = fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
            let table: toml::Table = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
            for (name, value) in table {
                inputs.insert(
                    name.clone(),
                    text_of(value).map_err(|e| wrong(format!("{name} {e}")))?,
                );
            }
        }
        inputs.extend(self.inputs);
        Ok(inputs)
    }
}

impl Changes {
    /// Returns the changes by name, and the encrypted values. An input that is `None` is reset to its
    /// default.
    async fn read(
        self,
        context: &CommandContext,
        install: &str,
        config_version: Option<u32>,
    ) -> Result<(Option<BTreeMap<String, Option<String>>>, Vec<EncryptedValue>), Failure> {
        let set = self.inputs.read()?;
        let secret = encrypt::read(&self.secret)?;
        if let Some(both) = self.unset.iter().find(|name| set.contains_key(*name)) {
            return Err(Failure::Usage(format!(
                "cannot change {both}: the command both sets and unsets it\n  try: either --input or --unset"
            )));
        }
        let mut inputs: BTreeMap<_, _> =
            set.into_iter().map(|(name, value)| (name, Some(value))).collect();
        inputs.extend(self.unset.into_iter().map(|name| (name, None)));
        let encrypted =
            encrypt::encrypt(context, (install, config_version), &inputs, secret).await?;
        Ok((Some(inputs).filter(|inputs| !inputs.is_empty()), encrypted))
    }
}

fn text_of(value: toml::Value) -> Result<String, &'static str> {
    match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
            Ok(value.to_string())
        }
        toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => Err(
            "is not a string, a number or a boolean\n  try: write a list or an object as JSON in quotes",
        ),
    }
}

pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        Some(_) | None => Err(format!("{text:?} is not valid: use NAME=VALUE")),
    }
}

pub(crate) async fn set_inputs(context: &CommandContext, args: SetInputs) -> Result<(), Failure> {
    let (inputs, encrypted) = args.changes.read(context, &args.install, None).await?;
    if inputs.is_none() && encrypted.is_empty() {
        let message = "cannot change the inputs: the command names none\n  try: --input NAME=VALUE, --secret NAME=FILE, or \
                       --unset NAME";
        return Err(Failure::Usage(message.into()));
    }
    let RunArgs { reason, plan_all, wait } = args.then;
    let change = UpdateInstall { inputs, encrypted, reason, plan_all, ..UpdateInstall::default() };
    let done = context.client.update_install(&args.install, &change).await?;
    let no_run_text = match done.changed {
        true => "Changed the inputs. No component reads them, so no run is needed.",
        false => "No changes: the inputs already have these values.",
    };
    print_run_or_text(context, &done, done.run, no_run_text, wait).await
}

pub(crate) async fn toggle(
    context: &CommandContext,
    args: Toggle,
    enabled: bool,
) -> Result<(), Failure> {
    let components = args.components.into_iter().map(|name| (name, enabled)).collect();
    let RunArgs { reason, plan_all, wait } = args.then;
    let change = UpdateInstall { components, reason, plan_all, ..UpdateInstall::default() };
    let done = context.client.update_install(&args.install, &change).await?;
    let no_run_text = match (done.changed, enabled) {
        (true, true) => "Enabled. No deploy is needed.",
        (true, false) => "Disabled. No teardown is needed.",
        (false, true) => "No changes: already enabled.",
        (false, false) => "No changes: already disabled.",
    };
    print_run_or_text(context, &done, done.run, no_run_text, wait).await
}

pub(crate) async fn upgrade(context: &CommandContext, args: Move) -> Result<(), Failure> {
    to_version(context, &args.install, args.to, (args.changes, None), args.then).await
}

pub(crate) async fn rollback(context: &CommandContext, args: Rollback) -> Result<(), Failure> {
    let install = context.client.install(&args.install).await?;
    check_named(&install, &args.install)?;
    let now = install.config_version;
    let to = args.to.unwrap_or(now.saturating_sub(1));
    if to == 0 || to >= now {
        let name = &install.name;
        return Err(Failure::Usage(format!(
            "cannot roll back {name}: it is at version {now}, and version {to} is not earlier\n  try: `stead apps versions {}`",
            install.app_name
        )));
    }
    let (of, inputs_of) = (Some(install.id.to_string()), args.inputs_of);
    let query =
        DiffQuery { from: Some(now), to: Some(to), install: of, inputs_of, min_position: None };
    let diff = context.client.diff(&install.app.to_string(), &query).await?;
    if context.screen.output == Output::Table && !context.screen.is_quiet() {
        context.screen.print_one(&diff, |screen| {
            let inputs = diff.impact.iter().flat_map(|impact| &impact.inputs).collect::<Vec<_>>();
            diff_text(&diff, screen) + &inputs_text(&inputs, to, inputs_of)
        })?;
    }
    to_version(context, &args.install, to, (args.changes, inputs_of), args.then).await
}

/// Describes the inputs after a rollback, and the values that differed at the earlier version.
pub(crate) fn inputs_text(differ: &[&InputDifference], to: u32, inputs_of: Option<u32>) -> String {
    if let Some(version) = inputs_of {
        return format!("\nThe rollback uses the inputs of version {version}.\n");
    }
    if differ.is_empty() {
        return format!("\nThe inputs are those of version {to}.\n");
    }
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "(not set)".into());
    let line = |d: &&InputDifference| {
        format!("  {}: {}, at version {to} {}\n", d.name, value(&d.after), value(&d.before))
    };
    format!(
        "\nThe rollback keeps these inputs; `--inputs-of {to}` uses the earlier values:\n{}",
        differ.iter().map(line).collect::<String>()
    )
}

async fn to_version(
    context: &CommandContext,
    install: &str,
    to: u32,
    (changes, inputs_of): (Changes, Option<u32>),
    then: RunArgs,
) -> Result<(), Failure> {
    let (inputs, encrypted) = changes.read(context, install, Some(to)).await?;
    let change = UpdateInstall {
        inputs,
        encrypted,
        inputs_of,
        config_version: Some(to),
        reason: then.reason,
        plan_all: then.plan_all,
        ..UpdateInstall::default()
    };
    let done = context.client.update_install(install, &change).await?;
    let no_run_text = match done.changed {
        true => format!(
            "Moved {install} to version {to}. Its components do not change, so no run is needed."
        ),
        false => format!("No changes: {install} is already at version {to}, or moving to it."),
    };
    print_run_or_text(context, &done, done.run, &no_run_text, then.wait).await
}

pub(crate) async fn operate(
    context: &CommandContext,
    args: Operation,
    kind: RequestedKind,
    components: Vec<String>,
) -> Result<(), Failure> {
    let RunArgs { reason, plan_all, wait } = args.then;
    let request = RequestRun { kind, components, action: None, reason, plan_all };
    let requested = context.client.request_run(&args.install, &request).await?;
    // If no changes remain, the server accepts a deprovision and rejects the other operations.
    let no_run_text = format!("Deprovisioned {}. Nothing was left to destroy.", args.install);
    print_run_or_text(context, &requested, requested.run, &no_run_text, wait).await
}

pub(crate) async fn action(context: &CommandContext, args: RunAction) -> Result<(), Failure> {
    let RunAction { install, action, reason, wait } = args;
    let (kind, components, plan_all) = (RequestedKind::Action, vec![], false);
    let request = RequestRun { kind, components, action: Some(action), reason, plan_all };
    let requested = context.client.request_run(&install, &request).await?;
    print_run_or_text(context, &requested, requested.run, "No changes.", wait).await
}

pub(crate) async fn auto_approve(
    context: &CommandContext,
    args: AutoApprove,
) -> Result<(), Failure> {
    let on = args.to == Switch::On;
    let change =
        UpdateInstall { auto_approve: Some(on), reason: args.reason, ..UpdateInstall::default() };
    let done = context.client.update_install(&args.install, &change).await?;
    context.screen.print_one(&done, |_| {
        let result = match on {
            true => "are now approved automatically; plans that already wait still need `stead runs approve`",
            false => "now require approval",
        };
        format!("Plans of {} {result}.\n", args.install)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_inputs_override_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inputs.toml");
        fs::write(&path, "a = \"1\"\nb = 2\nc = true\n").unwrap();
        let inputs = Inputs { inputs: vec![("b".into(), "x=y".into())], inputs_file: Some(path) };
        let read: Vec<_> = inputs.read().unwrap().into_iter().collect();
        let expected = [("a", "1"), ("b", "x=y"), ("c", "true")];
        assert_eq!(read, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }

    #[test]
    fn input_requires_a_name_and_may_be_empty() {
        assert_eq!(pair("a="), Ok(("a".into(), String::new())));
        assert!(pair("=a").is_err());
        assert!(pair("a").is_err());
    }
}
