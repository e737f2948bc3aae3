//! Reads of a template, found without rendering it. Follows the dot and the variables through
//! `with`, `range`, `index` and `dig`, so that `(index .nuon.components "db").outputs.url` counts
//! as a read of that output.
use std::{collections::BTreeMap, sync::Arc};

use super::ast::{Base, Command, Node, Operand, Parsed, Pipe};

/// Path from the root of the state, without `nuon`. [`ANY`] marks a key that is known only at run
/// time.
pub type Path = Vec<String>;

/// Path element that stands for any key.
pub const ANY: &str = "*";

const DEEPEST: usize = 20;
/// Maximum number of visited nodes, for templates that call each other without end.
const BUDGET: usize = 200_000;
/// Maximum number of sources of one value. If a value has more, its source counts as unknown.
const PLACES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AccessKind {
    /// True if a read fails when the value is absent. A field access fails; `dig` and `index` do
    /// not.
    pub insists: bool,
    /// True if such a read always happens: it is in no branch, and not after the first operand of
    /// `and` or `or`.
    pub always: bool,
}

/// Paths that a template may read. The value is [`AccessKind::insists`].
pub(crate) fn reads(parsed: &Parsed) -> BTreeMap<Path, bool> {
    all(parsed).into_iter().map(|(path, how)| (path, how.insists)).collect()
}

/// Paths that a template may read.
pub(crate) fn all(parsed: &Parsed) -> BTreeMap<Path, AccessKind> {
    let mut walk = Walk {
        parsed,
        vars: Vec::new(),
        found: BTreeMap::new(),
        depth: 0,
        branches: 0,
        left: BUDGET,
    };
    let top = vec![ValueSource { path: Path::new(), insists: true, sure: true }];
    walk.vars.push(("$".into(), top.clone()));
    walk.nodes(&parsed.body, &top);
    let state = |path: &Path| matches!(path.first().map(String::as_str), Some("nuon" | "stead"));
    let found = walk.found.into_iter().filter(|(path, _)| state(path));
    found.map(|(path, how)| (path[1..].to_vec(), how)).collect()
}

/// Possible sources of a value. Empty for a value that is not from the state.
type Places = Vec<ValueSource>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ValueSource {
    path: Path,
    insists: bool,
    /// True if the value always has this source, whatever the state.
    sure: bool,
}

struct Walk<'t> {
    parsed: &'t Parsed,
    vars: Vec<(String, Places)>,
    found: BTreeMap<Path, AccessKind>,
    depth: usize,
    /// Number of enclosing branches that may not be taken.
    branches: usize,
    left: usize,
}

impl<'t> Walk<'t> {
    fn nodes(&mut self, nodes: &'t [Node], dot: &Places) {
        for node in nodes {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            self.node(node, dot);
        }
    }

    fn node(&mut self, node: &'t Node, dot: &Places) {
        let outer = self.vars.len();
        match node {
            Node::Text(_) | Node::Break | Node::Continue => {}
            Node::Output(pipe) => {
                let places = self.pipe(pipe, dot);
                if pipe.sets.is_empty() {
                    self.read(&places);
                }
                // A variable that an output declares stays in scope, so the scope is not restored.
                return;
            }
            Node::If { pipe, body, otherwise } => {
                let places = self.pipe(pipe, dot);
                self.read(&places);
                self.branches += 1;
                self.nodes(body, dot);
                self.nodes(otherwise, dot);
                self.branches -= 1;
            }
            Node::With { pipe, body, otherwise } => {
                let places = self.pipe(pipe, dot);
                self.read(&places);
                self.branches += 1;
                self.nodes(body, &places);
                self.nodes(otherwise, dot);
                self.branches -= 1;
            }
            Node::Range { pipe, body, otherwise } => {
                let places = self.pipe(pipe, dot);
                self.read(&places);
                let items: Places = places.iter().map(|place| below(place, ANY, false)).collect();
                if let Some(name) = pipe.sets.last() {
                    self.set(name, items.clone());
                }
                self.branches += 1;
                self.nodes(body, &items);
                self.nodes(otherwise, dot);
                self.branches -= 1;
            }
            Node::Call { name, pipe, .. } => {
                let places = pipe.as_ref().map(|pipe| self.pipe(pipe, dot)).unwrap_or_default();
                self.read(&places);
                let parsed = self.parsed;
                if let Some(body) = parsed.defines.get(name)
                    && self.depth < DEEPEST
                {
                    self.depth += 1;
                    let vars =
                        std::mem::replace(&mut self.vars, vec![("$".into(), places.clone())]);
                    self.nodes(body, &places);
                    self.vars = vars;
                    self.depth -= 1;
                }
            }
        }
        self.vars.truncate(outer);
    }

