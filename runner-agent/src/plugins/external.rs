//! External plugins: an executable `stead-plugin-<name>` that exchanges JSON lines with the runner.
//! `docs/plugins.md` specifies the protocol. This module is the runner's side.
//!
//! The executable is copied from the plugin directory while its digest is computed, and the copy is
//! executed. So the bytes that were checked are the bytes that run.

mod channel;
mod executable;
mod protocol;

use std::{collections::BTreeMap, time::Duration};

use schemas::runner::JobKind;

use self::{
    channel::Channel,
    protocol::{Call, CallContext, Described, OutputsValue, PROTOCOL, PlanValue},
};
use super::{
    contract::{PluginError, Sink, Stream},
    plans::ApprovedPlan,
    plugin::{Description, Halt, Outputs, Planned, Plugin, Work},
};
use crate::state::StateMark;

const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of `health`, `state` and `outputs`.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Running plugin executable.
pub(crate) struct External {
    channel: Channel,
    described: Described,
}

impl External {
    /// Checks the digest, starts the plugin and reads its description.
    pub(crate) async fn start(work: &Work<'_>, sink: &mut dyn Sink) -> Result<Self, Halt> {
        let program = executable::verified_copy(work)?;
        let mut channel = Channel::open(program, work, sink).await?;
        let required = &work.manifest.plugin;
        let call = Call::Describe { protocol: PROTOCOL };
        let described: Described = channel.call(call, Some(DESCRIBE_TIMEOUT), work, sink).await?;
        if described.protocol != PROTOCOL {
            let version = described.protocol;
            let failed = format!(
                "it uses protocol {version}, but this runner uses {PROTOCOL}; install a matching version of the plugin"
            );
            return Err(PluginError::PluginFailed(failed).into());
        }
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
        Ok(External { channel, described })
    }

    /// Closes the plugin's input and waits for its exit.
    pub(crate) async fn end(self, sink: &mut dyn Sink) {
        self.channel.close(sink).await;
    }

    fn tool(&self) -> String {
        format!("{} {}", self.described.name, self.described.version)
    }
}

impl Plugin for External {
    fn describe(&self) -> Description {
        let is_supported =
            |kind: &JobKind| self.described.kinds.iter().any(|word| word == kind.as_str());
        let kinds = JobKind::ALL.into_iter().filter(is_supported).collect();
        Description { name: self.described.name.clone(), kinds }
    }

    async fn health(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
        let _nothing: serde_json::Value = self
            .channel
            .call(Call::Health(CallContext::of(work)), Some(CALL_TIMEOUT), work, sink)
            .await?;
        Ok(())
    }

    async fn build(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
        let _nothing: serde_json::Value =
            self.channel.call(Call::Build(CallContext::of(work)), None, work, sink).await?;
        Ok(())
    }

    async fn state(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<StateMark, Halt> {
        self.channel.call(Call::State(CallContext::of(work)), Some(CALL_TIMEOUT), work, sink).await
    }

    async fn plan(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<Planned, Halt> {
        sink.phase("plan");
        let file = work.job.work_dir.join("plan");
        let call = Call::Plan { context: CallContext::of(work), plan_file: file.clone() };
        let value: PlanValue = self.channel.call(call, None, work, sink).await?;
        let (extra_files, tool) = (BTreeMap::new(), self.tool());
        Ok(Planned { file, extra_files, tool, changes: value.changes })
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
        let value: OutputsValue = self
            .channel
            .call(Call::Outputs(CallContext::of(work)), Some(CALL_TIMEOUT), work, sink)
            .await?;
        Ok(Outputs { plain: value.outputs, withheld: value.withheld })
    }
}

impl External {
    async fn change<'w>(
        &mut self,
        work: &'w Work<'w>,
        plan: &ApprovedPlan,
        sink: &mut dyn Sink,
        call: impl FnOnce(CallContext<'w>, std::path::PathBuf, StateMark) -> Call<'w>,
    ) -> Result<(), Halt> {
        if plan.tool != self.tool() {
            let stale = format!("it was made by {}, but this plugin is {}", plan.tool, self.tool());
            return Err(PluginError::PlanStale(stale).into());
        }
        let call = call(CallContext::of(work), plan.file.clone(), plan.state.clone());
        let _nothing: serde_json::Value = self.channel.call(call, None, work, sink).await?;
        Ok(())
    }
}
