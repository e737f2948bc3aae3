//! A component type that the runner learns: an executable `stead-plugin-<name>` that speaks JSON lines.
//! `docs/plugins.md` is the specification; this is the runner's end of it.
//!
//! The executable is copied out of the plugin directory while its digest is computed, and the copy is what
//! is executed: what was checked is what runs.

mod channel;
mod executable;
mod protocol;

use std::{collections::BTreeMap, time::Duration};

use schemas::runner::JobKind;

use self::{
    channel::Channel,
    protocol::{Call, Described, Given, OutputsValue, PROTOCOL, PlanValue},
};
use super::{
    contract::{PluginError, Sink, Stream},
    plans::Approved,
    plugin::{Description, Halt, Outputs, Planned, Plugin, Work},
};
use crate::state::StateMark;

/// How long a plugin may take to say who it is.
const DESCRIBE: Duration = Duration::from_secs(10);
/// How long for a question whose answer needs no work.
const ASK: Duration = Duration::from_secs(60);

/// A plugin that runs.
pub(crate) struct External {
    channel: Channel,
    described: Described,
}

impl External {
    /// Check its digest, start it, and let it say who it is.
    pub(crate) async fn start(work: &Work<'_>, sink: &mut dyn Sink) -> Result<Self, Halt> {
        let program = executable::checked(work)?;
        let mut channel = Channel::open(program, work, sink).await?;
        let wanted = &work.manifest.plugin;
        let call = Call::Describe { protocol: PROTOCOL };
        let described: Described = channel.ask(call, Some(DESCRIBE), work, sink).await?;
        if described.protocol != PROTOCOL {
            let spoken = described.protocol;
            let failed = format!("it speaks protocol {spoken}, this runner speaks {PROTOCOL}");
            return Err(PluginError::PluginFailed(failed).into());
        }
        if described.name != wanted.name {
            let (found, wanted) = (&described.name, &wanted.name);
            let refusal = format!("it says that it is {found}, the manifest wants {wanted}");
            return Err(PluginError::Refused(refusal).into());
        }
        // The digest says which executable it is; the version is for people.
        let told = format!("{} {}", described.name, described.version);
        sink.line(Stream::Runner, told.as_bytes());
        Ok(External { channel, described })
    }

    /// Close its input and see it end.
    pub(crate) async fn end(self, sink: &mut dyn Sink) {
        self.channel.close(sink).await;
    }

    fn tool(&self) -> String {
        format!("{} {}", self.described.name, self.described.version)
    }
}

impl Plugin for External {
    fn describe(&self) -> Description {
        let does = |kind: &JobKind| self.described.kinds.iter().any(|word| word == kind.as_str());
        let kinds = JobKind::ALL.into_iter().filter(does).collect();
        Description { name: self.described.name.clone(), kinds }
    }

    async fn health(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
        let _nothing: serde_json::Value =
            self.channel.ask(Call::Health(Given::of(work)), Some(ASK), work, sink).await?;
        Ok(())
    }

    async fn build(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
        let _nothing: serde_json::Value =
            self.channel.ask(Call::Build(Given::of(work)), None, work, sink).await?;
        Ok(())
    }

    async fn state(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<StateMark, Halt> {
        self.channel.ask(Call::State(Given::of(work)), Some(ASK), work, sink).await
    }

    async fn plan(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<Planned, Halt> {
        sink.phase("plan");
        let file = work.job.work_dir.join("plan");
        let call = Call::Plan { given: Given::of(work), plan_file: file.clone() };
        let value: PlanValue = self.channel.ask(call, None, work, sink).await?;
        let (beside, tool) = (BTreeMap::new(), self.tool());
        Ok(Planned { file, beside, tool, changes: value.changes })
    }

    async fn apply(
        &mut self,
        work: &Work<'_>,
        plan: &Approved,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        sink.phase("apply");
        self.change(work, plan, sink, |given, plan_file, state| Call::Apply {
            given,
            plan_file,
            state,
        })
        .await
    }

    async fn destroy(
        &mut self,
        work: &Work<'_>,
        plan: &Approved,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        sink.phase("destroy");
        self.change(work, plan, sink, |given, plan_file, state| Call::Destroy {
            given,
            plan_file,
            state,
        })
        .await
    }

    async fn outputs(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<Outputs, Halt> {
        let value: OutputsValue =
            self.channel.ask(Call::Outputs(Given::of(work)), Some(ASK), work, sink).await?;
        Ok(Outputs { plain: value.outputs, withheld: value.withheld })
    }
}

impl External {
    async fn change<'w>(
        &mut self,
        work: &'w Work<'w>,
        plan: &Approved,
        sink: &mut dyn Sink,
        call: impl FnOnce(Given<'w>, std::path::PathBuf, StateMark) -> Call<'w>,
    ) -> Result<(), Halt> {
        if plan.tool != self.tool() {
            let stale = format!("it was made by {}, and this is {}", plan.tool, self.tool());
            return Err(PluginError::PlanStale(stale).into());
        }
        let call = call(Given::of(work), plan.file.clone(), plan.state.clone());
        let _nothing: serde_json::Value = self.channel.ask(call, None, work, sink).await?;
        Ok(())
    }
}
