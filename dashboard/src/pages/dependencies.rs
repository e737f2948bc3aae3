//! Graph of the components of a config version.
use maud::Markup;
use serde_json::Value;

use crate::components::{self, Node, Tone};

/// The component that all others depend on.
const SANDBOX: &str = "sandbox";

/// Parts of a component that a graph shows.
pub(super) struct Shown {
    pub subtitle: String,
    pub tone: Tone,
    pub href: String,
}

/// Draws the components of a parsed config, as `stead apps inspect` prints it. Returns `None` if
/// there is nothing to connect, or the dependencies form a cycle.
pub(super) fn graph(
    label: &str,
    config: &Value,
    has_sandbox: bool,
    of: impl Fn(&str) -> Shown,
) -> Option<Markup> {
    let mut nodes = Vec::new();
    let mut add = |name, layer, depends_on| {
        let Shown { subtitle, tone, href } = of(name);
        nodes.push(Node { key: name.to_owned(), name, subtitle, tone, layer, depends_on, href });
    };
    if has_sandbox {
        add(SANDBOX, 0, vec![]);
    }
    for (layer, names) in config["layers"].as_array()?.iter().enumerate() {
        for name in names.as_array()?.iter().filter_map(Value::as_str) {
            let depends_on = match (dependencies(config, name), has_sandbox) {
                (none, true) if none.is_empty() => vec![SANDBOX.to_owned()],
                (found, _) => found,
            };
            add(name, layer + usize::from(has_sandbox), depends_on);
        }
    }
    (nodes.len() > 1).then(|| components::graph(label, &nodes))
}

fn dependencies(config: &Value, name: &str) -> Vec<String> {
    let edges = config["edges"].as_array().into_iter().flatten();
    let of = edges.filter(|edge| edge[0] == name).filter_map(|edge| edge[1].as_str());
    of.map(str::to_owned).collect()
}
