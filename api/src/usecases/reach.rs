//! What a config version would lead to in the installs of its app: the planner's own answer, for each of them.
use std::{collections::BTreeMap, time::Duration};

use app_config::{model::TriggerKind, tree::SANDBOX};
use domain::{
    app::{App as AppState, Published, PublishedComponent},
    digest::Digest,
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
    compose::{config::Config, wanted},
    problem::Problem,
    state::App,
    usecases::{installs, toggles},
};

/// More installs than these are counted, not planned for.
const MOST: u32 = 200;

/// How long to wait for what was written before.
const COURTESY: Duration = Duration::from_secs(2);

/// What of an install would be planned.
#[derive(Debug, Clone)]
pub struct Reached {
    /// Which install.
    pub install: InstallId,
    /// Its name.
    pub name: String,
    /// The config version that it follows now.
    pub config_version: u32,
    /// Whether anything of it was brought.
    pub is_there: bool,
    /// Names and what would be done with them, in that order; or why it cannot follow.
    pub plans: Result<Vec<(String, Operation)>, String>,
    /// Inputs that had another value when it last followed the version.
    pub inputs: Vec<InputDifference>,
}

/// The impact on one install, if its inputs are those of a config version that it followed before, or its own.
pub async fn of_install(
    app: &App,
    install: InstallId,
    inputs_of: Option<u32>,
    config: &Config,
    published: &Published,
) -> Result<Reached, Problem> {
    let mut state = app.engine.load::<Install>(install).await?;
    let version = published.config_version;
    let then = installs::of_version(app, install, version).await.ok();
    let inputs = then.map(|then| installs::differences(&then, &state.inputs)).unwrap_or_default();
    if let Some(version) = inputs_of {
        state.inputs = installs::of_version(app, install, version).await?;
    }
    Ok(Reached {
        install,
        name: state.name.clone(),
        config_version: state.config_version,
        is_there: state.sandbox.is_some() || !state.components.is_empty(),
        plans: plans(config, published, &state)?,
        inputs,
    })
}

/// What every install would have planned, and how many installs were not looked at.
pub async fn reach(
    app: &App,
    of: AppId,
    config: &Config,
    published: &Published,
) -> Result<(Vec<Reached>, u64), Problem> {
    // An install that was made a moment ago is one, too.
    let _ = app.views.wait_for(app.engine.log().position(), COURTESY).await;
    let rows = views::installs::page(&app.pool, Some(of), None, MOST).await?;
    let all = views::installs::counts(&app.pool, [of]).await?.get(&of).copied().unwrap_or_default();
    let more = all.saturating_sub(rows.len() as u64);
    let there = rows.iter().filter(|row| !row.state.deprovisioned);
    let reached = there.map(|row| {
        let state = &row.state;
        Ok(Reached {
            install: row.install,
            name: state.name.clone(),
            config_version: state.config_version,
            is_there: state.sandbox.is_some() || !state.components.is_empty(),
            plans: plans(config, published, state)?,
            inputs: vec![],
        })
    });
    Ok((reached.collect::<Result<_, Problem>>()?, more))
}

type Plans = Result<Vec<(String, Operation)>, String>;

fn plans(config: &Config, published: &Published, install: &Install) -> Result<Plans, Problem> {
    let known = install.inputs.iter().filter(|(name, _)| config.app.input(name).is_some());
    let known: BTreeMap<String, Value> =
        known.map(|(name, text)| (name.clone(), text.clone().into())).collect();
    let inputs = match app_config::choose_inputs(&config.app, &known) {
        Ok(inputs) => inputs,
        Err(problems) => {
            let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Ok(Err(said.join("; ")));
        }
    };
    let (stack, toggles) = (install.stack_outputs(), &install.component_choices());
    if let Some(problem) = toggles::problem(config, toggles) {
        return Ok(Err(problem));
    }
    let given = wanted::Given { inputs: &inputs, stack: &stack, toggles };
    let after = TriggerKind::PostDeployAllComponents;
    let wanted = wanted::wanted(config, published, given, after)?;
    let fresh = || StepId(ulid::Ulid::new());
    let steps = plan::bring(&wanted, &install.present(), &Scope::Reached, fresh)?;
    Ok(Ok(steps.iter().filter_map(named).collect()))
}

fn named(step: &StepSpec) -> Option<(String, Operation)> {
    match &step.target {
        Target::Sandbox { .. } => Some((SANDBOX.to_owned(), step.operation)),
        Target::Component { name, .. } => Some((name.clone(), step.operation)),
        Target::Action { .. } => None,
    }
}

/// What a bundle would be published as. Its builds have not been asked for: a plan looks at what decides a
/// result, and never at them.
pub fn as_published(state: &AppState, config: &Config, bundle: &Digest) -> Published {
    let sandbox = config.app.sandbox.iter().map(|sandbox| (SANDBOX, &sandbox.module));
    let components = config.app.components.iter().map(|one| (one.name.as_str(), &one.module));
    let part = |(name, module): (&str, &app_config::model::Module)| PublishedComponent {
        component: state
            .components
            .get(name)
            .copied()
            .unwrap_or_else(|| ComponentId(ulid::Ulid::new())),
        name: name.to_owned(),
        kind: module.kind.clone(),
        definition: module.digest.clone().unwrap_or_else(|| bundle.clone()),
        build: BuildId(ulid::Ulid::new()),
    };
    Published {
        config_version: state.version() + 1,
        bundle: bundle.clone(),
        components: sandbox.chain(components).map(part).collect(),
    }
}
