//! Directed graph as SVG: one column for each layer, and one box for each node.
use std::collections::{HashMap, HashSet};

use maud::{Markup, html};

use super::Tone;

const WIDTH: usize = 190;
const HEIGHT: usize = 46;
const GAP_X: usize = 44;
const GAP_Y: usize = 14;
/// Height of the lane of an edge.
const LANE: usize = 4;
/// Maximum number of lanes. With more, the other edges are straight and can pass behind boxes.
const MAX_LANES: usize = 1_000;
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

/// Upper left corner of a box, or the begin of a lane.
#[derive(Clone, Copy, Default)]
struct Place {
    x: usize,
    y: usize,
}

/// Items of the columns: first the nodes, then the lanes of edges that pass a column.
struct Items {
    /// Layer of each item.
    layer: Vec<usize>,
    /// Items of each edge, from the dependency to the node.
    edges: Vec<Vec<usize>>,
    /// Number of the nodes.
    nodes: usize,
}

/// Draws the graph. The caller shows the same facts as a list or a table for readers without the picture.
pub(crate) fn graph(label: &str, nodes: &[Node<'_>]) -> Markup {
    let items = items(nodes);
    let layers = ordered_layers(&items);
    let (places, height) = places(&items, &layers);
    let height = MARGIN * 2 + height;
    let width = MARGIN * 2 + layers.len() * (WIDTH + GAP_X) - GAP_X.min(layers.len() * GAP_X);
    let end =
        |edge: &[usize], at: usize| edge.get(at).and_then(|n| nodes.get(*n)).map(|node| &node.key);
    html! {
        div.graph tabindex="0" role="group" aria-label=(label) {
            svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } aria-hidden="true" focusable="false" {
                @for edge in &items.edges {
                    path.edge data-from=[end(edge, 0)] data-to=[end(edge, edge.len() - 1)] d=(path(&items, &places, edge)) {}
                }
                @for (node, place) in nodes.iter().zip(&places) { (boxed(node, place)) }
            }
        }
    }
}

fn items(nodes: &[Node<'_>]) -> Items {
    let index: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(n, node)| (node.key.as_str(), n)).collect();
    let layer: Vec<usize> = nodes.iter().map(|node| node.layer).collect();
    let mut items = Items { layer, edges: vec![], nodes: nodes.len() };
    for (to, node) in nodes.iter().enumerate() {
        for from in direct(nodes, node).into_iter().filter_map(|key| index.get(key).copied()) {
            let mut edge = vec![from];
            let passed = nodes[from].layer + 1..node.layer;
            if items.layer.len() + passed.len() <= nodes.len() + MAX_LANES {
                for layer in passed {
                    edge.push(items.layer.len());
                    items.layer.push(layer);
                }
            }
            edge.push(to);
            items.edges.push(edge);
        }
    }
    items
}

