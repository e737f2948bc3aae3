//! Directed graph as SVG: one column for each layer, and one box for each node.
use std::collections::HashMap;

use maud::{Markup, html};

use super::Tone;

const WIDTH: usize = 190;
const HEIGHT: usize = 46;
const GAP_X: usize = 56;
const GAP_Y: usize = 14;
const MARGIN: usize = 16;
/// Number of characters of a name that fit into a box.
const NAME_CHARACTERS: usize = 22;
/// Number of passes over the layers that reduce crossings of edges.
const PASSES: usize = 4;

/// Node of a graph.
pub(crate) struct Node<'a> {
    pub key: String,
    pub name: &'a str,
    /// Second line, such as the state.
    pub subtitle: String,
    pub tone: Tone,
    /// Length of the longest path to the node.
    pub layer: usize,
    /// Keys of the nodes that the node depends on.
    pub depends_on: Vec<String>,
    pub href: String,
}

struct Place {
    x: usize,
    y: usize,
}

/// Draws the graph. The caller shows the same facts as a list or a table for readers without the picture.
pub(crate) fn graph(label: &str, nodes: &[Node<'_>]) -> Markup {
    let layers = ordered_layers(nodes);
    let rows = layers.iter().map(Vec::len).max().unwrap_or(0);
    let height = MARGIN * 2 + rows * (HEIGHT + GAP_Y) - GAP_Y.min(rows * GAP_Y);
    let width = MARGIN * 2 + layers.len() * (WIDTH + GAP_X) - GAP_X.min(layers.len() * GAP_X);
    let places = places(nodes, &layers, rows);
    html! {
        div.graph tabindex="0" role="group" aria-label=(label) {
            svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } aria-hidden="true" focusable="false" {
                @for node in nodes {
                    @for from in &node.depends_on {
                        @if let (Some(from), Some(to)) = (places.get(from.as_str()), places.get(node.key.as_str())) {
                            path.edge d=(edge(from, to)) {}
                        }
                    }
                }
                @for node in nodes {
                    @if let Some(place) = places.get(node.key.as_str()) { (boxed(node, place)) }
                }
            }
        }
    }
}

fn boxed(node: &Node<'_>, place: &Place) -> Markup {
    let Place { x, y } = place;
    html! {
        a href=(node.href) tabindex="-1" {
            g class={ "node " (node.tone.class()) } {
                title { (node.name) ": " (node.subtitle) }
                rect x=(x) y=(y) width=(WIDTH) height=(HEIGHT) {}
                circle.dot cx=(x + 14) cy=(y + 17) r="4" {}
                text x=(x + 26) y=(y + 21) { (short(node.name, NAME_CHARACTERS)) }
                text.sub x=(x + 26) y=(y + 37) { (short(&node.subtitle, NAME_CHARACTERS + 4)) }
            }
        }
    }
}

fn edge(from: &Place, to: &Place) -> String {
    let (x1, y1, x2, y2) = (from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2);
    let bend = GAP_X / 2;
    format!("M{x1} {y1}C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2.saturating_sub(bend))
}

fn short(text: &str, characters: usize) -> String {
    match text.chars().count() > characters {
        false => text.to_owned(),
        true => text.chars().take(characters - 1).chain(['…']).collect(),
    }
}

/// Nodes by layer, each layer sorted by the mean row of its neighbours (barycenter heuristic of Sugiyama, Tagawa and
/// Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981).
fn ordered_layers(nodes: &[Node<'_>]) -> Vec<Vec<usize>> {
    let count = nodes.iter().map(|node| node.layer + 1).max().unwrap_or(0);
    let mut layers = vec![Vec::new(); count];
    for (n, node) in nodes.iter().enumerate() {
        layers[node.layer].push(n);
    }
    let index: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(n, node)| (node.key.as_str(), n)).collect();
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (n, node) in nodes.iter().enumerate() {
        for from in node.depends_on.iter().filter_map(|key| index.get(key.as_str())) {
            neighbours[n].push(*from);
            neighbours[*from].push(n);
        }
    }
    let mut row = vec![0_usize; nodes.len()];
    for pass in 0..PASSES {
        for layer in &layers {
            layer.iter().enumerate().for_each(|(at, n)| row[*n] = at);
        }
        let backward = pass % 2 == 1;
        for (at, layer) in layers.iter_mut().enumerate() {
            let before =
                |other: usize| (nodes[other].layer < at) != backward && nodes[other].layer != at;
            layer.sort_by_key(|n| {
                let rows: Vec<usize> = neighbours[*n]
                    .iter()
                    .copied()
                    .filter(|other| before(*other))
                    .map(|other| row[other])
                    .collect();
                match rows.len() {
                    0 => row[*n] * 1000,
                    count => rows.iter().sum::<usize>() * 1000 / count,
                }
            });
            layer.iter().enumerate().for_each(|(place, n)| row[*n] = place);
        }
    }
    layers
}

/// Place of each node: its layer is a column, and each column is centered.
fn places<'n>(
    nodes: &'n [Node<'_>],
    layers: &[Vec<usize>],
    rows: usize,
) -> HashMap<&'n str, Place> {
    let mut places = HashMap::new();
    for (column, layer) in layers.iter().enumerate() {
        let top = MARGIN + (rows - layer.len()) * (HEIGHT + GAP_Y) / 2;
        for (at, n) in layer.iter().enumerate() {
            let place =
                Place { x: MARGIN + column * (WIDTH + GAP_X), y: top + at * (HEIGHT + GAP_Y) };
            places.insert(nodes[*n].key.as_str(), place);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(key: usize, layer: usize, depends_on: &[usize]) -> Node<'static> {
        let depends_on = depends_on.iter().map(ToString::to_string).collect();
        Node {
            key: key.to_string(),
            name: "n",
            subtitle: String::new(),
            tone: Tone::Ok,
            layer,
            depends_on,
            href: String::new(),
        }
    }

    #[test]
    fn boxes_never_overlap() {
        let nodes: Vec<_> = (0..200).map(|n| node(n, n % 7, &[n / 2])).collect();
        let layers = ordered_layers(&nodes);
        let places = places(&nodes, &layers, layers.iter().map(Vec::len).max().unwrap());
        let places: Vec<&Place> = places.values().collect();
        assert_eq!(places.len(), 200);
        for (n, a) in places.iter().enumerate() {
            for b in &places[n + 1..] {
                assert!(a.x.abs_diff(b.x) >= WIDTH || a.y.abs_diff(b.y) >= HEIGHT);
            }
        }
    }

    #[test]
    fn parallel_chains_do_not_cross() {
        let nodes = [node(0, 0, &[]), node(1, 0, &[]), node(2, 1, &[1]), node(3, 1, &[0])];
        assert_eq!(ordered_layers(&nodes), [vec![0, 1], vec![3, 2]]);
    }

    #[test]
    fn graph_without_nodes_is_drawn() {
        assert!(graph("empty", &[]).into_string().contains("<svg"));
    }
}
