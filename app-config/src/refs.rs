//! References between parts: the values that templates read from an install's state, the
//! dependencies, and the layers in which components are deployed.
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    graph::{Edges, layers},
    model::{AppConfig, Component, NEED_CLUSTER},
    template::{
        Template, TemplateError, is_template,
        reads::{ANY, Path},
    },
    text::Text,
};

mod deploy_order;

/// Values that texts read from an install's state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Reads {
    /// Outputs that templates read, by component. The set is empty if templates read only other
    /// fields of the component.
    pub components: BTreeMap<String, BTreeSet<String>>,
    /// True if a template may read any component, for example because it iterates over all of them.
    pub all_components: bool,
    pub inputs: BTreeSet<String>,
    pub all_inputs: bool,
    /// Outputs of the sandbox. `*` means all.
    pub sandbox: BTreeSet<String>,
    /// Outputs of the stack. `*` means all.
    pub stack: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
    pub actions: BTreeSet<String>,
    /// Components that a template requires. `dig` and `index` tolerate an absent component, so
    /// components that are read only through them do not count.
    #[serde(skip)]
    pub needed_components: BTreeSet<String>,
    /// Inputs that a template requires. Excludes those read only through `dig` or `index`.
    #[serde(skip)]
    pub needed_inputs: BTreeSet<String>,
    /// Outputs that a template requires, with their component.
    #[serde(skip)]
    pub needed_outputs: BTreeSet<(String, String)>,
    /// Outputs of the sandbox that a template requires.
    #[serde(skip)]
    pub needed_sandbox: BTreeSet<String>,
    /// Outputs of the stack without which a template can never be rendered.
    #[serde(skip)]
    pub needed_stack: BTreeSet<String>,
}

/// Stack output that a path reads. Account and region are stack outputs, too.
fn of_the_stack(path: &Path) -> Option<&str> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["install_stack", "outputs", name, ..] | ["cloud_account", _, name, ..] if *name != ANY => {
            Some(name)
        }
        _ => None,
    }
}

