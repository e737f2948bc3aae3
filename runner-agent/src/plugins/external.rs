//! External plugins: an executable `stead-plugin-<name>` that exchanges JSON lines with the runner.
//! `docs/plugins.md` specifies the protocol, and `schemas::plugin` defines its messages. This
//! module implements the runner's side.
//!
//! The executable comes from a published plugin (`published.rs`) or from the plugin directory. The
//! runner computes its digest during the copy and executes the copy. It therefore executes exactly
//! the bytes that it verified.

mod channel;
mod charts;
mod executable;
mod published;
pub(super) mod value_file;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemas::{
    plugin::{
        Built, BuiltImage, Call, CallContext, Changes, CheckStatus, Described, FILE_LIMIT, FileRef,
        MESSAGE_LIMIT, OutputValues, PROTOCOLS, Preflight, PreflightCheck,
    },
    runner::JobKind,
};
use serde_json::Value;

use self::channel::Channel;
use super::{
    contract::{PluginError, Sink, Stream},
    plans::ApprovedPlan,
    plugin::{Description, Halt, IoContext, Outputs, Planned, Plugin, Work},
    work::write_private,
};
use crate::state::StateMark;

const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of `health`, `preflight`, `state` and `outputs`.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of the inputs in a message, in bytes. The rest is reserved for names and paths.
const INPUTS_LIMIT: usize = MESSAGE_LIMIT - (64 << 10);

/// Running plugin executable.
pub(crate) struct External {
    channel: Channel,
    described: Described,
    /// Parameters of every call about the component, without its source directory.
    context: CallContext,
    /// Image that the build created.
    image: Option<BuiltImage>,
}

impl External {
    /// Checks the digest, starts the plugin and reads its description.
    pub(crate) async fn start(work: &Work<'_>, sink: &mut dyn Sink) -> Result<Self, Halt> {
        let (program, statement) = executable::verified_copy(work, sink).await?;
        let mut channel = Channel::open(program, work, sink).await?;
        let required = &work.manifest.plugin;
        // A plugin of version 1 ignores the unknown member `protocols` and responds with 1.
        let call = Call::Describe { protocol: 1, protocols: PROTOCOLS.to_vec() };
        let described: Described = channel.call(call, Some(DESCRIBE_TIMEOUT), work, sink).await?;
        if !PROTOCOLS.contains(&described.protocol) {
            let version = described.protocol;
            let known = PROTOCOLS.map(|version| version.to_string()).join(" and ");
            let failed = format!(
                "it uses protocol {version}, but this runner supports {known}; install a matching version of the plugin"
            );
            return Err(PluginError::PluginFailed(failed).into());
        }
        if let Some(statement) = &statement {
            published::check_description(statement, &described)?;
        }
        channel.use_version(described.protocol);
        if described.name != required.name {
            let (found, required) = (&described.name, &required.name);
            let refusal = format!(
                "cannot use the plugin: the plugin is named {found}, but the manifest requires {required}"
            );
            return Err(PluginError::Refused(refusal).into());
        }
        // The digest identifies the executable. The version is information for users.
        let line = format!("{} {}", described.name, described.version);
        sink.line(Stream::Runner, line.as_bytes());
        let context = context(work, channel.version())?;
        Ok(External { channel, described, context, image: None })
    }

    /// Uses the plugin for another component of the same preflight.
    pub(crate) fn use_component(&mut self, work: &Work<'_>) -> Result<(), PluginError> {
        self.context = context(work, self.channel.version())?;
        Ok(())
    }

    /// Calls `preflight`. Returns no checks if the plugin does not implement the call.
    pub(crate) async fn checks(
        &mut self,
        work: &Work<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Vec<PreflightCheck>, Halt> {
        if self.channel.version() < 2 {
            return Ok(vec![]);
        }
        let call = Call::Preflight(self.context(work));
        let preflight: Option<Preflight> =
            self.channel.call_optional(call, Some(CALL_TIMEOUT), work, sink).await?;
        Ok(preflight.unwrap_or_default().checks)
    }

    /// Closes the plugin's input and waits for its exit.
    pub(crate) async fn end(self, sink: &mut dyn Sink) {
        self.channel.close(sink).await;
    }

    /// Returns the parameters of a call. The source of the component is known only after the runner
    /// has fetched it.
    fn context(&self, work: &Work<'_>) -> CallContext {
        CallContext { source_dir: work.source.clone(), ..self.context.clone() }
    }

    /// Returns name and version of the plugin.
    pub(crate) fn tool(&self) -> String {
        format!("{} {}", self.described.name, self.described.version)
    }
}

/// Returns the parameters of every call. From version 2 on, writes large inputs to a file.
fn context(work: &Work<'_>, version: u32) -> Result<CallContext, PluginError> {
    let inputs = &work.manifest.inputs;
    let prepared = match work.job.sandbox {
        Some(_) => work.state.prepare_plugin_dir(),
        None => work.state.plugin_dir_in_use(),
    };
    let prepared = prepared.doing(|| "cannot create the directory of the plugin's state".into())?;
    let mut context = CallContext {
        component: work.name.to_owned(),
        operation: work.operation,
        inputs: None,
        inputs_file: None,
        source_dir: work.source.clone(),
        state_dir: prepared,
        work_dir: work.job.work_dir.clone(),
    };
    let text = serde_json::to_vec(inputs)
        .map_err(std::io::Error::from)
        .doing(|| "cannot serialize the inputs of the component".into())?;
    if version < 2 || text.len() <= INPUTS_LIMIT {
        context.inputs = Some(inputs.clone());
        return Ok(context);
    }
    if text.len() as u64 > FILE_LIMIT {
        return Err(PluginError::Refused(format!(
            "cannot send the inputs to the plugin: they are larger than {FILE_LIMIT} bytes; reduce the inputs of the component"
        )));
    }
    let path = work.job.work_dir.join("inputs.json");
    write_private(&path, &text)?;
    context.inputs_file = Some(FileRef::of(path, &text));
    Ok(context)
}

impl Plugin for External {
    fn describe(&self) -> Description {
        let is_supported =
            |kind: &JobKind| self.described.kinds.iter().any(|word| word == kind.as_str());
        let kinds = JobKind::ALL.into_iter().filter(is_supported).collect();
        Description { name: self.described.name.clone(), kinds }
    }

