//! Values while a template is rendered. Numbers of the state are floats, as Go reads JSON; only
//! literals and counting functions give integers, and the two never compare equal.
use std::{
    cell::{Cell, Ref, RefCell, RefMut},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};

use serde_json::Value as Json;

pub type Map = BTreeMap<Arc<str>, Value>;

#[derive(Debug, Clone)]
pub enum Value {
    /// No value at all.
    Nil,
    /// An element that is null. It is the same as no value but where a map is needed: nothing is
    /// an empty map, and null is none.
    Null,
    Bool(bool),
    Int(i64),
    /// What counting functions give; the same as `Int`, but for its name.
    Int64(i64),
    /// A byte of a text.
    Byte(u8),
    Float(f64),
    Text(Arc<str>),
    List(Rc<Vec<Value>>),
    /// Shared and mutable, because `set` changes a map in place.
    Map(Rc<Shared>),
}

/// A map that several values may hold.
#[derive(Debug)]
pub struct Shared {
    entries: RefCell<Map>,
    /// How many lists and maps it was ever put into, one in the other: what is put into it later is
    /// deeper than that.
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

    pub fn is_below(&self, depth: usize) {
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

    /// What a pipeline hands on: null is forgotten to have been an element.
    pub fn outside(self) -> Value {
        if self.is_nil() { Value::Nil } else { self }
    }

    /// What is read from a list or map.
    pub fn element(&self) -> Value {
        if self.is_nil() { Value::Null } else { self.clone() }
    }

    /// What counts as true: everything but nil, false, zero and the empty.
    pub fn is_true(&self) -> bool {
        match self {
            Value::Nil | Value::Null => false,
            Value::Bool(flag) => *flag,
            Value::Int(number) | Value::Int64(number) => *number != 0,
            Value::Byte(byte) => *byte != 0,
            Value::Float(number) => *number != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(items) => !items.is_empty(),
            Value::Map(entries) => !entries.borrow().is_empty(),
        }
    }

    /// The name of its Go type, as errors and `%T` say it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil | Value::Null => "<nil>",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Int64(_) => "int64",
            Value::Byte(_) => "uint8",
            Value::Float(_) => "float64",
            Value::Text(_) => "string",
            Value::List(_) => "[]interface {}",
            Value::Map(_) => "map[string]interface {}",
        }
    }

    /// The name that `kindIs` compares with.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Value::Nil | Value::Null => "invalid",
            Value::List(_) => "slice",
            Value::Map(_) => "map",
            Value::Bool(_) | Value::Int(_) | Value::Int64(_) | Value::Byte(_) => self.type_name(),
            Value::Float(_) | Value::Text(_) => self.type_name(),
        }
    }

    /// A whole number, whatever its size.
    pub fn whole(&self) -> Option<i64> {
        match self {
            Value::Int(number) | Value::Int64(number) => Some(*number),
            Value::Byte(byte) => Some(i64::from(*byte)),
            Value::Nil | Value::Null | Value::Bool(_) | Value::Float(_) => None,
            Value::Text(_) | Value::List(_) | Value::Map(_) => None,
        }
    }
}

/// A JSON value as templates see it.
pub fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => Value::Float(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::text(text),
        Json::Array(items) => Value::list(items.iter().map(from_json).collect()),
        Json::Object(entries) => {
            let entries = entries.iter();
            Value::map(entries.map(|(key, item)| (Arc::from(&**key), from_json(item))).collect())
        }
    }
}

/// The data under its other name: what is under `nuon` is also under `stead`, and the other way.
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
