//! Rendering: walks the tree with the current dot, the variables and the budget.
use super::{
    Fault, Limits,
    ast::{Node, Parsed, Pipe},
    budget::Budget,
    format, secret,
    value::Value,
};

/// Maximum nesting of blocks, parentheses and templates while rendering.
const MAX_DEPTH: usize = 250;

/// Renders the template. Returns the text and the number of steps.
pub fn run<'t>(
    parsed: &'t Parsed,
    source: &'t str,
    data: Value,
    limits: Limits,
) -> (Result<String, Fault>, u64) {
    let vars = vec![("$", data.clone())];
    let budget = Budget::new(limits);
    let out = String::with_capacity(source.len());
    let mut run = Run { parsed, source, vars, out, budget, depth: 0, position: 0 };
    let result = run.nodes(&parsed.body, &data).map(|_| ());
    (result.map(|()| std::mem::take(&mut run.out)), run.budget.steps)
}

pub struct Run<'t> {
    parsed: &'t Parsed,
    source: &'t str,
    vars: Vec<(&'t str, Value)>,
    out: String,
    pub budget: Budget,
    depth: usize,
    /// Offset of the current operand, for errors.
    pub position: usize,
}

/// Control flow after a node.
#[derive(Clone, Copy, PartialEq)]
enum Flow {
    On,
    Break,
    Continue,
}

impl<'t> Run<'t> {
    fn nodes(&mut self, nodes: &'t [Node], dot: &Value) -> Result<Flow, Fault> {
        for node in nodes {
            let flow = self.node(node, dot)?;
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    fn node(&mut self, node: &'t Node, dot: &Value) -> Result<Flow, Fault> {
        match node {
            Node::Text(text) => self.print(text)?,
            Node::Output(pipe) => {
                let value = self.pipe(pipe, dot)?;
                if pipe.sets.is_empty() {
                    self.position = pipe.at;
                    self.print_value(&value)?;
                }
            }
            Node::If { pipe, body, otherwise } => {
                return self.scoped(|run| {
                    let value = run.pipe(pipe, dot)?;
                    run.not_inspected(&value, "the condition of `if`")?;
                    run.nodes(if value.is_true() { body } else { otherwise }, dot)
                });
            }
            Node::With { pipe, body, otherwise } => {
                return self.scoped(|run| {
                    let value = run.pipe(pipe, dot)?;
                    run.not_inspected(&value, "the condition of `with`")?;
                    if value.is_true() {
                        run.nodes(body, &value)
                    } else {
                        run.nodes(otherwise, dot)
                    }
                });
            }
            Node::Range { pipe, body, otherwise } => {
                return self.scoped(|run| run.range(pipe, body, otherwise, dot));
            }
            Node::Call { name, pipe, at } => self.template(name, pipe.as_ref(), *at, dot)?,
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::On)
    }

    /// Runs `inside` in a new scope of variables.
    fn scoped(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Result<Flow, Fault>,
    ) -> Result<Flow, Fault> {
        self.deeper()?;
        let outer = self.vars.len();
        let result = inside(self);
        self.vars.truncate(outer);
        self.depth -= 1;
        result
    }

    pub fn deeper(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong(format!(
                "nesting while rendering exceeds the limit of {MAX_DEPTH} levels"
            )));
        }
        Ok(())
    }

    pub fn shallower(&mut self) {
        self.depth -= 1;
    }