    async fn health(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
        let call = Call::Health(self.context(work));
        let _nothing: Value = self.channel.call(call, Some(CALL_TIMEOUT), work, sink).await?;
        Ok(())
    }

    async fn preflight(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
        let checks = self.checks(work, sink).await?;
        let lines = |status: CheckStatus| {
            let selected = checks.iter().filter(move |check| check.status == status);
            selected.map(|check| format!("{}: {}", check.check, check.message))
        };
        for line in lines(CheckStatus::Deferred) {
            sink.line(Stream::Runner, format!("deferred check: {line}").as_bytes());
        }
        let failed: Vec<String> = lines(CheckStatus::Failed).collect();
        match failed.is_empty() {
            true => Ok(()),
            false => Err(PluginError::Refused(failed.join("; ")).into()),
        }
    }

    async fn build(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
        let call = Call::Build(self.context(work));
        let value: Value = self.channel.call(call, None, work, sink).await?;
        if self.channel.version() < 2 || value.get("image").is_none() {
            return Ok(());
        }
        let built: Built = serde_json::from_value(value).map_err(|error| {
            PluginError::PluginFailed(format!("its result of build is not valid: {error}"))
        })?;
        self.image = built.image;
        Ok(())
    }

    fn built_image(&self) -> Option<&BuiltImage> {
        self.image.as_ref()
    }

    async fn state(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<StateMark, Halt> {
        let call = Call::State(self.context(work));
        self.channel.call(call, Some(CALL_TIMEOUT), work, sink).await
    }

    async fn plan(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<Planned, Halt> {
        sink.phase("plan");
        let file = work.job.work_dir.join("plan");
        let call = Call::Plan { context: self.context(work), plan_file: file.clone() };
        let mut changes: Changes = self.channel.call(call, None, work, sink).await?;
        if self.channel.version() < 2 {
            changes.details = None;
        }
        let (extra_files, tool) = (BTreeMap::new(), self.tool());
        Ok(Planned { file, extra_files, tool, tool_digest: None, changes })
    }

    async fn apply(
        &mut self,
        work: &Work<'_>,
        plan: &ApprovedPlan,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        sink.phase("apply");
        self.change(work, plan, sink, |context, plan_file, state| Call::Apply {
            context,
            plan_file,
            state,
        })
        .await
    }

    async fn destroy(
        &mut self,
        work: &Work<'_>,
        plan: &ApprovedPlan,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        sink.phase("destroy");
        self.change(work, plan, sink, |context, plan_file, state| Call::Destroy {
            context,
            plan_file,
            state,
        })
        .await
    }

    async fn outputs(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<Outputs, Halt> {
        let call = Call::Outputs(self.context(work));
        let value: OutputValues = self.channel.call(call, Some(CALL_TIMEOUT), work, sink).await?;
        Ok(Outputs { plain: value.outputs, withheld: value.withheld, ..Outputs::default() })
    }
}

impl External {
    async fn change(
        &mut self,
        work: &Work<'_>,
        plan: &ApprovedPlan,
        sink: &mut dyn Sink,
        call: impl FnOnce(CallContext, PathBuf, StateMark) -> Call,
    ) -> Result<(), Halt> {
        if plan.tool != self.tool() {
            let stale = format!("it was made by {}, but this plugin is {}", plan.tool, self.tool());
            return Err(PluginError::PlanStale(stale).into());
        }
        let call = call(self.context(work), plan.file.clone(), plan.state.clone());
        let _nothing: Value = self.channel.call(call, None, work, sink).await?;
        Ok(())
    }
}
