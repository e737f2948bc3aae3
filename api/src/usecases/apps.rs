//! Publishes bundles as config versions: defines their components and requests builds of changed
//! sources.
use std::{collections::BTreeMap, sync::Arc};

use app_config::{
    Tree,
    model::{ACTION_SCRIPTS, HelmChart, Module, Spec},
    tree::{File, SANDBOX},
};
use domain::{
    app::{App as AppState, AppCommand, Published, PublishedComponent},
    build::{Build, BuildCommand, BuildRequest, BuildSource, State as BuildState},
    component::{Component, ComponentCommand, Definition},
    digest::Digest,
    ids::{AppId, BuildId, ComponentId},
    name::{Name, NameCommand},
    plugin::PinnedPlugin,
};
use futures::FutureExt as _;

use super::{
    impact::{self, InstallImpact},
    plugins,
};
use crate::{
    configs::{self, Config},
    execute::{Call, Done, UnitOfWork},
    ids,
    problem::{Code, Problem},
    state::App,
};

/// File that names a chart in a chart repository.
const HELM_REPO: &str = "helm-repo.json";

/// Result of a sync or a dry run.
#[derive(Debug, Clone)]
pub(crate) struct SyncResult {
    /// App. `None` if a dry run used the name of an app that does not exist.
    pub app: Option<AppId>,
    /// Config version of the bundle. For a dry run, the version that a sync would create.
    pub version: u32,
    pub bundle: Digest,
    /// True if the newest version already has this bundle.
    pub unchanged: bool,
    /// Requested builds by component.
    pub builds: Vec<(String, BuildId)>,
    /// Config of the previous version, or of the version that a dry run compares with.
    pub before: Option<Arc<Config>>,
    /// Number of the version whose config is in `before`.
    pub before_version: Option<u32>,
    pub config: Arc<Config>,
    /// Impact of a dry run on installs, and the number of installs that were not planned.
    pub impact: (Vec<InstallImpact>, u64),
}

/// Publication of a bundle, or its comparison with a published version.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SyncOptions {
    Publish {
        /// True to publish an unchanged bundle with git references again.
        resolve: bool,
    },
    /// Compares the bundle with the given version, or with the newest version, and changes nothing.
    DryRun { against: Option<u32> },
}

/// Publishes a bundle, given as an uncompressed tar archive, for the app with this name.
pub(crate) async fn sync(
    app: &App,
    call: &Call,
    name: &str,
    tar: Vec<u8>,
    options: SyncOptions,
) -> Result<Done<SyncResult>, Problem> {
    if !domain::name::is_valid(name) {
        let detail = format!(
            "{name:?} is not a valid app name: use lower-case letters, digits, - and _, at most \
             {} characters",
            domain::name::MAX_LENGTH
        );
        return Err(Problem::new(Code::Invalid, detail));
    }
    let bundle = event_log::blob::digest(&tar).map_err(Problem::internal)?;
    let plugins = plugins::resolve(app, name, &bundle, configs::plugin_types(&tar)?).await?;
    let config = Arc::new(configs::read(&tar, plugins)?);
    if let SyncOptions::DryRun { against } = options {
        let value = dry_run(app, name, config, bundle, against).await?;
        return Ok(Done { value, position: app.engine.log().position(), events: 0 });
    }
    // Blobs must exist before the event that refers to them.
    event_log::blob::put(&app.pool, &tar).await?;
    let resolve = match options {
        SyncOptions::Publish { resolve } => resolve,
        SyncOptions::DryRun { .. } => false,
    };
    for (_, source) in sources(&config)? {
        if let Some(tar) = source.tar {
            event_log::blob::put(&app.pool, &tar).await?;
        }
    }
    let (owned, engine, name) = (app.clone(), app.engine.clone(), name.to_string());
    engine
        .transact(call, move |unit| {
            let (app, name) = (owned.clone(), name.clone());
            let (config, bundle) = (config.clone(), bundle.clone());
            async move { publish(&app, unit, &name, (config, bundle), resolve).await }.boxed()
        })
        .await
}

/// Result that a sync would have.
async fn dry_run(
    app: &App,
    name: &str,
    config: Arc<Config>,
    bundle: Digest,
    against: Option<u32>,
) -> Result<SyncResult, Problem> {
    let mut plan = SyncPlan::load(app, name).await?;
    let mut synced = plan.preview_sync(app, config.clone(), bundle.clone()).await?;
    if let Some(against) = against {
        let older = configs::published(&plan.state, against)?;
        synced.before = Some(app.configs.get(&app.pool, older).await?);
        synced.before_version = Some(against);
    }
    if let Some(id) = plan.id {
        let published = impact::preview_version(&plan.state, &config, &bundle);
        synced.impact = impact::impact(app, id, &config, &published).await?;
    }
    Ok(synced)
}