    fn range(
        &mut self,
        pipe: &'t Pipe,
        body: &'t [Node],
        otherwise: &'t [Node],
        dot: &Value,
    ) -> Result<Flow, Fault> {
        self.position = pipe.at;
        let value = self.pipe(pipe, dot)?;
        self.not_inspected(&value, "`range`")?;
        let mut has_items = false;
        let mut flow = Flow::On;
        let mut step = |run: &mut Self, key: Value, item: Value| {
            has_items = true;
            flow = run.iteration(pipe, body, key, item)?;
            Ok(flow != Flow::Break)
        };
        match &value {
            Value::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    if !step(self, Value::Int(at as i64), item.to_element())? {
                        break;
                    }
                }
            }
            Value::Map(entries) => {
                // A copy, because the body may set keys.
                let entries = entries.borrow().clone();
                self.budget.spend(entries.len() as u64, pipe.at)?;
                for (key, item) in entries {
                    if !step(self, Value::Text(key), item.to_element())? {
                        break;
                    }
                }
            }
            Value::Int(_) | Value::Int64(_) | Value::Byte(_) => {
                for at in 0..value.whole().unwrap_or_default() {
                    let at = if matches!(value, Value::Int64(_)) {
                        Value::Int64(at)
                    } else {
                        Value::Int(at)
                    };
                    if !step(self, at.clone(), at)? {
                        break;
                    }
                }
            }
            Value::Nil | Value::Null => {}
            Value::Bool(_) | Value::Float(_) | Value::Text(_) | Value::Secret(_) => {
                let message =
                    format!("`range` cannot iterate over a value of type {}", value.type_name());
                return Err(self.wrong(message));
            }
        }
        if has_items {
            return Ok(Flow::On);
        }
        // In an `else` list, `break` ends this `range`, but `continue` applies to the enclosing
        // `range`.
        Ok(match self.nodes(otherwise, dot)? {
            Flow::Break | Flow::On => Flow::On,
            Flow::Continue => Flow::Continue,
        })
    }

    fn iteration(
        &mut self,
        pipe: &'t Pipe,
        body: &'t [Node],
        key: Value,
        item: Value,
    ) -> Result<Flow, Fault> {
        self.budget.spend(1, pipe.at)?;
        match pipe.sets.as_slice() {
            [] => {}
            [only] => self.set(only, item.clone())?,
            [first, second, ..] => {
                self.set(first, key)?;
                self.set(second, item.clone())?;
            }
        }
        let inner = self.vars.len();
        let flow = self.nodes(body, &item);
        self.vars.truncate(inner);
        flow
    }

    fn template(
        &mut self,
        name: &str,
        pipe: Option<&'t Pipe>,
        at: usize,
        dot: &Value,
    ) -> Result<(), Fault> {
        self.position = at;
        self.budget.spend(1, at)?;
        let parsed = self.parsed;
        let Some(body) = parsed.defines.get(name) else {
            return Err(self.wrong(format!("the template {name:?} is not defined")));
        };
        let dot = match pipe {
            Some(pipe) => self.pipe(pipe, dot)?,
            None => Value::Nil,
        };
        self.position = at;
        self.deeper()?;
        let vars = std::mem::replace(&mut self.vars, vec![("$", dot.clone())]);
        let result = self.nodes(body, &dot);
        self.vars = vars;
        self.depth -= 1;
        result.map(|_| ())
    }

    pub fn declare(&mut self, name: &'t str, value: Value) {
        self.vars.push((name, value));
    }

    pub fn get(&self, name: &str) -> Result<Value, Fault> {
        let found = self.vars.iter().rev().find(|(known, _)| *known == name);
        let found = found.map(|(_, value)| value.clone());
        found.ok_or_else(|| self.wrong(format!("the variable {name} has no value at this point")))
    }

    pub fn set(&mut self, name: &str, value: Value) -> Result<(), Fault> {
        match self.vars.iter_mut().rev().find(|(known, _)| *known == name) {
            Some(slot) => {
                slot.1 = value;
                Ok(())
            }
            None => Err(self.wrong(format!("the variable {name} is not declared"))),
        }
    }

    fn print_value(&mut self, value: &Value) -> Result<(), Fault> {
        match value {
            Value::Text(text) => self.print(text),
            Value::Nil | Value::Null => self.print("<no value>"),
            Value::Bool(_) | Value::Int(_) | Value::Int64(_) | Value::Byte(_) => {
                let most = self.budget.bytes;
                format::plain(value, &mut self.out, most);
                self.print("")
            }
            Value::Secret(secret) => {
                let shown = secret.shown().map_err(|why| self.wrong(why))?;
                self.print(&shown)
            }
            Value::List(_) | Value::Map(_) if secret::is_in(value) => {
                Err(self.wrong(secret::INSIDE))
            }
            Value::Float(_) | Value::List(_) | Value::Map(_) => {
                let (before, most) = (self.out.len(), self.budget.bytes);
                format::plain(value, &mut self.out, most);
                self.budget.text(self.out.len() - before, self.position)?;
                self.print("")
            }
        }
    }

    fn print(&mut self, text: &str) -> Result<(), Fault> {
        if self.out.len() + text.len() > self.budget.bytes {
            let most = self.budget.bytes;
            return Err(self.wrong(format!("the result exceeds the limit of {most} bytes")));
        }
        self.budget.text(text.len(), self.position)?;
        self.out.push_str(text);
        Ok(())
    }

    /// Rejects a decision that depends on a sensitive value.
    pub fn not_inspected(&self, value: &Value, what: &str) -> Result<(), Fault> {
        match value {
            Value::Secret(_) => Err(self.wrong(secret::inspected(what))),
            Value::Nil | Value::Null | Value::Bool(_) | Value::Int(_) | Value::Int64(_) => Ok(()),
            Value::Byte(_) | Value::Float(_) | Value::Text(_) => Ok(()),
            Value::List(_) | Value::Map(_) => Ok(()),
        }
    }

    /// Source text of an operand.
    pub fn written(&self, operand: &super::ast::Operand) -> String {
        self.source.get(operand.start..operand.end).unwrap_or_default().to_string()
    }

    pub fn wrong(&self, message: impl Into<String>) -> Fault {
        Fault::exec(self.position, message)
    }
}
