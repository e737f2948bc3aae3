//! Plugin `terraform_module`: a component, or the sandbox, that is a Terraform module.
//!
//! ```text
//! build  init -backend=false ─▶ validate -json ─▶ providers lock, unless the module has a lock file
//! plan   sync ─▶ init ─▶ plan -out ─▶ show -json ─▶ redacted summary, plan digest
//! apply  sync ─▶ init ─▶ apply -json <that file> ─▶ output -json
//! ```
//!
//! The tool is terraform or tofu from PATH. Only `init` downloads providers and modules, and uses
//! the customer's CLI configuration. The runner serves the state, and stores it encrypted.

mod details;
mod lock;
mod progress;
mod summary;
mod tool;
mod validate;
mod workspace;

use std::{fs, sync::Arc};

use schemas::runner::JobKind;
use serde::Deserialize;
use serde_json::Value;

use self::{progress::Progress, tool::Tool, workspace::Workspace};
use super::{
    cluster::{OUTPUT as KUBECONFIG_OUTPUT, redact_output},
    contract::{PluginError, Sink, Stream},
    plans::{self, ApprovedPlan},
    plugin::{Changes, Description, Halt, IoContext, Operation, Outputs, Planned, Plugin, Work},
    process::{self, ChildEnd, Input},
};
use crate::state::{Access, Backend, Known, Remote, Session, StateDump, StateMark};

/// Largest output of `show` or `output` in bytes. It is read into memory.
const OUTPUT_LIMIT: usize = 256 << 20;
/// Exit code of `plan -detailed-exitcode` if something would change.
const EXIT_CODE_CHANGES: i32 = 2;

/// Terraform plugin. `health` selects the tool, terraform or tofu.
#[derive(Default)]
pub(crate) struct Terraform {
    tool: Option<Tool>,
    /// State of the component, and the backend that serves it.
    state: Option<(Arc<Session>, Backend)>,
    /// True if the apply was not started, or exited before any operation on a resource began.
    changed_nothing: bool,
}

impl Terraform {
    fn workspace<'w>(&'w self, work: &'w Work<'w>) -> Result<Workspace<'w>, Halt> {
        let missing = || PluginError::ToolMissing(tool::REMEDY.into());
        let backend = self.state.as_ref().map(|(_, backend)| backend);
        Ok(Workspace { work, tool: self.tool.as_ref().ok_or_else(missing)?, backend })
    }
}

/// Finds terraform or tofu for a preflight. Returns its version, and its name with version and path.
pub(super) async fn find_tool(
    work: &Work<'_>,
    requested: Option<&str>,
    sink: &mut dyn Sink,
) -> Result<(String, String), Halt> {
    let tool = tool::find(work, requested, sink).await?;
    let text = format!("{} at {}", tool.name(), tool.path.display());
    Ok((tool.version, text))
}

impl Plugin for Terraform {
    fn describe(&self) -> Description {
        let kinds = vec![JobKind::Build, JobKind::Plan, JobKind::Apply];
        Description { name: "terraform_module".into(), kinds }
    }

    async fn health(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
        let tool = match tool::find(work, work.input("terraform_version"), sink).await {
            // A build packs the module even without a tool, but does not validate it.
            Err(Halt::Error(PluginError::ToolMissing(_)))
                if work.manifest.kind == JobKind::Build =>
            {
                let line = "the module is not validated: neither terraform nor tofu is on the PATH of \
                            this build runner";
                sink.line(Stream::Runner, line.as_bytes());
                return Ok(());
            }
            found => found?,
        };
        sink.line(Stream::Runner, format!("{} at {}", tool.name(), tool.path.display()).as_bytes());
        if let Some(requested) = work.input("terraform_version").filter(|v| *v != tool.version) {
            let line = format!(
                "the app requests version {requested}, but this runner has {}",
                tool.version
            );
            sink.line(Stream::Runner, line.as_bytes());
        }
        self.tool = Some(tool);
        Ok(())
    }

