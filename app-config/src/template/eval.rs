//! Rendering: walks the tree with a dot, variables and a budget.
use super::{
    ErrorClass, Fault,
    ast::{Base, Command, Node, Operand, Parsed, Pipe},
    call, format,
    value::Value,
};

/// The largest text that one template may become.
const LARGEST_BYTES: usize = 8 << 20;
/// Nodes, calls and copied values that one rendering may cost.
const BUDGET: u64 = 2_000_000;
/// How deep templates may call templates.
const DEEPEST: usize = 50;

pub fn run(parsed: &Parsed, source: &str, data: Value) -> Result<String, Fault> {
    let vars = vec![("$".to_string(), data.clone())];
    let mut run = Run { parsed, source, vars, out: String::new(), left: BUDGET, depth: 0 };
    run.nodes(&parsed.body, &data)?;
    Ok(run.out)
}

pub struct Run<'t> {
    parsed: &'t Parsed,
    source: &'t str,
    vars: Vec<(String, Value)>,
    out: String,
    left: u64,
    depth: usize,
}

impl<'t> Run<'t> {
    fn nodes(&mut self, nodes: &'t [Node], dot: &Value) -> Result<(), Fault> {
        for node in nodes {
            self.node(node, dot)?;
        }
        Ok(())
    }

    fn node(&mut self, node: &'t Node, dot: &Value) -> Result<(), Fault> {
        match node {
            Node::Text(text) => self.print(text, 0),
            Node::Output(pipe) => {
                self.spend(1, pipe.at)?;
                let value = self.pipe(pipe, dot)?;
                if pipe.sets.is_empty() {
                    let text = format::printed(&value, LARGEST_BYTES);
                    self.print(&text, pipe.at)?;
                }
                Ok(())
            }
            Node::If { pipe, body, otherwise } => self.scoped(|run| {
                let chosen = if run.pipe(pipe, dot)?.is_true() { body } else { otherwise };
                run.scoped(|run| run.nodes(chosen, dot))
            }),
            Node::With { pipe, body, otherwise } => self.scoped(|run| {
                let value = run.pipe(pipe, dot)?;
                let (chosen, dot) = if value.is_true() { (body, &value) } else { (otherwise, dot) };
                run.scoped(|run| run.nodes(chosen, dot))
            }),
            Node::Range { pipe, body, otherwise } => {
                self.scoped(|run| run.range(pipe, body, otherwise, dot))
            }
            Node::Call { name, pipe, at } => self.template(name, pipe.as_ref(), *at, dot),
        }
    }

