//! Plugin `action`: runs a vendor's scripts as steps, one after the other, each in its own process.
//!
//! In addition to the job's environment, a step gets `STEAD_ACTION`, `STEAD_TRIGGER` and
//! `STEAD_STEP`. `STEAD_OUTPUT_FILE` names a file for its outputs, and so does
//! `NUON_ACTIONS_OUTPUT_FILEPATH`, for scripts that were written for that name. The first step that
//! fails ends the action.

mod output_file;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use domain::digest::Digest;
use nix::sys::signal::Signal;
use schemas::runner::{FailureReason, JobKind};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    contract::{Outcome, PluginError, Sink},
    plugin::{Description, Halt, IoContext, Outputs, Plugin, Work},
    process::{self, ChildEnd, ChildSpec, Code},
    source,
    work::{private_dir, write_private},
};

pub(crate) struct ActionPlugin;

#[derive(Deserialize)]
struct Inputs {
    #[serde(default)]
    trigger: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    name: String,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    inline_contents: Option<String>,
    #[serde(default)]
    env_vars: BTreeMap<String, String>,
    /// Artifact whose directory is the working directory of the step. Without a value, it is the
    /// directory of the job's only artifact if no step names one, otherwise an empty directory.
    #[serde(default)]
    artifact: Option<Digest>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

impl Plugin for ActionPlugin {
    fn describe(&self) -> Description {
        Description { name: "action".into(), kinds: vec![JobKind::Action] }
    }

    async fn health(&mut self, work: &Work<'_>, _: &mut dyn Sink) -> Result<(), Halt> {
        read(work).map(drop)
    }

    async fn act(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<Outputs, Halt> {
        let inputs = read(work)?;
        let (mut merged, mut by_step) = (Map::new(), Map::new());
        for (index, step) in inputs.steps.iter().enumerate() {
            sink.phase(&step.name);
            let output = run(work, &inputs, index, step, sink).await?;
            by_step.insert(step.name.clone(), Value::Object(output.clone()));
            merged.extend(output);
        }
        merged.insert("steps".into(), Value::Object(by_step));
        Ok(Outputs { plain: merged, ..Outputs::default() })
    }
}

/// Parses the action and checks all steps before the first one runs.
fn read(work: &Work<'_>) -> Result<Inputs, Halt> {
    let refusal =
        |why: String| Halt::from(PluginError::Refused(format!("cannot run the action: {why}")));
    let inputs: Inputs = serde_json::from_value(work.manifest.inputs.clone())
        .map_err(|e| refusal(format!("the inputs are invalid: {e}")))?;
    let mut names = std::collections::BTreeSet::new();
    for step in &inputs.steps {
        if !names.insert(&step.name) {
            return Err(refusal(format!("two steps are named {}; rename one of them", step.name)));
        }
        if step.command.is_some() == step.inline_contents.is_some() {
            let why = "needs either a command or inline contents";
            return Err(refusal(format!("step {} {why}", step.name)));
        }
        let artifacts = &work.manifest.artifacts;
        let has = |digest: &Digest| artifacts.iter().any(|artifact| artifact.digest == *digest);
        if step.artifact.as_ref().is_some_and(|digest| !has(digest)) {
            return Err(refusal(format!(
                "step {} names an artifact that the job does not have",
                step.name
            )));
        }
    }
    Ok(inputs)
}

async fn run(
    work: &Work<'_>,
    inputs: &Inputs,
    index: usize,
    step: &Step,
    sink: &mut dyn Sink,
) -> Result<Map<String, Value>, Halt> {
    let at = |kind: &str| work.job.work_dir.join(format!("step-{}.{kind}", index + 1));
    let output = at("out");
    write_private(&output, b"")?;
    let (program, args) = program(step, &at("script"))?;
    let file = output.display().to_string();
    let mut env = step.env_vars.clone();
    // The customer's values override the step's.
    env.retain(|name, _| !work.job.env.contains_key(name));
    for (name, value) in [
        ("STEAD_ACTION", work.name),
        ("STEAD_TRIGGER", &inputs.trigger),
        ("STEAD_STEP", &step.name),
        ("STEAD_OUTPUT_FILE", &file),
        ("TRIGGER_TYPE", &inputs.trigger),
        ("NUON_ACTIONS_OUTPUT_FILEPATH", &file),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    let dir = step.artifact.as_ref().and_then(|digest| source::dir_of(work, digest));
    let dir = match dir {
        Some(dir) => dir,
        // The files of another step are not its own.
        None if inputs.steps.iter().any(|step| step.artifact.is_some()) => {
            let dir = at("dir");
            private_dir(&dir)?;
            dir
        }
        None => work.source.clone(),
    };
    let limit = step.timeout_ms.map(Duration::from_millis);
    let spec = ChildSpec { program, args, dir, env, stop: Signal::SIGTERM, limit, code: Code::Job };
    let what = format!("step {}", step.name);
    let ended = process::run(&spec, work, sink, |sink, stream, line| sink.line(stream, line));
    let ended = ended.await?;
    if ended == ChildEnd::TimedOut {
        let detail =
            format!("{what} exceeded its timeout of {} ms", step.timeout_ms.unwrap_or_default());
        let reason = FailureReason::TimedOut;
        let outcome = Outcome::Failed { reason, exit_code: None, signal: None, detail };
        return Err(Halt::Outcome(outcome));
    }
    ended.require_success(&what)?;
    output_file::read(&output).map_err(|why| {
        PluginError::PluginFailed(format!("cannot read the outputs of {what}: {why}")).into()
    })
}

fn program(step: &Step, script: &Path) -> Result<(PathBuf, Vec<std::ffi::OsString>), Halt> {
    let shell = PathBuf::from("/bin/sh");
    if let Some(command) = &step.command {
        return Ok((shell, vec!["-c".into(), command.into()]));
    }
    let contents = step.inline_contents.as_deref().unwrap_or_default();
    write_private(script, contents.as_bytes())?;
    if !contents.starts_with("#!") {
        return Ok((shell, vec![script.into()]));
    }
    fs::set_permissions(script, fs::Permissions::from_mode(0o700))
        .doing(|| "cannot make the script executable".into())?;
    Ok((script.to_owned(), Vec::new()))
}