/// Dependencies that no other dependency of the node implies. The edges of the others would cross the
/// boxes between, and show nothing new.
fn direct<'n>(nodes: &'n [Node<'_>], node: &'n Node<'_>) -> Vec<&'n str> {
    let by_key: HashMap<&str, &Node<'_>> =
        nodes.iter().map(|node| (node.key.as_str(), node)).collect();
    let mut implied = HashSet::new();
    let below = |key: &str| by_key.get(key).map_or(&[][..], |node| &node.depends_on[..]);
    let mut open: Vec<&str> =
        node.depends_on.iter().flat_map(|key| below(key)).map(String::as_str).collect();
    while let Some(key) = open.pop() {
        if implied.insert(key) {
            open.extend(below(key).iter().map(String::as_str));
        }
    }
    let keys = node.depends_on.iter().map(String::as_str);
    keys.filter(|key| !implied.contains(key)).collect()
}

fn boxed(node: &Node<'_>, place: &Place) -> Markup {
    let Place { x, y } = place;
    html! {
        a href=(node.href) tabindex="-1" data-node=(node.key) {
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

/// Curve from the right side of the first item to the left side of the last one, straight in the lanes between.
fn path(items: &Items, places: &[Place], edge: &[usize]) -> String {
    let middle = |item: usize| if item < items.nodes { HEIGHT / 2 } else { 0 };
    let point = |item: usize| (places[item].x, places[item].y + middle(item));
    let curve = |pair: &[usize]| {
        let ((x1, y1), (x2, y2)) = (point(pair[0]), point(pair[1]));
        let (x1, bend) = (x1 + WIDTH, GAP_X / 2);
        format!("L{x1} {y1}C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2.saturating_sub(bend))
    };
    let (x, y) = point(edge[0]);
    format!("M{} {y}{}", x + WIDTH, edge.windows(2).map(curve).collect::<String>())
}

fn short(text: &str, characters: usize) -> String {
    match text.chars().count() > characters {
        false => text.to_owned(),
        true => text.chars().take(characters - 1).chain(['…']).collect(),
    }
}

/// Items by layer, each layer sorted by the mean row of its neighbours (barycenter heuristic of Sugiyama, Tagawa and
/// Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981).
fn ordered_layers(items: &Items) -> Vec<Vec<usize>> {
    let count = items.layer.iter().map(|layer| layer + 1).max().unwrap_or(0);
    let mut layers = vec![Vec::new(); count];
    for (item, layer) in items.layer.iter().enumerate() {
        layers[*layer].push(item);
    }
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); items.layer.len()];
    for link in items.edges.iter().flat_map(|edge| edge.windows(2)) {
        neighbours[link[0]].push(link[1]);
        neighbours[link[1]].push(link[0]);
    }
    let mut row = vec![0_usize; items.layer.len()];
    for pass in 0..PASSES {
        for layer in &layers {
            layer.iter().enumerate().for_each(|(at, item)| row[*item] = at);
        }
        let backward = pass % 2 == 1;
        for (at, layer) in layers.iter_mut().enumerate() {
            let before =
                |other: usize| (items.layer[other] < at) != backward && items.layer[other] != at;
            layer.sort_by_key(|item| {
                let found = neighbours[*item].iter().filter(|other| before(**other));
                let rows: Vec<usize> = found.map(|other| row[*other]).collect();
                match rows.len() {
                    0 => row[*item] * 1000,
                    count => rows.iter().sum::<usize>() * 1000 / count,
                }
            });
            layer.iter().enumerate().for_each(|(place, item)| row[*item] = place);
        }
    }
    layers
}

/// Place of each item: its layer is a column, and each column is centered. Also returns the height of the highest one.
fn places(items: &Items, layers: &[Vec<usize>]) -> (Vec<Place>, usize) {
    let height = |item: usize| if item < items.nodes { HEIGHT } else { LANE };
    let column = |layer: &[usize]| -> usize {
        let gaps = layer.len().saturating_sub(1) * GAP_Y;
        layer.iter().map(|item| height(*item)).sum::<usize>() + gaps
    };
    let highest = layers.iter().map(|layer| column(layer)).max().unwrap_or(0);
    let mut places = vec![Place::default(); items.layer.len()];
    for (at, layer) in layers.iter().enumerate() {
        let mut y = MARGIN + (highest - column(layer)) / 2;
        for item in layer {
            places[*item] = Place { x: MARGIN + at * (WIDTH + GAP_X), y };
            y += height(*item) + GAP_Y;
        }
    }
    (places, highest)
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
        let items = items(&nodes);
        let (places, _) = places(&items, &ordered_layers(&items));
        let places = &places[..200];
        for (n, a) in places.iter().enumerate() {
            for b in &places[n + 1..] {
                assert!(a.x.abs_diff(b.x) >= WIDTH || a.y.abs_diff(b.y) >= HEIGHT);
            }
        }
    }

    #[test]
    fn parallel_chains_do_not_cross() {
        let nodes = [node(0, 0, &[]), node(1, 0, &[]), node(2, 1, &[1]), node(3, 1, &[0])];
        assert_eq!(ordered_layers(&items(&nodes)), [vec![0, 1], vec![3, 2]]);
    }

    #[test]
    fn edge_passes_a_box_in_a_lane_of_its_own() {
        let nodes = [node(0, 0, &[]), node(1, 0, &[]), node(2, 1, &[1]), node(3, 2, &[0, 2])];
        let items = items(&nodes);
        assert_eq!(items.edges, [vec![1, 2], vec![0, 4, 3], vec![2, 3]]);
        let (places, _) = places(&items, &ordered_layers(&items));
        let (lane, passed) = (places[4], places[2]);
        assert!(lane.x == passed.x && (lane.y < passed.y || lane.y > passed.y + HEIGHT));
    }

    #[test]
    fn implied_edges_are_not_drawn() {
        let nodes = [node(0, 0, &[]), node(1, 1, &[0]), node(2, 2, &[0, 1]), node(3, 2, &[0])];
        assert_eq!(direct(&nodes, &nodes[2]), ["1"]);
        assert_eq!(direct(&nodes, &nodes[3]), ["0"]);
    }

    #[test]
    fn graph_without_nodes_is_drawn() {
        assert!(graph("empty", &[]).into_string().contains("<svg"));
    }
}
