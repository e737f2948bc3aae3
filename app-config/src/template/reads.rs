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

const MAX_DEPTH: usize = 20;
/// Maximum number of visited nodes, for templates that call each other without end. Further nodes
/// are ignored.
const MAX_NODES: usize = 200_000;
/// Maximum number of sources of one value. Further sources are ignored.
const MAX_SOURCES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AccessKind {
    /// True if a read fails when the value is absent. A field access fails; `dig` and `index` do
    /// not.
    pub required: bool,
    /// True if such a read always happens: it is in no branch, and not after the first operand of
    /// `and` or `or`.
    pub always: bool,
}

/// Paths that a template may read. The value is [`AccessKind::required`].
pub(crate) fn reads(parsed: &Parsed) -> BTreeMap<Path, bool> {
    all(parsed).into_iter().map(|(path, access)| (path, access.required)).collect()
}

/// Paths that a template may read.
pub(crate) fn all(parsed: &Parsed) -> BTreeMap<Path, AccessKind> {
    of_the_state(walked(parsed).found)
}

/// Paths whose values a template inspects, for example in a condition, with the offset of the first
/// place and what it is. Only [`super::secret`] decides for certain, while rendering.
pub(crate) fn inspected(parsed: &Parsed) -> BTreeMap<Path, (usize, String)> {
    of_the_state(walked(parsed).inspected)
}

fn of_the_state<T>(found: BTreeMap<Path, T>) -> BTreeMap<Path, T> {
    let state = |path: &Path| matches!(path.first().map(String::as_str), Some("nuon" | "stead"));
    let found = found.into_iter().filter(|(path, _)| state(path));
    found.map(|(path, value)| (path.get(1..).unwrap_or_default().to_vec(), value)).collect()
}

fn walked(parsed: &Parsed) -> Walk<'_> {
    let mut walk = Walk {
        parsed,
        vars: Vec::new(),
        found: BTreeMap::new(),
        inspected: BTreeMap::new(),
        depth: 0,
        branches: 0,
        left: MAX_NODES,
    };
    let top = vec![ValueSource { path: Path::new(), required: true, sure: true }];
    walk.vars.push(("$".into(), top.clone()));
    walk.nodes(&parsed.body, &top);
    walk
}

/// Possible sources of a value. Empty for a value that is not from the state.
type Sources = Vec<ValueSource>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ValueSource {
    path: Path,
    required: bool,
    /// True if the value always has this source, whatever the state.
    sure: bool,
}

struct Walk<'t> {
    parsed: &'t Parsed,
    vars: Vec<(String, Sources)>,
    found: BTreeMap<Path, AccessKind>,
    inspected: BTreeMap<Path, (usize, String)>,
    depth: usize,
    /// Number of enclosing branches that may not be taken.
    branches: usize,
    left: usize,
}

impl<'t> Walk<'t> {
    fn nodes(&mut self, nodes: &'t [Node], dot: &Sources) {
        for node in nodes {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            self.node(node, dot);
        }
    }

