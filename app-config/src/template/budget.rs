//! Budget of one render. It counts steps instead of time, so that every machine accepts and rejects
//! the same templates.
use super::{Fault, Limits, value::Value};

/// Maximum nesting of values that a template builds.
const MAX_VALUE_DEPTH: usize = 100;

pub struct Budget {
    pub steps: u64,
    most: u64,
    /// Maximum size of a string, in bytes.
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
        Err(Fault::exec(at, format!("the template exceeds its limit of {} steps", self.most)))
    }

    /// Spends steps for a string that is copied or compared.
    pub fn text(&mut self, bytes: usize, at: usize) -> Result<(), Fault> {
        self.spend(bytes as u64 / 32, at)
    }

    /// Spends steps for traversing a value at nesting level `depth`. Rejects values that nest too
    /// deep for recursive traversal and drop.
    pub fn walk(&mut self, value: &Value, depth: usize, at: usize) -> Result<(), Fault> {
        if depth >= MAX_VALUE_DEPTH {
            return Err(Fault::exec(
                at,
                format!("values are nested too deeply: the maximum is {MAX_VALUE_DEPTH} levels"),
            ));
        }
        self.spend(1, at)?;
        match value {
            Value::Nil | Value::Null | Value::Bool(_) | Value::Int(_) => Ok(()),
            Value::Int64(_) | Value::Byte(_) | Value::Float(_) | Value::Secret(_) => Ok(()),
            Value::Text(text) => self.text(text.len(), at),
            Value::List(items) => items.iter().try_for_each(|item| self.walk(item, depth + 1, at)),
            Value::Map(entries) => {
                entries.record_depth(depth);
                entries.borrow().iter().try_for_each(|(key, item)| {
                    self.text(key.len(), at)?;
                    self.walk(item, depth + 1, at)
                })
            }
        }
    }
}
