//! Renders the manifests of a run's steps.
//!
//! The outer `Err` is an error of the server or the database. The inner `Err` is an error in the
//! vendor's config, such as a template that cannot be rendered.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use app_config::{
    Text,
    model::{ActionStep, RolePurpose, Source, Spec, TriggerKind},
    refs::Reads,
    tree::SANDBOX,
};
use domain::{
    app::{App as AppState, Published},
    artifact::Artifact,
    ids::{BuildId, InstallId, JobId, RunId},
    install::Install,
    job::{Origin, Work},
    run::{Operation, Request, Run, Step, StepPlan, Target},
};
use schemas::{
    cluster::CLUSTER_INPUT,
    manifest::{AcceptedState, ArtifactRef, KnownState, Manifest, PluginRef},
    runner::JobKind,
    secret::{Consumer, SecretReference, action_consumer},
};
use serde_json::{Value, json};

use self::sensitive::SensitiveValues;
use super::{build::PLUGIN_CONTRACT, desired, manifest, plugin, state};
use crate::{
    configs::{Config, published, resolved_inputs},
    execute::UnitOfWork,
    problem::Problem,
    state::App,
};

pub(crate) mod cluster;
mod kubernetes;
mod module;
mod sensitive;

/// Artifacts of a step, by the names of their parts in the config version.
pub(crate) type Artifacts = BTreeMap<String, Artifact>;

/// Rendered job, or a message for the vendor.
pub(crate) type RenderResult = Result<Work, String>;

/// Renders the job that plans a step, or that runs the script of an action.
pub(crate) async fn render_first_job(
    app: &App,
    unit: &mut UnitOfWork,
    run: RunId,
    step: &Step,
    job: JobId,
    artifacts: &Artifacts,
) -> Result<RenderResult, Problem> {
    let context = StepContext::load(app, unit, run, step).await?;
    let kind = match step.spec.operation {
        Operation::Apply | Operation::Destroy | Operation::Check => JobKind::Plan,
        Operation::Execute => JobKind::Action,
    };
    context.work(app, step, job, artifacts, kind, None).await
}

/// Renders the job that applies exactly the approved plan: a sync for an image, otherwise an apply.
pub(crate) async fn render_apply_job(
    app: &App,
    unit: &mut UnitOfWork,
    run: RunId,
    step: &Step,
    job: JobId,
    artifacts: &Artifacts,
    plan: &StepPlan,
) -> Result<RenderResult, Problem> {
    let context = StepContext::load(app, unit, run, step).await?;
    let kind = context.apply_kind(step);
    context.work(app, step, job, artifacts, kind, Some(plan)).await
}

/// Name of the component whose state a step changes.
pub(crate) fn component_of(target: &Target) -> Option<&str> {
    match target {
        Target::Sandbox { .. } => Some(SANDBOX),
        Target::Component { name, .. } => Some(name),
        Target::Action { .. } => None,
    }
}

/// Returns the newest state of the step's component that the log records, and the state that a user
/// accepted. The runner refuses to work with an older state.
fn known_state(install: &Install, step: &Step) -> Option<KnownState> {
    let known = install.states.get(component_of(&step.spec.target)?)?;
    let decision = known.decisions;
    let accepted = known.accepted.clone();
    let accepted = accepted.map(|version| AcceptedState { version, decision });
    Some(KnownState { newest: known.newest.clone(), accepted })
}

/// Inputs of a step's manifest.
pub(super) struct StepContext {
    run: RunId,
    install: InstallId,
    request: Request,
    config: Arc<Config>,
    nuon: Value,
    sensitive: SensitiveValues,
    /// True if the install has the component or sandbox.
    is_provisioned: bool,
    state: Option<KnownState>,
}

