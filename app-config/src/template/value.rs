//! Values during rendering. Numbers of the state are floats, as in Go's JSON. Only literals,
//! `range` and functions such as `len` give integers. A comparison of an integer with a float is an
//! error.
use std::{
    cell::{Cell, Ref, RefCell, RefMut},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};

use serde_json::Value as Json;

use super::secret::Secret;

pub type Map = BTreeMap<Arc<str>, Value>;

#[derive(Debug, Clone)]
pub enum Value {
    Nil,
    /// A null element of a list or map. It differs from [`Value::Nil`] only where a map is
    /// required: nil is an empty map, null is an error.
    Null,
    Bool(bool),
    Int(i64),
    /// Result of `int64` and `div`. As in Go, it is a different type than `Int`: `substr` rejects
    /// it, and `duration` accepts it.
    Int64(i64),
    /// A byte of a string.
    Byte(u8),
    Float(f64),
    Text(Arc<str>),
    List(Rc<Vec<Value>>),
    /// Sensitive value, which no template can inspect.
    Secret(Rc<Secret>),
    /// Shared and mutable, because `set` changes a map in place.
    Map(Rc<Shared>),
}

/// A map that several values may share.
#[derive(Debug)]
pub struct Shared {
    entries: RefCell<Map>,
    /// Deepest nesting level at which this map was inserted into another value. `set` checks the
    /// depth of a new value from this level.
    above: Cell<usize>,
}

impl Shared {
    pub fn borrow(&self) -> Ref<'_, Map> {
        self.entries.borrow()
    }

    pub fn borrow_mut(&self) -> RefMut<'_, Map> {
        self.entries.borrow_mut()
    }

    pub fn above(&self) -> usize {
        self.above.get()
    }

    pub fn record_depth(&self, depth: usize) {
        self.above.set(self.above.get().max(depth));
    }
}

impl Value {
    pub fn text(text: impl AsRef<str>) -> Value {
        Value::Text(Arc::from(text.as_ref()))
    }

    pub fn list(items: Vec<Value>) -> Value {
        Value::List(Rc::new(items))
    }

    pub fn map(entries: Map) -> Value {
        Value::Map(Rc::new(Shared { entries: RefCell::new(entries), above: Cell::new(0) }))
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Value::Nil | Value::Null)
    }

    /// Converts to the value of a pipeline: `Null` becomes `Nil`.
    pub fn into_pipeline(self) -> Value {
        if self.is_nil() { Value::Nil } else { self }
    }

    /// Converts to an element of a list or map: `Nil` becomes `Null`.
    pub fn to_element(&self) -> Value {
        if self.is_nil() { Value::Null } else { self.clone() }
    }

    /// True for every value except nil, false, zero and empty values.
    pub fn is_true(&self) -> bool {
        match self {
            Value::Nil | Value::Null => false,
            Value::Bool(flag) => *flag,
            Value::Int(number) | Value::Int64(number) => *number != 0,
            Value::Byte(byte) => *byte != 0,
            Value::Float(number) => *number != 0.0,
            Value::Text(text) => !text.is_empty(),
            // Callers reject it before, because its truth is not known.
            Value::Secret(_) => true,
            Value::List(items) => !items.is_empty(),
            Value::Map(entries) => !entries.borrow().is_empty(),
        }
    }

    /// Name of the Go type, for errors and `%T`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil | Value::Null => "<nil>",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Int64(_) => "int64",
            Value::Byte(_) => "uint8",
            Value::Float(_) => "float64",
            Value::Text(_) => "string",
            Value::Secret(_) => "sensitive value",
            Value::List(_) => "[]interface {}",
            Value::Map(_) => "map[string]interface {}",
        }
    }

    /// Name that `kindIs` compares.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Value::Nil | Value::Null => "invalid",
            Value::List(_) => "slice",
            Value::Map(_) => "map",
            Value::Bool(_) | Value::Int(_) | Value::Int64(_) | Value::Byte(_) => self.type_name(),
            Value::Float(_) | Value::Text(_) | Value::Secret(_) => self.type_name(),
        }
    }

    /// Value of an integer of any type.
    pub fn whole(&self) -> Option<i64> {
        match self {
            Value::Int(number) | Value::Int64(number) => Some(*number),
            Value::Byte(byte) => Some(i64::from(*byte)),
            Value::Nil | Value::Null | Value::Bool(_) | Value::Float(_) => None,
            Value::Text(_) | Value::List(_) | Value::Map(_) | Value::Secret(_) => None,
        }
    }
}

/// Converts JSON to the value that templates see.
pub fn from_json(json: &Json) -> Value {
    with_secrets(json, None)
}

/// Converts JSON in which marks with this prefix stand for sensitive values.
pub fn with_secrets(json: &Json, prefix: Option<&Arc<str>>) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => Value::Float(number.as_f64().unwrap_or_default()),
        Json::String(text) => match prefix.and_then(|prefix| Secret::read(prefix, text)) {
            Some(secret) => Value::Secret(Rc::new(secret)),
            None => Value::text(text),
        },
        Json::Array(items) => {
            Value::list(items.iter().map(|item| with_secrets(item, prefix)).collect())
        }
        Json::Object(entries) => {
            let entries = entries.iter();
            let read =
                |(key, item): (&String, &Json)| (Arc::from(&**key), with_secrets(item, prefix));
            Value::map(entries.map(read).collect())
        }
    }
}

/// Adds the data under its second name: `nuon` is also available as `stead`, and the reverse.
pub fn named_twice(data: &Value) -> Value {
    let Value::Map(entries) = data else { return data.clone() };
    let mut entries = entries.borrow().clone();
    match (entries.get("nuon").cloned(), entries.get("stead").cloned()) {
        (Some(state), None) => entries.insert("stead".into(), state),
        (None, Some(state)) => entries.insert("nuon".into(), state),
        (Some(_), Some(_)) | (None, None) => None,
    };
    Value::map(entries)
}