impl Reads {
    /// Collects the reads of these texts. Skips texts that cannot be parsed.
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t Text>) -> Reads {
        let mut reads = Reads::default();
        for text in texts {
            // The reader of the config reports texts that cannot be parsed.
            if let Ok(other) = Reads::of_one(text) {
                reads.merge(other);
            }
        }
        reads
    }

    /// Collects the reads of one text.
    ///
    /// # Errors
    /// If the text is a template that cannot be parsed.
    pub fn of_one(text: &Text) -> Result<Reads, TemplateError> {
        let mut reads = Reads::default();
        if is_template(&text.value) {
            let template = Template::parse(&text.value, &text.origin)?;
            for (path, access) in crate::template::reads::all(template.parsed()) {
                reads.take(&path, access.required);
                if let (Some(name), true) = (of_the_stack(&path), access.always) {
                    reads.needed_stack.insert(name.to_string());
                }
            }
        }
        Ok(reads)
    }

    pub fn reads_input(&self, name: &str) -> bool {
        self.all_inputs || self.inputs.contains(name) || self.secrets.contains(name)
    }

    pub fn reads_stack(&self, output: &str) -> bool {
        self.stack.contains(ANY) || self.stack.contains(output)
    }

    pub fn merge(&mut self, other: Reads) {
        for (name, outputs) in other.components {
            self.components.entry(name).or_default().extend(outputs);
        }
        self.all_components |= other.all_components;
        self.inputs.extend(other.inputs);
        self.all_inputs |= other.all_inputs;
        self.sandbox.extend(other.sandbox);
        self.stack.extend(other.stack);
        self.secrets.extend(other.secrets);
        self.actions.extend(other.actions);
        self.needed_components.extend(other.needed_components);
        self.needed_inputs.extend(other.needed_inputs);
        self.needed_outputs.extend(other.needed_outputs);
        self.needed_sandbox.extend(other.needed_sandbox);
        self.needed_stack.extend(other.needed_stack);
    }

    fn take(&mut self, path: &Path, required: bool) {
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        match parts.as_slice() {
            // The whole state, or a key that only rendering determines.
            [] | [ANY, ..] => {
                self.all_components = true;
                self.all_inputs = true;
                self.sandbox.insert(ANY.to_string());
                self.stack.insert(ANY.to_string());
            }
            ["components"] | ["components", ANY, ..] => self.all_components = true,
            ["components", name, rest @ ..] => {
                if required {
                    self.needed_components.insert(name.to_string());
                }
                if let (true, ["outputs", output, ..]) =
                    (required && rest.get(1) != Some(&ANY), rest)
                {
                    self.needed_outputs.insert((name.to_string(), output.to_string()));
                }
                let outputs = self.components.entry(name.to_string()).or_default();
                match rest {
                    ["outputs"] => outputs.insert(ANY.to_string()),
                    ["outputs", output, ..] => outputs.insert(output.to_string()),
                    _ => false,
                };
            }
            ["inputs"] | ["inputs", "inputs"] | ["install", "inputs"] => self.all_inputs = true,
            ["inputs", "inputs", name, ..] | ["install", "inputs", name, ..] => {
                if *name == ANY {
                    self.all_inputs = true;
                } else {
                    self.inputs.insert(name.to_string());
                    self.needed_inputs.extend(required.then(|| name.to_string()));
                }
            }
            ["sandbox"] | ["sandbox", "outputs"] | ["install", "sandbox"] => {
                self.sandbox.insert(ANY.to_string());
            }
            ["install", "sandbox", "outputs"] => {
                self.sandbox.insert(ANY.to_string());
            }
            ["sandbox", "outputs", name, ..] | ["install", "sandbox", "outputs", name, ..] => {
                self.needed_sandbox.extend((required && *name != ANY).then(|| name.to_string()));
                self.sandbox.insert(name.to_string());
            }
            ["install"] => {
                self.all_inputs = true;
                self.sandbox.insert(ANY.to_string());
            }
            ["install_stack"] | ["install_stack", "outputs"] => {
                self.stack.insert(ANY.to_string());
            }
            ["install_stack", "outputs", name, ..] | ["cloud_account", _, name, ..] => {
                self.stack.insert(name.to_string());
            }
            ["cloud_account"] | ["cloud_account", _] => {
                self.stack.insert(ANY.to_string());
            }
            ["secrets", name, ..] | ["install", "secrets", name, ..] => {
                self.secrets.insert(name.to_string());
            }
            ["actions", "workflows", name, ..] => {
                self.actions.insert(name.to_string());
            }
            _ => {}
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Node {
    /// Declared dependencies and those that templates imply.
    pub dependencies: BTreeSet<String>,
    pub reads: Reads,
    /// Component that creates the cluster of this one. `None` for the cluster of the sandbox, and for
    /// a type that works without a cluster.
    #[serde(skip)]
    pub cluster: Option<String>,
}

/// Reads of a config's parts, and the dependencies and deploy order of its components.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Graph {
    pub components: BTreeMap<String, Node>,
    pub sandbox: Reads,
    pub actions: BTreeMap<String, Reads>,
    /// Reads of the runner's `env_vars`, which every job gets.
    pub runner: Reads,
    /// Inputs that the default of an input reads, by input.
    pub derived: BTreeMap<String, BTreeSet<String>>,
    /// Components in deploy order. Each layer depends only on earlier layers. Empty if there is a
    /// cycle.
    pub layers: Vec<Vec<String>>,
    /// First cycle, with its first component repeated at the end.
    pub cycle: Option<Vec<String>>,
    /// Cycles, up to the maximum number that is reported.
    pub cycles: Vec<Vec<String>>,
}

/// Builds the reference graph of a config.
pub fn graph(config: &AppConfig) -> Graph {
    build(config, Clusters::Ordered)
}

/// Returns the dependencies that the config declares or that its templates imply. The order of a run
/// also depends on the clusters of components.
pub(crate) fn declared_graph(config: &AppConfig) -> Graph {
    build(config, Clusters::Ignored)
}

/// Treatment of the component that creates the cluster of another one.
#[derive(Clone, Copy, PartialEq)]
enum Clusters {
    Ordered,
    Ignored,
}

fn build(config: &AppConfig, clusters: Clusters) -> Graph {
    let mut graph = Graph {
        sandbox: config
            .sandbox
            .iter()
            .map(|s| Reads::of(&s.module.texts))
            .next()
            .unwrap_or_default(),
        runner: Reads::of(config.runner.iter().flat_map(|runner| runner.env_vars.values())),
        ..Graph::default()
    };
    for component in &config.components {
        let reads = Reads::of(&component.module.texts);
        // A component may tolerate the absence of its own outputs, but cannot require them before
        // its deploy.
        let other = |name: &&String| {
            **name != component.name || reads.needed_components.contains(name.as_str())
        };
        let known = |name: &&String| config.component(name).is_some();
        let read = reads.components.keys().filter(known).filter(other);
        let mut dependencies: BTreeSet<String> =
            component.dependencies.iter().chain(read).cloned().collect();
        if clusters == Clusters::Ordered {
            dependencies.extend(config.cluster_of(component).map(str::to_owned));
        }
        let needs_cluster = NEED_CLUSTER.contains(&component.module.kind.as_str());
        let cluster = config.cluster_of(component).filter(|_| needs_cluster).map(str::to_owned);
        graph.components.insert(component.name.clone(), Node { dependencies, reads, cluster });
    }
    deploy_order::add(&mut graph.components);
    for input in &config.inputs {
        let value = input.default.clone().unwrap_or_default();
        let reads = Reads::of([&Text { value, ..Text::default() }]);
        if !reads.inputs.is_empty() {
            graph.derived.insert(input.name.clone(), reads.inputs);
        }
    }
    for action in &config.actions {
        graph.actions.insert(action.name.clone(), Reads::of(&action.texts));
    }
    match layers(&graph.edges()) {
        Ok(layers) => graph.layers = layers,
        Err(cycles) => (graph.cycle, graph.cycles) = (cycles.first().cloned(), cycles),
    }
    graph
}

impl Graph {
    fn edges(&self) -> Edges {
        let edge = |(name, node): (&String, &Node)| (name.clone(), node.dependencies.clone());
        self.components.iter().map(edge).collect()
    }

    /// Components that must be deployed before `component`.
    pub fn dependencies(&self, component: &str) -> BTreeSet<String> {
        self.components.get(component).map(|node| node.dependencies.clone()).unwrap_or_default()
    }

    /// Names of the components without which this component cannot be deployed. Excludes components
    /// that its templates read only through `dig` or `index`.
    pub fn required(&self, component: &Component) -> BTreeSet<String> {
        let node = self.components.get(&component.name);
        let mut required: BTreeSet<String> = component.dependencies.iter().cloned().collect();
        required.extend(node.into_iter().flat_map(|node| node.reads.needed_components.clone()));
        required.extend(node.and_then(|node| node.cluster.clone()));
        required.remove(&component.name);
        required
    }

    /// These components and all that depend on them, directly or not. They may need a new deploy
    /// after a change.
    pub fn with_dependents(&self, components: &BTreeSet<String>) -> BTreeSet<String> {
        let mut reached = components.clone();
        loop {
            let above: Vec<String> = self
                .components
                .iter()
                .filter(|(name, node)| {
                    !reached.contains(*name) && !node.dependencies.is_disjoint(&reached)
                })
                .map(|(name, _)| name.clone())
                .collect();
            if above.is_empty() {
                return reached;
            }
            reached.extend(above);
        }
    }

    /// These inputs, and the inputs whose defaults read them.
    pub fn and_derived(&self, inputs: &BTreeSet<String>) -> BTreeSet<String> {
        let derived = self.derived.iter().filter(|(_, from)| !from.is_disjoint(inputs));
        derived.map(|(name, _)| name).chain(inputs).cloned().collect()
    }

    /// Components whose own templates read one of these inputs, directly or through a default. All
    /// components, if the runner's `env_vars` read one of them.
    pub fn readers_of_inputs(&self, inputs: &BTreeSet<String>) -> BTreeSet<String> {
        let inputs = self.and_derived(inputs);
        let reads = |node: &Node| {
            inputs.iter().any(|name| node.reads.reads_input(name) || self.runner.reads_input(name))
        };
        self.components
            .iter()
            .filter(|(_, node)| reads(node))
            .map(|(name, _)| name.clone())
            .collect()
    }
}