    fn node(&mut self, node: &'t Node, dot: &Sources) {
        let outer = self.vars.len();
        match node {
            Node::Text(_) | Node::Break | Node::Continue => {}
            Node::Output(pipe) => {
                let sources = self.pipe(pipe, dot);
                if pipe.sets.is_empty() {
                    self.read(&sources);
                }
                // A variable that an output declares stays in scope, so the scope is not restored.
                return;
            }
            Node::If { pipe, body, otherwise } => {
                let sources = self.pipe(pipe, dot);
                self.inspect(&sources, pipe.at, "the condition of `if`");
                self.read(&sources);
                self.branches += 1;
                self.nodes(body, dot);
                self.nodes(otherwise, dot);
                self.branches -= 1;
            }
            Node::With { pipe, body, otherwise } => {
                let sources = self.pipe(pipe, dot);
                self.inspect(&sources, pipe.at, "the condition of `with`");
                self.read(&sources);
                self.branches += 1;
                self.nodes(body, &sources);
                self.nodes(otherwise, dot);
                self.branches -= 1;
            }
            Node::Range { pipe, body, otherwise } => {
                let sources = self.pipe(pipe, dot);
                self.inspect(&sources, pipe.at, "`range`");
                self.read(&sources);
                let items: Sources =
                    sources.iter().map(|source| below(source, ANY, false)).collect();
                if let Some(name) = pipe.sets.last() {
                    self.set(name, items.clone());
                }
                self.branches += 1;
                self.nodes(body, &items);
                self.nodes(otherwise, dot);
                self.branches -= 1;
            }
            Node::Call { name, pipe, .. } => {
                let sources = pipe.as_ref().map(|pipe| self.pipe(pipe, dot)).unwrap_or_default();
                self.read(&sources);
                let parsed = self.parsed;
                if let Some(body) = parsed.defines.get(name)
                    && self.depth < MAX_DEPTH
                {
                    self.depth += 1;
                    let vars =
                        std::mem::replace(&mut self.vars, vec![("$".into(), sources.clone())]);
                    self.nodes(body, &sources);
                    self.vars = vars;
                    self.depth -= 1;
                }
            }
        }
        self.vars.truncate(outer);
    }

    fn pipe(&mut self, pipe: &'t Pipe, dot: &Sources) -> Sources {
        let mut sources = None;
        for command in &pipe.commands {
            sources = Some(self.command(command, sources, dot));
        }
        let sources = sources.unwrap_or_default();
        for name in &pipe.sets {
            if pipe.assigns {
                let mut both = self.get(name);
                let may_be = |source: &ValueSource| ValueSource {
                    sure: source.sure && self.branches == 0,
                    ..source.clone()
                };
                both.extend(sources.iter().map(may_be));
                self.set(name, distinct(both));
            } else {
                self.vars.push((name.to_string(), sources.clone()));
            }
        }
        sources
    }

    fn command(&mut self, command: &'t Command, piped: Option<Sources>, dot: &Sources) -> Sources {
        let Some((first, rest)) = command.operands.split_first() else { return Sources::new() };
        if let Base::Function(function) = &first.base {
            let sources = self.call((function.name, first.at), rest, piped, dot);
            return fields(sources, &first.fields);
        }
        self.operand(first, dot)
    }

    fn operand(&mut self, operand: &'t Operand, dot: &Sources) -> Sources {
        let base = match &operand.base {
            Base::Dot => dot.clone(),
            Base::Variable(name) => self.get(name),
            Base::Paren(pipe) => self.pipe(pipe, dot),
            Base::Function(function) => self.call((function.name, operand.at), &[], None, dot),
            Base::Text(_) | Base::Number(_) | Base::Bool(_) | Base::Nil => Sources::new(),
        };
        fields(base, &operand.fields)
    }

