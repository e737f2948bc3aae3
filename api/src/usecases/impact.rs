//! Impact of a config version: runs the planner for each install of the app.
use std::{collections::BTreeMap, time::Duration};

use app_config::{
    model::{ACTION_SCRIPTS, TriggerKind},
    tree::SANDBOX,
};
use domain::{
    app::{App as AppState, Published, PublishedComponent},
    digest::Digest,
    git::GitSource,
    ids::{AppId, BuildId, ComponentId, InstallId, StepId},
    install::Install,
    run::{
        Operation, StepSpec, Target,
        plan::{self, Scope},
    },
};
use projections::views;
use schemas::control::apps::InputDifference;
use serde_json::Value;

use crate::{
    configs::Config,
    ids,
    problem::Problem,
    render::desired,
    state::App,
    usecases::{installs, toggles},
};

/// Maximum number of planned installs. Further installs are only counted.
const MAX_INSTALLS: u32 = 200;

/// Timeout for the projections to process recent events.
const PROJECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// Planned changes of one install.
#[derive(Debug, Clone)]
pub(crate) struct InstallImpact {
    pub install: InstallId,
    pub name: String,
    /// Config version that the install follows now.
    pub config_version: u32,
    /// True if anything of the install is provisioned.
    pub is_provisioned: bool,
    /// Planned operations in order, by component. An error explains why the install cannot use the
    /// version.
    pub plans: Result<Vec<(String, Operation)>, String>,
    /// Inputs whose value changed since the install last followed the planned version. Computed
    /// only for a single install.
    pub inputs: Vec<InputDifference>,
}

/// Impact on one install. `inputs_of` selects the inputs that the install had at an earlier config
/// version; `None` selects the current inputs.
pub(crate) async fn of_install(
    app: &App,
    install: InstallId,
    inputs_of: Option<u32>,
    config: &Config,
    published: &Published,
) -> Result<InstallImpact, Problem> {
    let mut state = app.engine.load::<Install>(install).await?;
    let version = published.config_version;
    let then = installs::of_version(app, install, version).await.ok();
    let inputs = then.map(|then| installs::differences(&then, &state.inputs)).unwrap_or_default();
    if let Some(version) = inputs_of {
        state.inputs = installs::of_version(app, install, version).await?;
    }
    Ok(InstallImpact {
        install,
        name: state.name.clone(),
        config_version: state.config_version,
        is_provisioned: state.sandbox.is_some() || !state.components.is_empty(),
        plans: plans(config, published, &state)?,
        inputs,
    })
}

/// Impact on the first [`MAX_INSTALLS`] installs, except deprovisioned ones. Also returns the
/// number of further installs.
pub(crate) async fn impact(
    app: &App,
    of: AppId,
    config: &Config,
    published: &Published,
) -> Result<(Vec<InstallImpact>, u64), Problem> {
    // Waits for the projections, so that they include installs that were just created.
    let _ = app.projections.wait_for(app.engine.log().position(), PROJECTION_TIMEOUT).await;
    let filter = views::installs::Filter { app: Some(of), ..Default::default() };
    let rows = views::installs::page(&app.pool, &filter, None, MAX_INSTALLS).await?;
    let all = views::installs::counts(&app.pool, [of]).await?.get(&of).copied().unwrap_or_default();
    let more = all.saturating_sub(rows.len() as u64);
    let deployed = rows.iter().filter(|row| !row.state.deprovisioned);
    let reached = deployed.map(|row| {
        let state = &row.state;
        Ok(InstallImpact {
            install: row.install,
            name: state.name.clone(),
            config_version: state.config_version,
            is_provisioned: state.sandbox.is_some() || !state.components.is_empty(),
            plans: plans(config, published, state)?,
            inputs: vec![],
        })
    });
    Ok((reached.collect::<Result<_, Problem>>()?, more))
}

type Plans = Result<Vec<(String, Operation)>, String>;

fn plans(config: &Config, published: &Published, install: &Install) -> Result<Plans, Problem> {
    let known = install.inputs.iter().filter(|(name, _)| config.app.install_value(name).is_some());
    let known: BTreeMap<String, Value> =
        known.map(|(name, text)| (name.clone(), text.clone().into())).collect();
    let inputs = match app_config::resolve_inputs(&config.app, &known) {
        Ok(inputs) => inputs,
        Err(problems) => {
            let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Ok(Err(messages.join("; ")));
        }
    };
    let (stack, toggles) = (install.stack_outputs(), &install.component_choices());
    if let Some(problem) = toggles::problem(config, toggles) {
        return Ok(Err(problem));
    }
    let values = desired::InstallValues { inputs: &inputs, stack: &stack, toggles };
    let after = TriggerKind::PostDeployAllComponents;
    let desired_steps = desired::desired_state(config, published, values, after)?;
    let fresh = || StepId(ids::new_ulid());
    let steps = plan::plan_deploy(&desired_steps, &install.actual_state(), &Scope::Changed, fresh)?;
    Ok(Ok(steps.iter().filter_map(planned_operation).collect()))
}

fn planned_operation(step: &StepSpec) -> Option<(String, Operation)> {
    match &step.target {
        Target::Sandbox { .. } => Some((SANDBOX.to_owned(), step.operation)),
        Target::Component { name, .. } => Some((name.clone(), step.operation)),
        Target::Action { .. } => None,
    }
}

/// Returns the commit to which the newest version resolved a reference.
fn newest_commit(state: &AppState, git: &GitSource) -> Option<String> {
    let mut components = state.latest().into_iter().flat_map(|newest| &newest.components);
    let is_same =
        |one: &&PublishedComponent| one.git.as_ref().is_some_and(|of| of.target() == git.target());
    components.find(is_same)?.commit.clone()
}

/// Config version that publishing this bundle would create. Its builds do not exist, and the
/// planner ignores builds. Assumes that no branch has moved since the newest version.
pub(crate) fn preview_version(state: &AppState, config: &Config, bundle: &Digest) -> Published {
    let sandbox = config.app.sandbox.iter().map(|sandbox| (SANDBOX, &sandbox.module));
    let components = config.app.components.iter().map(|one| (one.name.as_str(), &one.module));
    let modules = sandbox
        .chain(components)
        .map(|(name, module)| (name, module.kind.as_str(), &module.digest, &module.git));
    let scripts = config.app.scripts.iter();
    let scripts = scripts.map(|one| (one.name.as_str(), ACTION_SCRIPTS, &one.digest, &one.git));
    let part = |(name, kind, digest, git): (&str, &str, &Option<Digest>, &Option<GitSource>)| {
        let known = state.components.get(name).copied();
        PublishedComponent {
            component: known.unwrap_or_else(|| ComponentId(ids::new_ulid())),
            name: name.to_owned(),
            kind: kind.to_owned(),
            definition: digest.clone().unwrap_or_else(|| bundle.clone()),
            build: BuildId(ids::new_ulid()),
            git: git.clone(),
            commit: git.as_ref().and_then(|git| newest_commit(state, git)),
        }
    };
    Published {
        config_version: state.version() + 1,
        bundle: bundle.clone(),
        components: modules.chain(scripts).map(part).collect(),
        plugins: config.plugins.clone(),
    }
}