/// Resolves the name or id of an app.
pub(crate) async fn find(app: &App, name: &str) -> Result<AppId, Problem> {
    if let Ok(id) = name.parse::<AppId>() {
        return Ok(id);
    }
    let reservation = app.engine.load::<Name>(domain::name::stream("app", name)).await?;
    let owner = reservation.owner.and_then(|owner| owner.parse().ok());
    owner.ok_or_else(|| Problem::not_found(format!("the app {name:?}")))
}

struct SyncPlan {
    id: Option<AppId>,
    state: AppState,
}

impl SyncPlan {
    async fn load(app: &App, name: &str) -> Result<SyncPlan, Problem> {
        let reservation = app.engine.load::<Name>(domain::name::stream("app", name)).await?;
        let id: Option<AppId> = reservation.owner.and_then(|owner| owner.parse().ok());
        let state = match id {
            Some(id) => app.engine.load::<AppState>(id).await?,
            None => AppState::default(),
        };
        Ok(SyncPlan { id, state })
    }

    async fn preview_sync(
        &mut self,
        app: &App,
        config: Arc<Config>,
        bundle: Digest,
    ) -> Result<SyncResult, Problem> {
        let latest = self.state.latest();
        let unchanged = latest
            .is_some_and(|latest| latest.bundle == bundle && latest.plugins == config.plugins);
        let before = match latest {
            Some(latest) => Some(app.configs.get(&app.pool, latest).await?),
            None => None,
        };
        Ok(SyncResult {
            app: self.id,
            version: self.state.version() + u32::from(!unchanged),
            bundle,
            unchanged,
            builds: vec![],
            before,
            before_version: latest.map(|latest| latest.config_version),
            config,
            impact: (vec![], 0),
        })
    }
}

async fn publish(
    app: &App,
    unit: &mut UnitOfWork,
    name: &str,
    (config, bundle): (Arc<Config>, Digest),
    resolve: bool,
) -> Result<SyncResult, Problem> {
    let stream = domain::name::stream("app", name);
    let owner_id = unit.load::<Name>(&stream).await?.owner.clone();
    let id: AppId = match owner_id.and_then(|owner| owner.parse().ok()) {
        Some(id) => id,
        None => {
            let id = AppId(ids::new_ulid());
            let take = NameCommand::Take { owner: id.to_string() };
            unit.handle::<Name>(&stream, take).await?;
            unit.create::<AppState>(id, AppCommand::Create { name: name.into() }).await?;
            id
        }
    };
    let state = unit.load::<AppState>(id).await?.clone();
    let mut plan = SyncPlan { id: Some(id), state };
    let mut synced = plan.preview_sync(app, config.clone(), bundle.clone()).await?;
    if synced.unchanged {
        let mut newest = plan.state.latest().into_iter().flat_map(|newest| &newest.components);
        if !resolve || !newest.any(|component| component.git.is_some()) {
            return Ok(synced);
        }
        synced.unchanged = false;
        synced.version += 1;
    }
    let (version, before) = (synced.version, plan.state.latest().cloned());
    let mut components = vec![];
    for (name, source) in sources(&config)? {
        let plugin = config.plugins.iter().find(|plugin| plugin.name == source.kind);
        let source = (source, plugin);
        let defined =
            define_component(unit, id, &plan.state, before.as_ref(), version, &name, source)
                .await?;
        if defined.is_new_build {
            synced.builds.push((name, defined.published.build));
        }
        components.push(defined.published);
    }
    for removed in before.iter().flat_map(|before| &before.components) {
        if !components.iter().any(|component| component.name == removed.name) {
            let retire = ComponentCommand::Retire { config_version: version };
            unit.handle::<Component>(removed.component, retire).await?;
        }
    }
    let plugins = config.plugins.clone();
    unit.handle::<AppState>(id, AppCommand::Publish { bundle, components, plugins }).await?;
    Ok(synced)
}

struct DefinedComponent {
    published: PublishedComponent,
    is_new_build: bool,
}

