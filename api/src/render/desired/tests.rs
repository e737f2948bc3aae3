//! On real app directories, a changed input plans its readers and their dependents, and nothing
//! else.
use std::{fs, path::Path};

use app_config::{
    File, Reading, Text, Tree,
    model::{AppConfig, KubernetesContext, Spec},
};
use domain::{
    ids::{BuildId, ComponentId, StepId},
    run::plan::{ActualComponent, ActualState, Scope, StaleOutputs, plan_deploy},
};
use ulid::Ulid;

use super::*;

/// Adds all files below a directory; follows links.
fn tree(top: &Path, below: &str, tree: &mut Tree) {
    for entry in fs::read_dir(top).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            self::tree(&entry.path(), &format!("{path}/"), tree);
        } else if let Ok(bytes) = fs::read(entry.path()) {
            tree.insert(&path, File { bytes, executable: false }).unwrap();
        }
    }
}

fn published(app: &AppConfig) -> Published {
    let digest = event_log::blob::digest(b"x").unwrap();
    let names = app.components.iter().map(|component| component.name.clone());
    let parts = names.chain(app.sandbox.iter().map(|_| SANDBOX.to_string())).enumerate();
    let components = parts.map(|(at, name)| PublishedComponent {
        component: ComponentId(Ulid(at as u128)),
        kind: "terraform_module".into(),
        definition: digest.clone(),
        build: BuildId(Ulid(at as u128)),
        git: None,
        commit: None,
        name,
    });
    let (bundle, components) = (digest.clone(), components.collect());
    Published { config_version: 1, bundle, components, plugins: vec![] }
}

/// Actual state after a deploy of the desired state.
fn deployed(desired: &DesiredState) -> ActualState {
    let component = |(name, c): (&String, &DesiredComponent)| {
        let (fingerprint, depends_on) = (c.fingerprint.clone(), c.depends_on.clone());
        (
            name.clone(),
            ActualComponent {
                component: c.component,
                build: c.build,
                fingerprint: Some(fingerprint),
                depends_on,
                stale_outputs: StaleOutputs::default(),
            },
        )
    };
    ActualState {
        sandbox: desired
            .sandbox
            .as_ref()
            .map(|sandbox| (sandbox.build, Some(sandbox.fingerprint.clone()))),
        components: desired.components.iter().map(component).collect(),
    }
}

fn planned(desired: &DesiredState, present: &ActualState) -> BTreeSet<String> {
    let mut last = 0;
    let steps = plan_deploy(desired, present, &Scope::Changed, || {
        last += 1;
        StepId(Ulid(last))
    });
    let name = |step: domain::run::StepSpec| match step.target {
        domain::run::Target::Sandbox { .. } => Some(SANDBOX.to_string()),
        domain::run::Target::Component { name, .. } => Some(name),
        domain::run::Target::Action { .. } => None,
    };
    steps.unwrap().into_iter().filter_map(name).collect()
}

/// Returns `true` if a string in the module contains one of these paths.
fn module_contains(module: &Module, written: &[String]) -> bool {
    texts_contain(&module.texts, written)
}

fn texts_contain<'a>(texts: impl IntoIterator<Item = &'a Text>, written: &[String]) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric());
    let holds = |text: &str, one: &String| {
        text.match_indices(one.as_str()).any(|(at, _)| ends(&text[at + one.len()..]))
    };
    texts.into_iter().any(|text| written.iter().any(|one| holds(&text.value, one)))
}