    /// Variables that are declared inside are gone behind it.
    fn scoped(&mut self, inside: impl FnOnce(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        let outer = self.vars.len();
        let result = inside(self);
        self.vars.truncate(outer);
        result
    }

    fn range(
        &mut self,
        pipe: &'t Pipe,
        body: &'t [Node],
        otherwise: &'t [Node],
        dot: &Value,
    ) -> Result<(), Fault> {
        let value = self.pipe(pipe, dot)?;
        let pairs: Vec<(Value, Value)> = match &value {
            Value::List(items) => {
                let numbered = items.iter().enumerate();
                numbered.map(|(at, item)| (Value::Int(at as i64), item.clone())).collect()
            }
            Value::Map(entries) => {
                let entries = entries.borrow();
                entries.iter().map(|(key, item)| (Value::text(key), item.clone())).collect()
            }
            Value::Int(count) => {
                let most = (*count).clamp(0, BUDGET as i64);
                (0..most).map(|at| (Value::Int(at), Value::Int(at))).collect()
            }
            Value::Nil => Vec::new(),
            Value::Bool(_) | Value::Float(_) | Value::Text(_) => {
                let message = format!("`range` cannot go over a {}", value.type_name());
                return Err(self.fault(pipe.at, message, None));
            }
        };
        if pairs.is_empty() {
            return self.scoped(|run| run.nodes(otherwise, dot));
        }
        for (key, item) in pairs {
            self.spend(1, pipe.at)?;
            match pipe.sets.as_slice() {
                [] => {}
                [only] => self.set(only, item.clone()),
                [first, second, ..] => {
                    self.set(first, key);
                    self.set(second, item.clone());
                }
            }
            self.scoped(|run| run.nodes(body, &item))?;
        }
        Ok(())
    }

    fn template(
        &mut self,
        name: &str,
        pipe: Option<&'t Pipe>,
        at: usize,
        dot: &Value,
    ) -> Result<(), Fault> {
        let parsed = self.parsed;
        let Some(body) = parsed.defines.get(name) else {
            return Err(self.fault(at, format!("the template {name:?} is not defined"), None));
        };
        if self.depth >= DEEPEST {
            return Err(self.fault(at, "templates call each other too deep".into(), None));
        }
        let dot = match pipe {
            Some(pipe) => self.pipe(pipe, dot)?,
            None => Value::Nil,
        };
        self.depth += 1;
        let outer = std::mem::replace(&mut self.vars, vec![("$".to_string(), dot.clone())]);
        let result = self.nodes(body, &dot);
        self.vars = outer;
        self.depth -= 1;
        result
    }

    pub fn pipe(&mut self, pipe: &'t Pipe, dot: &Value) -> Result<Value, Fault> {
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.command(command, value, dot)?);
        }
        let value = value.unwrap_or(Value::Nil);
        for name in &pipe.sets {
            if pipe.assigns {
                self.set(name, value.clone());
            } else {
                self.vars.push((name.clone(), value.clone()));
            }
        }
        Ok(value)
    }

    fn command(
        &mut self,
        command: &'t Command,
        piped: Option<Value>,
        dot: &Value,
    ) -> Result<Value, Fault> {
        let Some((first, rest)) = command.operands.split_first() else {
            return Err(self.fault(command.at, "a value is missing here".into(), None));
        };
        if let Base::Function(name) = &first.base {
            let result = call::call(self, name, first, rest, piped, dot)?;
            return self.fields(result, first);
        }
        if !rest.is_empty() || piped.is_some() {
            let written = self.written(first);
            let message = format!("{written} is no function and takes no arguments");
            return Err(self.fault(first.at, message, Some(written)));
        }
        self.operand(first, dot)
    }

    pub fn operand(&mut self, operand: &'t Operand, dot: &Value) -> Result<Value, Fault> {
        self.spend(1, operand.at)?;
        let base = match &operand.base {
            Base::Dot => dot.clone(),
            Base::Variable(name) => self.get(name),
            Base::Function(name) => call::call(self, name, operand, &[], None, dot)?,
            Base::Text(text) => Value::text(text),
            Base::Int(number) => Value::Int(*number),
            Base::Float(number) => Value::Float(*number),
            Base::Bool(flag) => Value::Bool(*flag),
            Base::Nil => Value::Nil,
            Base::Paren(pipe) => {
                // Go keeps what a parenthesis declares until the enclosing block ends.
                self.pipe(pipe, dot)?
            }
        };
        self.fields(base, operand)
    }

    fn fields(&mut self, base: Value, operand: &Operand) -> Result<Value, Fault> {
        let mut value = base;
        for field in &operand.fields {
            let next = match &value {
                Value::Map(entries) => entries.borrow().get(field).cloned(),
                Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) => None,
                Value::Text(_) | Value::List(_) => None,
            };
            let Some(next) = next else {
                let written = self.written(operand);
                let message = match &value {
                    Value::Map(_) => format!("{written}: there is no {field:?}"),
                    Value::Nil => format!("{written}: there is no value to read {field:?} from"),
                    other => {
                        let kind = other.type_name();
                        format!("{written}: {field:?} cannot be read from a {kind}")
                    }
                };
                return Err(self.fault(operand.at, message, Some(written)));
            };
            value = next;
        }
        Ok(value)
    }

    fn get(&self, name: &str) -> Value {
        let found = self.vars.iter().rev().find(|(known, _)| known == name);
        found.map_or(Value::Nil, |(_, value)| value.clone())
    }

    fn set(&mut self, name: &str, value: Value) {
        if let Some(slot) = self.vars.iter_mut().rev().find(|(known, _)| known == name) {
            slot.1 = value;
        }
    }

    fn print(&mut self, text: &str, at: usize) -> Result<(), Fault> {
        if self.out.len() + text.len() > LARGEST_BYTES {
            let message = format!("the result is larger than {LARGEST_BYTES} bytes");
            return Err(self.fault(at, message, None));
        }
        self.out.push_str(text);
        Ok(())
    }

    /// Takes from the budget; when it is gone, the template is refused.
    pub fn spend(&mut self, cost: u64, at: usize) -> Result<(), Fault> {
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.fault(at, "this template does too much".into(), None)),
        }
    }

    /// How an operand is written.
    pub fn written(&self, operand: &Operand) -> String {
        self.source.get(operand.at..operand.end).unwrap_or_default().to_string()
    }

    pub fn fault(&self, at: usize, message: String, variable: Option<String>) -> Fault {
        Fault { class: ErrorClass::Exec, at, message, variable }
    }
}