/// Defines or changes one component of the new version. Requests a build if the component is new,
/// its source, kind or plugin changed, or its last build failed.
async fn define_component(
    unit: &mut UnitOfWork,
    app: AppId,
    state: &AppState,
    before: Option<&Published>,
    config_version: u32,
    name: &str,
    (source, plugin): (ComponentSource, Option<&PinnedPlugin>),
) -> Result<DefinedComponent, Problem> {
    let known = state.components.get(name).copied();
    let ComponentSource { kind, definition, source, is_kustomization, .. } = source;
    let publish = ComponentCommand::Publish(Definition {
        app,
        name: name.into(),
        kind: kind.clone(),
        definition: definition.clone(),
        config_version,
    });
    let component = match known {
        Some(component) => {
            unit.handle::<Component>(component, publish).await?;
            component
        }
        None => {
            let component = ComponentId(ids::new_ulid());
            unit.create::<Component>(component, publish).await?;
            component
        }
    };
    let earlier = before
        .and_then(|before| before.components.iter().find(|part| part.name == name))
        // The build of a kustomization also checks its settings.
        .filter(|part| !is_kustomization || part.definition == definition)
        .map(|part| part.build);
    let git = match &source {
        BuildSource::Bundle { .. } | BuildSource::Image(_) => None,
        BuildSource::Git(git) => Some(git.clone()),
    };
    let mut reused = None;
    // Each version resolves its git references itself, so it needs its own builds. A build of the
    // same commit uses the earlier artifact.
    if let Some(build) = earlier.filter(|_| git.is_none()) {
        let build_state = unit.load::<Build>(build).await?;
        let same = build_state
            .request
            .as_ref()
            .is_some_and(|order| order.source == source && order.kind == kind);
        let failed = matches!(build_state.state, BuildState::Failed { .. });
        let has_same_plugin = before.and_then(|before| before.plugin(&kind)) == plugin;
        reused = (same && !failed && has_same_plugin).then_some(build);
    }
    let build = match reused {
        Some(build) => build,
        None => {
            let build = BuildId(ids::new_ulid());
            let order = BuildRequest {
                app,
                component,
                component_name: name.into(),
                config_version,
                source,
                kind: kind.clone(),
            };
            unit.create::<Build>(build, BuildCommand::Request(order)).await?;
            build
        }
    };
    let (name, commit) = (name.into(), None);
    let published = PublishedComponent { component, name, kind, definition, build, git, commit };
    Ok(DefinedComponent { published, is_new_build: reused.is_none() })
}

struct ComponentSource {
    kind: String,
    definition: Digest,
    source: BuildSource,
    /// Archive of the source. `None` for a git source and for an image.
    tar: Option<Vec<u8>>,
    is_kustomization: bool,
}

/// Sources of the components of a bundle, including the sandbox, and of the scripts of its actions.
fn sources(config: &Config) -> Result<BTreeMap<String, ComponentSource>, Problem> {
    let sandbox = config.app.sandbox.iter().map(|s| (SANDBOX, &s.module));
    let components = config.app.components.iter().map(|c| (c.name.as_str(), &c.module));
    let mut sources = BTreeMap::new();
    for (name, module) in sandbox.chain(components) {
        let tar = source_tree(config, name, module)?.encode().map_err(Problem::internal)?;
        let digest = event_log::blob::digest(&tar).map_err(Problem::internal)?;
        let definition = module.digest.clone().unwrap_or_else(|| digest.clone());
        let (source, tar) = match (&module.git, &module.spec) {
            (_, Spec::Image(image)) => {
                let invalid = || Problem::internal(format!("the image of {name} is not valid"));
                (BuildSource::Image(image.source().ok_or_else(invalid)?), None)
            }
            (Some(git), _) => (BuildSource::Git(git.clone()), None),
            (None, _) => (BuildSource::Bundle { digest }, Some(tar)),
        };
        let kind = module.kind.clone();
        let is_kustomization = module.spec.kustomize().is_some();
        let part = ComponentSource { kind, definition, source, tar, is_kustomization };
        sources.insert(name.to_string(), part);
    }
    for scripts in &config.app.scripts {
        let tar = config.tree.source(&scripts.name).encode().map_err(Problem::internal)?;
        let digest = event_log::blob::digest(&tar).map_err(Problem::internal)?;
        let definition = scripts.digest.clone().unwrap_or_else(|| digest.clone());
        let (source, tar) = match &scripts.git {
            Some(git) => (BuildSource::Git(git.clone()), None),
            None => (BuildSource::Bundle { digest }, Some(tar)),
        };
        let kind = ACTION_SCRIPTS.to_owned();
        let is_kustomization = false;
        let part = ComponentSource { kind, definition, source, tar, is_kustomization };
        sources.insert(scripts.name.clone(), part);
    }
    Ok(sources)
}

/// Source of a component in the bundle. The source of a chart in a chart repository is a file that
/// names the chart. So another version of the chart is another source.
fn source_tree(config: &Config, name: &str, module: &Module) -> Result<Tree, Problem> {
    let Spec::HelmChart(HelmChart { helm_repo: Some(repo), .. }) = &module.spec else {
        return Ok(config.tree.source(name));
    };
    let bytes = serde_json::to_vec(repo).map_err(Problem::internal)?;
    let mut tree = Tree::default();
    tree.insert(HELM_REPO, File { bytes, executable: false }).map_err(Problem::internal)?;
    Ok(tree)
}