    fn pipe(&mut self, pipe: &'t Pipe, dot: &Places) -> Places {
        let mut places = None;
        for command in &pipe.commands {
            places = Some(self.command(command, places, dot));
        }
        let places = places.unwrap_or_default();
        for name in &pipe.sets {
            if pipe.assigns {
                let mut both = self.get(name);
                let maybe = |place: &ValueSource| ValueSource {
                    sure: place.sure && self.branches == 0,
                    ..place.clone()
                };
                both.extend(places.iter().map(maybe));
                self.set(name, distinct(both));
            } else {
                self.vars.push((name.to_string(), places.clone()));
            }
        }
        places
    }

    fn command(&mut self, command: &'t Command, piped: Option<Places>, dot: &Places) -> Places {
        let Some((first, rest)) = command.operands.split_first() else { return Places::new() };
        if let Base::Function(function) = &first.base {
            let places = self.call(function.name, rest, piped, dot);
            return fields(places, &first.fields);
        }
        self.operand(first, dot)
    }

    fn operand(&mut self, operand: &'t Operand, dot: &Places) -> Places {
        let base = match &operand.base {
            Base::Dot => dot.clone(),
            Base::Variable(name) => self.get(name),
            Base::Paren(pipe) => self.pipe(pipe, dot),
            Base::Function(function) => self.call(function.name, &[], None, dot),
            Base::Text(_) | Base::Number(_) | Base::Bool(_) | Base::Nil => Places::new(),
        };
        fields(base, &operand.fields)
    }

    fn call(
        &mut self,
        name: &str,
        operands: &'t [Operand],
        piped: Option<Places>,
        dot: &Places,
    ) -> Places {
        // `and` and `or` may stop after the first operand.
        let stops = matches!(name, "and" | "or");
        let mut arguments = Vec::new();
        for (at, operand) in operands.iter().enumerate() {
            self.branches += usize::from(stops && at > 0);
            arguments.push(self.operand(operand, dot));
            self.branches -= usize::from(stops && at > 0);
        }
        arguments.extend(piped);
        match name {
            "index" => {
                let keys = operands.get(1..).unwrap_or_default();
                let places = arguments.first().cloned().unwrap_or_default();
                arguments.iter().skip(1).for_each(|key| self.read(key));
                keys.iter().fold(places, |places, key| step(&places, &key.base))
            }
            "dig" => {
                let count = arguments.len();
                let places = arguments.last().cloned().unwrap_or_default();
                let keys = operands.get(..count.saturating_sub(2)).unwrap_or_default();
                let mut dug = keys.iter().fold(places, |places, key| step(&places, &key.base));
                dug.extend(arguments.get(count.saturating_sub(2)).cloned().unwrap_or_default());
                distinct(dug)
            }
            // These functions return one of their arguments.
            "and" | "coalesce" | "default" | "or" | "ternary" => {
                for (at, places) in arguments.iter().enumerate() {
                    self.branches += usize::from(stops && at > 0);
                    self.read(places);
                    self.branches -= usize::from(stops && at > 0);
                }
                let later = arguments.iter_mut().skip(1).filter(|_| stops).flatten();
                later.for_each(|place| place.sure = false);
                distinct(arguments.concat())
            }
            "slice" | "append" => {
                arguments.iter().for_each(|places| self.read(places));
                arguments.into_iter().next().unwrap_or_default()
            }
            "values" => {
                arguments.iter().for_each(|places| self.read(places));
                arguments.into_iter().next().unwrap_or_default()
            }
            _ => {
                arguments.iter().for_each(|places| self.read(places));
                Places::new()
            }
        }
    }

    fn read(&mut self, places: &Places) {
        for place in places.iter().filter(|place| !place.path.is_empty()) {
            let how = self.found.entry(place.path.clone()).or_default();
            how.insists |= place.insists;
            how.always |= place.insists && place.sure && self.branches == 0;
        }
    }

    fn get(&self, name: &str) -> Places {
        let found = self.vars.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, places)| places.clone()).unwrap_or_default()
    }

    fn set(&mut self, name: &str, places: Places) {
        if let Some(slot) = self.vars.iter_mut().rev().find(|(known, _)| known == name) {
            slot.1 = places;
        }
    }
}

fn distinct(mut places: Places) -> Places {
    places.sort();
    places.dedup();
    places.truncate(PLACES);
    places
}

fn step(places: &Places, key: &Base) -> Places {
    let key = match key {
        Base::Text(key) => &**key,
        Base::Dot | Base::Variable(_) | Base::Function(_) | Base::Paren(_) | Base::Nil => ANY,
        Base::Number(_) | Base::Bool(_) => ANY,
    };
    places.iter().map(|place| below(place, key, false)).collect()
}

fn fields(places: Places, fields: &[Arc<str>]) -> Places {
    fields.iter().fold(places, |places, field| {
        places.iter().map(|place| below(place, field, place.insists)).collect()
    })
}

fn below(place: &ValueSource, key: &str, insists: bool) -> ValueSource {
    let mut path = place.path.clone();
    // Longer paths than the depth of the state add nothing.
    if path.len() < 32 {
        path.push(key.to_string());
    }
    ValueSource { path, insists, sure: place.sure }
}