/// Components that a changed input affects, found by text search instead of the graph.
fn affected_by_text_search(config: &Config, input: &str) -> BTreeSet<String> {
    let written = [format!(".nuon.inputs.inputs.{input}"), format!(".nuon.install.inputs.{input}")];
    let sandbox =
        [".nuon.sandbox.outputs".to_string(), ".nuon.install.sandbox.outputs".to_string()];
    let mut changed = BTreeSet::new();
    // All jobs have the environment of the runner.
    if config.app.runner.as_ref().is_some_and(|r| texts_contain(r.env_vars.values(), &written)) {
        changed.extend(config.app.components.iter().map(|component| component.name.clone()));
        changed.extend(config.app.sandbox.iter().map(|_| SANDBOX.to_string()));
        return changed;
    }
    let moves = config.app.sandbox.as_ref().is_some_and(|s| module_contains(&s.module, &written));
    changed.extend(moves.then(|| SANDBOX.to_string()));
    for component in &config.app.components {
        let needs_cluster = ["helm_chart", "kubernetes_manifest"];
        // The outputs of the sandbox can name the registry of an image.
        let uses_sandbox = module_contains(&component.module, &sandbox)
            || matches!(component.module.spec, Spec::Image(_))
            || (component.module.options.kubernetes_context.is_none()
                && needs_cluster.contains(&component.module.kind.as_str()));
        if module_contains(&component.module, &written) || (moves && uses_sandbox) {
            changed.insert(component.name.clone());
        }
    }
    loop {
        let before = changed.len();
        for component in &config.app.components {
            let outputs = |name: &String| {
                let written = [format!(".nuon.components.{name}.outputs")];
                let context = component.module.options.kubernetes_context.as_deref();
                let contexts = &config.app.kubernetes_contexts;
                let is_cluster = |one: &KubernetesContext| {
                    Some(one.name.as_str()) == context && one.component == *name
                };
                contexts.iter().any(is_cluster)
                    || component.dependencies.contains(name)
                    || module_contains(&component.module, &written)
            };
            if changed.iter().any(outputs) {
                changed.insert(component.name.clone());
            }
        }
        if changed.len() == before {
            return changed;
        }
    }
}

#[test]
fn changed_input_plans_its_readers_and_dependents_in_real_apps() {
    let Some(corpus) = std::env::var_os("CORPUS_DIR") else {
        assert!(std::env::var_os("CI").is_none(), "CI must name the corpus by CORPUS_DIR");
        eprintln!("SKIPPED: no corpus; name its directory by CORPUS_DIR");
        return;
    };
    let (mut apps, mut inputs_seen, mut partly) = (0, 0, 0);
    for entry in fs::read_dir(Path::new(&corpus).join("apps")).unwrap() {
        let top = entry.unwrap().path();
        let mut bytes = Tree::default();
        tree(&top, "", &mut bytes);
        let Reading { config: app, diagnostics: warnings, .. } = app_config::survey(&bytes, &[]);
        // If a template iterates over all inputs or components, its text does not show which ones
        // it reads.
        let graph = app_config::graph(&app);
        let config = Config { app, graph, warnings, tree: bytes, plugins: vec![] };
        if config
            .graph
            .components
            .values()
            .any(|node| node.reads.all_inputs || node.reads.all_components)
        {
            continue;
        }
        apps += 1;
        let published = published(&config.app);
        let names = config.app.inputs.iter().map(|input| input.name.clone());
        let inputs: BTreeMap<String, String> = names.map(|name| (name, "before".into())).collect();
        let desired = |inputs: &BTreeMap<String, String>| {
            let given = InstallValues { inputs, stack: &Outputs::new(), toggles: &Toggles::new() };
            super::desired_state(&config, &published, given, TriggerKind::Manual).unwrap()
        };
        let present = deployed(&desired(&inputs));
        assert_eq!(planned(&desired(&inputs), &present), BTreeSet::new(), "{}", top.display());
        for name in inputs.keys() {
            let mut changed = inputs.clone();
            changed.insert(name.clone(), "after".into());
            let planned = planned(&desired(&changed), &present);
            assert_eq!(
                planned,
                affected_by_text_search(&config, name),
                "{name} of {}",
                top.display()
            );
            inputs_seen += 1;
            partly +=
                usize::from(!planned.is_empty() && planned.len() <= config.app.components.len());
        }
    }
    println!("{inputs_seen} inputs of {apps} apps, of which {partly} affect some components");
    assert!(apps >= 25 && partly >= 50, "{apps} {partly}");
}
