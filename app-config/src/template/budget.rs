//! What one rendering may cost. Steps are counted, not time: the same template over the same state
//! is refused everywhere or nowhere.
use super::{Fault, Limits, value::Value};

/// How deep values that a template builds may nest.
const DEEPEST_VALUE: usize = 100;

pub struct Budget {
    pub steps: u64,
    most: u64,
    /// The largest text that may be made.
    pub bytes: usize,
}

impl Budget {
    pub fn new(limits: Limits) -> Self {
        Budget { steps: 0, most: limits.steps, bytes: limits.bytes }
    }

    pub fn spend(&mut self, cost: u64, at: usize) -> Result<(), Fault> {
        self.steps = self.steps.saturating_add(cost);
        if self.steps <= self.most {
            return Ok(());
        }
        Err(Fault::exec(at, format!("this template takes more than {} steps", self.most)))
    }

    /// Pays for a text that is copied or compared.
    pub fn text(&mut self, bytes: usize, at: usize) -> Result<(), Fault> {
        self.spend(bytes as u64 / 32, at)
    }

    /// Pays for walking a value that is put into others, `depth` of them one in the other; refuses one
    /// that would nest too deep to be walked, or let go, by a function that calls itself.
    pub fn walk(&mut self, value: &Value, depth: usize, at: usize) -> Result<(), Fault> {
        if depth >= DEEPEST_VALUE {
            return Err(Fault::exec(at, format!("values nest deeper than {DEEPEST_VALUE}")));
        }
        self.spend(1, at)?;
        match value {
            Value::Nil | Value::Null | Value::Bool(_) | Value::Int(_) => Ok(()),
            Value::Int64(_) | Value::Byte(_) | Value::Float(_) => Ok(()),
            Value::Text(text) => self.text(text.len(), at),
            Value::List(items) => items.iter().try_for_each(|item| self.walk(item, depth + 1, at)),
            Value::Map(entries) => {
                entries.is_below(depth);
                entries.borrow().iter().try_for_each(|(key, item)| {
                    self.text(key.len(), at)?;
                    self.walk(item, depth + 1, at)
                })
            }
        }
    }
}