    fn call(
        &mut self,
        (name, at): (&str, usize),
        operands: &'t [Operand],
        piped: Option<Sources>,
        dot: &Sources,
    ) -> Sources {
        // `and` and `or` may stop after the first operand.
        let may_stop = matches!(name, "and" | "or");
        let mut arguments = Vec::new();
        for (at, operand) in operands.iter().enumerate() {
            self.branches += usize::from(may_stop && at > 0);
            arguments.push(self.operand(operand, dot));
            self.branches -= usize::from(may_stop && at > 0);
        }
        arguments.extend(piped);
        for (index, sources) in arguments.iter().enumerate() {
            if inspects(name, index, arguments.len()) {
                let at = operands.get(index).map_or(at, |operand| operand.at);
                self.inspect(sources, at, &format!("`{name}`"));
            }
        }
        match name {
            "index" => {
                let keys = operands.get(1..).unwrap_or_default();
                let sources = arguments.first().cloned().unwrap_or_default();
                arguments.iter().skip(1).for_each(|key| self.read(key));
                keys.iter().fold(sources, |sources, key| step(&sources, &key.base))
            }
            "dig" => {
                let count = arguments.len();
                let sources = arguments.last().cloned().unwrap_or_default();
                let keys = operands.get(..count.saturating_sub(2)).unwrap_or_default();
                let mut values =
                    keys.iter().fold(sources, |sources, key| step(&sources, &key.base));
                values.extend(arguments.get(count.saturating_sub(2)).cloned().unwrap_or_default());
                distinct(values)
            }
            // These functions return one of their arguments.
            "and" | "coalesce" | "default" | "or" | "ternary" => {
                for (at, sources) in arguments.iter().enumerate() {
                    self.branches += usize::from(may_stop && at > 0);
                    self.read(sources);
                    self.branches -= usize::from(may_stop && at > 0);
                }
                let later = arguments.iter_mut().skip(1).filter(|_| may_stop).flatten();
                later.for_each(|source| source.sure = false);
                distinct(arguments.concat())
            }
            "slice" | "append" => {
                arguments.iter().for_each(|sources| self.read(sources));
                arguments.into_iter().next().unwrap_or_default()
            }
            "values" => {
                arguments.iter().for_each(|sources| self.read(sources));
                arguments.into_iter().next().unwrap_or_default()
            }
            _ => {
                arguments.iter().for_each(|sources| self.read(sources));
                Sources::new()
            }
        }
    }

    fn inspect(&mut self, sources: &Sources, at: usize, what: &str) {
        for source in sources {
            let place = || (at, what.to_owned());
            self.inspected.entry(source.path.clone()).or_insert_with(place);
        }
    }

    fn read(&mut self, sources: &Sources) {
        for source in sources.iter().filter(|source| !source.path.is_empty()) {
            let access = self.found.entry(source.path.clone()).or_default();
            access.required |= source.required;
            access.always |= source.required && source.sure && self.branches == 0;
        }
    }

    fn get(&self, name: &str) -> Sources {
        let found = self.vars.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, sources)| sources.clone()).unwrap_or_default()
    }

    fn set(&mut self, name: &str, sources: Sources) {
        if let Some(slot) = self.vars.iter_mut().rev().find(|(known, _)| known == name) {
            slot.1 = sources;
        }
    }
}

/// True if a function cannot be applied to an argument without knowing its value.
fn inspects(name: &str, index: usize, count: usize) -> bool {
    let is_last = index + 1 == count;
    match name {
        // Insert the value, or store it.
        "b64enc" | "quote" | "toJson" | "trim" | "urlquery" | "print" | "list" | "dict" => false,
        "indent" | "nindent" | "append" | "set" | "default" | "printf" => index == 0,
        "dig" => index + 2 != count,
        "and" | "or" => !is_last,
        "ternary" => is_last,
        _ => true,
    }
}

fn distinct(mut sources: Sources) -> Sources {
    sources.sort();
    sources.dedup();
    sources.truncate(MAX_SOURCES);
    sources
}

fn step(sources: &Sources, key: &Base) -> Sources {
    let key = match key {
        Base::Text(key) => &**key,
        Base::Dot | Base::Variable(_) | Base::Function(_) | Base::Paren(_) | Base::Nil => ANY,
        Base::Number(_) | Base::Bool(_) => ANY,
    };
    sources.iter().map(|source| below(source, key, false)).collect()
}

fn fields(sources: Sources, fields: &[Arc<str>]) -> Sources {
    fields.iter().fold(sources, |sources, field| {
        sources.iter().map(|source| below(source, field, source.required)).collect()
    })
}

fn below(source: &ValueSource, key: &str, required: bool) -> ValueSource {
    let mut path = source.path.clone();
    // Longer paths are cut off. The checks of references use only the first elements.
    if path.len() < 32 {
        path.push(key.to_string());
    }
    ValueSource { path, required, sure: source.sure }
}