impl StepContext {
    pub(super) async fn load(
        app: &App,
        unit: &mut UnitOfWork,
        run: RunId,
        step: &Step,
    ) -> Result<StepContext, Problem> {
        let request = unit.load::<Run>(run).await?.request.clone();
        let request = request.ok_or_else(|| Problem::not_found(run))?;
        let install_id = request.install;
        let install = unit.load::<Install>(install_id).await?.clone();
        let app_id = install.app.ok_or_else(|| Problem::not_found(install_id))?;
        let app_state = unit.load::<AppState>(app_id).await?.clone();
        let version = config_version(&request, &install, step);
        let version = published(&app_state, version)?;
        let config = app.configs.get(&app.pool, version).await?;
        let inputs = resolved_inputs(&config, &install.inputs)?;
        let mut nuon =
            state::template_state((app_id, &app_state), (install_id, &install), &config, &inputs);
        let known = crate::sensitive::of_install(&app.pool, install_id).await?;
        let sensitive = SensitiveValues::mark(&mut nuon, &config.app, known);
        let mut context = StepContext {
            run,
            install: install_id,
            request,
            config,
            nuon,
            sensitive,
            is_provisioned: false,
            state: None,
        };
        context.use_step(&install, step);
        Ok(context)
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Uses the context for another step with the same config version.
    pub(super) fn use_step(&mut self, install: &Install, step: &Step) {
        self.is_provisioned = deployed_version(install, step).is_some();
        self.state = known_state(install, step);
    }

    /// Returns the plugin of a step. `None` if the config does not have its target.
    pub(super) fn plugin_of(&self, step: &Step) -> Option<PluginRef> {
        let app = &self.config.app;
        match &step.spec.target {
            Target::Sandbox { .. } => Some(self.plugin(&app.sandbox.as_ref()?.module.kind)),
            Target::Component { name, .. } => Some(self.plugin(&app.component(name)?.module.kind)),
            Target::Action { name } => app.action(name).map(|_| self.plugin("action")),
        }
    }

    async fn work(
        &self,
        app: &App,
        step: &Step,
        job: JobId,
        artifacts: &Artifacts,
        kind: JobKind,
        plan: Option<&StepPlan>,
    ) -> Result<RenderResult, Problem> {
        let mut parts = match self.parts(step, artifacts) {
            Ok(parts) => parts,
            Err(detail) => return Ok(Err(detail)),
        };
        // Only the artifact of an image has an upstream.
        if let Some(upstream) = artifacts.values().find_map(|built| built.upstream.as_ref()) {
            parts.inputs["upstream"] = json!(upstream);
        }
        let secrets = match self.references(step, kind, &mut parts) {
            Ok(secrets) => secrets,
            Err(detail) => return Ok(Err(detail)),
        };
        let manifest = Manifest {
            version: 1,
            job,
            kind,
            class: kind.class(),
            plugin: parts.plugin,
            artifacts: artifacts.values().map(artifact_ref).collect(),
            inputs: parts.inputs,
            env: parts.env,
            role: parts.role,
            limits: manifest::limits(),
            timeouts: manifest::timeouts(kind.class(), parts.deadline_ms),
            plan: plan.map(|plan| plan.digest.clone()),
            state: self.state.clone(),
            secrets,
        };
        let origin = Origin::Step { install: self.install, run: self.run, step: step.spec.step };
        Ok(Ok(manifest::store(app, &manifest, origin).await?))
    }

    /// Replaces the sensitive values in the parts of a job's manifest by references.
    pub(super) fn references(
        &self,
        step: &Step,
        kind: JobKind,
        parts: &mut ManifestParts,
    ) -> Result<Vec<SecretReference>, String> {
        let component = match &step.spec.target {
            Target::Sandbox { .. } => SANDBOX.to_owned(),
            Target::Component { name, .. } => name.clone(),
            Target::Action { name } => action_consumer(name),
        };
        let job = Consumer { component, job_kind: kind.as_str().to_owned() };
        self.sensitive.references(parts, &job)
    }

    pub(super) fn parts(
        &self,
        step: &Step,
        artifacts: &Artifacts,
    ) -> Result<ManifestParts, String> {
        let operation = step.spec.operation;
        match &step.spec.target {
            Target::Sandbox { .. } => {
                let sandbox = self.config.app.sandbox.as_ref();
                let sandbox = sandbox.ok_or("the config has no sandbox")?;
                self.module(SANDBOX, &sandbox.module, operation)
            }
            Target::Component { name, .. } => match self.config.app.component(name) {
                Some(component) => self.module(name, &component.module, operation),
                None => Err(format!("the config has no component {name}")),
            },
            Target::Action { name } => self.action(name, artifacts),
        }
    }

    /// Returns the kind of the job that applies the step.
    pub(crate) fn apply_kind(&self, step: &Step) -> JobKind {
        let Target::Component { name, .. } = &step.spec.target else { return JobKind::Apply };
        match self.config.app.component(name).map(|component| &component.module.spec) {
            Some(Spec::Image(_)) => JobKind::Sync,
            Some(_) | None => JobKind::Apply,
        }
    }

    fn action(&self, name: &str, artifacts: &Artifacts) -> Result<ManifestParts, String> {
        let action = self.config.app.action(name);
        let action = action.ok_or_else(|| format!("the config has no action {name}"))?;
        let mut steps = vec![];
        for step in &action.steps {
            check_script(step)?;
            let command = step.command.as_ref().map(|text| self.text(text)).transpose()?;
            let inline = step.inline_contents.as_ref().map(|text| self.text(text)).transpose()?;
            let mut rendered = json!({
                "name": step.name,
                "command": command,
                "inline_contents": inline,
                "env_vars": self.texts(&step.env_vars)?,
            });
            if let Some(source) = &step.source {
                let artifact = artifacts.get(&source.scripts_name()).ok_or_else(|| {
                    let name = &step.name;
                    format!("the scripts of step `{name}` are not built; sync the app again")
                })?;
                rendered["artifact"] = json!(artifact.digest);
            }
            steps.push(rendered);
        }
        let trigger = desired::trigger(self.request.kind).unwrap_or(TriggerKind::Manual).name();
        let mut inputs = json!({ "action": name, "trigger": trigger, "steps": steps });
        if let Some(cluster) = self.action_cluster(action)? {
            inputs[CLUSTER_INPUT] = json!(cluster);
        }
        let ruled = self.ruled_role(&format!("nuon::action:{name}"), "trigger");
        let role = match ruled.or(action.role.as_ref()) {
            Some(role) => Some(self.text(role)?),
            None => self.role(RolePurpose::Maintenance)?,
        };
        let plugin = self.plugin("action");
        let mut env = self.runner_env()?;
        env.extend(self.id_variables());
        Ok(ManifestParts { plugin, inputs, env, role, deadline_ms: action.timeout_ms.max(1000) })
    }

    /// Environment variables with ids for scripts, under the prefixes `NUON_` and `STEAD_`.
    /// `NUON_INSTALL_ID` is the id that templates read.
    fn id_variables(&self) -> BTreeMap<String, String> {
        let app = self.nuon["nuon"]["app"]["id"].as_str().unwrap_or_default();
        let ids = [
            ("NUON_INSTALL_ID", state::install_name(self.install)),
            ("STEAD_INSTALL_ID", self.install.to_string()),
            ("NUON_APP_ID", app.to_owned()),
            ("STEAD_APP_ID", app.to_owned()),
        ];
        ids.into_iter().map(|(name, id)| (name.to_owned(), id)).collect()
    }

    fn runner_env(&self) -> Result<BTreeMap<String, String>, String> {
        match &self.config.app.runner {
            Some(runner) => self.texts(&runner.env_vars),
            None => Ok(BTreeMap::new()),
        }
    }

    fn plugin(&self, kind: &str) -> PluginRef {
        if let Some(published) = plugin::published(&self.config.plugins, kind) {
            return published;
        }
        let pinned = self.config.app.plugin(kind);
        PluginRef {
            name: kind.into(),
            version: pinned.map_or_else(|| PLUGIN_CONTRACT.into(), |pin| pin.version.clone()),
            digest: pinned.map(|pin| pin.digest.clone()),
            artifact: None,
        }
    }

    fn role(&self, purpose: RolePurpose) -> Result<Option<String>, String> {
        let role = self.config.app.roles.iter().find(|role| role.purpose == purpose);
        role.map(|role| self.text(&role.name)).transpose()
    }

    fn texts(&self, texts: &BTreeMap<String, Text>) -> Result<BTreeMap<String, String>, String> {
        texts.iter().map(|(name, text)| Ok((name.clone(), self.text(text)?))).collect()
    }

    fn text(&self, text: &Text) -> Result<String, String> {
        let rendered = app_config::template::render_text(text, &self.nuon);
        rendered.map_err(|error| match self.action_not_run(text) {
            Some(action) => {
                let install = self.nuon["nuon"]["name"].as_str().unwrap_or_default();
                format!(
                    "{error}; action {action} has not run: run `stead installs action {install} \
                     {action}`, then deploy again"
                )
            }
            None => error.to_string(),
        })
    }

    /// Returns the first action without outputs that a text reads.
    fn action_not_run(&self, text: &Text) -> Option<String> {
        let workflows = &self.nuon["nuon"]["actions"]["workflows"];
        let mut read = Reads::of([text]).actions.into_iter();
        read.find(|name| workflows[name]["status"] == "pending")
    }
}

/// Rejects a step whose script was not fetched. Without its text the step would do nothing and
/// succeed.
fn check_script(step: &ActionStep) -> Result<(), String> {
    let name = &step.name;
    if step.command.is_none() && step.inline_contents.is_none() {
        return Err(format!(
            "the script of step `{name}` is a remote file that was not fetched; save it in the \
             app directory and refer to it as ./file, or sync with --allow-remote"
        ));
    }
    Ok(())
}

/// Returns a message if no plugin can remove the step's component, although its config is
/// published. The preflight of the run finds a plugin that is missing for an apply.
pub(crate) async fn missing_plugin(
    app: &App,
    unit: &mut UnitOfWork,
    run: RunId,
    step: &Step,
) -> Result<Option<String>, Problem> {
    let name = match &step.spec.target {
        Target::Sandbox { .. } => SANDBOX,
        Target::Component { name, .. } => name.as_str(),
        Target::Action { .. } => return Ok(None),
    };
    let (config, _) = config_of(app, unit, run, step).await?;
    Ok(config.app.lacks_plugin(name))
}

/// Returns the builds of a step's artifacts, by their names in the config version.
pub(crate) async fn builds(
    app: &App,
    unit: &mut UnitOfWork,
    run: RunId,
    step: &Step,
) -> Result<Vec<(String, BuildId)>, Problem> {
    let action = match &step.spec.target {
        Target::Sandbox { build } => return Ok(vec![(SANDBOX.to_owned(), *build)]),
        Target::Component { name, build, .. } => return Ok(vec![(name.clone(), *build)]),
        Target::Action { name } => name,
    };
    let (config, published) = config_of(app, unit, run, step).await?;
    let steps = config.app.action(action).into_iter().flat_map(|action| &action.steps);
    let names: BTreeSet<String> =
        steps.filter_map(|step| step.source.as_ref().map(Source::scripts_name)).collect();
    let parts = published.components.iter().filter(|part| names.contains(&part.name));
    Ok(parts.map(|part| (part.name.clone(), part.build)).collect())
}

/// Returns the config that a step is rendered from, and its published version.
async fn config_of(
    app: &App,
    unit: &mut UnitOfWork,
    run: RunId,
    step: &Step,
) -> Result<(Arc<Config>, Published), Problem> {
    let request = unit.load::<Run>(run).await?.request.clone();
    let request = request.ok_or_else(|| Problem::not_found(run))?;
    let install = unit.load::<Install>(request.install).await?.clone();
    let of = install.app.ok_or_else(|| Problem::not_found(request.install))?;
    let version = config_version(&request, &install, step);
    let version = published(unit.load::<AppState>(of).await?, version)?.clone();
    let config = app.configs.get(&app.pool, &version).await?;
    Ok((config, version))
}

/// Config version that a step is rendered from.
pub(crate) async fn version(
    unit: &mut UnitOfWork,
    run: RunId,
    step: &Step,
) -> Result<u32, Problem> {
    let request = unit.load::<Run>(run).await?.request.clone();
    let request = request.ok_or_else(|| Problem::not_found(run))?;
    let install = unit.load::<Install>(request.install).await?;
    Ok(config_version(&request, install, step))
}

/// Returns the config version of the run, or for a destroy step and for the check of a removed target
/// the version that deployed the target. A later version may lack the component or its inputs.
fn config_version(request: &Request, install: &Install, step: &Step) -> u32 {
    match step.spec.operation {
        Operation::Destroy => deployed_version(install, step).unwrap_or(request.config_version),
        // The config of the run no longer has the target.
        Operation::Check if step.spec.fingerprint.is_none() => {
            deployed_version(install, step).unwrap_or(request.config_version)
        }
        Operation::Apply | Operation::Execute | Operation::Check => request.config_version,
    }
}

/// Config version that last deployed the step's target, even incompletely. `None` if the install
/// does not have the target.
fn deployed_version(install: &Install, step: &Step) -> Option<u32> {
    match &step.spec.target {
        Target::Sandbox { .. } => install.sandbox.as_ref().map(|has| has.config_version),
        Target::Component { name, .. } => install.components.get(name).map(|c| c.config_version),
        Target::Action { .. } => None,
    }
}

/// Returns an artifact as a manifest names it.
pub(super) fn artifact_ref(artifact: &Artifact) -> ArtifactRef {
    ArtifactRef {
        repository: artifact.repository.clone(),
        digest: artifact.digest.clone(),
        size: artifact.size_bytes,
    }
}

/// Parts of a manifest that are rendered from the config.
pub(super) struct ManifestParts {
    pub(super) plugin: PluginRef,
    pub(super) inputs: Value,
    pub(super) env: BTreeMap<String, String>,
    pub(super) role: Option<String>,
    pub(super) deadline_ms: u64,
}

#[cfg(test)]
mod tests;