    async fn build(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
        let files = fs::read_dir(&work.source).doing(|| "cannot list the source".into())?;
        let is_module = files.flatten().any(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            name.ends_with(".tf") || name.ends_with(".tf.json") || name.ends_with(".tofu")
        });
        if is_module {
            return match &self.tool {
                Some(tool) => validate::module(work, tool, sink).await,
                None => Ok(()),
            };
        }
        let refusal = format!(
            "cannot build {}: its source has no .tf file at the root; add the module's files, or change the directory of the component",
            work.name
        );
        Err(PluginError::Refused(refusal).into())
    }

    async fn open(&mut self, work: &Work<'_>, _: &mut dyn Sink) -> Result<(), Halt> {
        let job = work.job;
        let keys = job
            .state
            .as_ref()
            .and_then(|state| Some((state.keys.component(work.name)?, state.fence)));
        let (cipher, fence) = keys.ok_or_else(|| {
            PluginError::Refused(format!(
                "cannot run the job: it has no keys for the state of {}",
                work.name
            ))
        })?;
        let registry = &job.registry;
        let (http, background) = (registry.http.clone(), Arc::clone(&job.background));
        let remote = Remote::new(http, &registry.base_url, &registry.token, work.name);
        let (written_by, cancel) = ((job.job, job.execution), job.cancel.clone());
        let access = Access { cipher, fence, written_by, remote, background, cancel };
        let mut has_moved = false;
        let invalidate = || {
            has_moved = true;
            plans::remove_of(&job.plans_dir, work.name)
        };
        let known = Known { own: &job.known_state, log: work.manifest.state.as_ref() };
        let session = Session::open(work.state.clone(), access, known, invalidate).await?;
        let changes = work.manifest.kind == JobKind::Apply;
        if has_moved && changes {
            let why = "its state was moved out of the file of an earlier version";
            return Err(PluginError::PlanStale(why.into()).into());
        }
        let session = Arc::new(session);
        let port = job.state_port.as_ref().ok_or_else(|| {
            PluginError::Refused("cannot run the job: it has no port for its state".into())
        })?;
        let backend = Backend::start(Arc::clone(&session), port, changes);
        let backend = backend.doing(|| "cannot serve the state to Terraform".into())?;
        job.background.secret(backend.password().clone());
        self.state = Some((session, backend));
        Ok(())
    }

    async fn digest(&mut self) -> Option<String> {
        self.state.as_ref()?.0.digest().await
    }

    async fn settle(&mut self) {
        if let Some((session, _)) = &self.state {
            session.settle().await;
        }
    }

    async fn state(&mut self, work: &Work<'_>, _: &mut dyn Sink) -> Result<StateMark, Halt> {
        match &self.state {
            Some((session, _)) => Ok(session.mark().await),
            None => Ok(work.state.mark()?),
        }
    }

    async fn plan(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<Planned, Halt> {
        let workspace = self.workspace(work)?;
        redact_output(work)?;
        workspace.init(sink).await?;
        sink.phase("plan");
        let file = work.job.work_dir.join("tfplan");
        let mut args = vec!["plan".into(), "-input=false".into(), "-no-color".into()];
        args.extend(["-detailed-exitcode".into(), "-lock-timeout=60s".into()]);
        args.push(format!("-out={}", file.display()));
        args.extend(workspace.write_variables()?);
        if work.operation == Operation::Destroy {
            args.push("-destroy".into());
        }
        let spec = workspace.spec(args);
        let ended = process::run(&spec, work, sink, |sink, stream, line| sink.line(stream, line));
        let noop = match ended.await? {
            ChildEnd::Exit(0) => true,
            ChildEnd::Exit(EXIT_CODE_CHANGES) => false,
            ended @ (ChildEnd::Exit(_) | ChildEnd::Signal(_) | ChildEnd::TimedOut) => {
                return Err(ended.into_failure("plan"));
            }
        };
        let plan_json = capture_output(
            &workspace,
            sink,
            vec!["show".into(), "-json".into(), file.display().to_string()],
        );
        let shown = summary::parse(&plan_json.await?)?;
        let details = Some(details::details(&shown));
        let changes = Changes { noop, details, ..summary::summarize(shown) };
        let lock = work.source.join(workspace::LOCK_FILE);
        let extra_files = lock.exists().then(|| (workspace::LOCK_FILE.to_owned(), lock));
        let extra_files = extra_files.into_iter().collect();
        let tool_digest = Some(workspace.tool.digest()?);
        Ok(Planned { file, extra_files, tool: workspace.tool.name(), tool_digest, changes })
    }

    fn uses_state_file(&self) -> bool {
        true
    }

    async fn prepare(
        &mut self,
        work: &Work<'_>,
        plan: &ApprovedPlan,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        let workspace = self.workspace(work)?;
        let tool = workspace.tool.name();
        if plan.tool != tool {
            let stale = format!("it was made by {}, but this runner has {tool}", plan.tool);
            return Err(PluginError::PlanStale(stale).into());
        }
        if let Some(digest) = &plan.tool_digest
            && *digest != workspace.tool.digest()?
        {
            let path = workspace.tool.path.display();
            let stale = format!("the executable {path} has changed since the plan");
            return Err(PluginError::PlanStale(stale).into());
        }
        if let Some(lock) = plan.extra_files.get(workspace::LOCK_FILE) {
            // Use exactly the providers of the plan.
            fs::copy(lock, work.source.join(workspace::LOCK_FILE))
                .doing(|| "cannot restore the dependency lock file".into())?;
        }
        workspace.init(sink).await
    }

    async fn apply(
        &mut self,
        work: &Work<'_>,
        plan: &ApprovedPlan,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        if let Some((session, _)) = &self.state
            && let Err(why) = session.require_unchanged().await
        {
            self.changed_nothing = true;
            return Err(PluginError::PlanStale(why).into());
        }
        let workspace = self.workspace(work)?;
        sink.phase("apply");
        let spec = workspace.spec(vec![
            "apply".into(),
            "-json".into(),
            "-input=false".into(),
            "-lock-timeout=60s".into(),
            plan.file.display().to_string(),
        ]);
        // If the start fails, the program has not run.
        let started = process::spawn(&spec, work, Input::None, sink).await;
        self.changed_nothing = started.is_err();
        let mut progress = Progress::default();
        let mut dump = StateDump::new(&work.state, work.job.execution);
        let ended =
            process::follow(started?, &spec, work, sink, |sink, stream, line| match stream {
                Stream::Out if dump.take(line, line.len() >= process::LINE_LIMIT) => {}
                Stream::Out => progress.line(line, sink),
                Stream::Err | Stream::Runner => sink.line(stream, line),
            });
        let ended = ended.await;
        if let Err(error) = dump.finish() {
            let line = format!("cannot store the state that Terraform printed: {error}");
            sink.line(Stream::Runner, line.as_bytes());
        }
        // A tool that was killed may not have reported every operation that it began.
        let has_exited = matches!(ended, Ok(ChildEnd::Exit(_)));
        // A sandbox can fail before it starts the tool.
        let is_not_started = matches!(ended, Err(Halt::Error(PluginError::SpawnFailed { .. })));
        self.changed_nothing = is_not_started || (has_exited && !progress.has_started());
        ended?.require_success(&progress.with_first_error("apply"))
    }

    fn changed_nothing(&self) -> bool {
        self.changed_nothing
    }

    async fn outputs(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<Outputs, Halt> {
        #[derive(Deserialize)]
        struct Output {
            #[serde(default)]
            sensitive: bool,
            value: Value,
        }
        let workspace = self.workspace(work)?;
        let output =
            capture_output(&workspace, sink, vec!["output".into(), "-json".into()]).await?;
        let output: std::collections::BTreeMap<String, Output> = serde_json::from_slice(&output)
            .map_err(|e| PluginError::PluginFailed(format!("its outputs are not JSON: {e}")))?;
        let mut outputs = Outputs::default();
        for (name, output) in output {
            // Jobs on this host read the kubeconfig from the state.
            if name == KUBECONFIG_OUTPUT {
                outputs.withheld.push(name);
            } else if output.sensitive {
                outputs.sensitive.insert(name, output.value);
            } else {
                outputs.plain.insert(name, output.value);
            }
        }
        Ok(outputs)
    }
}

/// Returns the standard output of a command without logging it.
async fn capture_output(
    workspace: &Workspace<'_>,
    sink: &mut dyn Sink,
    args: Vec<String>,
) -> Result<Vec<u8>, Halt> {
    let what = args.first().cloned().unwrap_or_default();
    let (mut all, mut too_large) = (Vec::new(), false);
    let spec = workspace.spec(args);
    let ended = process::run(&spec, workspace.work, sink, |sink, stream, line| match stream {
        // The output is one JSON value, in which newlines mean nothing.
        Stream::Out if all.len() + line.len() <= OUTPUT_LIMIT => all.extend_from_slice(line),
        Stream::Out => too_large = true,
        Stream::Err | Stream::Runner => sink.line(stream, line),
    });
    ended.await?.require_success(&what)?;
    if too_large {
        let refusal = format!("the output of {what} is larger than {OUTPUT_LIMIT} bytes");
        return Err(PluginError::PluginFailed(refusal).into());
    }
    Ok(all)
}
